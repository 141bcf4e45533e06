"""An application that may be killed at any moment: copies an input topic to an output topic, in transactions.

    python -m tests.system.crash.transactional_copy CLIENT BOOTSTRAP NAME

NAME is that of its transactional id and its group, and the topics are NAME-input and NAME-output.
A transaction reads some records, writes a copy of each, and commits the offsets of its group with them. Now and then
one is aborted and done again. The group's one member is static: the next process takes its place at once.

It says on standard output what it has done, a word and a number in a line: `ready`, and for each transaction `began`,
`wrote`, `offered` (its offsets) and `ended`. An exit code of FENCED means that another process with the same
transactional id has taken over. It ends politely on SIGTERM; on SIGUSR1 it says where it is.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

OUTPUT_PARTITIONS = 3
RECORDS_MAX = 40
ABORTED = 0.1  # of the transactions, on purpose
TRANSACTION_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 30_000
FENCED = 7
PATIENCE_S = 60.0


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


def input_topic(name: str) -> str:
    return f"{name}-input"


def output_topic(name: str) -> str:
    return f"{name}-output"


def copy_of(record: InputRecord) -> bytes:
    """Names the record that it is a copy of."""
    return b"%d/%d=%s" % (record.partition, record.offset, record.value)


def output_partition(record: InputRecord) -> int:
    return (record.partition + record.offset) % OUTPUT_PARTITIONS


def say(word: str, number: int = 0) -> None:
    print(word, number, flush=True)


def run(client: Client, stopping: threading.Event) -> None:
    """Copies until it is stopped."""
    client.open()
    say("ready")
    number = 0
    while not stopping.is_set():
        records = client.poll()
        if not records:
            continue
        number += 1
        try:
            copy(client, records, number)
        except Abortable as why:
            print(f"transaction {number} is aborted: {why}", file=sys.stderr, flush=True)
            client.abort()
            client.rewind()
        say("ended", number)
    client.close()


def copy(client: Client, records: Iterable[InputRecord], number: int) -> None:
    """One transaction."""
    client.begin()
    say("began", number)
    next_offsets = {}
    for record in records:
        client.send(output_partition(record), copy_of(record))
        next_offsets[record.partition] = record.offset + 1
    if random.random() < 0.5:
        client.flush()
    say("wrote", number)
    client.offer_offsets(next_offsets)
    say("offered", number)
    if random.random() < ABORTED:
        raise Abortable("on purpose")
    client.commit()


# --- the clients


def confluent(bootstrap: str, name: str) -> Client:
    """librdkafka."""
    import confluent_kafka
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    source, target = input_topic(name), output_topic(name)

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
                    "group.instance.id": "the-one",
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


CLIENTS = {"confluent": confluent}


def main(arguments: list[str]) -> int:
    kind, bootstrap, name = arguments
    stopping = threading.Event()
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    client = CLIENTS[kind](bootstrap, name)
    try:
        run(client, stopping)
    except Exception as error:
        if not client.is_fencing(error):
            raise
        print(f"fenced: {error}", file=sys.stderr, flush=True)
        os._exit(FENCED)  # librdkafka 2.16 sometimes crashes when a fenced producer is destroyed
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
