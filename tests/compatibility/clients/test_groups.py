"""Consumer groups: members come, go and fall silent, and every record is seen by the member it is assigned to.

Each member commits what it has seen before it gives partitions back, so over any number of rebalances each record is
seen exactly once; a record seen twice, or by a member that does not own its partition, is an error of the broker's
coordinator (or of the client, which these versions do not have).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import KafkaError, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor as RangeOfKafkaPython

from tests.support.wait import DEADLINE_S

PARTITIONS = 6


class Member:
    """A librdkafka consumer of a group with what it owns and what it has seen."""

    def __init__(self, confluent: Any, topic: str, name: str, **settings: Any) -> None:
        self.name = name
        self.seen: list[tuple[int, bytes]] = []
        self.owned: set[int] = set()
        self.strangers: list[tuple[int, bytes]] = []
        self.rebalances = 0
        self.confluent = confluent
        self.consumer = confluent.consumer(client_id=name, **settings)
        self.cooperative = settings.get("partition_assignment_strategy") == "cooperative-sticky"
        self.consumer.subscribe([topic], on_assign=self.gain, on_revoke=self.give_back, on_lost=self.lose)

    def gain(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        self.owned |= {p.partition for p in partitions}

    def give_back(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        self.commit()
        self.owned -= {p.partition for p in partitions}

    def lose(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {p.partition for p in partitions}

    def commit(self) -> None:
        positions = [p for p in self.consumer.position(self.consumer.assignment()) if p.offset >= 0]
        if positions:
            self.consumer.commit(offsets=positions, asynchronous=False)

    def step(self) -> None:
        while (message := self.consumer.poll(0.01)) is not None:
            assert message.error() is None, f"{self.name}: {message.error()}"
            record = (message.partition(), message.value())
            self.seen.append(record)
            if message.partition() not in self.owned:
                self.strangers.append(record)

    def leave(self) -> None:
        self.confluent.open.remove(self.consumer)
        self.consumer.close()
        self.owned = set()


class Group:
    """Members that are polled in turn."""

    def __init__(self, until: Callable[..., Any], *members: Member) -> None:
        self.until = until
        self.members = list(members)

    def settles(self, *sizes: int) -> None:
        """Polls until the members own so many partitions each, all of them together, none of them twice."""

        def settled() -> bool:
            for member in self.members:
                member.step()
            owned = [partition for member in self.members for partition in member.owned]
            shares = sorted(len(member.owned) for member in self.members)
            return sorted(owned) == list(range(PARTITIONS)) and shares == sorted(sizes)

        self.until(settled, f"an assignment of {sizes} partitions to {[m.name for m in self.members]}")

    def sees(self, expected: set[tuple[int, bytes]], everyone: list[Member]) -> None:
        """Polls until the records are seen, each exactly once by all who were ever in the group."""

        def all_seen() -> bool:
            for member in self.members:
                member.step()
            return expected <= {record for member in everyone for record in member.seen}

        self.until(all_seen, f"{len(expected)} records to be seen")
        times = Counter(record for member in everyone for record in member.seen)
        assert set(times) == expected
        assert set(times.values()) == {1}, f"seen more than once: {[r for r, n in times.items() if n > 1][:5]}"
        assert not any(member.strangers for member in everyone), "a record of a partition that its reader does not own"


def produce(confluent: Any, topic: str, label: str, count: int = 60) -> set[tuple[int, bytes]]:
    records = [{"value": b"%s-%d" % (label.encode(), n), "partition": n % PARTITIONS} for n in range(count)]
    confluent.send(topic, records)
    return {(record["partition"], record["value"]) for record in records}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_three_join_one_after_another_and_one_leaves(
    bootstrap: str,
    create_topic: Callable[..., str],
    confluent: Any,
    until: Callable[..., Any],
    unique: Callable[[str], str],
    strategy: str,
) -> None:
    topic = create_topic(bootstrap, partitions=PARTITIONS)
    settings = {"group_id": unique(strategy), "partition_assignment_strategy": strategy}
    records = produce(confluent, topic, "before-anyone")
    ann = Member(confluent, topic, "ann", **settings)
    group = Group(until, ann)
    group.settles(6)
    group.sees(records, [ann])

    bob = Member(confluent, topic, "bob", **settings)
    group.members.append(bob)
    group.settles(3, 3)
    records |= produce(confluent, topic, "two")
    group.sees(records, [ann, bob])

    eve = Member(confluent, topic, "eve", **settings)
    group.members.append(eve)
    records |= produce(confluent, topic, "while-eve-joins")
    group.settles(2, 2, 2)
    records |= produce(confluent, topic, "three")
    group.sees(records, [ann, bob, eve])

    ann.leave()
    group.members.remove(ann)
    records |= produce(confluent, topic, "while-ann-leaves")
    group.settles(3, 3)
    records |= produce(confluent, topic, "two-again")
    group.sees(records, [ann, bob, eve])

    told = confluent.admin().describe_consumer_groups([settings["group_id"]])[settings["group_id"]].result(DEADLINE_S)
    assert told.state == confluent_kafka.ConsumerGroupState.STABLE
    assert told.partition_assignor == strategy
    owned = {m.client_id: {p.partition for p in m.assignment.topic_partitions} for m in told.members}
    assert owned == {"bob": bob.owned, "eve": eve.owned}


def test_three_libraries_share_one_group(
    bootstrap: str,
    create_topic: Callable[..., str],
    confluent: Any,
    kafka_python: Any,
    unique: Callable[[str], str],
) -> None:
    """The first member assigns for all, in its own dialect of the consumer protocol; the others must follow."""
    topic = create_topic(bootstrap, partitions=PARTITIONS)
    group = unique("mixed")

    async def story() -> None:
        in_c = confluent.consumer(group_id=group, partition_assignment_strategy="range")
        in_c.subscribe([topic])
        in_python = kafka_python.consumer(topic, group_id=group, partition_assignment_strategy=[RangeOfKafkaPython])
        in_asyncio = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        seen: list[tuple[str, int, bytes]] = []

        async def turn() -> list[int]:
            """Polls each once; the number of partitions of each."""
            message = await asyncio.to_thread(in_c.poll, 0.02)
            if message is not None and message.error() is None:
                seen.append(("confluent", message.partition(), message.value()))
            for records in (await asyncio.to_thread(in_python.poll, 20)).values():
                seen.extend(("kafka-python", r.partition, r.value) for r in records)
            if starting.done():
                for records in (await in_asyncio.getmany(timeout_ms=20)).values():
                    seen.extend(("aiokafka", r.partition, r.value) for r in records)
            return [len(in_c.assignment()), len(in_python.assignment()), len(in_asyncio.assignment())]

        starting = asyncio.create_task(in_asyncio.start())  # it waits for a rebalance, for which the others must poll
        try:
            deadline = time.monotonic() + 20
            while (sizes := await turn()) != [2, 2, 2]:
                assert time.monotonic() < deadline, f"partitions of confluent, kafka-python, aiokafka: {sizes}"
            written = produce(confluent, topic, "shared")
            while len(seen) < len(written):
                await turn()
                assert time.monotonic() < deadline, f"{len(seen)} of {len(written)} records seen"
            assert Counter((partition, value) for _, partition, value in seen) == Counter(written)
            assert Counter(library for library, _, _ in seen) == {"confluent": 20, "kafka-python": 20, "aiokafka": 20}
        finally:
            await in_asyncio.stop()

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


def test_a_static_member_comes_back_without_a_rebalance(
    bootstrap: str,
    create_topic: Callable[..., str],
    confluent: Any,
    until: Callable[..., Any],
    unique: Callable[[str], str],
) -> None:
    topic = create_topic(bootstrap, partitions=PARTITIONS)
    group_id = unique("static")
    ann = Member(confluent, topic, "ann", group_id=group_id, group_instance_id="ann")
    bob = Member(confluent, topic, "bob", group_id=group_id, group_instance_id="bob")
    group = Group(until, ann, bob)
    group.settles(3, 3)
    owned_by_bob = set(bob.owned)
    rebalances_of_ann = ann.rebalances

    bob.leave()  # a static member does not tell the group that it goes
    returned = Member(confluent, topic, "bob-again", group_id=group_id, group_instance_id="bob")
    group.members[1] = returned
    group.settles(3, 3)

    assert returned.owned == owned_by_bob
    assert ann.rebalances == rebalances_of_ann
    told = confluent.admin().describe_consumer_groups([group_id])[group_id].result(DEADLINE_S)
    assert {m.group_instance_id for m in told.members} == {"ann", "bob"}


def test_a_second_bearer_of_a_static_name_fences_the_first(
    topic: str, confluent: Any, until: Callable[..., Any], unique: Callable[[str], str]
) -> None:
    settings = {"group_id": unique("fenced"), "group_instance_id": "only-one"}
    first = confluent.consumer(**settings)
    first.subscribe([topic])
    until(lambda: first.poll(0.05) or first.assignment(), "the first to be assigned")

    second = confluent.consumer(**settings)
    second.subscribe([topic])

    def fenced() -> Any:
        second.poll(0.02)
        message = first.poll(0.02)
        error = None if message is None else message.error()
        return error if error is not None and error.code() == KafkaError._FATAL else None

    error = until(fenced, "the first to be told that it is fenced")
    assert "fenced" in str(error).lower()
    until(lambda: second.poll(0.05) or second.assignment(), "the second to be assigned")


def test_a_member_that_stops_polling_is_replaced(
    topic: str, confluent: Any, until: Callable[..., Any], unique: Callable[[str], str], shortest_session_ms: int
) -> None:
    """librdkafka leaves the group by itself when its application does not poll within max.poll.interval.ms."""
    group_id = unique("idle")
    timing = {"session_timeout_ms": shortest_session_ms, "max_poll_interval_ms": shortest_session_ms}
    idle = confluent.consumer(group_id=group_id, heartbeat_interval_ms=100, **timing)
    idle.subscribe([topic])
    until(lambda: idle.poll(0.05) or idle.assignment(), "the first member to be assigned")

    eager = confluent.consumer(group_id=group_id, session_timeout_ms=shortest_session_ms, max_poll_interval_ms=60_000)
    eager.subscribe([topic])

    until(lambda: eager.poll(0.05) or eager.assignment(), "the partition to pass to the member that polls")


def test_the_generation_protects_the_offsets_of_a_group(
    topic: str, confluent: Any, until: Callable[..., Any], unique: Callable[[str], str]
) -> None:
    """A group with members takes offsets from nobody else: not from a stranger's commit, not from an admin."""
    group_id = unique("guarded")
    confluent.send(topic, [{"value": b"x"}] * 10)
    member = confluent.consumer(group_id=group_id)
    member.subscribe([topic])
    until(lambda: member.poll(0.05), "the member to read")
    stranger = confluent.consumer(group_id=group_id)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        stranger.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    assert refused.value.args[0].code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
    changed = confluent.admin().alter_consumer_group_offsets(
        [confluent_kafka.ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, 0, 5)])]
    )[group_id]
    with pytest.raises(confluent_kafka.KafkaException):
        partitions = changed.result(DEADLINE_S).topic_partitions
        raise confluent_kafka.KafkaException(partitions[0].error)
    with pytest.raises(confluent_kafka.KafkaException) as not_empty:
        confluent.admin().delete_consumer_groups([group_id])[group_id].result(DEADLINE_S)
    assert not_empty.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    assert member.commit(asynchronous=False)[0].error is None
