"""Offsets of a stream as values: their JSON, the shares of partitions in a limited micro-batch, the lag.

The JSON in the checkpoint is that of Spark's own Kafka source: {"orders": {"0": 23}}, where 23 is the next offset to
read. Topics and partitions are sorted, since Spark compares offsets as text.
Source: org.apache.spark.sql.kafka010.{JsonUtils, KafkaMicroBatchStream}.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkalite.common.names import TopicPartition
from kafkalite.common.text import read_json

Offsets = Mapping[TopicPartition, int]


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The offsets as Spark writes them, once it has made text of them."""
    by_topic: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        by_topic.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return by_topic


def from_json(by_topic: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse."""
    return {(topic, int(number)): offset for topic, numbers in by_topic.items() for number, offset in numbers.items()}


def share_out(limit: int, start: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Where a micro-batch of about `limit` offsets ends: each partition has a share in proportion to what it has, one
    offset at least. Partitions that are not in `start` begin at 0."""
    sizes = {of: end - start.get(of, 0) for of, end in latest.items()}
    total = sum(size for size in sizes.values() if size > 0)
    if not total:
        return dict(latest)
    ends = {}
    for of, size in sizes.items():
        if size <= 0:
            ends[of] = latest[of]
            continue
        share = limit * (size / total)
        # a small partition does not starve beside a large one
        ends[of] = min(latest[of], start.get(of, 0) + (math.ceil(share) if share < 1 else math.floor(share)))
    return ends


def count_new(start: Offsets, latest: Offsets) -> int:
    """The offsets between them."""
    return sum(max(0, end - start.get(of, 0)) for of, end in latest.items())


class TriggerDelay:
    """minOffsetsPerTrigger and maxTriggerDelay: a micro-batch waits for enough offsets, but not for ever. The first one
    does not wait."""

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_ms: int | None = None

    def waits(self, new_offsets: int, now_ms: int) -> bool:
        """Whether there is no micro-batch now."""
        is_late = self._last_ms is None or now_ms - self._last_ms >= self._max_delay_ms
        if new_offsets < self._min_offsets and not is_late:
            return True
        self._last_ms = now_ms
        return False


class OffsetsBehindLatest(NamedTuple):
    """How many offsets the partitions of a source are behind, with the names that Spark's Kafka source has for it."""

    minOffsetsBehindLatest: int
    maxOffsetsBehindLatest: int
    avgOffsetsBehindLatest: float


def offsets_behind_latest(source: Any) -> OffsetsBehindLatest | None:
    """The offsets that a source is behind, from its entry in a progress report (`query.lastProgress["sources"][0]`, or
    `event.progress.sources[0]` of a listener). None where the report has no latest offset: before Spark 4.2.

    A data source in Python cannot put numbers of its own into the report; this computes them from the offsets there.
    """
    end, latest = (_reported(source, name) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    behind = [max(0, offset - end.get(of, 0)) for of, offset in latest.items()]
    return OffsetsBehindLatest(min(behind), max(behind), sum(behind) / len(behind)) if behind else None


def _reported(source: Any, name: str) -> dict[TopicPartition, int] | None:
    value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
    value = read_json(value) if isinstance(value, str) and value else value
    return from_json(value) if value else None
