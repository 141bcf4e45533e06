"""The topology that members of a group of Kafka Streams bring along: subtopologies and the topics between them.

A subtopology reads source topics and repartition topics, writes repartition topics of others, and keeps its state in
changelog topics. Repartition and changelog topics are internal: the broker creates them, and decides the number of
partitions where the topology does not (`configured_topology.py`).
Source: org.apache.kafka.coordinator.group.streams.StreamsTopology, StreamsCoordinatorRecordHelpers,
GroupCoordinatorService.throwIfInvalidTopology, KafkaApis.handleStreamsGroupHeartbeat (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import INTERNAL_TOPICS, java_hash_order, topic_name_fault
from kafkalite.common.text import java_order
from kafkalite.protocol.streams_records import (
    StreamsCopartitionGroup,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTopicInfo,
    StreamsTopology,
    StreamsTopologyValue,
)

UNDECIDED = 0  # a number of partitions that is for the coordinator to decide, or a replication factor by default


class InternalTopic(NamedTuple):
    """A topic that belongs to the application: a changelog, or for repartitioning."""

    name: str
    partitions: int = UNDECIDED
    replication_factor: int = UNDECIDED
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics that need the same number of partitions: indexes into the tuples of their subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    """A part of the topology; a task of it reads one partition of each of its input topics."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def input_topics(self) -> tuple[str, ...]:
        return *self.source_topics, *(topic.name for topic in self.repartition_source_topics)

    def copartitioned_topics(self) -> list[frozenset[str]]:
        """The names in each copartition group."""
        return [
            frozenset(
                [
                    *(self.source_topics[index] for index in group.source_topics),
                    *(self.repartition_source_topics[index].name for index in group.repartition_source_topics),
                ]
            )
            for group in self.copartition_groups
        ]


class Topology(NamedTuple):
    """All subtopologies in the order of their ids, so that equal topologies are equal values."""

    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()

    def in_hash_order(self) -> list[Subtopology]:
        """In the order in which Kafka visits them, which some decisions depend on."""
        by_id = {each.subtopology_id: each for each in self.subtopologies}
        return [by_id[each] for each in java_hash_order(by_id)]

    def required_topics(self) -> list[str]:
        """The topics whose metadata decide the configuration, all that are read and changelogs: each once, in Kafka's
        order."""
        topics = (
            name
            for each in self.in_hash_order()
            for name in (*each.input_topics, *(topic.name for topic in each.changelog_topics))
        )
        return java_hash_order(dict.fromkeys(topics))

    def named_topics(self) -> list[str]:
        """All topics in the topology, those that are only written to as well; each once."""
        return list(
            dict.fromkeys(
                name
                for each in self.subtopologies
                for name in (
                    *each.source_topics,
                    *each.repartition_sink_topics,
                    *(topic.name for topic in each.repartition_source_topics),
                    *(topic.name for topic in each.changelog_topics),
                )
            )
        )


# --- checks


def check_topic_names(names: Iterable[str]) -> None:
    """Raises KafkaError(STREAMS_INVALID_TOPOLOGY) for Kafka's own topics and for invalid names."""
    names = list(names)
    if prohibited := [name for name in names if name in INTERNAL_TOPICS]:
        message = f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    if invalid := [name for name in names if topic_name_fault(name)]:
        message = f"Topic names {','.join(invalid)} are not valid topic names."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def check_supported(topology: Topology) -> None:
    """Raises KafkaError(INVALID_REQUEST) for patterns of source topics, as Kafka 4.3 does."""
    if any(each.source_topic_regex for each in topology.subtopologies):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")


def check_changelogs(topology: Topology) -> None:
    """Raises KafkaError(STREAMS_INVALID_TOPOLOGY) for a changelog with a number of partitions of its own."""
    for each in topology.subtopologies:
        for topic in each.changelog_topics:
            if topic.partitions != UNDECIDED:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )


def check_consistency(topology: Topology) -> None:
    """Raises KafkaError(UNKNOWN_SERVER_ERROR), since Kafka fails then, if the topology contradicts itself. Everything
    else relies on it."""
    ids = [each.subtopology_id for each in topology.subtopologies]
    if (
        topology.epoch < 0
        or len(set(ids)) < len(ids)
        or any(topic.partitions < 0 for each in topology.subtopologies for topic in each.repartition_source_topics)
        or not all(
            _is_within(group.source_topics, each.source_topics)
            and _is_within(group.repartition_source_topics, each.repartition_source_topics)
            for each in topology.subtopologies
            for group in each.copartition_groups
        )
    ):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _is_within(indexes: tuple[int, ...], topics: tuple[object, ...]) -> bool:
    return all(0 <= index < len(topics) for index in indexes)


# --- from and to messages


def read_topology(value: StreamsTopology | StreamsTopologyValue) -> Topology:
    """The topology of a request or of a record, unchecked."""
    return Topology(
        value.epoch,
        tuple(
            sorted(
                (
                    Subtopology(
                        each.subtopology_id,
                        tuple(each.source_topics),
                        tuple(each.source_topic_regex),
                        _read_topics(each.state_changelog_topics),
                        tuple(each.repartition_sink_topics),
                        _read_topics(each.repartition_source_topics),
                        tuple(
                            CopartitionGroup(
                                tuple(group.source_topics),
                                tuple(group.source_topic_regex),
                                tuple(group.repartition_source_topics),
                            )
                            for group in each.copartition_groups
                        ),
                    )
                    for each in value.subtopologies
                ),
                key=lambda each: java_order(each.subtopology_id),
            )
        ),
    )


def topology_value(topology: Topology) -> StreamsTopologyValue:
    """The record's value."""
    return StreamsTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            StreamsSubtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_topic_regex),
                state_changelog_topics=topic_infos(each.changelog_topics),
                repartition_sink_topics=list(each.repartition_sink_topics),
                repartition_source_topics=topic_infos(each.repartition_source_topics),
                copartition_groups=[
                    StreamsCopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )


def topic_infos(topics: Iterable[InternalTopic]) -> list[StreamsTopicInfo]:
    """The topics as records and descriptions have them."""
    return [
        StreamsTopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[StreamsKeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in topics
    ]


def _read_topics(topics: Iterable[StreamsTopicInfo]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            tuple((each.key, each.value) for each in topic.topic_configs),
        )
        for topic in topics
    )
