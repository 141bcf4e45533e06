"""A scan of partitions for people: forwards from offsets, backwards from ends, or at the ends as records arrive.

It works in rounds: a piece of each partition is read and filtered. The caller gets the records of a round in the order
of time, or partition by partition, each partition's records in the order of their offsets. Backwards the pieces are
extended until they contain the newest records of all partitions: compaction and markers leave gaps. If retention
overtakes the scan it resumes at the log's start and reports the gap; if a leader is gone it retries with the new one
for a while.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.fetching import FETCH_BYTES
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.partition_scan import MayMatch, PartitionScan, ScannedRecord
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import Refused, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition

BEGINNING, END, OFFSET, TIME, TAIL = PLACES = ("beginning", "end", "offset", "time", "tail")
_WINDOW_MIN, _WINDOW_MAX = 100, 200_000  # offsets
_WINDOW_GROWTH = 4
_WINDOW_BYTES = 16 << 20
_FETCH_BYTES_MIN = 64 << 10
_TAIL_WAIT_MS = 300
LEADER_WAIT_S = 10.0
_LEADER_PAUSE_S = 0.25
_NO_END = 1 << 62

Select = Callable[[list[ScannedRecord]], list[ScannedRecord]]


@dataclass(slots=True)
class Span:
    """One partition's part of a scan: the log as it was when the scan began, and the offsets still to be read."""

    start: int
    end: int
    low: int
    high: int


@dataclass(slots=True)
class _Window:
    """The offsets that a scan backwards reads next of one partition, and the bytes that an offset has taken so far."""

    offsets: int
    _bytes_per_offset: float | None = None

    def fetch_bytes(self, offsets: int) -> int:
        """The size of a fetch for so many offsets: little more than they need, since the rest is read in vain."""
        if self._bytes_per_offset is None:
            return _FETCH_BYTES_MIN
        return min(FETCH_BYTES, _FETCH_BYTES_MIN + int(1.25 * self._bytes_per_offset * offsets))

    def grow(self, read_bytes: int, offsets: int) -> None:
        """Chooses the next window, after one of `offsets` that took `read_bytes`."""
        self._bytes_per_offset = read_bytes / max(1, offsets)
        fitting = max(_WINDOW_MIN, int(_WINDOW_BYTES / max(0.01, self._bytes_per_offset)))
        self.offsets = min(self.offsets * _WINDOW_GROWTH, fitting, _WINDOW_MAX)


class Start(NamedTuple):
    """The start of a scan, one of PLACES. `offset` is that of OFFSET, `offsets` those of some partitions, also for
    END and TAIL. A scan ends before the first record that is as late as `until_ms`."""

    place: str
    offset: int = 0
    time_ms: int = 0
    offsets: Mapping[TopicPartition, int] = MappingProxyType({})
    until_ms: int | None = None


class Limits(NamedTuple):
    """Bounds of a scan: records, bytes, time."""

    max_records: int = 1 << 62
    max_bytes: int = 1 << 62
    max_s: float = float("inf")


NO_LIMITS = Limits()


class Round(NamedTuple):
    """The selected records of each partition in the order of the scan, and the offset up to which it was read."""

    found: dict[TopicPartition, list[ScannedRecord]]
    ends: dict[TopicPartition, int]

    def by_time(self, *, backwards: bool = False) -> list[ScannedRecord]:
        """All records in the order of time, of a scan backwards the newest first."""
        sign = -1 if backwards else 1
        return list(heapq.merge(*self.found.values(), key=lambda one: sign * one.timestamp))


class Scan:
    """`select` filters the records of a piece. `on_gap` is called with a partition, the offset to be read, and the
    log's start. `may_match` spares the decoding of batches. `scanned` counts the records that were read. A partition
    without a leader is retried for `leader_wait_s`. Raises Unanswered, also for a partition that cannot be
    searched, and ConfigError.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        partitions: Sequence[TopicPartition],
        start: Start,
        select: Select,
        on_gap: Callable[[TopicPartition, int, int], object],
        *,
        timeout_s: float,
        committed_only: bool = False,
        limits: Limits = NO_LIMITS,
        leader_wait_s: float = LEADER_WAIT_S,
        monotonic_s: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], None] = time.sleep,
        may_match: MayMatch | None = None,
    ) -> None:
        self._cluster = cluster
        self._offsets = LogOffsets(cluster, timeout_s, monotonic_s=monotonic_s, sleep=sleep)
        self._select = select
        self._on_gap = on_gap
        self._limits = limits
        self._leader_wait_s = leader_wait_s
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._began_s = monotonic_s()
        self._scans = {
            key: PartitionScan(cluster, *key, committed_only=committed_only, may_match=may_match) for key in partitions
        }
        self.spans = self._find_spans(start, committed_only)

    def _find_spans(self, start: Start, committed_only: bool) -> dict[TopicPartition, Span]:
        starts, ends = self._offsets.starts(self._scans), self._offsets.ends(self._scans, committed=committed_only)
        at = self._offsets.at_time(self._scans, start.time_ms) if start.place == TIME else {}
        until = {} if start.until_ms is None else self._offsets.at_time(self._scans, start.until_ms)
        found = {}
        for key in self._scans:
            first, end = starts[key], max(starts[key], ends[key])
            given = min(max(start.offsets.get(key, end if start.place == END else start.offset), first), end)
            low = {TAIL: min(start.offsets.get(key, end), end), TIME: at.get(key, end), OFFSET: given}.get(
                start.place, first
            )
            high = min(given if start.place == END else end, until.get(key, end))
            found[key] = Span(first, end, min(low, high), high)
        return found

    @property
    def scanned(self) -> int:
        return sum(scan.record_count for scan in self._scans.values())

    @property
    def size_bytes(self) -> int:
        return sum(scan.size_bytes for scan in self._scans.values())

    @property
    def elapsed_s(self) -> float:
        return self._monotonic_s() - self._began_s

    @property
    def end_reason(self) -> str | None:
        """The reason why a scan forwards or backwards ends: "end" if everything is read, or a limit."""
        if all(span.low >= span.high for span in self.spans.values()):
            return "end"
        if self.scanned >= self._limits.max_records:
            return "max_records"
        if self.size_bytes >= self._limits.max_bytes:
            return "max_bytes"
        return "max_ms" if self.elapsed_s >= self._limits.max_s else None

    def forwards(self) -> Iterator[Round]:
        """Rounds of the next piece of each partition."""
        while self.end_reason is None:
            found, ends = {}, {}
            for key, span in self.spans.items():
                if span.low >= span.high:
                    continue
                found[key] = self._read(key, span.low, span.high)
                span.low = ends[key] = max(self._scans[key].position, span.low + 1)
                if self.elapsed_s >= self._limits.max_s:
                    break
            yield Round(found, ends)

    def backwards(self, enough: int, window: int = _WINDOW_MIN, keep: int = 1 << 62) -> Iterator[Round]:
        """Rounds of the newest records of each partition, newest first: `enough` of each within the limits, so that the
        newest of all partitions are among them, and at most the newest `keep`. The first window of a partition has
        `window` offsets, each further one is larger; an empty round in between reports progress."""
        windows = {key: _Window(max(window, _WINDOW_MIN)) for key in self.spans}
        while self.end_reason is None:
            found: dict[TopicPartition, list[ScannedRecord]] = {}
            ends = {}
            for key, span in self.spans.items():
                records: list[ScannedRecord] = []
                while span.low < span.high:
                    records = (self._read_window(key, span, windows[key], keep) + records)[-keep:]
                    if len(records) >= enough or self.end_reason is not None:
                        break
                    yield Round({}, {})
                found[key], ends[key] = records[::-1], span.high
            yield Round(found, ends)

    def tail(self) -> Iterator[Round]:
        """Rounds of the new records of one partition each, from the ends of the logs or the given offsets on; a round
        may be empty. Polls each partition for a moment, one after the other. Never ends by itself."""
        wait_ms = max(1, _TAIL_WAIT_MS // max(1, len(self.spans)))
        positions = {key: span.low for key, span in self.spans.items()}
        while True:
            for key, before in positions.items():
                records = self._read(key, before, _NO_END, wait_ms)
                position = self._scans[key].position
                if position >= _NO_END:  # a leader was elected that lacks some records
                    position = min(before, self._offsets.ends([key])[key])
                positions[key] = position
                yield Round({key: records}, {key: position})

    def _read_window(self, key: TopicPartition, span: Span, window: _Window, keep: int) -> list[ScannedRecord]:
        """The newest selected records at the end of a span, which becomes shorter by the window. A window begins with a
        batch, so that none is read twice."""
        scan, high = self._scans[key], span.high
        offsets = min(window.offsets, max(_WINDOW_MIN, self._limits.max_records - self.scanned))
        position = max(span.low, high - offsets)
        read_before = scan.size_bytes
        found = self._read(key, position, high, max_bytes=window.fetch_bytes(high - position), floor=span.low)
        span.high = scan.first
        while (position := max(scan.position, position + 1)) < high:
            found = (found + self._read(key, position, high, max_bytes=window.fetch_bytes(high - position)))[-keep:]
        window.grow(scan.size_bytes - read_before, high - span.high)
        return found

    def _read(
        self,
        key: TopicPartition,
        offset: int,
        end: int,
        wait_ms: int = 0,
        *,
        max_bytes: int = FETCH_BYTES,
        floor: int | None = None,
    ) -> list[ScannedRecord]:
        """The selected records of a piece. Refreshes the metadata while there is no leader."""
        scan, failing_since_s = self._scans[key], None
        while True:
            try:
                records = scan.read(offset, end, max_wait_ms=wait_ms, max_bytes=max_bytes, floor=floor)
                break
            except Refused:
                raise
            except Unanswered:
                now_s = self._monotonic_s()
                failing_since_s = now_s if failing_since_s is None else failing_since_s
                if now_s - failing_since_s >= min(self._leader_wait_s, self._limits.max_s):
                    raise
                self._sleep(_LEADER_PAUSE_S)
                with suppress(Unanswered):
                    self._cluster.refresh()
        if scan.is_overtaken:
            self._on_gap(key, offset, scan.position)
        return self._select(records)
