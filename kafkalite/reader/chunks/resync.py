"""The next batch behind corrupt bytes: found by plausible headers and right checksums, not by lengths that may lie.

A place is taken for a batch if its offset is one of those to come, its length fits, its checksum is right, and behind
it is the end or a header that goes on from there. A record may hold the bytes of a batch; one with offsets to come,
followed by another, is not told from a real one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalite.common.errors import Malformed
from kafkalite.reader.chunks.chunk_file import ChunkFile
from kafkalite.record.batch import HEADER_BYTES, MAGIC, BatchHeader, parse_header
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.varint_columns import Bytes
from kafkalite.record.message_set import HEAD_BYTES, entry_header
from kafkalite.record.message_set import compute_crc as compute_old_crc

_PIECE_BYTES = 1 << 20


class Found(NamedTuple):
    """A batch, or the end of the chunk: then `offset` is None."""

    position: int
    offset: int | None


def header_at(file: ChunkFile, position: int) -> BatchHeader | None:
    """The header of the batch or old message at `position`; None where there is none that can be whole."""
    data = file.read(position, min(HEADER_BYTES, file.end - position))
    try:
        if len(data) >= HEAD_BYTES and data[16] < MAGIC:
            header = entry_header(data)
        else:
            header = parse_header(data)
            if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
                return None
    except Malformed:
        return None
    return header if header.size_bytes <= file.end - position else None


def is_followed_up(file: ChunkFile, position: int, header: BatchHeader) -> bool:
    """Whether the length of the batch at `position` leads to the end or to a batch with greater offsets."""
    behind = position + header.size_bytes
    if behind == file.end:
        return True
    following = header_at(file, behind)
    return following is not None and following.base_offset > header.last_offset


def next_batch(file: ChunkFile, position: int, first_offset: int, end_offset: int) -> Found:
    """The first batch from `position` on with an offset from `first_offset` to before `end_offset`."""
    while position < file.end:
        data = np.frombuffer(bytes(file.read(position, min(_PIECE_BYTES, file.end - position))), np.uint8)
        for at in _candidates(data, first_offset, end_offset).tolist():
            header = header_at(file, position + at)
            if header is None or not first_offset <= header.base_offset < end_offset:
                continue
            if _is_right(file, position + at, header) and is_followed_up(file, position + at, header):
                return Found(position + at, header.base_offset)
        if len(data) < _PIECE_BYTES:
            break
        position += _PIECE_BYTES - HEADER_BYTES
    return Found(file.end, None)


def _candidates(data: Bytes, first_offset: int, end_offset: int) -> Array:
    """Positions with a known magic, an offset in the range and a length that is not absurd."""
    count = len(data) - HEAD_BYTES + 1
    if count <= 0:
        return np.empty(0, np.int64)
    at = np.flatnonzero((data[16 : 16 + count] <= MAGIC) & (data[:count] == 0) & (data[8 : 8 + count] < 0x80))
    offset = np.zeros(len(at), np.int64)
    for i in range(8):
        offset = offset << 8 | data[at + i]
    return at[(offset >= first_offset) & (offset < end_offset)]


def _is_right(file: ChunkFile, position: int, header: BatchHeader) -> bool:
    if header.magic == MAGIC:
        return file.crc(position, header.size_bytes) == header.crc
    return compute_old_crc(file.read(position, header.size_bytes)) == header.crc
