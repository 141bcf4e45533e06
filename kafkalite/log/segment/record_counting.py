"""Counting the records of a file of batches by their headers: data records and control records, exactly.

After compaction the record count in a header is the number of remaining records, 0 for an empty batch. Records are
decompressed only where an offset limits the count inside a batch with gaps, and in wrappers of v0 and v1.
The GIL is released at least every 64 KiB.
Source: none in Apache Kafka; org.apache.kafka.common.record.DefaultRecordBatch for the header.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.segment.segment_file import iter_headers
from kafkalite.record import message_set
from kafkalite.record.batch import CONTROL, MAGIC, BatchHeader
from kafkalite.record.record import read_records

_READ_BYTES = 1 << 16
_BATCHES_BETWEEN_CHECKS = 256

NEVER = (1 << 63) - 1


class Tally(NamedTuple):
    """Numbers of records: `records` counts data records only, `control_records` the others."""

    records: int
    control_records: int


class Stopped(Exception):
    """Raised by `check` when the count is not needed any more."""


def count(
    fd: int,
    position: int,
    end: int,
    limit_offset: int = NEVER,
    from_offset: int = -1,
    counts: Callable[[BatchHeader], bool] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Tally:
    """The records of the batches in [position, end) that have offsets in [from_offset, limit_offset).

    `counts` selects batches by their headers; None: all. `check` is called now and then, and may raise. Raises
    Malformed at a position without a whole batch, OSError.
    """
    records = control_records = 0
    check_in = 1
    for at, header in iter_headers(fd, position, end, _READ_BYTES):
        check_in -= 1
        if not check_in:
            check()
            check_in = _BATCHES_BETWEEN_CHECKS
        base_offset, _, _, _, _, attributes, delta, _, _, _, _, _, in_batch = header
        if counts is not None and not counts(header):
            continue
        if in_batch < 0 or base_offset < from_offset or base_offset + delta >= limit_offset:
            in_batch = _within(fd, at, header, from_offset, limit_offset)
        if attributes & CONTROL:  # never set in the header of a v0 or v1 message
            control_records += in_batch
        else:
            records += in_batch
        if base_offset + delta >= limit_offset:
            break
    return Tally(records, control_records)


def _within(fd: int, position: int, header: BatchHeader, from_offset: int, limit_offset: int) -> int:
    """The number of records with offsets in [from_offset, limit_offset) in one batch."""
    is_old = header.magic != MAGIC
    if header.record_count < 0 and not is_old:
        raise Malformed(f"no batch at position {position}")
    if header.last_offset < from_offset or (header.base_offset >= limit_offset and not is_old):
        return 0
    if not is_old and header.record_count in (0, header.last_offset_delta + 1):
        inside = min(limit_offset, header.last_offset + 1) - max(from_offset, header.base_offset)
        return inside if header.record_count else 0
    batch = os.pread(fd, header.size_bytes, position)
    if len(batch) < header.size_bytes:
        raise Malformed(f"the batch at position {position} is cut off after {len(batch)} bytes")
    if is_old and limit_offset == NEVER and from_offset < 0:
        return message_set.count_messages(batch)
    found = message_set.read_messages(batch) if is_old else read_records(batch)
    return sum(from_offset <= record.offset < limit_offset for record in found)
