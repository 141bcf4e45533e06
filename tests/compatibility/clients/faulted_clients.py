"""Three Python clients with nothing in common, as a test uses them whose broker misbehaves: each call with a client of
its own, until the end. What the libraries raise is in `failures`, and `name_of` has the name that they give it.

Programs in other languages do the same: `tests/compatibility/interop/faulted_program.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

from tests.support.wait import DEADLINE_S, until

REQUEST_MS = 30_000
DELIVERY_MS = 60_000
HEARTBEAT_MS = 100


class FaultedClient(Protocol):
    """`produce` writes one record. `consume` returns the first values, different ones, as a member of a group; with
    reset="none" it must have a committed offset. `open` begins a transaction with one record; its result commits."""

    failures: tuple[type[Exception], ...]

    def produce(
        self,
        bootstrap: str,
        topic: str,
        value: str,
        *,
        idempotent: bool = False,
        request_ms: int = REQUEST_MS,
        delivery_ms: int = DELIVERY_MS,
    ) -> None: ...

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str = "readers", reset: str = "earliest"
    ) -> list[bytes]: ...

    def open(self, bootstrap: str, transactional_id: str, topic: str, value: str) -> Callable[[], None]: ...

    def name_of(self, error: Exception) -> str: ...


class Distinct:
    """Values in the order in which they were first seen: a member that joins again may read some twice."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def add(self, values: Iterable[bytes | None]) -> None:
        self.values += [value for value in values if value is not None and value not in self.values]


class Confluent:
    failures = (confluent_kafka.KafkaException,)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        value: str,
        *,
        idempotent: bool = False,
        request_ms: int = REQUEST_MS,
        delivery_ms: int = DELIVERY_MS,
    ) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "retry.backoff.ms": 10,
                "enable.idempotence": idempotent,
                "socket.timeout.ms": request_ms,
                "request.timeout.ms": request_ms,
                "message.timeout.ms": delivery_ms,
            }
        )
        self._send(producer, topic, value)

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str = "readers", reset: str = "earliest"
    ) -> list[bytes]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": {"none": "error"}.get(reset, reset),
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "fetch.wait.max.ms": 50,
                "retry.backoff.ms": 10,
                "check.crcs": True,
            }
        )
        consumer.subscribe([topic])
        found = Distinct()

        def enough() -> bool:
            message = consumer.poll(0.1)
            if message is not None:
                if message.error() is not None:
                    raise confluent_kafka.KafkaException(message.error())
                found.add([message.value()])
            return len(found.values) >= count

        try:
            until(enough, f"{count} records")
        finally:
            consumer.close()
        return found.values

    def open(self, bootstrap: str, transactional_id: str, topic: str, value: str) -> Callable[[], None]:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        )
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        self._send(producer, topic, value)
        return lambda: producer.commit_transaction(DEADLINE_S)

    def name_of(self, error: Exception) -> str:
        return str(error.args[0].name())

    def _send(self, producer: confluent_kafka.Producer, topic: str, value: str) -> None:
        errors: list[Any] = []
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
        if errors[0] is not None:
            raise confluent_kafka.KafkaException(errors[0])


class KafkaPython:
    failures = (kafka.errors.KafkaError,)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        value: str,
        *,
        idempotent: bool = False,
        request_ms: int = REQUEST_MS,
        delivery_ms: int = DELIVERY_MS,
    ) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            retry_backoff_ms=10,
            enable_idempotence=idempotent,
            request_timeout_ms=request_ms,
            delivery_timeout_ms=delivery_ms,
            max_block_ms=delivery_ms,
        )
        try:
            producer.send(topic, value.encode()).get(DEADLINE_S)
        finally:
            producer.close(timeout=5)

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str = "readers", reset: str = "earliest"
    ) -> list[bytes]:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset=reset,
            heartbeat_interval_ms=HEARTBEAT_MS,
            retry_backoff_ms=10,
            fetch_max_wait_ms=50,
        )
        found = Distinct()

        def enough() -> bool:
            with contextlib.suppress(kafka.errors.KafkaConnectionError):  # while a broker restarts: now and then
                for records in consumer.poll(1_000).values():
                    found.add(record.value for record in records)
            return len(found.values) >= count

        try:
            until(enough, f"{count} records")
        finally:
            consumer.close()
        return found.values

    def open(self, bootstrap: str, transactional_id: str, topic: str, value: str) -> Callable[[], None]:
        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, value.encode()).get(DEADLINE_S)

        def commit() -> None:
            try:
                producer.commit_transaction()
            finally:
                producer.close(timeout=5)

        return commit

    def name_of(self, error: Exception) -> str:
        return type(error).__name__


class AioKafka:
    failures = (aiokafka.errors.KafkaError,)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        value: str,
        *,
        idempotent: bool = False,
        request_ms: int = REQUEST_MS,
        delivery_ms: int = DELIVERY_MS,
    ) -> None:
        async def story() -> None:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                retry_backoff_ms=10,
                enable_idempotence=idempotent,
                request_timeout_ms=min(request_ms, delivery_ms),  # its time for a request is that for all its attempts
            ) as producer:
                await asyncio.wait_for(producer.send_and_wait(topic, value.encode()), DEADLINE_S)

        asyncio.run(story())

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str = "readers", reset: str = "earliest"
    ) -> list[bytes]:
        async def story() -> list[bytes]:
            found = Distinct()
            async with aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset=reset,
                heartbeat_interval_ms=HEARTBEAT_MS,
                retry_backoff_ms=10,
                fetch_max_wait_ms=50,
            ) as consumer:
                while len(found.values) < count:
                    found.add([(await asyncio.wait_for(consumer.getone(), DEADLINE_S)).value])
            return found.values

        return asyncio.run(story())

    def open(self, bootstrap: str, transactional_id: str, topic: str, value: str) -> Callable[[], None]:
        runner = asyncio.Runner()

        async def story() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
            await producer.start()
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value.encode())
            return producer

        producer = runner.run(story())

        def commit() -> None:
            with runner:
                try:
                    runner.run(asyncio.wait_for(producer.commit_transaction(), DEADLINE_S))
                finally:
                    runner.run(producer.stop())

        return commit

    def name_of(self, error: Exception) -> str:
        return type(error).__name__


CLIENTS: dict[str, FaultedClient] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": AioKafka(),
}
