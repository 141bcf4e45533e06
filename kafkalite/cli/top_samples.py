"""Numbers for `kafkalite top`: topics, groups and brokers of a cluster, and their rates between two samples.

A sample takes a few requests to each broker: offsets and sizes of all partitions, the lags of all groups, and a report
of each kafkalite. Numbers that an Apache Kafka does not have, or a broker refuses, are None.
Source: ListOffsets, DescribeLogDirs, OffsetFetch; BrokerReport for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from kafkalite.client.broker_reports import KnowsBrokers, reports
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_rows import group_rows
from kafkalite.client.history import History
from kafkalite.client.log_dirs import directories, led_partitions
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import INTERNAL_TOPICS, NO_LEADER, TopicPartition
from kafkalite.common.text import size_text

TOPICS, GROUPS, BROKERS = VIEWS = ("topics", "groups", "brokers")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    TOPICS: ("topic", "partitions", "replicas", "offsets_per_s", "bytes_per_s", "size_bytes", "under_replicated"),
    GROUPS: ("group", "state", "members", "lag", "lag_records", "lag_per_s", "topics"),
    BROKERS: (
        "broker", "address", "leads", "produce_bytes_per_s", "fetch_bytes_per_s", "requests_per_s", "produce_p99_ms",
        "connections", "disk_used_bytes",
    ),
}  # fmt: skip
_ASK_S = 10.0

Row = dict[str, Any]


class Sample(NamedTuple):
    """Rows of each view, with the columns of `COLUMNS`, and how long the requests took."""

    rows: Mapping[str, list[Row]]
    took_s: float


class _Seen(NamedTuple):
    at_s: float
    ends: dict[str, int]
    sizes: dict[str, int]
    lags: dict[str, int]


class Sampler(KnowsBrokers):
    """Takes samples of a cluster; rates are those since the previous sample. Raises Unanswered, ConfigError."""

    def __init__(
        self, cluster: ClusterClient, *, internal: bool, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._internal = internal
        self._monotonic_s = monotonic_s
        self._history = History(lambda: int(monotonic_s() * 1000))
        self._before: _Seen | None = None

    def take(self) -> Sample:
        began_s = self._monotonic_s()
        cluster = self._cluster
        cluster.refresh()
        ends, sizes = self._ends(), self._sizes()
        groups = self._group_rows()
        seen = _Seen(began_s, ends, sizes, {row["group"]: row["lag"] for row in groups if row["lag"] is not None})
        before, self._before = self._before, seen
        rows = {TOPICS: self._topics(before, seen), GROUPS: groups, BROKERS: self._brokers()}
        for row in groups:
            row["lag_per_s"] = _rate(before, seen, "lags", row["group"], falls=True)
        return Sample(rows, self._monotonic_s() - began_s)

    def _ends(self) -> dict[str, int]:
        """The sum of the ends of each topic."""
        return self._sums(LogOffsets(self._cluster, _ASK_S).known_ends(self._cluster.places).offsets)

    def _sums(self, numbers: Mapping[TopicPartition, int]) -> dict[str, int]:
        """The sums by topic, without topics that have a partition of unknown size or end."""
        found: dict[str, int] = {}
        for (topic, _), number in numbers.items():
            found[topic] = found.get(topic, 0) + number
        for topic, _ in self._cluster.places.keys() - numbers.keys():
            found.pop(topic, None)
        return found

    def _sizes(self) -> dict[str, int]:
        """The bytes of each topic at its leaders."""
        found: dict[TopicPartition, int] = {}
        for broker_id, led in self._cluster.led_by(()).items():
            with suppress(Unanswered):
                partitions = led_partitions(directories(self._cluster.client(broker_id)), led)
                found.update((key, one.partition_size) for key, one, _ in partitions)
        return self._sums(found)

    def _topics(self, before: _Seen | None, seen: _Seen) -> list[Row]:
        rows: dict[str, Row] = {}
        for (topic, _), place in self._cluster.places.items():
            if topic in INTERNAL_TOPICS and not self._internal:
                continue
            row = rows.get(topic)
            if row is None:
                row = rows[topic] = {
                    "topic": topic,
                    "partitions": 0,
                    "replicas": 0,
                    "offsets_per_s": _rate(before, seen, "ends", topic),
                    "bytes_per_s": _rate(before, seen, "sizes", topic),
                    "size_bytes": seen.sizes.get(topic),
                    "under_replicated": 0,
                }
            row["partitions"] += 1
            row["replicas"] = max(row["replicas"], len(place.replicas))
            row["under_replicated"] += place.leader == NO_LEADER or len(place.isr) < len(place.replicas)
        return list(rows.values())

    def _group_rows(self) -> list[Row]:
        return [
            {
                "group": row["group_id"],
                "state": row["state"],
                "members": row["members"],
                "lag": row["lag"],
                "lag_records": row["lag_records"],
                "lag_per_s": None,
                "topics": ",".join(row["topics"]),
            }
            for row in group_rows(self._cluster, self)
        ]

    def _brokers(self) -> list[Row]:
        self._history.add(reports(self._cluster, self, "broker"))
        led = self._cluster.led_by(())
        names = COLUMNS[BROKERS][3:]
        rows = []
        for broker_id, address in sorted(self._cluster.brokers.items()):
            values = self._history.newest(broker_id)
            named = {name: values.get(name) for name in names}
            rows.append({"broker": broker_id, "address": address, "leads": len(led.get(broker_id, ())), **named})
        return rows


def _rate(before: _Seen | None, seen: _Seen, what: str, name: str, *, falls: bool = False) -> float | None:
    """The growth per second of a number; None if it was unknown. Never negative, unless it `falls`: deletion is no
    negative rate."""
    if before is None or seen.at_s <= before.at_s:
        return None
    was, now = getattr(before, what).get(name), getattr(seen, what).get(name)
    if was is None or now is None:
        return None
    grown = now - was if falls else max(0, now - was)
    return round(float(grown) / (seen.at_s - before.at_s), 1)


def in_order(rows: list[Row], column: str, *, ascending: bool, words: str = "") -> list[Row]:
    """Rows with `words` in their name, sorted; unknown values come last."""
    name = next(iter(rows[0])) if rows else ""
    found = [row for row in rows if words.lower() in str(row[name]).lower()]
    known = [row for row in found if row[column] is not None]
    unknown = [row for row in found if row[column] is None]
    known.sort(key=lambda row: str(row[name]))
    known.sort(key=lambda row: row[column], reverse=not ascending)
    return known + unknown


def title(column: str) -> str:
    """The title of a column, for people."""
    return column.replace("_per_s", "/s").replace("_", " ")


def cell(column: str, value: Any) -> str:
    """A value for people."""
    if value is None:
        return "-"
    if column.endswith(("bytes", "bytes_per_s")):
        return size_text(value)
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and column not in ("broker",) else str(value)
