"""A partition as a stock consumer sees it: confluent-kafka, by assign and seek, in one isolation level."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition

from tests.support.wait import DEADLINE_S

_AT_ONCE = 1000
_TIMESTAMP_TYPES = (-1, 0, 1)
"""Java's ids by librdkafka's: not there, of creation, of the append."""


class Row(NamedTuple):
    """A record with the columns of Spark's Kafka source; the timestamp in milliseconds."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestampType: int
    headers: tuple[tuple[str, bytes | None], ...] | None


class StockConsumer:
    def __init__(self, bootstrap: str, *, read_committed: bool) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 1,
                "fetch.error.backoff.ms": 1,
                "topic.metadata.refresh.fast.interval.ms": 10,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def bounds(self, topic: str, partition: int, timeout_s: float = DEADLINE_S) -> tuple[int, int]:
        """The log start offset, and the end for this isolation level. Raises KafkaException."""
        start, end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)
        return start, end

    def first_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The offset of the first record that is not earlier, or None."""
        (found,) = self._consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], DEADLINE_S)
        assert found.error is None, found.error
        return None if found.offset == OFFSET_END else int(found.offset)

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> list[Row]:
        """The records with offsets [start, end) of each partition, in the order of partitions and offsets."""
        open_ones = {partition: end for partition, (start, end) in ranges.items() if start < end}
        rows: list[Row] = []
        self._consumer.assign([TopicPartition(topic, partition, ranges[partition][0]) for partition in open_ones])
        deadline = time.monotonic() + DEADLINE_S
        while open_ones:
            assert time.monotonic() < deadline, f"{topic}: {open_ones} of {ranges} are not reached"
            for message in self._consumer.consume(_AT_ONCE, 0.1):
                error = message.error()
                partition = message.partition()
                assert error is None or error.code() == KafkaError._PARTITION_EOF, error
                end = open_ones.get(partition)
                if end is None:
                    continue
                if error is not None or message.offset() >= end:
                    del open_ones[partition]
                    continue
                rows.append(_row(message))
                if message.offset() == end - 1:
                    del open_ones[partition]
        self._consumer.unassign()
        return sorted(rows, key=lambda row: (row.partition, row.offset))


def _row(message: object) -> Row:
    kind, timestamp = message.timestamp()  # type: ignore[attr-defined]
    headers = message.headers()  # type: ignore[attr-defined]
    return Row(
        message.key(),  # type: ignore[attr-defined]
        message.value(),  # type: ignore[attr-defined]
        message.topic(),  # type: ignore[attr-defined]
        message.partition(),  # type: ignore[attr-defined]
        message.offset(),  # type: ignore[attr-defined]
        timestamp if kind else -1,
        _TIMESTAMP_TYPES[kind],
        tuple(headers) if headers else None,
    )
