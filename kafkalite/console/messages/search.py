"""A search over the partitions of a topic: a scan with filters, as events with its progress.

Every search is bounded: records, bytes, time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.client.scan import END, LEADER_WAIT_S, TAIL, Limits, Round, Scan, Start
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.console.calls.route import Event
from kafkalite.console.messages.expressions import Expression
from kafkalite.console.messages.filters import Filter, screen_of_all
from kafkalite.console.messages.payload import View

_PROGRESS_S = 0.25
_ASK_S = 15.0
_TAIL_WAIT_S = 1.0  # its page says that it is interrupted, and resumes it


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
    expression: Expression | None = None


class Search:
    """One search. `events` does the work, in the thread that iterates over it."""

    def __init__(
        self,
        cluster: ClusterClient,
        wanted: Wanted,
        view: View,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises Unanswered for a partition that cannot be searched; a query may name the others."""
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
            leader_wait_s=_TAIL_WAIT_S if wanted.start.place == TAIL else LEADER_WAIT_S,
            monotonic_s=monotonic_s,
            may_match=screen_of_all(wanted.filters),
        )
        spans = self._scan.spans.items()
        self._next = {index: span.high if self._is_backwards else span.low for (_, index), span in spans}
        self._total = sum(span.high - span.low for _, span in spans)

    def events(self) -> Iterator[Event]:
        """Yields records, progress now and then, and `done` at the end. A tail ends only when it is closed. Raises
        Unanswered, ConfigError, ApiError."""
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
        following = None if reason == "end" else self._positions()
        yield Event("done", {"reason": reason, **self._numbers(), "next": following})

    def records(self) -> Iterator[ScannedRecord]:
        """The records that match, for an export."""
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
    def _is_filtered(self) -> bool:
        return bool(self._wanted.filters) or self._wanted.expression is not None

    @property
    def _left(self) -> int:
        """How many records are still to be found, if there is a limit."""
        return (self._wanted.limit or 0) - self._matched

    def _rounds(self) -> Iterator[Round]:
        if not self._is_backwards:
            return self._scan.forwards()
        limit = self._wanted.limit or 0
        return self._scan.backwards(0 if self._is_filtered else limit, limit * 2, limit)

    def _in_order(self, one: Round) -> list[ScannedRecord]:
        return one.by_time(backwards=self._is_backwards)

    def _filter(self, records: list[ScannedRecord]) -> list[ScannedRecord]:
        if self._wanted.filters:
            self._view.expect(records)
        found = records if self._wanted.markers else [one for one in records if one.marker is None]
        for each in self._wanted.filters:
            found = [one for one in found if each.matches(one)]
        return found if self._wanted.expression is None else self._wanted.expression.matching(found)

    def _tail(self) -> Iterator[Event]:
        yield self._progress_event()
        for one in self._scan.tail():
            for records in one.found.values():
                self._view.expect(records)
                for record in records:
                    self._matched += 1
                    yield Event("record", self._view.of(record))
            self._next.update({index: end for (_, index), end in one.ends.items()})
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
        row = {**self._numbers(), "partitions_done": done, "partitions": len(spans)}
        if self._wanted.start.place == TAIL:
            row["next"] = self._positions()
        return Event("progress", row)

    def _positions(self) -> dict[str, int]:
        """The offset of each partition at which another search continues this one."""
        return {str(index): at for index, at in sorted(self._next.items())}

    def _numbers(self) -> dict[str, Any]:
        """The counters of the search. `total` is the number of offsets from its start to its end, `deleted` that of
        offsets that retention deleted before they were read."""
        return {
            "total": self._total,
            "scanned": self._scan.scanned,
            "matched": self._matched,
            "scanned_bytes": self._scan.size_bytes,
            "deleted": self._deleted,
            "elapsed_ms": int(self._scan.elapsed_s * 1000),
            **self._faults(),
        }

    def _faults(self) -> dict[str, Any]:
        """The number of records for which the expression failed, and the last reason."""
        expression = self._wanted.expression
        if expression is None or not expression.faults:
            return {}
        return {"filter_faults": expression.faults, "filter_fault": expression.fault}
