"""One client of the soak, as a process that may be told to leave (SIGTERM) or killed (SIGKILL) at any moment.

    soak_client.py produce LIBRARY NAME LEDGER JSON      writes numbered records at a rate, enters acknowledgements
    soak_client.py consume LIBRARY NAME LEDGER JSON      a member of a group: reads, enters what it read, commits

LIBRARY is confluent, kafka_python or aiokafka; JSON holds bootstrap, topic, partitions and what the client is to be
like. Records of one writer stand in a partition in the order of their numbers; a member that sees them otherwise, or
that finds the records it is to read gone, says so in its ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tests.system.soak.soak_ledger import Runs, Stream

TURN_S = 0.05
PADDING = bytes(range(32, 127)) * 10
SESSION_MS = 6_000


class Task:
    """The orders of this process, and whether it is to go on."""

    def __init__(self, name: str, ledger: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.bootstrap: str = settings["bootstrap"]
        self.topic: str = settings["topic"]
        self.partitions: int = settings["partitions"]
        self.group: str = settings.get("group", "")
        self.rate: int = settings.get("rate", 0)
        self.value_bytes: int = settings.get("value_bytes", 500)
        self.idempotent: bool = settings.get("idempotent", False)
        self.codec: str | None = settings.get("codec")
        self.runs = Runs()
        self.leaving = False
        self._file = open(ledger, "a")  # noqa: SIM115  # for the life of the process
        self._lock = threading.Lock()  # some libraries tell of acknowledgements in a thread of theirs
        self._next: dict[int, int] = defaultdict(int)
        self._seen: dict[Stream, tuple[int, int]] = {}  # -> the highest offset, and the number it carried
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _leave(self, *_: object) -> None:
        self.leaving = True

    # writers

    def records(self, count: int) -> list[tuple[int, int, bytes]]:
        """The next `count` records: partition, number, value."""
        made = []
        for _ in range(count):
            partition = sum(self._next.values()) // 20 % self.partitions  # runs of 20, as a sticky partitioner makes
            number = self._next[partition]
            self._next[partition] += 1
            head = f"{self.name}|{partition}|{number}|".encode()
            made.append((partition, number, head + PADDING[: self.value_bytes - len(head)]))
        return made

    def turns(self) -> Any:
        """How many records to write now, again and again, at the rate that was asked for."""
        began = time.monotonic()
        written = 0
        while not self.leaving:
            due = int((time.monotonic() - began) * self.rate)
            if due - written > self.rate:  # this machine had no time for us: do not make up for it
                began, due, written = time.monotonic(), 0, 0
            yield due - written
            written = due

    def acknowledged(self, partition: int, number: int) -> None:
        with self._lock:
            self.runs.add(self.name, partition, number)

    def fault(self, what: str) -> None:
        with self._lock:
            self._file.write(f"!{what}\n")
            self._file.flush()

    def write(self) -> None:
        with self._lock:
            self.runs.write(self._file)

    # members

    def read(self, partition: int, offset: int, value: bytes) -> None:
        writer, written_to, number_text, _ = value.split(b"|", 3)
        number, name = int(number_text), writer.decode()
        if int(written_to) != partition:
            self.fault(f"record {number} of {name} for partition {int(written_to)} stands in {partition}")
        highest = self._seen.get((name, partition))
        if highest is None or offset > highest[0]:
            if highest is not None and number <= highest[1]:
                self.fault(f"record {number} of {name} at {partition}:{offset} is behind {highest[1]} at {highest[0]}")
            self._seen[name, partition] = (offset, number)
        self.runs.add(name, partition, number)


def produce_confluent(task: Task) -> None:
    import confluent_kafka

    settings: dict[str, Any] = {
        "bootstrap.servers": task.bootstrap,
        "enable.idempotence": task.idempotent,
        "compression.type": task.codec or "none",
        "linger.ms": 10,
    }
    producer = confluent_kafka.Producer(settings)

    def delivered(number: int) -> Callable[[Any, Any], None]:
        def enter(error: Any, message: Any) -> None:
            if error is None:
                task.acknowledged(message.partition(), number)
            else:
                task.fault(f"record {number}: {error}")

        return enter

    for count in task.turns():
        for partition, number, value in task.records(count):
            producer.produce(task.topic, value, partition=partition, on_delivery=delivered(number))
        producer.poll(TURN_S)
        task.write()
    if left := producer.flush(30):
        task.fault(f"{left} records got no answer")


def produce_kafka_python(task: Task) -> None:
    import kafka

    producer = kafka.KafkaProducer(
        bootstrap_servers=task.bootstrap,
        enable_idempotence=task.idempotent,
        compression_type=task.codec,
        linger_ms=10,
    )

    for count in task.turns():
        for partition, number, value in task.records(count):
            future = producer.send(task.topic, value, partition=partition)
            future.add_callback(lambda _, p=partition, n=number: task.acknowledged(p, n))
            future.add_errback(lambda error, n=number: task.fault(f"record {n}: {error!r}"))
        time.sleep(TURN_S)
        task.write()
    producer.flush(30)
    producer.close()


async def produce_aiokafka(task: Task) -> None:
    import aiokafka

    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=task.bootstrap,
        enable_idempotence=task.idempotent,
        compression_type=task.codec,
        linger_ms=10,
    )
    await producer.start()

    def delivered(partition: int, number: int) -> Callable[[asyncio.Future[Any]], None]:
        def enter(sent: asyncio.Future[Any]) -> None:
            if sent.cancelled() or sent.exception() is not None:
                task.fault(f"record {number}: {'cancelled' if sent.cancelled() else repr(sent.exception())}")
            else:
                task.acknowledged(partition, number)

        return enter

    for count in task.turns():
        for partition, number, value in task.records(count):
            sent = await producer.send(task.topic, value, partition=partition)
            sent.add_done_callback(delivered(partition, number))
        await asyncio.sleep(TURN_S)
        task.write()
    await producer.stop()


def consume_confluent(task: Task) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 1_000,
        }
    )
    consumer.subscribe([task.topic])
    while not task.leaving:
        messages = consumer.consume(500, 0.2)
        for message in messages:
            if message.error() is not None:
                task.fault(f"reading: {message.error()}")
            else:
                task.read(message.partition(), message.offset(), message.value())
        if messages:
            task.write()
            try:
                consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException as error:
                kinds = confluent_kafka.KafkaError
                if error.args[0].code() not in (
                    *(kinds.REBALANCE_IN_PROGRESS, kinds.ILLEGAL_GENERATION),
                    *(kinds.UNKNOWN_MEMBER_ID, kinds._NO_OFFSET),
                ):
                    task.fault(f"committing: {error}")
    consumer.close()


def consume_kafka_python(task: Task) -> None:
    import kafka
    from kafka.errors import CommitFailedError, RebalanceInProgressError

    consumer = kafka.KafkaConsumer(
        task.topic,
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
    )
    while not task.leaving:
        taken = consumer.poll(timeout_ms=200)
        for records in taken.values():
            for record in records:
                task.read(record.partition, record.offset, record.value)
        if taken:
            task.write()
            # refused if the partitions went to another member, which reads them again
            with contextlib.suppress(CommitFailedError, RebalanceInProgressError):
                consumer.commit()
    consumer.close(autocommit=False)


async def consume_aiokafka(task: Task) -> None:
    import aiokafka
    from aiokafka.errors import CommitFailedError, IllegalStateError

    consumer = aiokafka.AIOKafkaConsumer(
        task.topic,
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
    )
    await consumer.start()
    while not task.leaving:
        taken = await consumer.getmany(timeout_ms=200)
        for records in taken.values():
            for record in records:
                task.read(record.partition, record.offset, record.value)
        if taken:
            task.write()
            with contextlib.suppress(CommitFailedError, IllegalStateError):
                await consumer.commit()
    await consumer.stop()


WORK: dict[tuple[str, str], Callable[[Task], Any]] = {
    ("produce", "confluent"): produce_confluent,
    ("produce", "kafka_python"): produce_kafka_python,
    ("produce", "aiokafka"): produce_aiokafka,
    ("consume", "confluent"): consume_confluent,
    ("consume", "kafka_python"): consume_kafka_python,
    ("consume", "aiokafka"): consume_aiokafka,
}


def main(role: str, library: str, name: str, ledger: str, settings: str) -> None:
    task = Task(name, ledger, json.loads(settings))
    work = WORK[role, library](task)
    if asyncio.iscoroutine(work):
        asyncio.run(work)
    task.write()


if __name__ == "__main__":
    main(*sys.argv[1:])
