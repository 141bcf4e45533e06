"""Records of one partition as columns, of which only the wanted ones are there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.header_columns import HeaderColumns, first_headers
from kafkalite.record.columns.record_columns import Columns
from kafkalite.record.columns.varint_columns import Bytes


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
        """At most so many bytes they take in Arrow: more than `sizes` tell where only a part of `data` is theirs."""
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
