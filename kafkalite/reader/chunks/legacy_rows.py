"""Messages of formats v0 and v1 as rows: runs of plain messages, and the content of each wrapper, by columns.

They have no headers. A timestamp of v0 is -1 and its type, too, as consumers see them. All messages of a wrapper have
the wrapper's type of timestamp, with LogAppendTime its timestamp as well. Offsets in a wrapper of v1 count from its
first.
Source: org.apache.kafka.common.record.AbstractLegacyRecordBatch, org.apache.kafka.common.record.TimestampType.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

import numpy as np

from kafkalite.common.errors import Malformed
from kafkalite.reader.chunks.rows import Rows
from kafkalite.record.batch import LOG_APPEND_TIME, MAGIC, PREFIX_BYTES, BatchHeader
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.header_columns import HeaderColumns
from kafkalite.record.columns.message_columns import MessageColumns, read_columns
from kafkalite.record.columns.record_columns import CorruptBatch
from kafkalite.record.compression import NONE, UNPACKED_BYTES_MAX
from kafkalite.record.message_set import (
    HEAD_BYTES,
    V0,
    V1,
    base_offset,
    build_message,
    compute_crc,
    entry_header,
    read_inner,
    read_message,
    resolve,
    unpack,
)

_HEAD = Struct(">8xi4xb")
_RECORDS_MAX = 1 << 31  # of one wrapper: its bytes are bounded
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
    first = 0
    for i, entry in enumerate(entries, 1):
        following = entries[i] if i < len(entries) else None
        if (
            following is not None
            and following.start == entry.end
            and following.header.magic == entry.header.magic
            and entry.header.codec == following.header.codec == NONE
        ):
            continue  # one run of plain messages
        try:
            if entry.header.codec == NONE:
                found = _plain(data, entries[first:i], rows)
            else:
                found = _inner(data, entry, rows, check_crc)
        except Malformed as error:
            if i - first == 1:
                raise CorruptBatch(first, entry.last_offset, str(error)) from None
            found = None
        if found is not None:
            yield found
        else:
            for row in range(first, i):
                yield from _alone(data, entries, row, rows)
        first = i


def _alone(data: memoryview, entries: list[Entry], row: int, rows: Rows) -> Iterator[Rows]:
    try:
        yield _plain(data, entries[row : row + 1], rows)
    except Malformed as error:
        raise CorruptBatch(row, entries[row].last_offset, str(error)) from None


def _plain(data: memoryview, entries: list[Entry], rows: Rows) -> Rows:
    """Messages of one magic that are no wrappers and follow one another."""
    run = bytes(data[entries[0].start : entries[-1].end])
    found = read_columns(run, len(entries), check_crc=False)
    if found.magic == V0:
        return _rows(rows, found, found.offset, found.timestamp, _NO_TIMESTAMP_TYPE)
    attributes = np.array([entry.header.attributes for entry in entries], np.int32)
    return _rows(rows, found, found.offset, found.timestamp, (attributes & LOG_APPEND_TIME != 0).astype(np.int32))


def _inner(data: memoryview, entry: Entry, rows: Rows, check_crc: bool) -> Rows:
    """The messages of a wrapper."""
    header = entry.header
    wrapper = data[entry.start : entry.end]
    inside = unpack(read_message(wrapper), UNPACKED_BYTES_MAX)
    try:
        found = read_columns(inside, _RECORDS_MAX, check_crc=check_crc)
    except Malformed:
        return _one_by_one(wrapper, entry, rows, check_crc)  # of several magics, or the fault is named
    offset = found.offset + base_offset(header, int(found.offset[-1]))
    if header.magic == V0:
        return _rows(rows, found, offset, found.timestamp, _NO_TIMESTAMP_TYPE)
    timestamp = found.timestamp
    if header.timestamp_type and found.magic == V1:
        timestamp = np.full(len(found), header.max_timestamp, np.int64)
    return _rows(rows, found, offset, timestamp, header.timestamp_type)


def _one_by_one(wrapper: memoryview, entry: Entry, rows: Rows, check_crc: bool) -> Rows:
    """As `_inner`, by way of an object for each message, which may be of both magics."""
    header = entry.header
    records = resolve(header, read_inner(wrapper, UNPACKED_BYTES_MAX, _RECORDS_MAX, check_crc=check_crc))
    same = [build_message(one.offset, one.key, one.value, one.timestamp, magic=V1) for one in records]
    found = read_columns(b"".join(same), len(same), check_crc=False)
    kind = _NO_TIMESTAMP_TYPE if header.magic == V0 else header.timestamp_type
    return _rows(rows, found, found.offset, found.timestamp, kind)


def _rows(rows: Rows, found: MessageColumns, offset: Array, timestamp: Array, timestamp_type: int | Array) -> Rows:
    count = len(found)
    none = np.empty(0, np.int64)
    return Rows(
        rows.topic,
        rows.partition,
        count,
        np.frombuffer(found.data, np.uint8),
        offset,
        timestamp,
        np.broadcast_to(np.asarray(timestamp_type, np.int32), count),
        (found.key_start, found.key_end),
        (found.value_start, found.value_end),
        HeaderColumns(np.zeros(count + 1, np.int64), none, none, none, none),
    )
