"""Compression and decompression of very many batches, with codec contexts that are kept from one batch to the next.

Setting up zstd for each batch of 10 KiB costs as much as decompressing it. An lz4 frame as Kafka's clients write it,
independent blocks and nothing else, is decoded here: 3.2 us for such a batch instead of 6.2. A frame that these fast
paths do not accept is left to `compression`, which checks it and names the fault.
Source: lz4_Frame_format.md, 1.6.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from kafkalite.record.compression import LZ4, UNPACKED_BYTES_MAX, ZSTD, Buffer, compress, decompress

_ROOM_BYTES_MIN = 64 << 10
_ROOM_BYTES_MAX = 16 << 20
_ZSTD_LEVEL = 3
# magic number; version 1, independent blocks, no checksum and no size of the content; blocks of 64 KiB; its checksum
_LZ4_HEAD = bytes((0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82))
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_BLOCKS_MAX = 256
_LZ4_SIZE = Struct("<I").unpack_from
_LZ4_SIZE_BYTES = 4
_LZ4_PLAIN = 1 << 31  # a block that is not compressed
# as much as level 22 of compression.zstd.level makes
_ZSTD_WINDOW_BYTES_MAX = 128 << 20


class Codecs:
    """For one thread. The libraries are imported when a codec is first met."""

    def __init__(self) -> None:
        self._room_bytes = _ROOM_BYTES_MIN  # enough for the last batches, decompressed
        self._zstd_decompressor: Any = None
        self._zstd_compressor: Any = None
        self._lz4_decompressor: Any = None
        self._decompress_lz4_block: Any = None
        self._lz4_block_error: Any = None
        self._room = bytearray()

    def room(self, size_bytes: int) -> bytearray:
        """Memory for decompressed data, always the same. Its content is arbitrary."""
        if len(self._room) != size_bytes:
            self._room = bytearray(size_bytes)
        return self._room

    def decompress(self, codec: int, data: Buffer) -> bytes:
        """As `decompress`. Raises Malformed."""
        found = self._decompress_fast(codec, data)
        if found is None:
            found = decompress(codec, data, UNPACKED_BYTES_MAX)
            self._room_bytes = min(max(_ROOM_BYTES_MIN, len(found) * 5 // 4), _ROOM_BYTES_MAX)
        elif len(found) * 8 < self._room_bytes > _ROOM_BYTES_MIN:
            self._room_bytes //= 2  # one large batch must not reserve memory for all that follow
        return found

    def compress(self, codec: int, data: Buffer) -> bytes:
        """As `compress`, at the codec's own level."""
        if codec != ZSTD:
            return compress(codec, data)
        if self._zstd_compressor is None:
            import zstandard

            self._zstd_compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
        compressed: bytes = self._zstd_compressor.compress(data)
        return compressed

    def _decompress_fast(self, codec: int, data: Buffer) -> bytes | None:
        if codec == LZ4:
            return self._lz4(data)
        if codec == ZSTD:
            return self._zstd(data)
        return None

    def _lz4(self, data: Buffer) -> bytes | None:
        if data[: len(_LZ4_HEAD)] == _LZ4_HEAD:
            return self._lz4_blocks(data)
        if self._lz4_decompressor is None:
            import lz4.frame

            self._lz4_decompressor = lz4.frame.LZ4FrameDecompressor()
        decompressor = self._lz4_decompressor
        decompressor.reset()
        try:
            found: bytes = decompressor.decompress(data, self._room_bytes)
        except (RuntimeError, EOFError):
            return None
        return found if decompressor.eof and not decompressor.unused_data else None

    def _lz4_blocks(self, data: Buffer) -> bytes | None:
        """The content after `_LZ4_HEAD`: blocks, each after its size, and 0 after the last one."""
        if self._decompress_lz4_block is None:
            import lz4.block

            self._decompress_lz4_block, self._lz4_block_error = lz4.block.decompress, lz4.block.LZ4BlockError
        decompress_block = self._decompress_lz4_block
        blocks: list[Buffer] = []
        at = len(_LZ4_HEAD)
        while at <= len(data) - _LZ4_SIZE_BYTES:
            (size,) = _LZ4_SIZE(data, at)
            at += _LZ4_SIZE_BYTES
            if not size:
                if at != len(data):
                    return None
                return bytes(blocks[0]) if len(blocks) == 1 else b"".join(blocks)
            end = at + (size & ~_LZ4_PLAIN)
            if end > len(data) or len(blocks) == _LZ4_BLOCKS_MAX:
                return None
            if size & _LZ4_PLAIN:
                blocks.append(data[at:end])
            else:
                try:
                    blocks.append(decompress_block(data[at:end], uncompressed_size=_LZ4_BLOCK_BYTES))
                except self._lz4_block_error:
                    return None
            at = end
        return None

    def _zstd(self, data: Buffer) -> bytes | None:
        import zstandard

        if self._zstd_decompressor is None:
            self._zstd_decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        try:
            # a frame's own size is not trusted beyond the room; Java's frames have none
            if zstandard.frame_content_size(data) > self._room_bytes:
                return None
            found: bytes = self._zstd_decompressor.decompress(
                data, max_output_size=self._room_bytes, allow_extra_data=False
            )
        except zstandard.ZstdError:
            return None
        return found
