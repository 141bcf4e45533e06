"""Samples of the last hour: numbers of every broker, and the lag of groups.

Each sample is a report of a broker; rates are differences between two. The memory is bounded: an hour of samples, some
hundred brokers, some hundred groups. An Apache Kafka has no reports, so only lags are sampled from it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from kafkalite.common.named_tuple import NamedTuple

INTERVAL_MS = 5_000
KEPT_MS = 3_600_000
SAMPLES_MAX = KEPT_MS // INTERVAL_MS
GROUPS_MAX = 500
BROKERS_MAX = 100
LAG_EVERY = 3  # samples: the lag of all groups takes more requests
_LAG_GROWTH_MIN = 100  # records; a group that is behind by less keeps up
_UNSTABLE_MS = 60_000
_UNSTABLE_MIN = 4  # generations within that time

# a rate, and the number of a report that grows by it
_RATES = {
    "produce_bytes_per_s": "bytes_in",
    "fetch_bytes_per_s": "bytes_out",
    "requests_per_s": "requests",
    "produce_records_per_s": "records_in",
    "produce_requests_per_s": "produce_requests",
    "fetch_requests_per_s": "fetch_requests",
    "cleaner_bytes_per_s": "cleaner_bytes",
}
_GAUGES = ("connections", "under_replicated", "disk_used_bytes")
_LATENCIES = ("produce_p50_ms", "produce_p99_ms", "fetch_p50_ms", "fetch_p99_ms")
SERIES = (*_RATES, *_GAUGES, *_LATENCIES)

Values = dict[str, float | None]
Row = dict[str, Any]


class _Sample(NamedTuple):
    """The values of one time: of each broker, and of all together (None as a broker)."""

    time_ms: int
    values: dict[int | None, Values]


class _Lag(NamedTuple):
    time_ms: int
    lag: int | None
    lag_records: int | None


class History:
    """Filled by one thread, read by many. `wall_ms` dates the samples."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_MAX)
        self._last: dict[int, tuple[int, Mapping[str, Any]]] = {}
        self._lags: dict[str, deque[_Lag]] = {}
        self._generations: dict[str, deque[tuple[int, int]]] = {}

    def add(self, reports: Mapping[int, Mapping[str, Any]]) -> None:
        """The reports of one time, by broker."""
        now_ms = self._wall_ms()
        values: dict[int | None, Values] = {}
        for broker_id, report in list(reports.items())[:BROKERS_MAX]:
            values[broker_id] = _values(self._last.get(broker_id), now_ms, report)
            self._last[broker_id] = now_ms, report
        if values:
            values[None] = _together(list(values.values()))
            with self._lock:
                self._samples.append(_Sample(now_ms, values))

    def add_lags(self, rows: Iterable[Row]) -> None:
        """The lags of the groups that exist now; series of others are dropped when there is no room."""
        now_ms = self._wall_ms()
        with self._lock:
            for row in rows:
                kept = self._lags.get(row["group_id"])
                if kept is None:
                    if len(self._lags) >= GROUPS_MAX:
                        self._forget_oldest()
                    kept = self._lags[row["group_id"]] = deque(maxlen=SAMPLES_MAX // LAG_EVERY)
                kept.append(_Lag(now_ms, row["lag"], row["lag_records"]))

    def _forget_oldest(self) -> None:
        oldest = min(self._lags, key=lambda group_id: self._lags[group_id][-1].time_ms)
        del self._lags[oldest]

    def newest(self, broker_id: int | None = None) -> Values:
        """The newest values of a broker, or of all; each None if unknown."""
        with self._lock:
            sample = self._samples[-1] if self._samples else None
        found = {} if sample is None else sample.values.get(broker_id, {})
        return {name: found.get(name) for name in SERIES}

    def series(self, broker_id: int | None, minutes: int) -> Row:
        since_ms = self._wall_ms() - minutes * 60_000
        with self._lock:
            samples = [one for one in self._samples if one.time_ms >= since_ms]
        return {
            "interval_ms": INTERVAL_MS,
            "times_ms": [one.time_ms for one in samples],
            "series": {name: [one.values.get(broker_id, {}).get(name) for one in samples] for name in SERIES},
        }

    def lag_of(self, group_id: str, minutes: int) -> Row:
        since_ms = self._wall_ms() - minutes * 60_000
        with self._lock:
            kept = [one for one in self._lags.get(group_id, ()) if one.time_ms >= since_ms]
        return {
            "interval_ms": INTERVAL_MS * LAG_EVERY,
            "times_ms": [one.time_ms for one in kept],
            "lag": [one.lag for one in kept],
            "lag_records": [one.lag_records for one in kept],
        }

    def add_generations(self, generations: Mapping[str, int]) -> None:
        """The generations of the groups with members, of one time."""
        now_ms = self._wall_ms()
        with self._lock:
            for group_id in set(self._generations) - set(generations):
                del self._generations[group_id]
            for group_id, generation in list(generations.items())[:GROUPS_MAX]:
                kept = self._generations.setdefault(group_id, deque())
                kept.append((now_ms, generation))
                while kept[0][0] < now_ms - _UNSTABLE_MS:
                    kept.popleft()

    def unstable_groups(self) -> dict[str, tuple[int, int]]:
        """Groups that have rebalanced again and again: (generations, within how many ms)."""
        found = {}
        with self._lock:
            for group_id, kept in self._generations.items():
                count = kept[-1][1] - kept[0][1]
                if count >= _UNSTABLE_MIN:
                    found[group_id] = count, kept[-1][0] - kept[0][0]
        return found

    def growing_lags(self) -> dict[str, tuple[int, int]]:
        """Groups whose lag has grown in each of the last samples, by more than some records: (before, now)."""
        found = {}
        with self._lock:
            for group_id, kept in self._lags.items():
                last = [one.lag for one in list(kept)[-5:] if one.lag is not None]
                if len(last) == 5 and last[-1] - last[0] >= _LAG_GROWTH_MIN and all(a < b for a, b in pairwise(last)):
                    found[group_id] = last[0], last[-1]
        return found


def _values(last: tuple[int, Mapping[str, Any]] | None, now_ms: int, report: Mapping[str, Any]) -> Values:
    """The values of one report. Without an earlier one, and after a restart, there are no rates."""
    values: Values = {name: report.get(name) for name in (*_GAUGES, *_LATENCIES)}
    for name, counter in _RATES.items():
        values[name] = None
        if last is None or now_ms <= last[0]:
            continue
        before, now = last[1].get(counter), report.get(counter)
        if before is not None and now is not None and now >= before:
            values[name] = round((now - before) * 1000 / (now_ms - last[0]), 2)
    return values


def _together(each: list[Values]) -> Values:
    """The values of all brokers together: sums, and for latencies the maximum."""
    total: Values = {}
    for name in SERIES:
        known = [value for values in each if (value := values.get(name)) is not None]
        total[name] = None if not known else max(known) if name in _LATENCIES else sum(known)
    return total
