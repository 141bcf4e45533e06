"""Packing and unpacking of very many batches: contexts of the codecs are kept from one batch to the next.

Setting up zstd for each batch of 10 KiB costs as much as unpacking it. A frame of lz4 as Kafka's clients write it,
blocks that do not depend on each other and nothing else, is taken apart here: 3.2 us for such a batch instead of 6.2.
What these fast ways do not understand goes the careful one of `compression`, which says what is wrong
with it. Source: lz4_Frame_format.md, 1.6.
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
_LZ4_PLAIN = 1 << 31  # a block that is not packed
# as much as level 22 of compression.zstd.level makes
_ZSTD_WINDOW_BYTES_MAX = 128 << 20


class Codecs:
    """For one thread. The libraries are imported when a codec is first met."""

    def __init__(self) -> None:
        self._room_bytes = _ROOM_BYTES_MIN  # what the last batches unpacked to would fit into
        self._zstd_unpacker: Any = None
        self._zstd_packer: Any = None
        self._lz4_unpacker: Any = None
        self._unpack_lz4_block: Any = None
        self._lz4_block_error: Any = None
        self._room = bytearray()

    def room(self, size_bytes: int) -> bytearray:
        """Memory for what is unpacked, always the same. What is in it is anything."""
        if len(self._room) != size_bytes:
            self._room = bytearray(size_bytes)
        return self._room

    def unpack(self, codec: int, data: Buffer) -> bytes:
        """As `decompress`. Raises Malformed."""
        found = self._unpack_fast(codec, data)
        if found is None:
            found = decompress(codec, data, UNPACKED_BYTES_MAX)
            self._room_bytes = min(max(_ROOM_BYTES_MIN, len(found) * 5 // 4), _ROOM_BYTES_MAX)
        elif len(found) * 8 < self._room_bytes > _ROOM_BYTES_MIN:
            self._room_bytes //= 2  # one large batch shall not make room for all that follow
        return found

    def pack(self, codec: int, data: Buffer) -> bytes:
        """As `compress`, at the codec's own level."""
        if codec != ZSTD:
            return compress(codec, data)
        if self._zstd_packer is None:
            import zstandard

            self._zstd_packer = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
        packed: bytes = self._zstd_packer.compress(data)
        return packed

    def _unpack_fast(self, codec: int, data: Buffer) -> bytes | None:
        if codec == LZ4:
            return self._unlz4(data)
        if codec == ZSTD:
            return self._unzstd(data)
        return None

    def _unlz4(self, data: Buffer) -> bytes | None:
        if data[: len(_LZ4_HEAD)] == _LZ4_HEAD:
            return self._unlz4_blocks(data)
        if self._lz4_unpacker is None:
            import lz4.frame

            self._lz4_unpacker = lz4.frame.LZ4FrameDecompressor()
        unpacker = self._lz4_unpacker
        unpacker.reset()
        try:
            found: bytes = unpacker.decompress(data, self._room_bytes)
        except (RuntimeError, EOFError):
            return None
        return found if unpacker.eof and not unpacker.unused_data else None

    def _unlz4_blocks(self, data: Buffer) -> bytes | None:
        """What follows `_LZ4_HEAD`: blocks, each with its size in front, and 0 behind the last one."""
        if self._unpack_lz4_block is None:
            import lz4.block

            self._unpack_lz4_block, self._lz4_block_error = lz4.block.decompress, lz4.block.LZ4BlockError
        unpack = self._unpack_lz4_block
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
                    blocks.append(unpack(data[at:end], uncompressed_size=_LZ4_BLOCK_BYTES))
                except self._lz4_block_error:
                    return None
            at = end
        return None

    def _unzstd(self, data: Buffer) -> bytes | None:
        import zstandard

        if self._zstd_unpacker is None:
            self._zstd_unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        try:
            # a frame that tells its size is believed no further than the room goes; Java's do not tell it
            if zstandard.frame_content_size(data) > self._room_bytes:
                return None
            found: bytes = self._zstd_unpacker.decompress(
                data, max_output_size=self._room_bytes, allow_extra_data=False
            )
        except zstandard.ZstdError:
            return None
        return found
