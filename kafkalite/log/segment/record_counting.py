"""Counting the records of a file of batches by their headers: data records and control records, exactly.

After compaction the record count in a header is the number of remaining records, 0 for an empty batch. Records are
decompressed only in two cases: compaction left gaps in the batch that reaches the limit, and wrappers of v0 and v1.
1 GiB takes 0.1 s with batches of 16 KiB, 1 s with 1 KiB and 5 s with 200 bytes. The GIL is released at least every
64 KiB.
Source: none in Apache Kafka; org.apache.kafka.common.record.DefaultRecordBatch for the header.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import NamedTuple

from kafkalite.common.errors import Malformed
from kafkalite.record import message_set
from kafkalite.record.batch import BATCH_LENGTH_MIN, CODEC_MASK, CONTROL, HEADER_BYTES, MAGIC, PREFIX_BYTES
from kafkalite.record.record import read_records

_HEAD = struct.Struct(">qi4xb4xhi30xi")  # base offset, length, magic, attributes, last offset delta, record count
_READ_BYTES = 1 << 16  # read at once where batches are small, and one header at a time where they are not
_SMALL_BATCH_BYTES = 2048

NEVER = (1 << 63) - 1


class Tally(NamedTuple):
    """Numbers of records: `records` counts data records only, `control_records` the others."""

    records: int
    control_records: int


class Stopped(Exception):
    """Raised by `go_on` when the count is not needed any more."""


def go_on_always() -> None:
    """Never stops the count."""


def count(
    fd: int, position: int, end: int, before_offset: int = NEVER, go_on: Callable[[], None] = go_on_always
) -> Tally:
    """The records of the batches in [position, end) that have offsets below `before_offset`.

    `go_on` is called before every read, and may raise. Raises Malformed at a position without a whole batch, OSError.
    """
    records = control_records = 0
    unpack = _HEAD.unpack_from
    start = position
    data = b""
    last_at = -1  # the last position in `data` at which a whole header fits
    want = _READ_BYTES
    while position < end:
        at = position - start
        if at > last_at:
            go_on()
            data = os.pread(fd, want, position)
            start, at = position, 0
            last_at = len(data) - HEADER_BYTES
            if last_at < 0:
                data = data.ljust(HEADER_BYTES, b"\0")  # a message of v0 or v1 may be shorter
                last_at = 0
        base_offset, length, magic, attributes, delta, in_batch = unpack(data, at)
        size = length + PREFIX_BYTES
        if magic != MAGIC:
            if not 0 <= magic < MAGIC or length < message_set.MESSAGE_BYTES_MIN or position + size > end:
                raise Malformed(f"no batch at position {position}")
            attributes = data[at + 17]
            if attributes & CODEC_MASK:
                in_batch = _in_wrapper(_read(fd, position, size), before_offset)
            else:
                in_batch = 1 if base_offset < before_offset else 0
            attributes = 0
            if base_offset >= before_offset:
                return Tally(records + in_batch, control_records)
        elif length < BATCH_LENGTH_MIN or delta < 0 or in_batch < 0 or position + size > end:
            raise Malformed(f"no batch at position {position}")
        elif base_offset + delta >= before_offset:
            in_batch = _below(fd, position, size, before_offset, base_offset, delta, in_batch)
            if attributes & CONTROL:
                return Tally(records, control_records + in_batch)
            return Tally(records + in_batch, control_records)
        if attributes & CONTROL:
            control_records += in_batch
        else:
            records += in_batch
        want = _READ_BYTES if size < _SMALL_BATCH_BYTES else HEADER_BYTES
        position += size
    return Tally(records, control_records)


def _below(fd: int, position: int, size: int, before_offset: int, base_offset: int, delta: int, in_batch: int) -> int:
    """The number of records below `before_offset` in the batch that reaches it."""
    if base_offset >= before_offset or not in_batch:
        return 0
    if in_batch == delta + 1:
        return before_offset - base_offset
    return sum(record.offset < before_offset for record in read_records(_read(fd, position, size)))


def _in_wrapper(entry: bytes, before_offset: int) -> int:
    if before_offset == NEVER:
        return message_set.count_messages(entry)
    return sum(record.offset < before_offset for record in message_set.read_messages(entry))


def _read(fd: int, position: int, size: int) -> bytes:
    data = os.pread(fd, size, position)
    if len(data) < size:
        raise Malformed(f"the batch at position {position} is cut off after {len(data)} bytes")
    return data
