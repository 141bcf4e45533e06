"""The kept contexts against the careful way."""

from __future__ import annotations

import struct
from itertools import product

import lz4.frame
import pytest
import zstandard

from kafkalite.common.errors import Malformed
from kafkalite.record.codec_contexts import Codecs
from kafkalite.record.compression import CODEC_NAMES, LZ4, ZSTD, compress, decompress

SIZES = (1, 100, 60_000, 70_000, 3_000_000, 20_000_000, 10)


@pytest.mark.parametrize("codec", range(1, 5), ids=CODEC_NAMES[1:])
def test_there_and_back(codec: int) -> None:
    codecs = Codecs()
    for size in SIZES:
        data = b"some words " * (size // 11 + 1)
        assert codecs.decompress(codec, compress(codec, data)) == data
        assert decompress(codec, codecs.compress(codec, data)) == data


def test_frames_that_do_not_tell_their_size() -> None:
    codecs = Codecs()
    packer = zstandard.ZstdCompressor(write_content_size=False)
    for size in SIZES:
        data = b"x" * size
        assert codecs.decompress(ZSTD, packer.compress(data)) == data
        assert codecs.decompress(LZ4, lz4.frame.compress(data, store_size=False)) == data


FRAMES = {
    "sized": zstandard.ZstdCompressor().compress(b"one"),
    "unsized": zstandard.ZstdCompressor(write_content_size=False).compress(b"two"),
    "checked": zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(b"three"),
    "empty": zstandard.ZstdCompressor().compress(b""),
    "skippable": struct.pack("<II", 0x184D2A50, 5) + b"other",
    "junk": b"\0",
}
WORDS = {"sized": b"one", "unsized": b"two", "checked": b"three", "empty": b"", "skippable": b""}


@pytest.mark.parametrize("names", [*product(FRAMES, repeat=2), *product(FRAMES, repeat=3)], ids="-".join)
def test_frames_behind_one_another(names: tuple[str, ...]) -> None:
    packed = b"".join(FRAMES[name] for name in names)
    if "junk" in names:
        with pytest.raises(Malformed):
            Codecs().decompress(ZSTD, packed)
    else:
        assert Codecs().decompress(ZSTD, packed) == b"".join(WORDS[name] for name in names)


@pytest.mark.parametrize("codec", range(1, 5), ids=CODEC_NAMES[1:])
def test_what_is_broken_is_told_and_does_no_harm_to_the_next(codec: int) -> None:
    codecs = Codecs()
    packed = compress(codec, b"some words " * 100)
    for broken in (packed[:-3], packed[:5], b"", b"nonsense" * 9):
        with pytest.raises(Malformed):
            codecs.decompress(codec, broken)
        assert codecs.decompress(codec, packed) == b"some words " * 100
