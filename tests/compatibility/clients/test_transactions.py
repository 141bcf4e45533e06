"""Transactions of three stock clients: a read_committed reader sees what was committed, and nothing else.

The three libraries share no code, so each writes and each reads what the others wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.support.wait import DEADLINE_S

CLIENTS = ("confluent", "kafka_python", "aiokafka")
PLAN = [(["a1", "a2"], True), (["b1"], False), (["c1", "c2", "c3"], True), (["d1", "d2"], False), (["e1"], True)]
"""The values of each transaction, and whether it is committed."""
COMMITTED = [value for values, commits in PLAN if commits for value in values]
WRITTEN = [value for values, _ in PLAN for value in values]


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S))


class ConfluentTransactions:
    """A transactional producer in confluent-kafka's words; the classes below say the same in other words."""

    def __init__(self, clients: Any, transactional_id: str, **settings: Any) -> None:
        self.producer = clients["confluent"].producer(transactional_id=transactional_id, **settings)
        self.producer.init_transactions(DEADLINE_S)

    def send(self, topic: str, values: list[str], offsets: tuple[str, Any, int] | None, *, commits: bool) -> None:
        """One transaction with `values`, and with the offset of partition 0 of a topic that a consumer has reached."""
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(topic, value.encode())
        assert self.producer.flush(DEADLINE_S) == 0
        if offsets is not None:
            source, consumer, offset = offsets
            reached = [confluent_kafka.TopicPartition(source, 0, offset)]
            self.producer.send_offsets_to_transaction(reached, consumer.consumer_group_metadata(), DEADLINE_S)
        end = self.producer.commit_transaction if commits else self.producer.abort_transaction
        end(DEADLINE_S)


class KafkaPythonTransactions:
    def __init__(self, clients: Any, transactional_id: str, **settings: Any) -> None:
        self.producer = clients["kafka_python"].producer(transactional_id=transactional_id, **settings)
        self.producer.init_transactions()

    def send(self, topic: str, values: list[str], offsets: tuple[str, Any, int] | None, *, commits: bool) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.send(topic, value.encode())
        self.producer.flush(DEADLINE_S)
        if offsets is not None:
            source, consumer, offset = offsets
            reached = {TopicPartition(source, 0): OffsetAndMetadata(offset, "", -1)}
            self.producer.send_offsets_to_transaction(reached, consumer.group_metadata())
        end = self.producer.commit_transaction if commits else self.producer.abort_transaction
        end()


def written_by(client: str, clients: Any, topic: str, transactional_id: str) -> None:
    if client == "aiokafka":
        run(written_by_aiokafka(clients["bootstrap"], topic, transactional_id))
        return
    kind = ConfluentTransactions if client == "confluent" else KafkaPythonTransactions
    producer = kind(clients, transactional_id)
    for values, commits in PLAN:
        producer.send(topic, values, None, commits=commits)


async def written_by_aiokafka(bootstrap: str, topic: str, transactional_id: str) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id) as producer:
        for values, commits in PLAN:
            await producer.begin_transaction()
            for value in values:
                await producer.send_and_wait(topic, value.encode())
            await (producer.commit_transaction() if commits else producer.abort_transaction())


def read_by(client: str, clients: Any, topic: str, count: int, *, committed: bool = True) -> list[str]:
    """The first `count` values of the topic."""
    level = "read_committed" if committed else "read_uncommitted"
    if client == "aiokafka":
        return list(run(read_by_aiokafka(clients["bootstrap"], topic, count, level)))
    if client == "confluent":
        consumer = clients["confluent"].consumer(isolation_level=level)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        return [message.value().decode() for message in clients["confluent"].take(consumer, count)]
    consumer = clients["kafka_python"].consumer(isolation_level=level)
    consumer.assign([TopicPartition(topic, 0)])
    return [record.value.decode() for record in clients["kafka_python"].take(consumer, count)]


async def read_by_aiokafka(bootstrap: str, topic: str, count: int, level: str) -> list[str]:
    async with aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=level, auto_offset_reset="earliest", group_id=None
    ) as consumer:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        return [(await consumer.getone()).value.decode() for _ in range(count)]


@pytest.fixture
def clients(bootstrap: str, confluent: Any, kafka_python: Any) -> dict[str, Any]:
    return {"bootstrap": bootstrap, "confluent": confluent, "kafka_python": kafka_python}


@pytest.mark.parametrize("client", CLIENTS)
def test_committed_records_are_read_and_aborted_ones_are_not(
    client: str, clients: Any, topic: str, unique: Callable[[str], str]
) -> None:
    written_by(client, clients, topic, unique("transactions"))
    clients["confluent"].send(topic, [{"value": b"end"}])
    for reader in CLIENTS:
        assert read_by(reader, clients, topic, len(COMMITTED) + 1) == [*COMMITTED, "end"], f"read by {reader}"
        everything = read_by(reader, clients, topic, len(WRITTEN) + 1, committed=False)
        assert everything == [*WRITTEN, "end"], f"read by {reader}"


def test_an_open_transaction_holds_back_what_follows_it(clients: Any, topic: str, unique: Callable[[str], str]) -> None:
    confluent = clients["confluent"]
    producer = confluent.producer(transactional_id=unique("open"))
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"inside")
    assert producer.flush(DEADLINE_S) == 0
    confluent.send(topic, [{"value": b"outside"}])
    assert read_by("confluent", clients, topic, 2, committed=False) == ["inside", "outside"]
    consumer = confluent.consumer(isolation_level="read_committed")
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    assert consumer.poll(1.0) is None
    low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), DEADLINE_S)
    assert (low, high) == (0, 0), "for a reader of committed records the log ends before the transaction"
    producer.commit_transaction(DEADLINE_S)
    assert [message.value() for message in confluent.take(consumer, 2)] == [b"inside", b"outside"]


def test_a_producer_is_fenced_by_the_next_one_with_its_id(
    clients: Any, topic: str, unique: Callable[[str], str]
) -> None:
    name = unique("fenced")
    confluent = clients["confluent"]
    zombie = confluent.producer(transactional_id=name)
    zombie.init_transactions(DEADLINE_S)
    zombie.begin_transaction()
    zombie.produce(topic, b"of the zombie")
    assert zombie.flush(DEADLINE_S) == 0
    ConfluentTransactions(clients, name).send(topic, ["of the next"], None, commits=True)
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        zombie.commit_transaction(DEADLINE_S)
    assert fenced.value.args[0].code() in (
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.PRODUCER_FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    )
    assert read_by("confluent", clients, topic, 1) == ["of the next"]


def test_kafka_python_is_fenced_too(clients: Any, topic: str, unique: Callable[[str], str]) -> None:
    name = unique("fenced")
    zombie = KafkaPythonTransactions(clients, name)
    zombie.send(topic, ["before"], None, commits=True)
    KafkaPythonTransactions(clients, name).send(topic, ["of the next"], None, commits=True)
    with pytest.raises(kafka.errors.KafkaError):
        zombie.send(topic, ["of the zombie"], None, commits=True)
    clients["confluent"].send(topic, [{"value": b"end"}])
    assert read_by("kafka_python", clients, topic, 3) == ["before", "of the next", "end"]


@pytest.mark.parametrize("client", ["confluent", "kafka_python"])
def test_each_record_is_copied_exactly_once(
    client: str,
    clients: Any,
    topic: str,
    bootstrap: str,
    create_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    """Consume, transform, produce: every third transaction is aborted, and begins again at the committed offset."""
    target, group, count = create_topic(bootstrap), unique("copies"), 30
    clients["confluent"].send(topic, [{"value": b"%d" % n} for n in range(count)])
    kind = ConfluentTransactions if client == "confluent" else KafkaPythonTransactions
    producer = kind(clients, unique("copier"))
    step, attempts = 4, 0
    consumer: Any
    if client == "confluent":
        consumer = clients["confluent"].consumer(group_id=group, isolation_level="read_committed")
        consumer.subscribe([topic])
    else:
        consumer = clients["kafka_python"].consumer(topic, group_id=group, isolation_level="read_committed")
    values = [str(n) for n in range(count)]
    assert len(clients[client].take(consumer, count)) == count, "the consumer is a member of its group now"
    done = 0
    while done < count:
        attempts += 1
        commits = attempts % 3 != 0
        upto = min(done + step, count)
        producer.send(target, values[done:upto], (topic, consumer, upto), commits=commits)
        done = committed_offset(client, clients, consumer, topic)
        assert done == (upto if commits else max(upto - step, 0))
    assert attempts > count // step
    assert read_by("confluent", clients, target, count) == values


def committed_offset(client: str, clients: Any, consumer: Any, topic: str) -> int:
    """The group's offset as its member sees it: the broker answers when no commit is pending."""
    if client == "confluent":
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], DEADLINE_S)
        return max(found.offset, 0)
    return consumer.committed(TopicPartition(topic, 0)) or 0


def test_aiokafka_copies_each_record_exactly_once(
    clients: Any, topic: str, bootstrap: str, create_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    target, group, count, step = create_topic(bootstrap), unique("copies"), 20, 3
    clients["confluent"].send(topic, [{"value": b"%d" % n} for n in range(count)])
    values = [str(n) for n in range(count)]
    source = aiokafka.TopicPartition(topic, 0)

    async def copy() -> None:
        async with (
            aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, isolation_level="read_committed"
            ) as consumer,
            aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique("copier")) as producer,
        ):
            consumer.assign([source])
            attempts = done = 0
            while done < count:
                attempts += 1
                upto = min(done + step, count)
                await producer.begin_transaction()
                for value in values[done:upto]:
                    await producer.send_and_wait(target, value.encode())
                await producer.send_offsets_to_transaction({source: upto}, group)
                if attempts % 3:
                    await producer.commit_transaction()
                    done = upto
                else:
                    await producer.abort_transaction()
                assert (await consumer.committed(source) or 0) == done

    run(copy())
    assert read_by("aiokafka", clients, target, count) == values


def test_a_transaction_over_many_partitions_commits_in_all_of_them(
    clients: Any, bootstrap: str, create_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    topics = [create_topic(bootstrap, partitions=5) for _ in range(2)]
    confluent = clients["confluent"]
    producer = confluent.producer(transactional_id=unique("wide"))
    producer.init_transactions(DEADLINE_S)
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        for topic in topics:
            for partition in range(5):
                producer.produce(topic, b"%d" % number, partition=partition)
        (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)
    consumer = confluent.consumer(isolation_level="read_committed")
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for topic in topics for index in range(5)])
    found: dict[tuple[str, int], list[bytes]] = {}
    for message in confluent.take(consumer, 20):
        found.setdefault((message.topic(), message.partition()), []).append(message.value())
    assert found == {(topic, index): [b"0", b"2"] for topic in topics for index in range(5)}
