"""Every codec packs and unpacks, keeps its limit, and says Malformed to garbage."""

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import encode_records
from kafkalite.record.codec_contexts import Codecs
from kafkalite.record.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
    decompress_pieces,
    is_for_java,
)
from tests.support.compressed_frames import draw_frame, draw_records

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


def _flipped(data: bytes, at: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def _lz4(**how: object) -> bytes:
    import lz4.frame

    packed: bytes = lz4.frame.compress(SOME, **{"block_linked": False, **how})
    return packed


def _xerial() -> bytes:
    return compress(SNAPPY, SOME)


def _zstd() -> bytes:
    return compress(ZSTD, SOME)


def _checked_zstd() -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(write_checksum=True).compress(SOME)


# Each was read by Kafka 3.9.1's own classes: tests/compatibility/interop/test_read_batches_as_java.py draws more.
READ_BY_JAVA = {
    "gzip, zeros behind": (GZIP, lambda: gzip.compress(SOME) + bytes(300)),
    "gzip, 18 bytes of another member": (GZIP, lambda: gzip.compress(SOME) + gzip.compress(b"more")[:18]),
    "gzip, junk behind": (GZIP, lambda: gzip.compress(SOME) + b"junk" * 100),
    "gzip, two members and junk": (GZIP, lambda: gzip.compress(SOME[:9]) + gzip.compress(SOME[9:]) + b"\x1f\x8b" * 40),
    "gzip, a reserved flag": (GZIP, lambda: (member := gzip.compress(SOME))[:3] + b"\x20" + member[4:]),
    "lz4, zeros behind": (LZ4, lambda: _lz4() + bytes(40)),
    "lz4, another frame behind": (LZ4, lambda: _lz4() + _lz4()),
    "lz4, a wrong checksum of the content": (LZ4, lambda: _flipped(_lz4(content_checksum=True), -1)),
    "snappy, three bytes behind": (SNAPPY, lambda: _xerial() + b"abc"),
    "snappy, a second head": (SNAPPY, lambda: _xerial() + compress(SNAPPY, b"")),
    "zstd, a second frame that is cut off": (ZSTD, lambda: _zstd() + _zstd()[:7]),
    "zstd, a skippable frame that is cut off": (ZSTD, lambda: _zstd() + b"\x50\x2a\x4d\x18\xff\0\0\0x"),
}
REFUSED_BY_JAVA = {
    "gzip, a wrong checksum": (GZIP, lambda: _flipped(gzip.compress(SOME), -8)),
    "gzip, a wrong size": (GZIP, lambda: _flipped(gzip.compress(SOME), -4)),
    "gzip, a member behind with a wrong checksum": (
        GZIP,
        lambda: gzip.compress(SOME) + _flipped(gzip.compress(SOME), -8),
    ),
    "lz4, a wrong checksum of a block": (LZ4, lambda: _flipped(_lz4(block_checksum=True), -5)),
    "lz4, a wrong checksum of the head": (LZ4, lambda: _flipped(_lz4(store_size=False), 6)),
    "lz4, no end mark": (LZ4, lambda: _lz4()[:-4]),
    "lz4, a checksum of the content that is cut off": (LZ4, lambda: _lz4(content_checksum=True)[:-1]),
    "lz4, a skippable frame in front": (LZ4, lambda: b"\x50\x2a\x4d\x18\0\0\0\0" + _lz4()),
    "snappy, a second head that is cut off": (SNAPPY, lambda: _xerial() + compress(SNAPPY, b"")[:-1]),
    "snappy, an empty block": (SNAPPY, lambda: _xerial() + bytes(4)),
    "zstd, zeros behind": (ZSTD, lambda: _zstd() + bytes(8)),
    "zstd, a wrong checksum": (ZSTD, lambda: _flipped(_checked_zstd(), -1)),
}


@pytest.mark.parametrize(("codec", "form"), READ_BY_JAVA.values(), ids=READ_BY_JAVA)
def test_forms_that_java_reads_are_read(codec: int, form: Callable[[], bytes]) -> None:
    packed = form()
    assert decompress(codec, packed, len(SOME)) == SOME
    assert Codecs().decompress(codec, packed) == SOME


@pytest.mark.parametrize(("codec", "form"), REFUSED_BY_JAVA.values(), ids=REFUSED_BY_JAVA)
def test_forms_that_java_refuses_are_malformed(codec: int, form: Callable[[], bytes]) -> None:
    for reader in (decompress, Codecs().decompress):
        with pytest.raises(Malformed):
            reader(codec, form())


def test_lz4_with_linked_blocks_is_read_though_java_does_not() -> None:
    linked = _lz4(block_linked=True)
    assert decompress(LZ4, linked) == SOME
    assert not is_for_java(LZ4, linked)
    assert is_for_java(LZ4, _lz4()) and is_for_java(GZIP, gzip.compress(SOME))


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 1 << 32), codec=st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), piece_bytes=st.integers(1, 9_000)
)
def test_pieces_of_any_size_and_kept_contexts_say_the_same(seed: int, codec: int, piece_bytes: int) -> None:
    chance = random.Random(seed)
    records = draw_records(chance)
    body = bytes(encode_records(records, range(len(records)), 0))
    label, packed = draw_frame(chance, codec, body)

    def verdict(read: Callable[[], bytes]) -> bytes | None:
        try:
            return read()
        except Malformed:
            return None

    expected = verdict(lambda: decompress(codec, packed, 1 << 20))
    assert verdict(lambda: Codecs().decompress(codec, packed, 1 << 20)) == expected, label
    assert verdict(lambda: b"".join(decompress_pieces(codec, packed, 1 << 20, piece_bytes))) == expected, label
