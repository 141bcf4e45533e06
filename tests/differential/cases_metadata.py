"""Metadata and DescribeCluster."""

from __future__ import annotations

from kafkalite.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest
from tests.differential.asking import metadata
from tests.differential.engine import Explained, Teller, every_version, in_versions, once

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


@in_versions(0, 1, 4, 9)
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


@in_versions(8, 9)
def with_operations(t: Teller) -> None:
    topic = t.topic()
    t.ask("of the topic", metadata(topic, include_topic_authorized_operations=True))
    t.ask("of the cluster", metadata(topic, include_cluster_authorized_operations=True))
    both = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    t.ask("of both, an unknown topic", metadata(t.name("none"), allow_auto_topic_creation=False, **both))


@in_versions(1, 9)
def internal_topics(t: Teller) -> None:
    t.ask("the groups' topic", metadata("__consumer_offsets", allow_auto_topic_creation=False))


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


@in_versions(1)
def endpoints_of_the_cluster(t: Teller) -> None:
    for kind in (0, 2, 3):
        t.ask(f"endpoint type {kind}", DescribeClusterRequest(endpoint_type=kind))
