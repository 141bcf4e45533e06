"""Messages of formats v0 and v1 as rows: runs of plain messages, and the content of each wrapper.

They have no headers. A timestamp of v0 is -1 and its type, too, as consumers see them. All messages of a wrapper have
the wrapper's type of timestamp, with LogAppendTime its timestamp as well. Each message is an object for a moment: logs
of that age are few, and none grows any more.
Source: org.apache.kafka.common.record.AbstractLegacyRecordBatch, org.apache.kafka.common.record.TimestampType.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from struct import Struct
from typing import NamedTuple

import numpy as np

from kafkalite.common.errors import Malformed
from kafkalite.reader.chunks.rows import Rows
from kafkalite.record.batch import MAGIC, PREFIX_BYTES, BatchHeader
from kafkalite.record.columns.header_columns import HeaderColumns
from kafkalite.record.columns.record_columns import CorruptBatch
from kafkalite.record.compression import NONE, UNPACKED_BYTES_MAX
from kafkalite.record.message_set import HEAD_BYTES, V0, compute_crc, entry_header, read_messages
from kafkalite.record.record import Record

_HEAD = Struct(">8xi4xb")
_RECORDS_MAX = 1 << 21  # of one wrapper: each is some hundred bytes of objects
_NO_TIMESTAMP_TYPE = -1


class Entry(NamedTuple):
    """A message, or a wrapper with several, from `start` to `end` of the data."""

    header: BatchHeader
    start: int
    end: int

    @property
    def last_offset(self) -> int:
        return self.header.base_offset  # that is the field where it is stored


def scan_entries(data: memoryview) -> tuple[list[Entry], Malformed | None]:
    """The whole messages and wrappers at the beginning of `data`, up to a batch of v2, one that is cut off, or a place
    where none can begin, and why."""
    entries: list[Entry] = []
    at = 0
    while at + HEAD_BYTES <= len(data):
        length, magic = _HEAD.unpack_from(data, at)
        if magic == MAGIC:
            break
        try:
            header = entry_header(data, at)
        except Malformed as error:
            return entries, error
        end = at + length + PREFIX_BYTES
        if end > len(data):
            break
        entries.append(Entry(header, at, end))
        at = end
    return entries, None


def has_right_crc(data: memoryview, entry: Entry) -> bool:
    """Whether the message's CRC-32 is the stored one."""
    return compute_crc(data[entry.start : entry.end]) == entry.header.crc


def decode_entries(data: memoryview, entries: list[Entry], rows: Rows, *, check_crc: bool) -> Iterator[Rows]:
    """The records of `entries` of `data`, with topic and partition of `rows`. `check_crc` is for those in wrappers.

    Raises CorruptBatch with the number of an entry that is not what its head says.
    """
    run: list[tuple[BatchHeader, Record]] = []  # plain messages
    for i, entry in enumerate(entries):
        try:
            found = read_messages(data[entry.start : entry.end], UNPACKED_BYTES_MAX, _RECORDS_MAX, check_crc=check_crc)
        except Malformed as error:
            if run:
                yield _rows(rows, run)
            raise CorruptBatch(i, entry.last_offset, str(error)) from None
        if entry.header.codec == NONE:
            run.append((entry.header, found[0]))
            continue
        if run:
            yield _rows(rows, run)
            run = []
        yield _rows(rows, [(entry.header, record) for record in found])
    if run:
        yield _rows(rows, run)


def _rows(rows: Rows, found: list[tuple[BatchHeader, Record]]) -> Rows:
    """Records with the headers of their entries."""
    count = len(found)
    fields = list(chain.from_iterable((record.key, record.value) for _, record in found))
    sizes = np.array([-1 if field is None else len(field) for field in fields], np.int64)
    ends = np.cumsum(np.maximum(sizes, 0))
    start = ends - np.maximum(sizes, 0)
    end = start + sizes
    none = np.empty(0, np.int64)
    kinds = [_NO_TIMESTAMP_TYPE if header.magic == V0 else header.timestamp_type for header, _ in found]
    return Rows(
        rows.topic,
        rows.partition,
        count,
        np.frombuffer(b"".join(field or b"" for field in fields), np.uint8),
        np.array([record.offset for _, record in found], np.int64),
        np.array([record.timestamp for _, record in found], np.int64),
        np.array(kinds, np.int32),
        (start[0::2], end[0::2]),
        (start[1::2], end[1::2]),
        HeaderColumns(np.zeros(count + 1, np.int64), none, none, none, none),
    )
