"""The five codecs of a record batch, each with a limit on the decompressed size.

A few bytes may declare gigabytes, so no function allocates more memory than `max_bytes` (and the codec's window):
sizes declared in the data are compared with it, and everything else is decompressed piece by piece. Snappy has xerial's
framing, as Kafka's clients write it: a 16-byte head, then blocks of `size i32` and raw snappy; bare snappy is read too.
lz4 is the frame format with independent 64 KiB blocks and no content size, which is all that old readers understand.
The libraries are imported when a codec is first used.
Source: org.apache.kafka.common.compress, org.xerial.snappy.SnappyOutputStream.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

from kafkalite.common.errors import Malformed

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODECS = {name: codec for codec, name in enumerate(CODEC_NAMES)}

UNPACKED_BYTES_MAX = 512 << 20
"""The limit for one batch when the caller has no better one."""

_PIECE_BYTES = 64 << 10
_PIECE_BYTES_MAX = 8 << 20
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_SIZE = struct.Struct(">i")
_ZSTD_SKIPPABLE = struct.Struct("<II")
# zstd's own default limit; level 22 of Kafka's compression.zstd.level writes windows this large
ZSTD_WINDOW_BYTES_MAX = 128 << 20
ZSTD_LEVEL = 3

Buffer = bytes | bytearray | memoryview


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed as Kafka's own producer would. `level` is the codec's; None is its default."""
    return _COMPRESS[codec](data, level)


def decompress(codec: int, data: Buffer, max_bytes: int = UNPACKED_BYTES_MAX) -> bytes:
    """The inverse of `compress`. Raises Malformed when `data` is not of that codec, is cut off, or unpacks to more than
    `max_bytes`."""
    return b"".join(decompress_pieces(codec, data, max_bytes, _PIECE_BYTES_MAX))  # a single piece is not copied


def decompress_pieces(codec: int, data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    """As `decompress`, in pieces of at most `piece_bytes`; a block of snappy is one piece, whatever its size."""
    if not 0 <= codec < len(_DECOMPRESS):
        raise Malformed(f"there is no codec {codec}")
    return _DECOMPRESS[codec](data, max_bytes, piece_bytes)


class UnpackedTooLarge(Malformed):
    """The data unpack to more than the caller permits."""


def _too_large(codec: int, max_bytes: int) -> Malformed:
    return UnpackedTooLarge(f"the {CODEC_NAMES[codec]} data unpacks to more than {max_bytes} bytes")


def _not_of(codec: int, why: object = "it is cut off") -> Malformed:
    return Malformed(f"the {CODEC_NAMES[codec]} data cannot be unpacked: {why}")


def _keep(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _kept(data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    if len(data) > max_bytes:
        raise _too_large(NONE, max_bytes)
    yield bytes(data)


def _gzip(data: Buffer, level: int | None) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def _gunzip(data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    """Several members may follow one another. Fed in slices: zlib copies the rest behind each member."""
    view = memoryview(data)
    left = max_bytes
    position = 0
    is_first = True
    while position < len(view) or is_first:
        is_first = False
        unpacker = zlib.decompressobj(31)
        while not unpacker.eof:
            fed: Buffer = unpacker.unconsumed_tail
            if not fed:
                fed = view[position : position + _PIECE_BYTES]
                position += len(fed)
            try:
                piece = unpacker.decompress(fed, min(left + 1, piece_bytes))  # zlib takes memory as output comes
            except zlib.error as error:
                raise _not_of(GZIP, error) from None
            if not fed and not piece and not unpacker.eof:
                raise _not_of(GZIP)
            left -= len(piece)
            if left < 0:
                raise _too_large(GZIP, max_bytes)
            yield piece
        position -= len(unpacker.unused_data)


def _snap(data: Buffer, level: int | None) -> bytes:
    import snappy

    view = memoryview(data)
    out = bytearray(_XERIAL_HEAD)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _BLOCK_SIZE.pack(len(block))
        out += block
    return bytes(out)


def _unsnap(data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _unsnap_block(view, max_bytes, max_bytes)
        return
    left = max_bytes
    position = len(_XERIAL_HEAD)
    if len(view) < position:
        raise _not_of(SNAPPY)
    while position < len(view):
        # SnappyOutputStreams may be concatenated: a second head may stand where a block would
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEAD)
            continue
        if len(view) - position < 4:
            raise _not_of(SNAPPY)
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        position += 4
        if not 0 <= size <= len(view) - position:
            raise _not_of(SNAPPY)
        piece = _unsnap_block(view[position : position + size], left, max_bytes)
        left -= len(piece)
        yield piece
        position += size


def _unsnap_block(block: memoryview, left: int, max_bytes: int) -> bytes:
    import snappy

    declared = 0
    for i, byte in enumerate(block[:5]):
        declared |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            break
    else:
        raise _not_of(SNAPPY, "it does not begin with a size")
    if declared > left:
        raise _too_large(SNAPPY, max_bytes)
    # an element of 3 bytes makes at most 64 bytes, so a block that declares more is corrupt
    if declared > 32 * len(block):
        raise _not_of(SNAPPY, f"{len(block)} bytes cannot unpack to {declared}")
    try:
        return snappy.decompress(bytes(block))  # type: ignore[no-any-return]
    except snappy.UncompressError as error:
        raise _not_of(SNAPPY, error.__cause__ or error) from None


def _lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    return lz4.frame.compress(  # type: ignore[no-any-return]
        data,
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )


def _unlz4(data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    """Exactly one frame, as every Kafka client writes it."""
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    left = max_bytes
    rest: Buffer = data
    # the library allocates all of the limit that it is given at once, so the limit follows the input
    piece_bytes = max(_PIECE_BYTES, min(4 * len(data), piece_bytes))
    while not unpacker.eof:
        try:
            piece = unpacker.decompress(rest, min(left + 1, piece_bytes))
        except (RuntimeError, EOFError) as error:
            raise _not_of(LZ4, error) from None
        left -= len(piece)
        if left < 0:
            raise _too_large(LZ4, max_bytes)
        if not piece and not unpacker.eof:
            raise _not_of(LZ4)
        yield piece
        rest = b""
    if unpacker.unused_data:
        raise _not_of(LZ4, f"{len(unpacker.unused_data)} bytes follow its frame")


def _zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=ZSTD_LEVEL if level is None else level).compress(data)


def _unzstd(data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    """Several frames may follow one another. The library does not notice a frame that is cut off, so its end is found
    first."""
    import zstandard

    view = memoryview(data)
    left = max_bytes
    position = 0
    is_first = True
    piece_bytes = max(_PIECE_BYTES, min(4 * len(view), piece_bytes))
    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
        while position < len(view) or is_first:
            is_first = False
            end = zstd_frame_end(view, position, zstandard.frame_header_size)
            reader = unpacker.stream_reader(view[position:end], read_across_frames=True)
            while piece := reader.read(min(left + 1, piece_bytes)):
                left -= len(piece)
                if left < 0:
                    raise _too_large(ZSTD, max_bytes)
                yield piece
            position = end
    except zstandard.ZstdError as error:
        raise _not_of(ZSTD, error) from None


def zstd_frame_end(view: memoryview, position: int, header_size: Callable[[memoryview], int]) -> int:
    """The end of the frame at `position`, found by the sizes of its blocks. `header_size` is that of zstandard.

    Raises Malformed. Source: RFC 8878, 3.1.1.
    """
    descriptor = position + 4
    if len(view) - position < 8:
        raise _not_of(ZSTD)
    end: int
    (magic, size) = _ZSTD_SKIPPABLE.unpack_from(view, position)
    if magic & 0xFFFFFFF0 == 0x184D2A50:
        end = position + 8 + size
    else:
        end = position + header_size(view[position : position + 18])
        last = 0
        while not last:
            if end + 3 > len(view):
                raise _not_of(ZSTD)
            block = view[end] | view[end + 1] << 8 | view[end + 2] << 16
            last = block & 1
            end += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)  # type 1: one byte, repeated
        end += 4 if view[descriptor] & 4 else 0  # the checksum of the content
    if end > len(view):
        raise _not_of(ZSTD)
    return end


_COMPRESS: tuple[Callable[[Buffer, int | None], bytes], ...] = (_keep, _gzip, _snap, _lz4, _zstd)
_DECOMPRESS: tuple[Callable[[Buffer, int, int], Iterator[bytes]], ...] = (_kept, _gunzip, _unsnap, _unlz4, _unzstd)
