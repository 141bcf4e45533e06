"""CreatePartitions."""

from __future__ import annotations

from kafkalite.protocol.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.compatibility.differential.asking import metadata
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions, once

INTERNAL_STAYS = Explained(
    "internal topics get no more partitions from clients",
    "a group's partition follows from their number: more would lose every group",
    "results.__consumer_offsets.**",
)


def grow(name: str, count: int, *brokers: list[int], **more: bool) -> CreatePartitionsRequest:
    assignments = [CreatePartitionsAssignment(broker_ids=one) for one in brokers] or None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, **more)


@every_version("CreatePartitions")
def more_partitions(t: Teller) -> None:
    topic = t.topic()
    t.ask("three", grow(topic, 3))
    t.led(topic, 3)
    t.ask("they are there", metadata(topic), 7)
    t.ask("assigned", grow(topic, 5, [1], [1]))
    t.ask("only validated", grow(topic, 8, validate_only=True))
    t.led(topic, 5)
    t.ask("five are there", metadata(topic), 7)
    t.ask("none", CreatePartitionsRequest(topics=[], timeout_ms=10_000))


@in_versions(0, 1, 2, 3)
def counts_that_cannot_be(t: Teller) -> None:
    topic = t.topic(partitions=2)
    for count in (2, 1, 0, -1, -5):
        t.ask(f"{count}", grow(topic, count))
        t.ask(f"{count}, only validated", grow(topic, count, validate_only=True))
    t.ask("of an unknown topic", grow(t.name("none"), 3))
    t.ask("of a topic without a name", grow("", 3))
    t.ask("of one that cannot be", grow("d/x", 3))


@in_versions(0, 3)
def assignments_that_cannot_be(t: Teller) -> None:
    topic = t.topic()
    t.ask("too few", grow(topic, 3, [1]))
    t.ask("too many", grow(topic, 2, [1], [1]))
    t.ask("unknown broker", grow(topic, 2, [9]))
    t.ask("no broker", grow(topic, 2, []))
    t.ask("twice the same broker", grow(topic, 2, [1, 1]))
    t.ask("another number of replicas", grow(topic, 2, [1, 9]))
    t.ask("assigned, but not more", grow(topic, 1, [1]))
    empty = CreatePartitionsTopic(name=topic, count=2, assignments=[])
    t.ask("an empty list", CreatePartitionsRequest(topics=[empty], timeout_ms=10_000))


@in_versions(0, 3)
def a_topic_twice(t: Teller) -> None:
    topic, other = t.topic(), t.topic("other")
    wanted = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in (topic, other, topic)]
    t.ask("one of them twice", CreatePartitionsRequest(topics=wanted, timeout_ms=10_000))


@once
def of_internal_topics(t: Teller) -> None:
    t.ask("the groups' topic", grow("__consumer_offsets", 6, validate_only=True), 3, but=INTERNAL_STAYS)
