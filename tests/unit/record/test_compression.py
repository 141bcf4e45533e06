"""Every codec packs and unpacks, keeps its limit, and says Malformed to garbage."""

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.record.compression import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD, compress, decompress

PACKED = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES[1:])
SOME = b"".join(b'{"id": %d, "name": "somebody"}' % i for i in range(9_000))


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
@pytest.mark.parametrize("data", [b"", b"x", SOME, bytes(1_000_000)], ids=["empty", "one", "some", "zeros"])
def test_what_goes_in_comes_out(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), 1 << 30) == data


@PACKED
def test_levels_are_passed_on(codec: int) -> None:
    assert decompress(codec, compress(codec, SOME, 9), len(SOME)) == SOME


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_one_byte_more_than_allowed_is_too_much(codec: int) -> None:
    with pytest.raises(Malformed, match=r"more than \d+ bytes"):
        decompress(codec, compress(codec, SOME), len(SOME) - 1)


@PACKED
def test_a_bomb_takes_no_more_memory_than_allowed(codec: int) -> None:
    bomb = compress(codec, bytes(64 << 20))
    if codec == ZSTD:  # nor when the frame does not declare its size
        import zstandard

        packer = zstandard.ZstdCompressor().compressobj()
        bomb = packer.compress(bytes(64 << 20)) + packer.flush()
    decompress(codec, compress(codec, b"x"))  # so that what the import takes does not count
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="more than 1000000 bytes"):
            decompress(codec, bomb, 1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000


@PACKED
def test_cut_off_data_is_malformed(codec: int) -> None:
    packed = compress(codec, SOME)
    for size in [*range(40), *range(len(packed) // 2, len(packed), 997), len(packed) - 1]:
        try:
            # snappy is a row of blocks: cut between two, it is whole but short, and its records will tell
            assert len(decompress(codec, packed[:size], len(SOME))) < len(SOME)
            assert codec == SNAPPY
        except Malformed:
            pass


@PACKED
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_garbage_is_malformed_or_something_else_but_never_a_crash(codec: int, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, SOME[:3000]))
    for position, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(packed) - 1), st.integers(0, 255)), min_size=1, max_size=4)
    ):
        packed[position] = byte
    for garbage in (bytes(packed), data.draw(st.binary(max_size=64))):
        try:
            assert len(decompress(codec, garbage, 100_000)) <= 100_000
        except Malformed as error:
            assert CODEC_NAMES[codec] in str(error)


def test_an_unknown_codec_is_malformed() -> None:
    for codec in (-1, 5, 7):
        with pytest.raises(Malformed, match="no codec"):
            decompress(codec, b"", 10)


def test_snappy_wears_xerial_s_framing_and_is_read_without() -> None:
    import snappy

    packed = compress(SNAPPY, SOME)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(SNAPPY, snappy.compress(SOME), len(SOME)) == SOME
    assert decompress(SNAPPY, packed + packed, 2 * len(SOME)) == SOME + SOME
    with pytest.raises(Malformed, match="cannot unpack to"):
        decompress(SNAPPY, b"\xff\xff\xff\x7f" + b"x" * 20, 1 << 30)


def test_lz4_is_the_form_that_old_readers_know() -> None:
    packed = compress(LZ4, SOME)
    flags, block = packed[4], packed[5]
    assert flags >> 6 == 1 and flags & 0x20 and not flags & 0x08  # version 1, independent blocks, no content size
    assert block >> 4 == 4  # of 64 KiB


def test_members_and_frames_may_follow_one_another() -> None:
    import zstandard

    assert decompress(GZIP, gzip.compress(b"a") + gzip.compress(b"") + gzip.compress(b"b"), 2) == b"ab"
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    frames = zstandard.compress(b"a") + skippable + zstandard.compress(b"") + zstandard.compress(b"b")
    assert decompress(ZSTD, frames, 2) == b"ab"
    many = gzip.compress(b"") * 20_000
    assert decompress(GZIP, many, 10) == b""


@PACKED
def test_the_codecs_of_real_clients_agree(codec: int) -> None:
    kafka_codec = pytest.importorskip("kafka.codec")
    name = CODEC_NAMES[codec]
    assert decompress(codec, getattr(kafka_codec, f"{name}_encode")(SOME), len(SOME)) == SOME
    assert bytes(getattr(kafka_codec, f"{name}_decode")(compress(codec, SOME))) == SOME


def test_zlib_without_gzip_s_head_is_not_gzip() -> None:
    with pytest.raises(Malformed, match="gzip"):
        decompress(GZIP, zlib.compress(SOME), len(SOME))
