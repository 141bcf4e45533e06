"""Transactional clients of several libraries for the application that may be killed, in one set of words.

Each waits until a broker that is away has come back. An error that another process has caused by taking over ends the
application, and so does what a client calls fatal; for the others the transaction is aborted.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol

RECORDS_MAX = 40
TRANSACTION_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 30_000
PATIENCE_S = 60.0
INSTANCE = "the-one"  # a static member: the next process takes its place at once


class InputRecord(NamedTuple):
    """A record of the input topic."""

    partition: int
    offset: int
    value: bytes


class Abortable(Exception):
    """The transaction must be aborted, and may be done again."""


class Client(Protocol):
    """A transactional producer and the consumer of its input."""

    def open(self) -> None: ...
    def poll(self) -> list[InputRecord]: ...
    def begin(self) -> None: ...
    def send(self, partition: int, value: bytes) -> None: ...
    def flush(self) -> None: ...
    def offer_offsets(self, next_offsets: dict[int, int]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def rewind(self) -> None: ...
    def close(self) -> None: ...
    def is_fencing(self, error: Exception) -> bool:
        """Whether the error says that another process has taken over."""
        ...


def confluent(bootstrap: str, name: str, source: str, target: str) -> Client:
    """librdkafka."""
    import confluent_kafka
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    persistent = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20}
    # an idle connection that ends wakes a request that waits for a coordinator that is gone (librdkafka issue 5511)
    persistent |= {"connections.max.idle.ms": 2000}
    persistent |= {"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 1000}
    persistent |= {"log_level": 0, "metadata.recovery.strategy": "none"}
    fenced = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
    fenced |= {KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL}  # a member of a group has no other fatal errors

    def repeat(call: Callable[[], object]) -> None:
        """Until it works, or needs an abort. Fatal errors, and that of being fenced, end the process."""
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() in fenced or error.fatal():
                    raise
                if error.txn_requires_abort():
                    raise Abortable(error.str()) from failure
                if not error.retriable():
                    raise
                print(f"once more: {error}", file=sys.stderr, flush=True)

    class Confluent:
        def open(self) -> None:
            self.producer = confluent_kafka.Producer(
                {
                    "transactional.id": name,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "linger.ms": 1,
                    "batch.num.messages": 5,
                    **persistent,
                }
            )
            repeat(lambda: self.producer.init_transactions(1.0))
            self.consumer = confluent_kafka.Consumer(
                {
                    "group.id": name,
                    "group.instance.id": INSTANCE,
                    "session.timeout.ms": SESSION_TIMEOUT_MS,
                    "heartbeat.interval.ms": 500,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "fetch.wait.max.ms": 50,
                    **persistent,
                }
            )
            # with a callback, a rebalance happens in `poll` alone: never between the reading and the commit of offsets
            self.consumer.subscribe([source], on_assign=lambda consumer, partitions: consumer.assign(partitions))

        def poll(self) -> list[InputRecord]:
            found = []
            for message in self.consumer.consume(random.randint(1, RECORDS_MAX), 0.05):
                error = message.error()
                if error is None:
                    found.append(InputRecord(message.partition(), message.offset(), message.value()))
                elif error.code() in fenced or error.fatal():
                    raise KafkaException(error)
            return found

        def begin(self) -> None:
            self.producer.begin_transaction()

        def send(self, partition: int, value: bytes) -> None:
            self.producer.produce(target, value, partition=partition)
            self.producer.poll(0)

        def flush(self) -> None:
            self.producer.flush(PATIENCE_S)

        def offer_offsets(self, next_offsets: dict[int, int]) -> None:
            offsets = [TopicPartition(source, partition, offset) for partition, offset in next_offsets.items()]
            member = self.consumer.consumer_group_metadata()
            repeat(lambda: self.producer.send_offsets_to_transaction(offsets, member, 1.0))

        def commit(self) -> None:
            repeat(lambda: self.producer.commit_transaction(1.0))

        def abort(self) -> None:
            # librdkafka 2.16 gives sequence numbers again after it has aborted records that a broker may have appended
            self.producer.flush(PATIENCE_S)
            repeat(lambda: self.producer.abort_transaction(1.0))

        def rewind(self) -> None:
            while True:
                try:
                    for each in self.consumer.committed(self.consumer.assignment(), timeout=1.0):
                        self.consumer.seek(TopicPartition(source, each.partition, max(each.offset, 0)))
                    return
                except KafkaException as failure:  # a coordinator that loads, or partitions not yet fetched from
                    print(f"once more: {failure}", file=sys.stderr, flush=True)
                    self.poll()  # raises fatal errors; what it reads is read again

        def close(self) -> None:
            self.consumer.close()

        def is_fencing(self, error: Exception) -> bool:
            return isinstance(error, KafkaException) and error.args[0].code() in fenced

    return Confluent()


def raw(bootstrap: str, name: str, source: str, target: str) -> Client:
    from tests.system.crash.raw_copy_client import RawCopyClient

    return RawCopyClient(bootstrap, name, source, target)


CLIENTS = {"confluent": confluent, "raw": raw}
