"""Metadata and DescribeCluster."""

from __future__ import annotations

from kafkalite.common.names import ZERO_UUID
from kafkalite.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest, MetadataRequestTopic
from tests.compatibility.differential.asking import metadata, metadata_of
from tests.compatibility.differential.cases_topics import delete, gone_from
from tests.compatibility.differential.engine import (
    Explained,
    Teller,
    every_version,
    in_versions,
    in_versions_of_4_3,
    once,
)

READY_AT_ONCE = Explained(
    "a topic that is created on demand is ready in the answer that asked for it",
    "there is no controller elsewhere to wait for; Kafka answers 3 or 5 first, and clients ask again",
    "topics.**",
)


@every_version("Metadata")
def topics_by_name(t: Teller) -> None:
    topic = t.topic(partitions=3)
    t.ask("a topic", metadata(topic))
    t.ask("no topics", MetadataRequest(topics=[]))
    t.ask("all topics", MetadataRequest(topics=None if t.v else []))
    if t.v >= 4:
        t.ask("an unknown one", metadata(t.name("none"), topic, allow_auto_topic_creation=False))
    t.ask("one twice", metadata(topic, topic))


@every_version("Metadata")
def created_on_demand(t: Teller) -> None:
    name = t.name("auto")
    t.ask("at first", metadata(name), but=READY_AT_ONCE)
    t.ask("then", metadata(name), until=lambda answer: answer.topics[0].error_code == 0)


@in_versions(0, 1, 4, 9, 10, 12)
def names_that_cannot_be(t: Teller) -> None:
    for shown, name in {
        "empty": "",
        "a dot": ".",
        "two dots": "..",
        "a slash": "d/x",
        "a space": "d x",
        "a letter with an accent": "d\u00e9",
        "249 letters and one": "d" * 250,
    }.items():
        t.ask(f"{shown}, to be created", metadata(name))
        if t.v >= 4:
            t.ask(f"{shown}, not to be created", metadata(name, allow_auto_topic_creation=False))


@in_versions(8, 9, 10, 11, 12)
def with_operations(t: Teller) -> None:
    topic = t.topic()
    t.ask("of the topic", metadata(topic, include_topic_authorized_operations=True))
    if t.v <= 10:
        t.ask("of the cluster", metadata(topic, include_cluster_authorized_operations=True))
    both = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": t.v <= 10}
    t.ask("of both, an unknown topic", metadata(t.name("none"), allow_auto_topic_creation=False, **both))


@in_versions(1, 9, 12)
def internal_topics(t: Teller) -> None:
    t.ask("the groups' topic", metadata("__consumer_offsets", allow_auto_topic_creation=False))


NO_NAME_NO_ID = Explained(
    "a topic without a name and without an id is INVALID_REQUEST",
    "Kafka fails on it with UNKNOWN_SERVER_ERROR",
    "topics.**",
)


@in_versions(10, 11, 12)
def topics_by_id(t: Teller) -> None:
    topic, other = t.topic(partitions=2), t.topic("other")
    ours, others, none = t.id_of(topic), t.id_of(other), t.id_of(t.name("none"))
    t.ask("one", metadata_of(ours))
    t.ask("an unknown one", metadata_of(none))
    t.ask("two and an unknown one", metadata_of(ours, none, others))
    t.ask("one twice", metadata_of(ours, ours))
    t.ask("with operations", metadata_of(ours, none, include_topic_authorized_operations=True))
    t.ask("not to be created", metadata_of(none, allow_auto_topic_creation=False))
    both = [MetadataRequestTopic(name=topic, topic_id=ours)]
    t.ask("an id and its name", MetadataRequest(topics=both))
    t.ask("an id and another's name", MetadataRequest(topics=[MetadataRequestTopic(name=other, topic_id=ours)]))
    by_name = [MetadataRequestTopic(name=other)]
    t.ask("one by id, one by name", MetadataRequest(topics=both + by_name))
    t.ask("one by name, an unknown id", MetadataRequest(topics=[*by_name, MetadataRequestTopic(topic_id=none)]))
    t.ask("neither", metadata_of(ZERO_UUID), but=NO_NAME_NO_ID if t.v >= 12 else None)


@once
def an_id_that_is_no_more(t: Teller) -> None:
    topic = t.topic(partitions=2)
    old = t.id_of(topic)
    t.aside(delete(topic), 5)
    gone_from(t, topic)
    t.ask("gone", metadata_of(old), 12)
    t.topic()
    t.ask("another has its name", metadata_of(old), 12)
    t.ask("and an id of its own", metadata_of(t.id_of(topic)), 12)
    t.ask("as its name tells", metadata(topic), 12)


COLLIDES = Explained(
    "a topic on demand whose name collides with another's is refused with INVALID_TOPIC_EXCEPTION",
    "Kafka answers that it is unknown, again and again, and the client never learns why",
    "topics.*.error_code",
)


@once
def names_that_collide(t: Teller) -> None:
    name = t.topic("a.b")
    t.ask("a_b beside a.b", metadata(name.replace(".", "_")), 4, but=COLLIDES)


@every_version("DescribeCluster")
def the_cluster(t: Teller) -> None:
    t.ask("plain", DescribeClusterRequest())
    t.ask("with operations", DescribeClusterRequest(include_cluster_authorized_operations=True))


@in_versions_of_4_3(2)
def fenced_brokers(t: Teller) -> None:
    t.ask("with fenced ones", DescribeClusterRequest(include_fenced_brokers=True))
    for kind in (0, 2, 3):
        t.ask(f"endpoint type {kind}", DescribeClusterRequest(endpoint_type=kind))


@in_versions_of_4_3(13)
def topics_today(t: Teller) -> None:
    topic = t.topic(partitions=2)
    ours, none = t.id_of(topic), t.id_of(t.name("none"))
    t.ask("by id", metadata_of(ours, none))
    t.ask("with operations", metadata(topic, include_topic_authorized_operations=True))
    t.ask("an unknown one", metadata(t.name("none"), allow_auto_topic_creation=False))
    t.ask("a name that cannot be", metadata("a/b", allow_auto_topic_creation=False))


@in_versions(1)
def endpoints_of_the_cluster(t: Teller) -> None:
    for kind in (0, 2, 3):
        t.ask(f"endpoint type {kind}", DescribeClusterRequest(endpoint_type=kind))
