"""The wanted rows of one chunk: batches chosen by their headers, then records, decoded to columns.

A header has the offsets of a batch, the number of its records, and its largest timestamp. Where offsets have no gap, or
no column asks for them, rows without keys, values and times are made from it alone. It has no
smallest timestamp: the base timestamp is only that of the first record, or not even that (KIP-534).
Where headers may be enough, they are read first: rows are made from them (count, offsets), or only the batches that may
have wanted records are read. Otherwise a window at a time is read and searched.
Checksums of all batches that are read are verified, as a consumer does; planning has verified only the end of the log.
Where headers are read first, those that make rows or leave a batch out are not verified: it would mean to read it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import pairwise

import numpy as np

from kafkalite.common.errors import Malformed
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.reader.chunks.chunk_file import ChunkFile, FileGone, behind_corrupt, header_at
from kafkalite.reader.chunks.rows import Entry, Rows, decode_entries, has_right_crc, rows_of, scan_entries
from kafkalite.reader.planning.split import HIGHEST, Chunk, Loss, ReadReport, ReadSettings
from kafkalite.record.batch import HEADER_BYTES, MAGIC, MAGIC_AT, TRANSACTIONAL, BatchHeader, parse_header
from kafkalite.record.codec_contexts import Codecs
from kafkalite.record.columns.batch_columns import Array, Batches, Flags, OldFormat, scan_until_fault
from kafkalite.record.columns.record_columns import CorruptBatch, Fields, decode_rows
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
            kept &= ~_is_aborted(batches, self.chunk.aborted)
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
        """Whether headers alone do not determine all rows of the batches `rows`."""
        if self.names & _OF_RECORDS:
            return True
        if ("timestamp" in self.names or self.bounds_time) and not batches.is_log_append_time[rows].all():
            return True
        has_gaps = batches.column("last_offset_delta")[rows] + 1 != batches.record_count[rows]
        return bool((has_gaps & (self._is_cut(batches, rows) | ("offset" in self.names))).any())

    def may_do_without_records(self) -> bool:
        """Whether it is worth reading headers first: records may not be needed, or not those of every batch."""
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
        """Leaves out the rows that are not wanted, as far as their columns decide. `at`: the offsets that
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
        # a batch with gaps is whole here, and its offsets are not asked for
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


_GAP_BYTES = 64 << 10  # unwanted bytes between wanted ones: reading them costs less than decoding twice as often

Steps = Generator[Rows, None, int]
"""Rows, and in the end the position to continue from."""


class ChunkRows:
    """One reading of the chunk of `choice`."""

    def __init__(
        self, file: ChunkFile, choice: BatchChoice, settings: ReadSettings, report: ReadReport, codecs: Codecs
    ) -> None:
        self._file = file
        self._choice = choice
        self._chunk = choice.chunk
        self._settings = settings
        self._report = report
        self._codecs = codecs
        self._next_offset = 0  # behind the last batch that was legible
        self._template = Rows(choice.chunk.topic, choice.chunk.partition, 0)

    def __iter__(self) -> Iterator[Rows]:
        """Raises FileGone when the file has changed since planning, Malformed for a corrupt batch."""
        chunk, end = self._chunk, self._file.end
        head = self._file.read(chunk.position, min(HEADER_BYTES, chunk.size_bytes))
        is_cut = len(head) <= MAGIC_AT or (chunk.file_bytes >= 0 and self._file.size_bytes() != chunk.file_bytes)
        if is_cut or head[: len(chunk.head)] != chunk.head[: len(head)]:
            raise self._changed()
        is_old = head[MAGIC_AT] < MAGIC
        self._next_offset = chunk.start_offset if is_old or len(head) < HEADER_BYTES else parse_header(head).base_offset
        first_wanted = self._choice.first_offset > self._next_offset
        if not is_old and (self._choice.may_do_without_records() or first_wanted):
            position = yield from self._by_headers(chunk.position)
        else:
            position = yield from self._windows(chunk.position, end)
        assert position >= end or self._is_over

    @property
    def _is_over(self) -> bool:
        return self._next_offset > self._choice.last_offset

    def _by_headers(self, position: int) -> Steps:
        """From `position` to the end, headers first."""
        end = self._file.end
        while position < end and not self._is_over:
            batches = self._file.headers(position)
            if not len(batches):  # a message of old, or a fault, or a batch that is not whole
                return (yield from self._windows(position, end))
            self._report.batches_seen += len(batches)
            bad = impossible_batch(batches) or self._misleading(batches)
            if bad is not None:
                batches = batches.first(bad[0])
            rows = self._choice.wanted(batches)
            if len(rows) and not self._choice.needs_records(batches, rows):
                yield from self._choice.rows_of_headers(batches, rows, self._settings.group_records)
            elif len(rows):
                ends = batches.position + batches.size_bytes
                cuts = np.flatnonzero(batches.position[rows[1:]] - ends[rows[:-1]] > _GAP_BYTES) + 1
                for start, stop in pairwise([0, *cuts.tolist(), len(rows)]):
                    run_end = int(ends[rows[stop - 1]])
                    self._next_offset = max(self._next_offset, int(batches.base_offset[rows[start]]))
                    done = yield from self._windows(int(batches.position[rows[start]]), run_end, is_seen=True)
                    if done > run_end:  # a fault led to another place
                        return (yield from self._by_headers(done))
            if len(batches):
                self._next_offset = max(self._next_offset, int(batches.last_offset[-1]) + 1)
            position = batches.consumed_bytes
            if bad is not None:
                position = self._skip(position, bad[1])
        return position

    def _misleading(self, batches: Batches) -> tuple[int, str] | None:
        """The last of `batches` if no other begins where its length leads, and its checksum is wrong."""
        behind = batches.consumed_bytes
        if behind == self._file.end or header_at(self._file, behind) is not None:
            return None
        position = int(batches.position[-1])
        if self._file.crc(position, behind - position) == batches.heads[-1]["crc"]:
            return None
        return len(batches) - 1, "its checksum is wrong"

    def _windows(self, position: int, end: int, *, is_seen: bool = False) -> Steps:
        """From `position` to `end`, window by window. `is_seen`: the headers are counted already."""
        while position < end and not self._is_over:
            data = self._file.window(position, end)
            batches, fault = scan_until_fault(data)
            if len(batches):
                self._report.batches_seen += 0 if is_seen else len(batches)
                position = yield from self._batches(position, data, batches)
            elif isinstance(fault, OldFormat):
                position = yield from self._old_messages(position, data)
            elif fault is not None:
                position = self._skip(position, "no batch begins here")
            elif len(data) < min(self._file.window_bytes, end - position):
                position = self._cut_off(position)
            else:
                position = yield from self._large_batch(position)
        return position

    def _large_batch(self, position: int) -> Steps:
        """A batch or message that is larger than a window."""
        header = header_at(self._file, position)
        if header is None:
            return self._skip(position, "its length reaches beyond its segment")
        # memory is taken for it only if it is whole
        checked = self._settings.check_crcs and header.magic == MAGIC
        if checked and self._file.crc(position, header.size_bytes) != header.crc:
            return self._skip(position, "its checksum is wrong")
        data = self._file.read(position, header.size_bytes)
        if len(data) < header.size_bytes:
            return self._cut_off(position)
        if header.magic < MAGIC:
            return (yield from self._old_messages(position, data))
        batches, _ = scan_until_fault(data)
        self._report.batches_seen += 1
        return (yield from self._batches(position, data, batches))

    def _batches(self, position: int, data: memoryview, batches: Batches) -> Steps:
        """The rows of `batches`, which are at `position` of the file and in `data`."""
        bad = impossible_batch(batches)
        if self._settings.check_crcs:  # of all, since the header that leaves a batch out may be the corrupt part
            right = np.arange(len(batches) if bad is None else bad[0])
            if (at := batches.first_wrong_checksum(data, right)) is not None:
                bad = int(np.searchsorted(batches.position, at)), "its checksum is wrong"
        rows = self._choice.wanted(batches)
        if bad is not None:
            rows = rows[rows < bad[0]]
        if len(rows) and not self._choice.needs_records(batches, rows):
            yield from self._choice.rows_of_headers(batches, rows, self._settings.group_records)
        elif len(rows):
            bad = (yield from self._decoded(data, batches, rows)) or bad
        if bad is None:
            self._next_offset = max(self._next_offset, int(batches.last_offset[-1]) + 1)
            return position + batches.consumed_bytes
        if bad[0]:
            self._next_offset = max(self._next_offset, int(batches.last_offset[bad[0] - 1]) + 1)
        return self._skip(position + int(batches.position[bad[0]]), bad[1])

    def _decoded(
        self, data: memoryview, batches: Batches, rows: Array
    ) -> Generator[Rows, None, tuple[int, str] | None]:
        """The records of the batches `rows`; in the end the row of a corrupt one, behind which nothing was read."""
        done = 0
        try:
            for found, at in self._decode(data, batches, rows, 0):
                done += len(found)
                yield self._choice.choose(found, at)
        except CorruptBatch as error:
            for found, at in self._decode(data, batches, rows[rows < error.row], done):
                yield self._choice.choose(found, at)
            return error.row, error.why
        return None

    def _decode(
        self, data: memoryview, batches: Batches, rows: Array, skipped: int
    ) -> Iterator[tuple[Rows, Array | None]]:
        """All records of the batches `rows` but the first `skipped`, and the offsets by which they are chosen if these
        are not their own: records behind the last offset of their batch come with it."""
        self._report.batches_read += len(rows) if not skipped else 0
        fields = self._choice.fields(batches, rows)
        is_overfull = bool(batches.is_overfull[rows].any())
        for columns in decode_rows(
            data,
            batches,
            rows,
            fields=fields,
            headers=fields.headers,
            dense_offsets=True,
            group_bytes=self._settings.group_bytes,
            group_records=self._settings.group_records,
            codecs=self._codecs,
        ):
            found = rows_of(columns, self._chunk.topic, self._chunk.partition, self._choice.names)
            at: Array | None = None
            if len(columns.offset) and is_overfull:
                at = np.minimum(columns.offset, batches.last_offset.take(columns.batch))[skipped:]
            del columns
            if skipped < len(found):
                yield (found.part(skipped, len(found)) if skipped else found), at
            skipped = max(0, skipped - len(found))

    def _old_messages(self, position: int, data: memoryview) -> Steps:
        """The messages of v0 and v1 at `position`, which are in `data`, up to a batch of v2."""
        entries, fault = scan_entries(data)
        wanted: list[Entry] = []
        bad: tuple[int, str] | None = None
        for i, entry in enumerate(entries):
            if self._next_offset > self._choice.last_offset:
                entries = entries[:i]
                break
            if self._settings.check_crcs and not has_right_crc(data, entry):
                bad = entry.start, "its checksum is wrong"
                entries = entries[:i]
                break
            if self._choice.may_have(entry.header):
                wanted.append(entry)
            self._next_offset = entry.last_offset + 1
        self._report.batches_seen += len(entries)
        try:
            for found in decode_entries(data, wanted, self._template, check_crc=self._settings.check_crcs):
                self._report.batches_read += 1
                yield self._choice.choose(found)
        except CorruptBatch as error:
            bad = wanted[error.row].start, error.why
        if bad is not None:
            return self._skip(position + bad[0], bad[1])
        if entries:
            return position + entries[-1].end
        if fault is not None:
            return self._skip(position, "no batch begins here")
        return position if self._is_over else (yield from self._large_batch(position))

    # -- faults

    def _skip(self, position: int, why: str) -> int:
        """The position behind the corrupt batch at `position`. Raises Malformed unless corrupt ones are skipped."""
        chunk = self._chunk
        header = header_at(self._file, position)
        if header is not None and not self._next_offset <= header.base_offset < chunk.end_offset:
            header = None  # not legible
        if not self._settings.skip_corrupt:
            offsets = f", offsets {header.base_offset} to {header.last_offset}," if header is not None else ""
            raise Malformed(
                f"{chunk.path}: the batch at position {position}{offsets} is corrupt: {why}; "
                f"the offsets before {self._next_offset} of {chunk.topic}-{chunk.partition} can be read"
            )
        is_known = header is not None and header.magic == MAGIC  # the first offset of a wrapper is inside
        first_offset = header.base_offset if header is not None and is_known else self._next_offset
        behind, end_offset = behind_corrupt(self._file, position, header, self._next_offset, chunk.end_offset)
        self._report_loss(position, behind, first_offset, end_offset, why)
        if end_offset is not None:
            self._next_offset = end_offset
        return behind

    def _cut_off(self, position: int) -> int:
        """The end, when the file ends before the chunk does. Raises FileGone unless data may be lost."""
        if self._settings.fail_on_data_loss:
            raise self._changed()
        self._report_loss(position, self._file.end, self._next_offset, None, "the file was cut after planning")
        return self._file.end

    def _report_loss(self, position: int, end: int, first_offset: int, end_offset: int | None, why: str) -> None:
        chunk = self._chunk
        self._report.lost.append(
            Loss(chunk.topic, chunk.partition, chunk.path, position, end - position, first_offset, end_offset, why)
        )

    def _changed(self) -> FileGone:
        return FileGone(f"{self._chunk.path} was changed by compaction or recovery after planning; run the query again")


def _is_aborted(batches: Batches, aborted: Iterable[AbortedTxn]) -> Flags:
    """A flag for each batch: whether it belongs to one of these transactions."""
    flags: Flags = np.zeros(len(batches), np.bool_)
    producer_ids, offsets = batches.column("producer_id"), batches.base_offset
    transactional = (batches.heads["attributes"] & TRANSACTIONAL) != 0
    for txn in aborted:
        first, end = np.searchsorted(offsets, [txn.first_offset, txn.last_offset]).tolist()
        flags[first:end] |= transactional[first:end] & (producer_ids[first:end] == txn.producer_id)
    return flags
