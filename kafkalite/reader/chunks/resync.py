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
from kafkalite.record.batch import HEADER_BYTES, MAGIC, BatchHeader
from kafkalite.record.batches import is_intact, read_header
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.varint_columns import Bytes
from kafkalite.record.message_set import HEAD_BYTES

_PIECE_BYTES = 1 << 20


class Found(NamedTuple):
    """A batch, or the end of the chunk. Offsets before `offset` are not behind it; None if that is not known."""

    position: int
    offset: int | None


def header_at(file: ChunkFile, position: int) -> BatchHeader | None:
    """The header of the batch or old message at `position`; None where there is none that can be whole."""
    try:
        header = read_header(file.read(position, min(HEADER_BYTES, file.end - position)))
    except Malformed:
        return None
    return header if header.size_bytes <= file.end - position else None


def _following(file: ChunkFile, position: int, header: BatchHeader, end_offset: int) -> BatchHeader | None:
    """The header where the length of the batch at `position` leads, if it has greater offsets. A log never goes back to
    an old format."""
    following = header_at(file, position + header.size_bytes)
    if following is None or (following.magic < MAGIC <= header.magic):
        return None
    return following if header.last_offset < following.base_offset < end_offset else None


def behind_corrupt(
    file: ChunkFile, position: int, header: BatchHeader | None, first_offset: int, end_offset: int
) -> Found:
    """Where to go on behind the corrupt batch at `position`, whose `header` is None if it is not legible."""
    if header is None:
        return next_batch(file, position + 1, file.end, first_offset, end_offset)
    behind = position + header.size_bytes
    following = _following(file, position, header, end_offset)
    is_trusted = behind == file.end if following is None else _is_right(file, behind, following)
    if not is_trusted:
        return next_batch(file, position + 1, file.end, first_offset, end_offset)
    expected = header.last_offset + 1
    last = end_offset if following is None else following.base_offset
    if expected < last:  # its length may lead over whole batches
        found = next_batch(file, position + 1, behind, expected, last)
        if found.offset is not None:
            return found
    if following is not None:
        return Found(behind, following.base_offset)
    return Found(behind, expected if _is_right(file, position, header) else None)


def next_batch(file: ChunkFile, position: int, stop: int, first_offset: int, end_offset: int) -> Found:
    """The first batch between `position` and `stop` with an offset from `first_offset` to before `end_offset`; the end
    of the chunk without an offset if there is none."""
    while position < stop:
        data = np.frombuffer(bytes(file.read(position, min(_PIECE_BYTES, file.end - position))), np.uint8)
        for at in _candidates(data, first_offset, end_offset).tolist():
            if position + at >= stop:
                break
            header = header_at(file, position + at)
            if header is None or not first_offset <= header.base_offset < end_offset:
                continue
            ends = position + at + header.size_bytes == file.end
            if _is_right(file, position + at, header) and (
                ends or _following(file, position + at, header, end_offset) is not None
            ):
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
    return is_intact(header, file.read(position, header.size_bytes))
