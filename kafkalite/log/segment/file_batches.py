"""Iterates over a file of batches: headers alone (`iter_headers`) or whole batches (`iter_batches`).

Both raise Malformed at a position without a whole batch; the caller decides on the cause (a torn end after a crash, a
wrong index entry, a damaged disk). Old files may hold messages of formats v0 and v1 among the batches. Each is yielded
as a batch of one offset, except a wrapper, whose first offset is known only after decompression.
Source: org.apache.kafka.common.record.FileLogInputStream.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from kafkalite.common.errors import Malformed
from kafkalite.log.storage.files import Files
from kafkalite.record import message_set
from kafkalite.record.batch import (
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    PREFIX_BYTES,
    BatchHeader,
    compute_crc,
    parse_header,
)

_HEADERS_READ_BYTES = 8192  # per read by `iter_headers`: two index intervals
_BATCHES_READ_BYTES = 1 << 20  # per read by `iter_batches`
_HEAD = struct.Struct(">qiibIhi")  # the first 27 bytes of a header, up to the last offset delta
_unpack = _HEAD.unpack_from

UNKNOWN_OFFSET = -1  # the base offset of a wrapper of format v0 or v1


def first_timestamp_ms(fd: int, size_bytes: int) -> int:
    """The largest timestamp of the first batch of a file of `size_bytes`; -1 without one. Raises OSError."""
    head = os.pread(fd, min(HEADER_BYTES, size_bytes), 0)
    try:
        header = (
            parse_header(head) if head[MAGIC_AT : MAGIC_AT + 1] == bytes((MAGIC,)) else message_set.entry_header(head)
        )
    except Malformed:
        return -1
    return header.max_timestamp


def first_timestamp_of(files: Files, path: str, size_bytes: int) -> int:
    """As `first_timestamp_ms`, of a closed file: it is not worth a place in the descriptor cache. Raises OSError."""
    fd = files.open(path, os.O_RDONLY)
    try:
        return first_timestamp_ms(fd, size_bytes)
    finally:
        files.close(fd)


def iter_headers(fd: int, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(position, base offset, last offset, size) of every batch in [position, end). Raises Malformed, OSError.

    The base offset of a wrapper of v0 or v1 is `UNKNOWN_OFFSET`.
    """
    start = position
    data = b""
    while position < end:
        at = position - start
        if at + _HEAD.size > len(data):
            start, at = position, 0
            data = os.pread(fd, _HEADERS_READ_BYTES, position)
            if len(data) < _HEAD.size:
                data = data.ljust(_HEAD.size, b"\0")  # an empty v0 message is one byte shorter
        base_offset, length, _, magic, _, _, delta = _unpack(data, at)
        last_offset = base_offset + delta
        fits = length >= BATCH_LENGTH_MIN and delta >= 0 and base_offset >= 0
        if magic != MAGIC:
            last_offset = base_offset
            fits = 0 <= magic < MAGIC and length >= message_set.MESSAGE_BYTES_MIN and base_offset >= 0
            if data[at + 17] & CODEC_MASK:
                base_offset = UNKNOWN_OFFSET
        size = length + PREFIX_BYTES
        if not fits or position + size > end:
            raise Malformed(f"no batch at position {position}")
        yield position, base_offset, last_offset, size
        position += size


def find_header(fd: int, position: int, end: int, offset: int) -> tuple[int, int, int] | None:
    """(position, base offset, size) of the first batch in [position, end) whose last offset is at or past `offset`;
    None if no batch reaches it. Raises Malformed, OSError."""
    for at, base_offset, last_offset, size in iter_headers(fd, position, end):
        if last_offset >= offset:
            return at, base_offset, size
    return None


def end_offset(fd: int, position: int, end: int) -> int:
    """The offset behind the last batch in [position, end), which must hold one. Raises Malformed, OSError."""
    last = -1
    for _, _, last, _ in iter_headers(fd, position, end):  # noqa: B007
        pass
    return last + 1


def iter_batches(fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, whole batch) of every batch in [position, end). Raises Malformed, OSError.

    Checksums are not verified. The header of a message of v0 or v1 is `message_set.entry_header`'s.
    """
    want = _BATCHES_READ_BYTES
    while position < end:
        asked = min(want, end - position)
        data = memoryview(os.pread(fd, asked, position))
        if len(data) < asked:
            raise Malformed(f"the file ends {asked - len(data)} bytes before position {position + asked}")
        at = 0
        while True:
            size = message_set.HEAD_BYTES
            if asked - at < size:
                break
            if data[at + MAGIC_AT] == MAGIC:
                size = HEADER_BYTES
                if asked - at < size:
                    break
                header = parse_header(data, at)
                if header.batch_length < BATCH_LENGTH_MIN or header.last_offset_delta < 0:
                    raise Malformed(f"no v2 batch at position {position + at}")
            else:
                header = message_set.entry_header(data, at)
            size = header.size_bytes
            if asked - at < size:
                break
            yield position + at, header, data[at : at + size]
            at += size
        position += at
        if position < end < position + size:
            raise Malformed(f"the batch at position {position} is cut off after {end - position} bytes")
        want = max(_BATCHES_READ_BYTES, size)


def is_intact(header: BatchHeader, batch: memoryview) -> bool:
    """Whether the checksum of a batch from `iter_batches` is right."""
    if header.magic == MAGIC:
        return header.crc == compute_crc(batch)
    return header.crc == message_set.compute_crc(batch)
