"""Records of one partition as columns, of which only the wanted ones are there; and messages of formats v0 and v1.

Old messages have no headers. A timestamp of v0 is -1 and its type, too, as consumers see them. All messages of a
wrapper have the wrapper's type of timestamp, with LogAppendTime its timestamp as well. Each message is an object for a
moment: logs of that age are few, and none grows any more.
Source: org.apache.kafka.common.record.AbstractLegacyRecordBatch, org.apache.kafka.common.record.TimestampType.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import MAGIC, MAGIC_AT, BatchHeader
from kafkalite.record.batches import find_bounds
from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.header_columns import HeaderColumns, first_headers
from kafkalite.record.columns.record_columns import Columns, CorruptBatch
from kafkalite.record.columns.varint_columns import Bytes
from kafkalite.record.compression import NONE, UNPACKED_BYTES_MAX
from kafkalite.record.message_set import V0, compute_crc, entry_header, read_messages
from kafkalite.record.record import Record


@dataclass(slots=True)
class Rows:
    """`count` records in the order of the log; a column that is None is not wanted. Starts and ends are positions in
    `data`, and an end before its start is a null."""

    topic: str
    partition: int
    count: int
    data: Bytes | None = None
    offset: Array | None = None
    timestamp: Array | None = None
    timestamp_type: npt.NDArray[np.int32] | None = None
    key: tuple[Array, Array] | None = None
    value: tuple[Array, Array] | None = None
    headers: HeaderColumns | None = None

    def __len__(self) -> int:
        return self.count

    def part(self, start: int, stop: int) -> Rows:
        """The rows from `start` to before `stop`."""
        rows = slice(start, stop)
        headers = None
        if self.headers is not None:
            first = self.headers.first[start : stop + 1]
            headers = replace(self.headers, first=first)
        return self._pick(rows, stop - start, headers)

    def filter(self, kept: Flags) -> Rows:
        """The rows that are `kept`."""
        headers = None
        if self.headers is not None:
            counts = np.diff(self.headers.first)
            used = slice(int(self.headers.first[0]), int(self.headers.first[-1]))
            entries = np.repeat(kept, counts)
            found = self.headers
            headers = HeaderColumns(
                first_headers(counts[kept]),
                found.key_start[used][entries],
                found.key_end[used][entries],
                found.value_start[used][entries],
                found.value_end[used][entries],
            )
        return self._pick(kept, int(np.count_nonzero(kept)), headers)

    def _pick(self, rows: slice | Flags, count: int, headers: HeaderColumns | None) -> Rows:
        return Rows(
            self.topic,
            self.partition,
            count,
            self.data,
            None if self.offset is None else self.offset[rows],
            None if self.timestamp is None else self.timestamp[rows],
            None if self.timestamp_type is None else self.timestamp_type[rows],
            None if self.key is None else (self.key[0][rows], self.key[1][rows]),
            None if self.value is None else (self.value[0][rows], self.value[1][rows]),
            headers,
        )

    @property
    def most_bytes(self) -> int:
        """The bytes that they take in Arrow at most: more than `sizes` have where only a part of `data` is theirs."""
        headers = 0 if self.headers is None else int(self.headers.first[-1] - self.headers.first[0])
        data_bytes = 0 if self.data is None else len(self.data)
        return data_bytes + self.count * (_FIXED_BYTES + len(self.topic)) + headers * _HEADER_BYTES

    def sizes(self) -> Array:
        """About the bytes that each row takes in Arrow."""
        size = np.full(self.count, _FIXED_BYTES + len(self.topic), np.int64)
        for column in (self.key, self.value):
            if column is not None:
                size += np.maximum(column[1] - column[0], 0)
        if self.headers is not None:
            found = self.headers
            per_header = np.maximum(found.value_end - found.value_start, 0) + found.key_end - found.key_start
            per_header += _HEADER_BYTES
            total = np.concatenate((np.zeros(1, np.int64), np.cumsum(per_header)))
            size += total[found.first[1:]] - total[found.first[:-1]]
        return size


_HEADER_BYTES = 8  # where its key and value end
_FIXED_BYTES = 40  # offset, timestamp, its type, partition, and where topic, key and value end


def rows_of(columns: Columns, topic: str, partition: int, names: frozenset[str]) -> Rows:
    """The records of `columns`, which have the fields that `names` ask for."""
    return Rows(
        topic,
        partition,
        len(columns),
        columns.data,
        columns.offset if len(columns.offset) else None,
        columns.timestamp if len(columns.timestamp) else None,
        columns.timestamp_type if "timestampType" in names else None,
        (columns.key_start, columns.key_end) if "key" in names else None,
        (columns.value_start, columns.value_end) if "value" in names else None,
        columns.headers,
    )


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
    bounds, length = find_bounds(data)
    for at, end in pairwise(bounds):
        if data[at + MAGIC_AT] == MAGIC:
            return entries, None
        try:
            entries.append(Entry(entry_header(data, at), at, end))
        except Malformed as error:
            return entries, error
    return entries, None if length is None else Malformed(f"a message of {length} bytes")


def has_right_crc(data: memoryview, entry: Entry) -> bool:
    """Whether the message's CRC-32 is the stored one."""
    return compute_crc(data[entry.start : entry.end]) == entry.header.crc


def decode_entries(data: memoryview, entries: list[Entry], rows: Rows, *, check_crc: bool) -> Iterator[Rows]:
    """The records of `entries` of `data`, with topic and partition of `rows`. `check_crc` is for those in wrappers.

    Raises CorruptBatch with the number of an entry that contradicts its head.
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
