"""Stock clients that write to some partitions and read them, and remember what they were told and how long it took.

A producer (idempotent, acks=all) writes numbered records one by one at a steady rate; a consumer reads the same
partitions. Both run in threads of their own until the block ends. `check` compares what is in the logs with what was
acknowledged: every such record at its offset, in order, and nothing that was not sent.
"""

from __future__ import annotations

import itertools
import logging
import statistics
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from tests.support.wait import until
from tests.system.crash.crash_line import Line

LOG = logging.getLogger("librdkafka")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False
MESSAGE_TIMEOUT_MS = 300_000  # longer than anything that is done to a cluster here


class Answer(NamedTuple):
    """One acknowledgement: when the record was given to the client, and how long it took."""

    at: float
    seconds: float


class Load:
    """`acknowledged` and `consumed`: partition -> offset -> value. `failures`: what no client should have seen."""

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int], *, per_second: int = 50) -> None:
        self.topic = topic
        self.partitions = list(partitions)
        self.acknowledged: dict[int, dict[int, bytes]] = {partition: {} for partition in partitions}
        self.consumed: dict[int, dict[int, bytes]] = {partition: {} for partition in partitions}
        self.answers: list[Answer] = []
        self.failures: list[str] = []
        self._interval_s = 1 / per_second
        self._done = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "topic.metadata.propagation.max.ms": MESSAGE_TIMEOUT_MS,
            },
            logger=LOG,
        )
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
            },
            logger=LOG,
        )
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._read)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(10 if kind else MESSAGE_TIMEOUT_MS / 1000)

    def await_progress(self, what: str, seconds: float = 60.0) -> None:
        """Until each partition has acknowledged, and given to the consumer, something that was sent from now on."""
        written = {p: len(self.acknowledged[p]) + 3 for p in self.partitions}
        until(lambda: all(len(self.acknowledged[p]) > written[p] for p in self.partitions), f"writing {what}", seconds)
        read = {p: max(self.acknowledged[p]) for p in self.partitions}
        until(lambda: all(read[p] in self.consumed[p] for p in self.partitions), f"reading {what}", seconds)

    def longest_s(self, begin: float, end: float) -> float:
        return max((answer.seconds for answer in self.between(begin, end)), default=0.0)

    def between(self, begin: float, end: float) -> list[Answer]:
        """Answers to what was sent in this time."""
        return [answer for answer in list(self.answers) if begin <= answer.at < end]

    def check(self, ports: dict[int, int]) -> int:
        """After the block: the logs against what was told. `ports`: of each partition's leader. How many were told."""
        assert self.failures == [], f"{len(self.failures)} failures, such as {self.failures[:5]}"
        for partition in self.partitions:
            line = Line(ports[partition])
            try:
                found = line.read(self.topic, partition)
            finally:
                line.close()
            told = self.acknowledged[partition]
            wrong = {offset: value for offset, value in told.items() if found.get(offset) != value}
            assert wrong == {}, f"{self.topic}-{partition}: {len(wrong)} acknowledged records are not where they were"
            numbers = [int(value) for value in found.values()]
            assert numbers == sorted(set(numbers)), f"{self.topic}-{partition}: in order and once"
            for offset, value in self.consumed[partition].items():
                assert found[offset] == value, f"{self.topic}-{partition}: another record was read at {offset}"
        return sum(map(len, self.acknowledged.values()))

    def _write(self) -> None:
        due = time.monotonic()
        for number, partition in zip(itertools.count(), itertools.cycle(self.partitions), strict=False):
            if self._done.is_set():
                break
            at = time.monotonic()

            def told(error: KafkaError | None, message: confluent_kafka.Message, at: float = at) -> None:
                if error is not None:
                    self.failures.append(f"produce to {message.partition()}: {error}")
                    return
                self.acknowledged[message.partition()][message.offset()] = message.value()
                self.answers.append(Answer(at, time.monotonic() - at))

            try:
                self._producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=told)
            except (BufferError, confluent_kafka.KafkaException) as error:
                self.failures.append(f"produce: {error}")
            due = max(due + self._interval_s, at - 1)
            while (left_s := due - time.monotonic()) > 0:
                self._producer.poll(left_s)
        unsent = self._producer.flush(MESSAGE_TIMEOUT_MS / 1000)
        if unsent:
            self.failures.append(f"{unsent} records were never answered")

    def _read(self) -> None:
        self._consumer.assign([TopicPartition(self.topic, partition, 0) for partition in self.partitions])
        while not self._done.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                self.failures.append(f"fetch: {message.error()}")
                continue
            self.consumed[message.partition()][message.offset()] = message.value()
        self._consumer.close()


def p99_ms(answers: Sequence[Answer]) -> float:
    """Of the times, in milliseconds; 0 for too few."""
    if len(answers) < 2:
        return 0.0
    return statistics.quantiles([answer.seconds for answer in answers], n=100, method="inclusive")[98] * 1000
