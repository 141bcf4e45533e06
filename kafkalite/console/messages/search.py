"""A search over the partitions of a topic: forwards from offsets, backwards from ends, or at the end as records come.

It goes in rounds: a piece of each partition is read and filtered, and what is found in them is given out in the order
of time, each partition's records in the order of their offsets. Backwards and without filters the pieces are extended
until the newest records of all partitions are among them. Every search is bounded: records, bytes, time.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalite.client.log_offsets import LogOffsets
from kafkalite.console.calls.route import Event
from kafkalite.console.messages.filters import Filter
from kafkalite.console.messages.record_view import View
from kafkalite.console.messages.scanned_record import PartitionScan, ScannedRecord

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient

BEGINNING, END, OFFSET, TIME, TAIL = PLACES = ("beginning", "end", "offset", "time", "tail")
_PROGRESS_S = 0.25
_TAIL_WAIT_MS = 300
_WINDOW_MIN = 100
_WINDOW_MAX = 200_000
_ASK_S = 15.0


@dataclass(slots=True)
class Wanted:
    """A search that was asked for. `offsets` are places of some partitions. `limit` is None for a tail."""

    topic: str
    partitions: list[int]
    place: str
    offset: int = 0
    time_ms: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    limit: int | None = 50
    committed_only: bool = False
    markers: bool = False
    filters: Sequence[Filter] = ()
    max_records: int = 100_000
    max_bytes: int = 256 << 20
    max_s: float = 60.0


@dataclass(slots=True)
class _Bounds:
    """Of one partition: the log as it was when the search began, and the part that is still to be read."""

    start: int
    end: int
    low: int
    high: int
    first: int  # where the search begins in it


class Search:
    """One search. `events` does the work, in the thread that asks for the next one."""

    def __init__(
        self,
        cluster: ClusterClient,
        wanted: Wanted,
        view: View,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wanted = wanted
        self._view = view
        self._cluster = cluster
        self._monotonic_s = monotonic_s
        self._began_s = self._told_s = monotonic_s()
        self._scanned = self._matched = 0
        self._scans = {
            index: PartitionScan(cluster, wanted.topic, index, committed_only=wanted.committed_only)
            for index in wanted.partitions
        }
        self._bounds = self._find_bounds()
        self._next: dict[int, int] = {}

    # the bounds

    def _find_bounds(self) -> dict[int, _Bounds]:
        """Raises Unanswered for a partition that cannot be searched; the others can be chosen."""
        wanted = self._wanted
        of_logs = LogOffsets(self._cluster, _ASK_S)
        keys = [(wanted.topic, index) for index in wanted.partitions]
        starts = of_logs.starts(keys)
        ends = of_logs.ends(keys, committed=wanted.committed_only)
        at = of_logs.at_time(keys, wanted.time_ms) if wanted.place == TIME else {}
        found = {}
        for key in keys:
            start, end, index = starts[key], max(starts[key], ends[key]), key[1]
            low, high = start, end
            if wanted.place == END:
                high = min(max(wanted.offsets.get(index, end), start), end)
            elif wanted.place == TAIL:
                low = end
            elif wanted.place == TIME:
                low = at.get(key, end)
            elif wanted.place == OFFSET:
                low = min(max(wanted.offsets.get(index, wanted.offset), start), end)
            found[index] = _Bounds(start, end, low, high, high if wanted.place == END else low)
        return found

    # the events

    def events(self) -> Iterator[Event]:
        """Records, progress now and then, and `done` at the end. A tail ends only when it is closed. Raises Unanswered,
        ConfigError, ApiError."""
        if self._wanted.place == TAIL:
            yield from self._tail()
            return
        backwards = self._wanted.place == END
        reason = "limit" if self._wanted.limit == 0 else None
        while reason is None:
            pieces = self._pieces_backwards() if backwards else self._pieces_forwards()
            yield from pieces.progress
            self._view.expect(pieces.merged[: self._left])
            for one in pieces.merged:
                yield Event("record", self._view.of(one))
                self._matched += 1
                self._next[one.partition] = one.offset if backwards else one.offset + 1
                if self._matched == self._wanted.limit:
                    reason = "limit"
                    break
            else:
                self._next.update(pieces.ends)
                reason = self._reason_to_end()
            if reason is None:
                yield from self._progress()
        yield self._done(reason, is_whole=reason == "end")

    def records(self) -> Iterator[ScannedRecord]:
        """Records that `events` finds, for an export."""
        count = 0
        pieces = self._pieces_backwards if self._wanted.place == END else self._pieces_forwards
        while self._reason_to_end() is None:
            for one in pieces().merged:
                yield one
                count += 1
                self._matched = count
                if count == self._wanted.limit:
                    return

    @property
    def _left(self) -> int:
        """How many records are still to be found, if there is a limit."""
        return (self._wanted.limit or 0) - self._matched

    def _reason_to_end(self) -> str | None:
        wanted = self._wanted
        if all(one.low >= one.high for one in self._bounds.values()):
            return "end"
        if self._scanned >= wanted.max_records:
            return "max_records"
        if self._size_bytes >= wanted.max_bytes:
            return "max_bytes"
        if self._monotonic_s() - self._began_s >= wanted.max_s:
            return "max_ms"
        return None

    @property
    def _size_bytes(self) -> int:
        return sum(scan.size_bytes for scan in self._scans.values())

    def _is_found(self, one: ScannedRecord) -> bool:
        if one.marker is not None and not self._wanted.markers:
            return False
        return all(each(one) for each in self._wanted.filters)

    def _filtered(self, records: list[ScannedRecord]) -> list[ScannedRecord]:
        self._scanned += len(records)
        if self._wanted.filters:
            self._view.expect(records)
        return [one for one in records if self._is_found(one)]

    # pieces

    def _pieces_forwards(self) -> _Pieces:
        """The next piece of each partition that has one."""
        found, ends = [], {}
        for index, bounds in self._bounds.items():
            if bounds.low >= bounds.high:
                continue
            scan = self._scans[index]
            found.append(self._filtered(scan.read(bounds.low, bounds.high)))
            bounds.low = max(scan.position, bounds.low + 1)
            ends[index] = bounds.low
            if self._is_over_time():
                break
        return _Pieces(list(heapq.merge(*found, key=_time_of)), ends, [])

    def _is_over_time(self) -> bool:
        return self._monotonic_s() - self._began_s >= self._wanted.max_s

    def _pieces_backwards(self) -> _Pieces:
        """The newest pieces of each partition. Without filters they hold as many records as are wanted, so that the
        newest of all partitions are among them."""
        wanted = self._wanted
        enough = self._left if not wanted.filters else 0
        found, ends = [], {}
        progress: list[Event] = []
        for index, bounds in self._bounds.items():
            records: list[ScannedRecord] = []
            window = max(_WINDOW_MIN, (wanted.limit or 0) * 2)
            while bounds.low < bounds.high:
                low = max(bounds.low, bounds.high - window)
                records = self._filtered(self._window(index, low, bounds.high)) + records
                bounds.high = low
                window = min(window * 4, _WINDOW_MAX)
                if len(records) >= enough or self._reason_to_end() is not None:
                    break
                progress += self._progress()
            ends[index] = bounds.high
            found.append(records[::-1])
        return _Pieces(list(heapq.merge(*found, key=lambda one: -one.timestamp)), ends, progress)

    def _window(self, index: int, low: int, high: int) -> list[ScannedRecord]:
        scan, found, position = self._scans[index], list[ScannedRecord](), low
        while position < high:
            found += scan.read(position, high)
            position = max(scan.position, position + 1)
        return found

    def _tail(self) -> Iterator[Event]:
        """Records as they come. A partition waits for a moment at most, so that all have their turn."""
        yield self._progress_event()
        wait_ms = max(1, _TAIL_WAIT_MS // max(1, len(self._bounds)))
        no_end = 1 << 62
        while True:
            for index, bounds in self._bounds.items():
                scan = self._scans[index]
                records = self._filtered(scan.read(bounds.low, no_end, max_wait_ms=wait_ms))
                self._view.expect(records)
                for one in records:
                    self._matched += 1
                    yield Event("record", self._view.of(one))
                bounds.low = scan.position if scan.position < no_end else self._log_end(index)
            yield from self._progress()

    def _log_end(self, index: int) -> int:
        """After a leader was elected that lacks some records: the end of now."""
        key = (self._wanted.topic, index)
        return LogOffsets(self._cluster, _ASK_S).ends([key])[key]

    # reports

    def _progress(self) -> Iterator[Event]:
        now_s = self._monotonic_s()
        if now_s - self._told_s >= _PROGRESS_S:
            self._told_s = now_s
            yield self._progress_event()

    def _progress_event(self) -> Event:
        done = sum(one.low >= one.high for one in self._bounds.values())
        total = sum(max(0, one.end - one.start) for one in self._bounds.values())
        return Event(
            "progress",
            {**self._numbers(), "total": total, "partitions_done": done, "partitions": len(self._bounds)},
        )

    def _numbers(self) -> dict[str, int]:
        return {
            "scanned": self._scanned,
            "matched": self._matched,
            "scanned_bytes": self._size_bytes,
            "elapsed_ms": int((self._monotonic_s() - self._began_s) * 1000),
        }

    def _done(self, reason: str, *, is_whole: bool) -> Event:
        following = None if is_whole else {str(index): at for index, at in sorted(self._places_to_go_on().items())}
        return Event("done", {"reason": reason, **self._numbers(), "next": following})

    def _places_to_go_on(self) -> dict[int, int]:
        """Of every partition: behind the last record that was given out, or where it was read to."""
        return {index: self._next.get(index, bounds.first) for index, bounds in self._bounds.items()}


@dataclass(slots=True)
class _Pieces:
    """Findings of one round, in the order of time, and where each partition was read to."""

    merged: list[ScannedRecord]
    ends: dict[int, int]
    progress: list[Event]


def _time_of(one: ScannedRecord) -> int:
    return one.timestamp
