"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.topics import CreatableReplicaAssignment, DeleteTopicsRequest, DeleteTopicState
from tests.compatibility.differential.asking import create, metadata, new_topic
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions, once, tries


def assigned(*brokers: list[int], first: int = 0) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(partition_index=first + i, broker_ids=one) for i, one in enumerate(brokers)]


def delete(*names: str) -> DeleteTopicsRequest:
    """In the words of version 6 and of those before it."""
    states = [DeleteTopicState(name=name) for name in names]
    return DeleteTopicsRequest(topic_names=list(names), topics=states, timeout_ms=10_000)


def gone_from(t: Teller, topic: str) -> None:
    """Return when the broker has learnt that the topic is deleted."""
    for _ in tries(f"{topic} to be gone"):
        if gone(t.aside(metadata(topic, allow_auto_topic_creation=False), 5)):
            return


def gone(answer: Any) -> bool:
    return answer.topics[0].error_code == 3


NO_ID_YET = Explained(
    "a topic that is only validated has no id in the answer",
    "Kafka draws one that no topic will have",
    "topics.*.topic_id",
)


@every_version("CreateTopics")
def created(t: Teller) -> None:
    t.ask("one", create(new_topic(t.name("one"), 2)))
    t.led(t.name("one"), 2)
    t.ask("it exists", create(new_topic(t.name("one"))))
    t.ask("it exists, with too many replicas", create(new_topic(t.name("one"), 1, 9)))
    t.ask("it exists, with no number", create(new_topic(t.name("one"), 0, 0)))
    t.ask("it exists, assigned as well", create(new_topic(t.name("one"), 1, 1, assignments=assigned([1]))))
    t.ask("it exists, with a bad setting", create(new_topic(t.name("one"), configs={"retention.ms": "x"})))
    t.ask("an invalid name, and too many replicas", create(new_topic("d x", 1, 9)))
    t.ask("two", create(new_topic(t.name("two")), new_topic(t.name("three"), configs={"retention.ms": "1000000"})))
    t.ask("assigned", create(new_topic(t.name("four"), -1, -1, assignments=assigned([1], [1]))))
    t.ask("none", create())
    if t.v >= 4:
        t.ask("of the broker's own size", create(new_topic(t.name("six"), -1, -1)))
    if t.v >= 1:
        but = NO_ID_YET if t.v >= 7 else None
        t.ask("only validated", create(new_topic(t.name("five")), validate_only=True), but=but)
        t.ask("it was not made", metadata(t.name("five"), allow_auto_topic_creation=False), 5)


@in_versions(0, 1, 4, 7)
def numbers_that_cannot_be(t: Teller) -> None:
    for partitions in (0, -2, -1):
        if partitions != -1 or t.v < 4:
            t.ask(f"{partitions} partitions", create(new_topic(t.name(f"p{partitions}"), partitions)))
    for replicas in (0, -2, 2, 100):
        t.ask(f"{replicas} replicas", create(new_topic(t.name(f"r{replicas}"), 1, replicas)))
    t.ask("neither can be", create(new_topic(t.name("neither"), 0, 0)))


@in_versions(0, 4, 7)
def names_that_cannot_be(t: Teller) -> None:
    for shown, name in {
        "empty": "", "a dot": ".", "two dots": "..", "a slash": "d/x", "a space": "d x", "an accent": "d\u00e9",
        "too long": "d" * 250,
    }.items():  # fmt: skip
        t.ask(shown, create(new_topic(name)))
    t.topic("a.b")
    t.ask("collides", create(new_topic(t.name("a_b"))))
    t.ask("the longest", create(new_topic((t.name("long-") + "x" * 249)[:249])))
    t.ask("the groups' topic", create(new_topic("__consumer_offsets")))


@in_versions(0, 4, 5, 7)
def settings_of_topics(t: Teller) -> None:
    for index, configs in enumerate(
        (
            {"cleanup.policy": "compact", "segment.bytes": "1048576"},
            {"cleanup.policy": "compact,delete"},
            {"max.message.bytes": "5000", "min.insync.replicas": "1", "compression.type": "lz4"},
            {"no.such.thing": "1"},
            {"retention.ms": "many"},
            {"retention.ms": "-2"},
            {"cleanup.policy": "burn"},
            {"retention.ms": None},
            {"segment.bytes": "1"},
            {"min.insync.replicas": "0"},
            {"retention.ms": ""},
            {"compression.type": "LZ4"},
            {"message.timestamp.type": "LogAppendTime"},
            {"message.timestamp.type": "never"},
            {"unclean.leader.election.enable": "yes"},
            {"preallocate": "TRUE"},
            {"min.cleanable.dirty.ratio": "1.5"},
            {"min.cleanable.dirty.ratio": "0.25"},
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            {"max.message.bytes": "-1"},
            {"compression.gzip.level": "10"},
            {"compression.zstd.level": "5"},
            {"flush.ms": "99999999999999999999"},
        )
    ):
        t.ask(f"{configs}", create(new_topic(t.name(f"s{index}"), configs=configs)))  # type: ignore[arg-type]


@in_versions(0, 4, 7)
def assignments_that_cannot_be(t: Teller) -> None:
    for shown, assignments in {
        "unknown broker": assigned([9]),
        "twice the same broker": assigned([1, 1]),
        "no broker": assigned([]),
        "not from 0 on": assigned([1], first=1),
        "negative": assigned([1], first=-1),
        "a gap": [*assigned([1]), *assigned([1], first=2)],
        "a partition twice": [*assigned([1]), *assigned([1])],
        "replicas differ": assigned([1], [1, 9]),
    }.items():
        t.ask(shown, create(new_topic(t.name("a"), -1, -1, assignments=assignments)))
    t.ask("with a number of partitions", create(new_topic(t.name("a"), 1, -1, assignments=assigned([1]))))
    t.ask("with replicas", create(new_topic(t.name("a"), -1, 1, assignments=assigned([1]))))


@in_versions(1, 4, 7)
def only_validated(t: Teller) -> None:
    existing = t.topic()
    for shown, topic in {
        "exists": new_topic(existing),
        "bad name": new_topic("d/x"),
        "no partitions": new_topic(t.name("p"), 0),
        "two replicas": new_topic(t.name("r"), 1, 2),
        "bad setting": new_topic(t.name("s"), configs={"retention.ms": "many"}),
        "good setting": new_topic(t.name("s"), configs={"retention.ms": "1000"}),
    }.items():
        but = NO_ID_YET if t.v >= 7 and shown == "good setting" else None
        t.ask(shown, create(topic, validate_only=True), but=but)


@in_versions(0, 4, 7)
def many_in_one_request(t: Teller) -> None:
    twice = new_topic(t.name("twice"))
    t.ask("one of them twice", create(twice, new_topic(t.name("once")), twice))
    t.ask("good and bad", create(new_topic(t.name("good")), new_topic(t.name("bad"), 0), new_topic("d x")))


@every_version("DeleteTopics")
def deleted(t: Teller) -> None:
    topic, other = t.topic(), t.topic("other")
    t.ask("one and an unknown one", delete(topic, t.name("none")))
    t.ask("it is gone", metadata(topic, allow_auto_topic_creation=False), 5, until=gone)
    t.ask("again", delete(topic))
    t.ask("one twice", delete(other, other))
    t.ask("none", delete())


@in_versions(1, 5, 6)
def deleted_and_made_again(t: Teller) -> None:
    topic = t.topic(partitions=3)
    t.ask("deleted", delete(topic))
    t.ask("gone", metadata(topic, allow_auto_topic_creation=False), 5, until=gone)
    t.topic(partitions=1)
    t.ask("another of that name", metadata(topic), 12 if t.v >= 6 else 7)


@in_versions(5, 6)
def names_to_delete_that_cannot_be(t: Teller) -> None:
    for name in ("", ".", "d/x", "d" * 250):
        t.ask(f"{name[:10]!r} of {len(name)}", delete(name))


@once
def deleted_by_id(t: Teller) -> None:
    def by(*states: DeleteTopicState) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topics=list(states), timeout_ms=10_000)

    topics = [t.topic(f"t{number}") for number in range(6)]
    ids = [DeleteTopicState(topic_id=t.id_of(name)) for name in topics]
    names = [DeleteTopicState(name=name) for name in topics]
    none = DeleteTopicState(topic_id=t.id_of(t.name("none")))
    neither = DeleteTopicState()
    t.ask("one and an unknown one", by(ids[0], none), 6)
    t.ask("again", by(ids[0]), 6)
    t.ask("by its name, and another by its id", by(names[1], ids[2]), 6)
    t.ask("one by both", by(names[3], ids[3]), 6)
    t.ask("in one breath", by(DeleteTopicState(name=topics[3], topic_id=ids[3].topic_id)), 6)
    t.ask("by neither", by(neither), 6)
    t.ask("an id twice", by(ids[4], ids[4], ids[5]), 6)
    t.ask("an id twice and its name", by(ids[4], names[4], ids[4]), 6)
    t.ask("a name twice and its id", by(names[4], ids[4], names[4]), 6)
    t.ask("none", by(), 6)
    left = [name for number, name in enumerate(topics) if number in (3, 4)]
    t.ask("what is left", metadata(*left, allow_auto_topic_creation=False), 12)
