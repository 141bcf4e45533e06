"""A search over the partitions of a topic: a scan with filters, as events with its progress.

Every search is bounded: records, bytes, time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.client.scan import END, TAIL, Limits, Round, Scan, Start
from kafkalite.common.names import TopicPartition
from kafkalite.console.calls.route import Event
from kafkalite.console.messages.filters import Filter
from kafkalite.console.messages.payload import View

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient

_PROGRESS_S = 0.25
_ASK_S = 15.0


class Wanted(NamedTuple):
    """A requested search. `limit` is None for a tail."""

    topic: str
    partitions: list[int]
    start: Start
    limit: int | None = 50
    committed_only: bool = False
    markers: bool = False
    filters: Sequence[Filter] = ()
    limits: Limits = Limits(100_000, 256 << 20, 60.0)


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
        """Raises Unanswered for a partition that cannot be searched; the others can be chosen."""
        self._wanted = wanted
        self._view = view
        self._monotonic_s = monotonic_s
        self._reported_s = monotonic_s()
        self._matched = self._deleted = 0
        self._scan = Scan(
            cluster,
            [(wanted.topic, index) for index in wanted.partitions],
            wanted.start,
            self._filter,
            self._on_gap,
            timeout_s=_ASK_S,
            committed_only=wanted.committed_only,
            limits=wanted.limits,
            monotonic_s=monotonic_s,
        )
        spans = self._scan.spans.items()
        self._next = {index: span.high if self._is_backwards else span.low for (_, index), span in spans}

    def events(self) -> Iterator[Event]:
        """Records, progress now and then, and `done` at the end. A tail ends only when it is closed. Raises Unanswered,
        ConfigError, ApiError."""
        if self._wanted.start.place == TAIL:
            yield from self._tail()
            return
        reason = "limit" if self._wanted.limit == 0 else None
        for one in self._rounds() if reason is None else ():
            records = self._in_order(one)
            self._view.expect(records[: self._left])
            for record in records:
                yield Event("record", self._view.of(record))
                self._matched += 1
                self._next[record.partition] = record.offset if self._is_backwards else record.offset + 1
                if self._matched == self._wanted.limit:
                    reason = "limit"
                    break
            else:
                self._next.update({index: end for (_, index), end in one.ends.items()})
                yield from self._progress()
                continue
            break
        reason = reason or self._scan.end_reason
        following = None if reason == "end" else {str(index): at for index, at in sorted(self._next.items())}
        yield Event("done", {"reason": reason, **self._numbers(), "next": following})

    def records(self) -> Iterator[ScannedRecord]:
        """Records that `events` finds, for an export."""
        for one in self._rounds():
            for record in self._in_order(one):
                yield record
                self._matched += 1
                if self._matched == self._wanted.limit:
                    return

    @property
    def _is_backwards(self) -> bool:
        return self._wanted.start.place == END

    @property
    def _left(self) -> int:
        """How many records are still to be found, if there is a limit."""
        return (self._wanted.limit or 0) - self._matched

    def _rounds(self) -> Iterator[Round]:
        if not self._is_backwards:
            return self._scan.forwards()
        limit = self._wanted.limit or 0
        return self._scan.backwards(0 if self._wanted.filters else limit, limit * 2)

    def _in_order(self, one: Round) -> list[ScannedRecord]:
        return one.by_time(backwards=self._is_backwards)

    def _filter(self, records: list[ScannedRecord]) -> list[ScannedRecord]:
        if self._wanted.filters:
            self._view.expect(records)
        return [one for one in records if self._matches(one)]

    def _matches(self, one: ScannedRecord) -> bool:
        if one.marker is not None and not self._wanted.markers:
            return False
        return all(each(one) for each in self._wanted.filters)

    def _tail(self) -> Iterator[Event]:
        yield self._progress_event()
        for one in self._scan.tail():
            for records in one.found.values():
                self._view.expect(records)
                for record in records:
                    self._matched += 1
                    yield Event("record", self._view.of(record))
            yield from self._progress()

    # reports

    def _on_gap(self, _: TopicPartition, offset: int, position: int) -> None:
        self._deleted += position - offset

    def _progress(self) -> Iterator[Event]:
        now_s = self._monotonic_s()
        if now_s - self._reported_s >= _PROGRESS_S:
            self._reported_s = now_s
            yield self._progress_event()

    def _progress_event(self) -> Event:
        spans = self._scan.spans.values()
        done = sum(one.low >= one.high for one in spans)
        total = sum(max(0, one.end - one.start) for one in spans)
        return Event(
            "progress",
            {**self._numbers(), "total": total, "partitions_done": done, "partitions": len(spans)},
        )

    def _numbers(self) -> dict[str, int]:
        """`deleted` are the offsets that retention took before they were read."""
        return {
            "scanned": self._scan.scanned,
            "matched": self._matched,
            "scanned_bytes": self._scan.size_bytes,
            "deleted": self._deleted,
            "elapsed_ms": int(self._scan.elapsed_s * 1000),
        }
