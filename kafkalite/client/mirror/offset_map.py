"""Translation of a partition's offsets at the source to those of its copy, never to one behind an unread record.

The copy is known as runs: records that lie without a gap in both logs. Inside of a run the translation is exact. Behind
its end it is the end of the run in the copy, up to the next run: markers, records that compaction has removed and
aborted transactions leave gaps, on both sides. A copy with the offsets of its source is one run, gaps and all. Old runs
are thinned out; an offset in a run that is forgotten becomes the end of the one before, so a consumer there reads some
records again.
Source: org.apache.kafka.connect.mirror.OffsetSyncStore, which knows single offsets only.
"""

from __future__ import annotations

import threading
from bisect import bisect_right

from kafkalite.client.mirror.state_records import Run

RUNS_MAX = 4096


class OffsetMap:
    """The runs of one partition, ascending. One thread appends while another translates.

    Invariant: each run begins at or behind the end of the one before, in both logs."""

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self._lock = threading.Lock()
        self._runs_max = runs_max
        self._runs: list[Run] = []
        self._starts: list[int] = []

    def append(self, run: Run) -> None:
        """A run of committed records. One that begins before the end of the last belongs to another log: the map
        begins again."""
        with self._lock:
            if self._runs and not _is_behind(self._runs[-1], run):
                self._runs.clear()
                self._starts.clear()
            extend(self._runs, run)
            if len(self._starts) < len(self._runs):
                self._starts.append(run.source)
            if len(self._runs) > self._runs_max:
                self._thin_out()

    @property
    def last(self) -> Run | None:
        """The last run."""
        with self._lock:
            return self._runs[-1] if self._runs else None

    def clear(self) -> None:
        with self._lock:
            self._runs, self._starts = [], []

    def translate(self, offset: int) -> int | None:
        """The offset of the copy from which a consumer reads what it has not read at the source from `offset` on; None
        if nothing is known that far back."""
        with self._lock:
            at = bisect_right(self._starts, offset) - 1
            if at < 0:
                return None
            run = self._runs[at]
            return run.target + min(offset - run.source, run.records)

    def _thin_out(self) -> None:
        """Keeps every second run of the older half."""
        half = len(self._runs) // 2
        self._runs = self._runs[:half:2] + self._runs[half:]
        self._starts = [run.source for run in self._runs]


def _is_behind(last: Run, run: Run) -> bool:
    return run.source >= last.source + last.records and run.target >= last.target + last.records


def extend(runs: list[Run], run: Run) -> None:
    """Appends a run, or makes the last one longer."""
    last = runs[-1] if runs else None
    if last is not None and run.source == last.source + last.records and run.target == last.target + last.records:
        runs[-1] = last._replace(records=last.records + run.records)
    else:
        runs.append(run)
