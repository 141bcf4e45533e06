"""The batches and records of a chunk that are wanted: decided by headers as far as these can tell, then by records.

A header tells the offsets of a batch, how many records it has, and its largest timestamp. Where offsets have no gap, or
nobody asks for them, rows without keys, values and times are made from it alone. A smallest timestamp it does not tell:
the base timestamp is only that of the first record, or not even that (KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkalite.reader.chunks.rows import Rows
from kafkalite.reader.planning.split import HIGHEST, Chunk
from kafkalite.reader.planning.transactions import is_aborted
from kafkalite.record.batch import HEADER_BYTES, BatchHeader
from kafkalite.record.columns.batch_columns import Array, Batches, Flags
from kafkalite.record.columns.record_columns import Fields
from kafkalite.record.compression import NONE
from kafkalite.record.record import RECORD_BYTES_MIN

MILLIS_MAX = (1 << 63) // 1000 - 1  # in microseconds it still fits 64 bits
_OF_RECORDS = frozenset(("key", "value", "headers"))


def impossible_batch(batches: Batches) -> tuple[int, str] | None:
    """The first row whose header contradicts itself, and how."""
    counts = batches.record_count
    body_bytes = batches.size_bytes - HEADER_BYTES
    least_bytes = np.where(batches.codec == 0, counts * RECORD_BYTES_MIN, np.minimum(counts, 1))
    for wrong, why in (
        (counts < 0, "it has a negative number of records"),
        (batches.column("last_offset_delta") < 0, "its last offset is before its first"),
        (batches.is_empty & (body_bytes != 0), "it has bytes and no records"),
        (least_bytes > body_bytes, "its bytes cannot hold its records"),
    ):
        if wrong.any():
            return int(np.argmax(wrong)), why
    return None


class BatchChoice:
    """The choice for one chunk and the columns `names`."""

    def __init__(self, chunk: Chunk, names: frozenset[str]) -> None:
        self.chunk = chunk
        self.names = names
        bounds = chunk.row_filter
        self.first_offset = max(chunk.start_offset, bounds.min_offset)
        self.last_offset = min(chunk.end_offset - 1, bounds.max_offset)
        # a time that the column cannot express is null there, and a null is in no bounds
        self._earliest = max(bounds.min_timestamp, -MILLIS_MAX)
        self._latest = min(bounds.max_timestamp, MILLIS_MAX)
        self.bounds_time = bounds.bounds_time

    def wanted(self, batches: Batches) -> Array:
        """The batches that may have wanted records, ascending."""
        kept = (batches.record_count != 0) & ~batches.is_control
        kept &= (batches.last_offset >= self.first_offset) & (batches.base_offset <= self.last_offset)
        if self.bounds_time:
            latest = batches.column("max_timestamp")
            kept &= (latest >= self._earliest) & ~(batches.is_log_append_time & (latest > self._latest))
        if self.chunk.aborted:
            kept &= ~is_aborted(batches, self.chunk.aborted)
        return np.flatnonzero(kept)

    def may_have(self, header: BatchHeader) -> bool:
        """Whether the message or wrapper of v0 or v1 with this header may have records in the bounds."""
        if header.base_offset < self.first_offset:  # of its last message
            return False
        if not self.bounds_time:
            return True
        at_most = header.codec == NONE or bool(header.timestamp_type)
        return self._earliest <= header.max_timestamp and (not at_most or header.max_timestamp <= self._latest)

    def needs_records(self, batches: Batches, rows: Array) -> bool:
        """Whether headers alone do not tell all rows of the batches `rows`."""
        if self.names & _OF_RECORDS:
            return True
        if ("timestamp" in self.names or self.bounds_time) and not batches.is_log_append_time[rows].all():
            return True
        has_gaps = batches.column("last_offset_delta")[rows] + 1 != batches.record_count[rows]
        return bool((has_gaps & (self._is_cut(batches, rows) | ("offset" in self.names))).any())

    def may_do_without_records(self) -> bool:
        """Whether it is worth looking at headers first: records may not be needed, or not those of every batch."""
        bounds_end = self.chunk.row_filter.max_offset < HIGHEST
        return not self.names & (_OF_RECORDS | {"timestamp"}) or self.bounds_time or bounds_end

    def fields(self, batches: Batches, rows: Array) -> Fields:
        """The fields to decode."""
        return Fields(
            timestamp="timestamp" in self.names or self.bounds_time,
            offset="offset" in self.names or bool(self._is_cut(batches, rows).any()),
            key="key" in self.names,
            value="value" in self.names,
            headers="headers" in self.names,
        )

    def choose(self, rows: Rows, at: Array | None = None) -> Rows:
        """Leaves out the rows that are not wanted, as far as the columns that they have tell. `at`: the offsets that
        count for the bounds, where they are not those of the rows."""
        kept: Flags | None = None
        at = rows.offset if at is None else at
        if at is not None and rows.count:
            # offsets only ascend in a log, so the wanted ones are one run
            bounds = [self.first_offset, max(self.first_offset, self.last_offset + 1)]
            start, stop = np.searchsorted(at, bounds).tolist()
            if stop - start < rows.count:
                rows = rows.part(start, stop)
        if self.bounds_time and rows.timestamp is not None:
            kept = (rows.timestamp >= self._earliest) & (rows.timestamp <= self._latest)
            if not kept.all():
                rows = rows.filter(kept)
        return rows

    def rows_of_headers(self, batches: Batches, wanted: Array, rows_max: int) -> Iterator[Rows]:
        """The rows of the batches `wanted`, at most `rows_max` at a time, of which `needs_records` is False."""
        base = batches.base_offset[wanted]
        count = batches.record_count[wanted]
        is_dense = batches.column("last_offset_delta")[wanted] + 1 == count
        # of a batch with gaps nobody asks for offsets, and it is whole
        skipped = np.where(is_dense, np.clip(self.first_offset - base, 0, count), 0)
        count = np.where(is_dense, np.minimum(count, self.last_offset + 1 - base), count) - skipped
        end = np.cumsum(count)
        first = end - count
        total = int(end[-1]) if len(end) else 0
        latest, append_time = batches.column("max_timestamp")[wanted], batches.is_log_append_time[wanted]
        chunk = self.chunk
        for start in range(0, total, rows_max):
            size = min(rows_max, total - start)
            rows = Rows(chunk.topic, chunk.partition, size)
            if self.names - {"topic", "partition"}:
                number = np.arange(start, start + size)
                batch = np.searchsorted(end, number, "right")
                if "offset" in self.names:
                    rows.offset = (base + skipped - first)[batch] + number
                if "timestamp" in self.names:
                    rows.timestamp = latest[batch]
                if "timestampType" in self.names:
                    rows.timestamp_type = append_time.astype(np.int32)[batch]
            yield rows

    def _is_cut(self, batches: Batches, rows: Array) -> Flags:
        """The batches with records before the first wanted offset or behind the last."""
        cut: Flags = batches.base_offset[rows] < self.first_offset
        cut |= batches.last_offset[rows] > self.last_offset
        return cut
