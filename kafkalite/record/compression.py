"""The five codecs of a record batch, each with a limit on the decompressed size.

A few bytes may declare gigabytes, so no function allocates more memory than `max_bytes` (and the codec's window):
sizes declared in the data are compared with it, and everything else is decompressed piece by piece. Snappy has xerial's
framing, as Kafka's clients write it: a 16-byte head, then blocks of `size i32` and raw snappy; bare snappy is read too.
lz4 is the frame format with independent 64 KiB blocks and no content size, which is all that old readers understand.
Data that Apache Kafka's consumers and brokers read is read, and data that they refuse is refused: bytes behind a gzip
member or an lz4 frame are ignored, as is an lz4 frame's checksum of its content. Only lz4 frames with linked blocks are
read here and not there (`is_for_java`). The libraries are imported when a codec is first used.
Source: org.apache.kafka.common.compress, org.xerial.snappy.SnappyInputStream and SnappyOutputStream,
java.util.zip.GZIPInputStream.
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
_GZIP_HEAD_BYTES = 10
_GZIP_TRAILER = struct.Struct("<II")
_GZIP_BUFFER_BYTES = 8 << 10  # Kafka's, for compressed bytes
_GZIP_NEXT_MEMBER_MIN = 26  # a trailer, a head and a trailer
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_FIXED_BITS = 0xC3  # version, two reserved bits
_LZ4_VERSION = 0x40
_LZ4_INDEPENDENT = 0x20
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_LZ4_BLOCK = struct.Struct("<I")
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_SIZE = struct.Struct(">i")
(_XERIAL_MAGIC_HEAD,) = _BLOCK_SIZE.unpack_from(_XERIAL_MAGIC)
_ZSTD_SKIPPABLE = struct.Struct("<II")
# zstd's own default limit; level 22 of Kafka's compression.zstd.level writes windows this large
ZSTD_WINDOW_BYTES_MAX = 128 << 20
ZSTD_LEVEL = 3
_ZSTD_BUFFER_BYTES = (128 << 10) + 3  # Kafka's, for compressed bytes

Buffer = bytes | bytearray | memoryview


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed as Kafka's own producer would. `level` is the codec's; None is its default."""
    return _COMPRESS[codec](data, level)


def decompress(codec: int, data: Buffer, max_bytes: int = UNPACKED_BYTES_MAX) -> bytes:
    """The inverse of `compress`. Raises Malformed when `data` is not of that codec, is cut off, or unpacks to more than
    `max_bytes`."""
    return b"".join(decompress_pieces(codec, data, max_bytes, _PIECE_BYTES_MAX))  # a single piece is not copied


def decompress_pieces(codec: int, data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    """As `decompress`, in pieces of at most `piece_bytes`; a block of snappy is one piece of any size."""
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
    """Several members may follow one another. As in Java, which fills a buffer of 8 KiB, up to 18 bytes behind a member
    are not read, if they are in the buffer, and others are ignored if they do not begin with a head."""
    view = memoryview(data)
    left = max_bytes
    position = filled = _gzip_head(view, 0)  # of the bytes that were read, and that Java has read into its buffer
    if not position:
        raise _not_of(GZIP, "it does not begin with a head")
    while position:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        crc = size = 0
        fed = view[position:filled]
        piece = b""
        limit = 0
        while not unpacker.eof:
            if not fed and len(piece) <= limit:
                fed = view[filled : filled + _GZIP_BUFFER_BYTES]
                filled += len(fed)
                if not fed:
                    raise _not_of(GZIP)
            limit = min(left + 1, piece_bytes)
            try:
                piece = unpacker.decompress(fed, limit)  # zlib takes memory as output comes
            except zlib.error as error:
                raise _not_of(GZIP, error) from None
            fed = memoryview(unpacker.unconsumed_tail)
            limit -= 1  # a full piece: more may come without more input
            left -= len(piece)
            if left < 0:
                raise _too_large(GZIP, max_bytes)
            crc = zlib.crc32(piece, crc)
            size += len(piece)
            yield piece
        end = filled - len(unpacker.unused_data)
        if view[end : end + _GZIP_TRAILER.size] != _GZIP_TRAILER.pack(crc, size & 0xFFFFFFFF):
            raise _not_of(GZIP, "its checksum or size is wrong")
        is_all = max(filled, end + _GZIP_TRAILER.size) == len(view)
        if is_all and filled - end <= _GZIP_NEXT_MEMBER_MIN:
            return
        position = _gzip_head(view, end + _GZIP_TRAILER.size)
        filled = max(filled, position)


def _gzip_head(view: memoryview, start: int) -> int:
    """The end of the head of a member that begins at `start`; 0 if none does. Source: RFC 1952, 2.3."""
    if bytes(view[start : start + 3]) != b"\x1f\x8b\x08" or len(view) - start < _GZIP_HEAD_BYTES:
        return 0
    flags = view[start + 3]
    end = start + _GZIP_HEAD_BYTES
    if flags & 0x04:
        end += 2 + int.from_bytes(view[end : end + 2], "little")
    for flag in (0x08, 0x10):  # a name, a comment
        if flags & flag:
            while end < len(view) and view[end]:
                end += 1
            end += 1
    if flags & 0x02:
        wrong = view[end : end + 2] != (zlib.crc32(view[start:end]) & 0xFFFF).to_bytes(2, "little")
        end += 2
        if wrong:
            return 0
    return end if end <= len(view) else 0


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
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC or len(view) < len(_XERIAL_HEAD):
        yield _unsnap_block(view, max_bytes, max_bytes)
        return
    left = max_bytes
    position = len(_XERIAL_HEAD)
    while len(view) - position >= 4:  # fewer bytes are ignored
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        if size == _XERIAL_MAGIC_HEAD:
            # SnappyOutputStreams may be concatenated: a second head may stand where a block would
            head = view[position : position + len(_XERIAL_HEAD)]
            if len(head) < len(_XERIAL_HEAD):
                raise _not_of(SNAPPY)
            if head[:8] == _XERIAL_MAGIC and _BLOCK_SIZE.unpack_from(head, 8)[0] < 1:
                raise _not_of(SNAPPY, "its second head is of no version")
            position += len(_XERIAL_HEAD)
            continue
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
    """One frame; bytes behind it are ignored. The library verifies more than Kafka does, and is given another head."""
    import lz4.frame

    view = memoryview(data)
    flags, start, end = _lz4_blocks(view)
    descriptor = bytes((flags & ~(_LZ4_CONTENT_SIZE | _LZ4_CONTENT_CHECKSUM), view[5]))
    unpacker = lz4.frame.LZ4FrameDecompressor()
    left = max_bytes
    rest: Buffer = b"".join((_LZ4_MAGIC, descriptor, lz4_head_checksum(descriptor), view[start:end], bytes(4)))
    # the library allocates all of the limit that it is given at once, so the limit follows the input
    piece_bytes = max(_PIECE_BYTES, min(4 * len(rest), piece_bytes))
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


def lz4_is_known(frame: Buffer) -> bool:
    """Whether the head is one that `decompress` reads; the library knows more kinds."""
    return frame[:4] == _LZ4_MAGIC and len(frame) > 4 and frame[4] & _LZ4_FIXED_BITS == _LZ4_VERSION


def is_for_java(codec: int, data: Buffer) -> bool:
    """Whether Java's clients read the data that `decompress` reads: they refuse lz4 frames whose blocks are linked."""
    return codec != LZ4 or len(data) < 5 or data[4] & _LZ4_INDEPENDENT != 0


def _lz4_blocks(view: memoryview) -> tuple[int, int, int]:
    """The flags of the frame, and where its blocks begin and end, without their end mark. Raises Malformed."""
    if len(view) < 7 or not lz4_is_known(view):
        raise _not_of(LZ4, "it does not begin with the head of a frame")
    flags = view[4]
    start = 6 + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    if view[start : start + 1] != lz4_head_checksum(view[4:start]):
        raise _not_of(LZ4, "the checksum of its head is wrong")
    start += 1
    end = start
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while len(view) - end >= 4:
        size = _LZ4_BLOCK.unpack_from(view, end)[0] & 0x7FFFFFFF
        # a block that makes nothing ends Kafka's stream, too
        if not size or (size == 1 and bytes(view[end : end + 5]) == b"\1\0\0\0\0"):
            if not size and flags & _LZ4_CONTENT_CHECKSUM and len(view) - end < 8:
                break
            return flags, start, end
        end += 4 + size + checksum_bytes
    raise _not_of(LZ4)


def lz4_head_checksum(descriptor: Buffer) -> bytes:
    """The byte behind the descriptor of a frame."""
    return bytes((_xxh32(descriptor) >> 8 & 0xFF,))


def _xxh32(data: Buffer) -> int:
    """xxHash32 with seed 0. Source: the algorithm's specification, version 0.1.1."""
    mask = 0xFFFFFFFF
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & mask

    at = 0
    if len(data) >= 16:
        lanes = [p1 + p2 & mask, p2, 0, -p1 & mask]
        while at + 16 <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                lanes[lane] = rotated(lanes[lane] + word * p2 & mask, 13) * p1 & mask
                at += 4
        total = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = p5
    total = total + len(data) & mask
    while at + 4 <= len(data):
        total = rotated(total + int.from_bytes(data[at : at + 4], "little") * p3 & mask, 17) * p4 & mask
        at += 4
    for byte in data[at:]:
        total = rotated(total + byte * p5 & mask, 11) * p1 & mask
    total = (total ^ total >> 15) * p2 & mask
    total = (total ^ total >> 13) * p3 & mask
    return total ^ total >> 16


def _zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=ZSTD_LEVEL if level is None else level).compress(data)


def _unzstd(data: Buffer, max_bytes: int, piece_bytes: int) -> Iterator[bytes]:
    """Several frames may follow one another. The library does not notice a frame that is cut off, so its end is found
    first. As in Java, which fills a buffer of 128 KiB, the last one may be cut off if another ended in that buffer."""
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
            try:
                end = zstd_frame_end(view, position, zstandard.frame_header_size)
            except (zstandard.ZstdError, Malformed):
                if not position or position <= (len(view) - 1) // _ZSTD_BUFFER_BYTES * _ZSTD_BUFFER_BYTES:
                    raise
                end = len(view)
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
