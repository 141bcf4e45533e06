"""Scan of one `.log` file: checks that every batch is whole, has the right checksum and stands in its place.

A window of the file is in memory at a time; all headers of a window are compared as columns, checksums one by one.
After a position where no batch can begin, the scan searches for the next sound batch, so that it finds later damage,
too.
Source: org.apache.kafka.common.record.DefaultRecordBatch.ensureValid, LogSegment.recover, LogValidator.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.inspection.files.findings import Fault
from kafkalite.inspection.files.log_file import LogFile, Window, is_valid, window_bounds
from kafkalite.inspection.verify.log_history import History, Rows
from kafkalite.log.segment.segment import RELATIVE_OFFSET_MAX
from kafkalite.record.batch import (
    CONTROL,
    CRC_FROM,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    PREFIX_BYTES,
    BatchHeader,
    parse_header,
)
from kafkalite.record.columns.batch_columns import Array, Batches, Flags, scan
from kafkalite.record.columns.record_columns import decode
from kafkalite.record.compression import CODEC_NAMES
from kafkalite.record.message_set import count_messages, entry_header, read_messages
from kafkalite.record.record import RECORD_BYTES_MIN

FAULTS_MAX = 50  # reported of one file; the others are counted
_ATTRIBUTES_KNOWN = 0x7F
_SEARCH_BYTES = 1 << 20


class Segment(NamedTuple):
    """A segment to scan. `next_base` is the base offset of the segment behind it, -1 for the last."""

    path: str
    base_offset: int
    next_base: int


@dataclass(slots=True)
class SegmentScan:
    """Outcome of a scan. The columns have one row for every batch that could be discerned, in the order of the file.

    `end_offset` is the offset behind the last of them, the segment's base offset without any.
    """

    segment: Segment
    size_bytes: int
    faults: list[Fault] = field(default_factory=list)
    positions: list[Array] = field(default_factory=list)
    last_offsets: list[Array] = field(default_factory=list)
    timestamps: list[Array] = field(default_factory=list)
    end_offset: int = 0
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    """(position, first, last) of offsets that no batch has; at most FAULTS_MAX."""
    records: int = 0
    control_records: int = 0
    has_legacy: bool = False

    def columns(self) -> tuple[Array, Array, Array]:
        """(position, last offset, max timestamp) of every batch."""
        none = [np.empty(0, np.int64)]
        return (
            np.concatenate(self.positions or none),
            np.concatenate(self.last_offsets or none),
            np.concatenate(self.timestamps or none),
        )

    def forget_batches(self) -> None:
        """Releases the memory of the columns."""
        self.positions.clear()
        self.last_offsets.clear()
        self.timestamps.clear()


def scan_segment(
    segment: Segment, history: History, advance: Callable[[int], None], *, deep: bool = False
) -> SegmentScan:
    """Reads one segment from front to back. `deep`: decodes every record, too. Raises OSError."""
    with LogFile(segment.path) as log:
        return _Scanner(segment, log, history, advance, deep).run()


class _Scanner:
    def __init__(
        self, segment: Segment, log: LogFile, history: History, advance: Callable[[int], None], deep: bool
    ) -> None:
        self.segment = segment
        self.log = log
        self.history = history
        self.advance = advance
        self.deep = deep
        self.found = SegmentScan(segment, log.size_bytes, end_offset=segment.base_offset)
        self.unreported = 0
        self.next_offset = segment.base_offset
        self.batches: Batches | None = None  # of this window, if all are of v2
        self.last_doubtful = -1  # the position of the last batch with a wrong checksum
        self.overflows = False

    def run(self) -> SegmentScan:
        size = self.log.size_bytes
        position = advanced = 0
        while position < size:
            reason = ""
            try:
                for window in self.log.windows(position, bounds_of=self.bounds_of):
                    self.scan_window(window)
                    position = window.start + window.bounds[-1]
                    self.advance(position - advanced)
                    advanced = position
            except Malformed as error:
                reason = f"no batch can begin here ({error})"
            if position < size:
                position = self.skip(position, reason)
                self.advance(position - advanced)
                advanced = position
        if self.unreported:
            self.found.faults.append(Fault(self.segment.path, "", f"and {self.unreported} more faults in this file"))
        return self.found

    def fault(self, position: int, what: str, *, unwritten: bool = False, offset: int = -1) -> None:
        if len(self.found.faults) >= FAULTS_MAX:
            self.unreported += 1
            return
        where = f"position {position}" if offset < 0 else f"position {position}, offset {offset}"
        self.found.faults.append(Fault(self.segment.path, where, what, position=position, unwritten=unwritten))

    def skip(self, position: int, reason: str) -> int:
        """Reports the unreadable bytes at `position`; returns the position where the scan continues."""
        size = self.log.size_bytes
        # sound batches may lie inside a batch with a wrong length
        start = self.last_doubtful if self.last_doubtful >= 0 else position
        resume = self.next_sound(start + 1)
        if resume is None:
            rest = size - position
            if self.is_zero(position):
                self.fault(position, f"the last {rest} bytes are zero: room that was never written", unwritten=True)
            else:
                what = reason or "a batch that is cut off"
                self.fault(position, f"{what}; the last {rest} bytes are no batches", unwritten=not reason)
            return size
        what = reason or "a batch that seems to be longer than the file"
        self.fault(position, f"{what}; {max(0, resume - position)} bytes up to the next sound batch are none")
        self.last_doubtful = -1
        return resume

    def is_zero(self, position: int) -> bool:
        while position < self.log.size_bytes:
            data = self.log.read(position, _SEARCH_BYTES)
            if data.count(0) != len(data):
                return False
            position += len(data)
        return True

    def next_sound(self, position: int) -> int | None:
        """The position of the next batch of format v2 with a right checksum; None if there is none."""
        size = self.log.size_bytes
        while position + HEADER_BYTES <= size:
            data = self.log.read(position, _SEARCH_BYTES)
            at = data.find(MAGIC, MAGIC_AT)
            while at >= 0:
                start = at - MAGIC_AT
                length = int.from_bytes(data[start + 8 : start + 12], "big") + PREFIX_BYTES
                if HEADER_BYTES <= length <= size - position - start and start + 12 <= len(data):
                    batch = memoryview(self.log.read(position + start, length))
                    if is_valid(batch) and parse_header(batch).last_offset >= self.segment.base_offset:
                        return position + start
                at = data.find(MAGIC, at + 1)
            if len(data) < _SEARCH_BYTES:
                return None
            position += len(data) - HEADER_BYTES
        return None

    def check_distance(self, rows: Rows, plausible: Flags) -> None:
        """Reports the first offset that no index can express."""
        far = np.flatnonzero(plausible & (rows.last_offset - self.segment.base_offset > RELATIVE_OFFSET_MAX))
        if len(far) and not self.overflows:
            self.overflows = True
            what = "offsets from here on are too far from the segment's own for an index to express"
            where = f"position {rows.position[far[0]]}, offset {rows.base_offset[far[0]]}"
            position = int(rows.position[far[0]])
            self.found.faults.append(Fault(self.segment.path, where, what, position=position, overflows=True))

    # one window

    def bounds_of(self, data: memoryview) -> tuple[list[int], int | None]:
        """Finds bounds as `window_bounds` does, and scans batches of v2 into columns in the same pass."""
        try:
            batches = self.batches = scan(data)
        except Malformed:
            self.batches = None
            return window_bounds(data)
        return [*batches.position.tolist(), batches.consumed_bytes], None

    def scan_window(self, window: Window) -> None:
        batches = self.batches
        if batches is None:
            self.scan_one_by_one(window)
            return
        rows = _rows(batches.position + window.start, batches.column)
        sound = self.check_headers(rows, batches.size_bytes)
        plausible = sound.copy()
        data, bounds = window.data, window.bounds
        # 0.35 us a batch beside the checksum itself
        wrong = [
            row
            for row, (at, end, crc) in enumerate(zip(bounds, bounds[1:], batches.heads["crc"].tolist(), strict=False))
            if crc32c(data[at + CRC_FROM : end]) != crc
        ]
        self.last_doubtful = -1
        for row in wrong:
            sound[row] = False
            position = window.start + bounds[row]
            self.fault(position, "the checksum of the batch is wrong", offset=int(rows.base_offset[row]))
            if row == len(bounds) - 2:
                self.last_doubtful = position
        if self.deep:
            self.check_records(window, sound)
        self.keep(rows, plausible, sound, window)

    def scan_one_by_one(self, window: Window) -> None:
        """Scans a window that holds anything but whole batches of v2."""
        heads: list[BatchHeader] = []
        kept: list[int] = []
        sound: list[bool] = []
        for at, end in zip(window.bounds, window.bounds[1:], strict=False):
            batch = window.data[at:end]
            position = window.start + at
            try:
                header = self.header_of(batch)
            except Malformed as error:
                self.fault(position, str(error))
                self.last_doubtful = position
                continue
            right = is_valid(batch)
            self.last_doubtful = -1
            if not right:
                self.fault(position, "the checksum of the batch is wrong", offset=header.base_offset)
                self.last_doubtful = position
            kept.append(at)
            heads.append(header)
            sound.append(right)
        if not heads:
            return
        columns = {
            name: np.array(values, np.int64)
            for name, values in zip(BatchHeader._fields, zip(*heads, strict=True), strict=True)
        }
        rows = _rows(np.array(kept, np.int64) + window.start, columns.__getitem__)
        plausible = self.check_headers(rows, columns["batch_length"] + PREFIX_BYTES)
        good = np.array(sound) & plausible
        if self.deep:
            self.check_records(window, good, kept)
        self.keep(rows, plausible, good, window)

    def header_of(self, batch: memoryview) -> BatchHeader:
        """The header of any format; the count of v0 and v1 is 1, which no compaction changes. Raises Malformed."""
        magic = batch[MAGIC_AT]
        if magic > MAGIC:
            raise Malformed(f"a batch of the unknown format {magic}")
        if magic == MAGIC:
            if len(batch) < HEADER_BYTES:
                raise Malformed(f"a batch of {len(batch)} bytes, shorter than its header")
            return parse_header(batch)
        self.found.has_legacy = True
        return entry_header(batch)._replace(record_count=1)

    def check_headers(self, rows: Rows, size: Array) -> Flags:
        """True for each batch with a plausible header; reports a fault for every other one."""
        base, last, count = rows.base_offset, rows.last_offset, rows.record_count
        delta = last - base
        sound = np.ones(len(base), bool)
        codec = rows.attributes & 7
        limit = self.segment.next_base if self.segment.next_base >= 0 else 1 << 62
        ahead = self.ahead(base, last)
        passed = np.where(ahead, 0, last + 1)
        expected = np.maximum.accumulate(np.concatenate([[self.next_offset], passed]))[:-1]
        checks: list[tuple[Flags, str]] = [
            (base < 0, "an offset below zero"),
            (delta < 0, "a last offset before the first one"),
            (base < self.segment.base_offset, f"an offset below the segment's own, {self.segment.base_offset}"),
            (ahead, "an offset that those behind it have yet to reach"),
            (base < expected, "an offset that the log has passed already: a repeated batch, or one in the wrong place"),
            (last >= limit, f"an offset that belongs to the next segment, which begins at {limit}"),
            (count < 0, "a number of records below zero"),
            (count > delta + 1, "more records than offsets"),
            ((codec == 0) & (count * RECORD_BYTES_MIN > size), "more records than its bytes can hold"),
            (codec >= len(CODEC_NAMES), "an unknown codec"),
            ((rows.attributes & ~_ATTRIBUTES_KNOWN) != 0, "unknown attributes"),
            (((rows.attributes & CONTROL) != 0) & (count > 1), "more than one control record"),
        ]
        for wrong, what in checks:
            for row in np.flatnonzero(wrong & sound).tolist():
                sound[row] = False
                self.fault(int(rows.position[row]), f"the batch has {what}", offset=int(base[row]))
        return sound

    def ahead(self, base: Array, last: Array) -> Flags:
        """True for each batch whose offsets jump forward although later batches continue from before the jump."""
        ahead = np.zeros(len(base), bool)
        if len(base) < 2:
            return ahead
        expected = np.maximum.accumulate(np.concatenate([[self.next_offset], last + 1]))[:-1]
        later = np.minimum.accumulate(base[::-1])[::-1]
        ahead[:-1] = (base[:-1] > expected[:-1]) & (later[1:] >= expected[:-1]) & (last[:-1] >= later[1:])
        return ahead

    def note_gaps(self, rows: Rows, plausible: Flags) -> None:
        """Notes missing offsets; the segment has no batch of format v0 or v1, whose first offset would be unknown."""
        if not plausible.all():
            rows = Rows(*[column[plausible] for column in rows])
        expected = np.concatenate([[self.next_offset], rows.last_offset[:-1] + 1])
        for row in np.flatnonzero(rows.base_offset > expected).tolist()[: FAULTS_MAX - len(self.found.gaps)]:
            self.found.gaps.append((int(rows.position[row]), int(expected[row]), int(rows.base_offset[row]) - 1))

    def check_records(self, window: Window, sound: Flags, kept: list[int] | None = None) -> None:
        """Decodes sound batches and compares the records with the headers."""
        data = window.data
        if kept is None and sound.all():
            try:
                decode(data)
                return
            except Malformed:
                pass
        ends = dict(zip(window.bounds, window.bounds[1:], strict=False))
        starts = window.bounds[:-1] if kept is None else kept
        for row, at in enumerate(starts):
            if sound[row]:
                batch = data[at : ends[at]]
                try:
                    if batch[MAGIC_AT] < MAGIC:
                        count_messages(batch)
                        read_messages(batch, check_crc=True)
                    else:
                        decode(batch)
                except Malformed as error:
                    sound[row] = False
                    self.fault(window.start + at, f"the checksum is right, but {error}")

    def keep(self, rows: Rows, plausible: Flags, sound: Flags, window: Window) -> None:
        """Adds the batches to the scan, and the sound ones to the log's history. Offsets of a plausible header count
        even if the records are damaged."""
        found = self.found
        found.positions.append(rows.position)
        found.last_offsets.append(rows.last_offset)
        found.timestamps.append(rows.max_timestamp)
        self.check_distance(rows, plausible)
        if not self.found.has_legacy:
            self.note_gaps(rows, plausible)
        if plausible.any():
            self.next_offset = found.end_offset = max(self.next_offset, int(rows.last_offset[plausible][-1]) + 1)
        if not sound.all():
            rows = Rows(*[column[sound] for column in rows])
        if not len(rows.base_offset):
            return
        is_control = (rows.attributes & CONTROL) != 0
        found.records += int(rows.record_count[~is_control].sum())
        found.control_records += int(rows.record_count[is_control].sum())
        starts = rows.position - window.start

        def batch_at(row: int) -> memoryview:
            start = int(starts[row])
            return window.data[start : window.bounds[bisect_right(window.bounds, start)]]

        self.history.add(rows, batch_at)


def _rows(position: Array, column: Callable[[str], Array]) -> Rows:
    base, delta, sequence = column("base_offset"), column("last_offset_delta"), column("base_sequence")
    return Rows(
        position, base, base + delta, column("max_timestamp"), column("attributes"), column("leader_epoch"),
        column("producer_id"), column("producer_epoch"),
        np.where(sequence >= 0, (sequence + delta) & RELATIVE_OFFSET_MAX, -1), column("record_count"),
    )  # fmt: skip
