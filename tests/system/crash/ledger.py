"""A producer's ledger: records sent to each partition in order, and the offsets at which they were acknowledged."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from kafkalite.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.support.wait import DEADLINE_S
from tests.system.crash.crash_line import Line

PARTITIONS = 3
RECORDS_PER_BATCH = 50
PADDING = bytes(120)
LOG = logging.getLogger("librdkafka-of-crash-tests")
PERSISTENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


class Ledger:
    """A producer, what it sent to each partition in order, and what of it was acknowledged, by offset."""

    def __init__(
        self, bootstrap: str, topic: str, idempotent: bool, records_per_batch: int = RECORDS_PER_BATCH
    ) -> None:
        self.topic = topic
        self.idempotent = idempotent
        self.sent: dict[int, list[int]] = defaultdict(list)
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        self.refused: list[str] = []
        self.number = 0
        in_flight = 5 if idempotent else 1  # without sequence numbers, a batch sent again may land behind its followers
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": idempotent,
                "acks": "all",
                "max.in.flight": in_flight,
                "batch.num.messages": records_per_batch,
                "linger.ms": 1,
                "message.timeout.ms": 0,  # never: how long the daemon is away is not what is asked here
                **PERSISTENT,
            },
            logger=LOG,
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            partition = self.number % PARTITIONS
            self.sent[partition].append(self.number)
            value = b"%d:" % self.number + PADDING
            self.producer.produce(self.topic, value, partition=partition, on_delivery=self.enter)
            self.number += 1

    def enter(self, error: Any, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        known = self.acknowledged[message.partition()].setdefault(message.offset(), number_in(message))
        assert known == number_in(message), "one offset was given to two records"

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))


def number_in(message: Message) -> int:
    return int(message.value().split(b":")[0])


def reader(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 3000,  # a member that a kill cut off is in the way for so long
            **PERSISTENT,
        },
        logger=LOG,
    )


def read_all(bootstrap: str, topic: str, until: Callable[..., None]) -> dict[int, list[tuple[int, int]]]:
    """Every partition from offset 0 to its end as (offset, number)."""
    consumer = reader(bootstrap, "auditor")
    try:
        read: dict[int, list[tuple[int, int]]] = {}
        for index in range(PARTITIONS):
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=DEADLINE_S)
            assert first == 0
            read[index] = records = []
            consumer.assign([TopicPartition(topic, index, 0)])

            def at_the_end(records: list[tuple[int, int]] = records, end: int = end) -> bool:
                for message in consumer.consume(500, 0.2) if len(records) < end else []:
                    assert message.error() is None, str(message.error())
                    records.append((message.offset(), number_in(message)))
                return len(records) >= end

            until(at_the_end, f"all {end} records of {topic}-{index}")
        return read
    finally:
        consumer.close()


SEGMENT_BYTES = "16384"


def create_topics(line: Line, **partitions: int) -> None:
    config = CreatableTopicConfig(name="segment.bytes", value=SEGMENT_BYTES)
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=[config])
        for name, count in partitions.items()
    ]
    for told in line.ask(CreateTopicsRequest(topics=topics), 5).topics:
        assert told.error_code == 0, told
