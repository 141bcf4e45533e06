"""A topology as the topics of the cluster allow it: the tasks of each subtopology, and its internal topics.

The source topics must exist. Then the numbers of partitions are decided: of a repartition topic the one in the
topology, else the highest among the inputs of the subtopology that writes it; the topics of a copartition group get one
number; a changelog has as many partitions as its subtopology has tasks. Internal topics that exist must have these
numbers, the others are to be created.

Subtopologies are visited in the order of Kafka's hash map, since a repartition topic gets its number when one input of
its writer is known, and may miss a larger one.
Source: org.apache.kafka.coordinator.group.streams.topics.{InternalTopicManager, RepartitionTopics,
CopartitionedTopicsEnforcer, ChangelogTopics, ConfiguredTopology} (4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from functools import cached_property
from heapq import heappop, heappush

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import java_hash_order
from kafkalite.common.text import java_order
from kafkalite.coordinator.group.streams.streams_tables import StreamsGroupTables
from kafkalite.coordinator.group.streams.topology import UNDECIDED, InternalTopic, Subtopology, Topology
from kafkalite.coordinator.group.topics import MetadataRefresh, Topics

TASKS_MAX = 100_000
"""More would keep the broker busy for seconds."""
_NAMES_SHOWN_MAX = 3


class Status(IntEnum):
    """The reasons in heartbeat responses why a group does not work yet, or not any more."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Fault(NamedTuple):
    """The reason why no tasks can be assigned, in Kafka's words."""

    status: Status
    detail: str


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose tasks can be assigned. Internal topics have their decided number of partitions."""

    task_count: int
    source_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    changelog_topics: tuple[InternalTopic, ...] = ()

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelog_topics)

    @property
    def input_topics(self) -> tuple[str, ...]:
        return *self.source_topics, *(topic.name for topic in self.repartition_source_topics)


class ConfiguredTopology(NamedTuple):
    """The outcome. A fault leaves no subtopologies, except where only internal topics are missing."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None  # in the order of their ids
    missing_topics: tuple[InternalTopic, ...] = ()  # to be created
    fault: Fault | None = None

    @property
    def is_ready(self) -> bool:
        return self.fault is None


def configure(topology: Topology, partition_counts: Mapping[str, int]) -> ConfiguredTopology:
    """`partition_counts` has at least the required topics that exist.

    Raises KafkaError(STREAMS_INVALID_TOPOLOGY) if the topology does not say how many partitions a topic has.
    """
    try:
        _check_sources(topology, partition_counts)
        counts = _Counts(topology, partition_counts)
        counts.decide()
        subtopologies = {each.subtopology_id: counts.configured(each) for each in topology.subtopologies}
        if (task_count := sum(each.task_count for each in subtopologies.values())) > TASKS_MAX:
            raise _invalid(f"The topology has {task_count} tasks. The broker assigns up to {TASKS_MAX}.")
        missing = _missing_topics(topology, subtopologies.values(), partition_counts)
    except _Misfit as misfit:
        return ConfiguredTopology(topology.epoch, None, (), misfit.fault)
    fault = None
    if missing:
        detail = f"Internal topics are missing: {_summary([topic.name for topic in missing])}"
        fault = Fault(Status.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, subtopologies, missing, fault)


class _Misfit(Exception):
    """Topology and topics do not fit."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.fault = Fault(status, detail)


class _Counts:
    """The numbers of partitions of internal topics, as far as they are decided."""

    def __init__(self, topology: Topology, existing: Mapping[str, int]) -> None:
        self._subtopologies = topology.in_hash_order()
        self._existing = existing
        self._decided: dict[str, int] = {}
        self._read = [topic for each in self._subtopologies for topic in each.repartition_source_topics]
        self._read_names = {topic.name for topic in self._read}
        self._fixed = {topic.name for topic in self._read if topic.partitions != UNDECIDED}

    def decide(self) -> None:
        self._decided = self._repartition_counts()
        for subtopology in self._subtopologies:
            for names in subtopology.copartitioned_topics():
                self._copartition(names)
        for subtopology in self._subtopologies:
            for topic in subtopology.changelog_topics:
                self._decided[topic.name] = self._task_count(subtopology)

    def configured(self, subtopology: Subtopology) -> ConfiguredSubtopology:
        return ConfiguredSubtopology(
            self._task_count(subtopology),
            tuple(sorted(set(subtopology.source_topics), key=java_order)),
            self._configured_topics(subtopology.repartition_source_topics),
            tuple(sorted(set(subtopology.repartition_sink_topics), key=java_order)),
            self._configured_topics(subtopology.changelog_topics),
        )

    def _configured_topics(self, topics: Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
        return tuple(
            topic if topic.partitions != UNDECIDED else topic._replace(partitions=self._decided[topic.name])
            for topic in sorted(topics, key=lambda topic: java_order(topic.name))
        )

    def _count(self, name: str) -> int:
        existing = self._existing.get(name)
        return self._decided[name] if existing is None else existing

    def _task_count(self, subtopology: Subtopology) -> int:
        counts = [self._count(name) for name in subtopology.input_topics]
        if not counts:
            raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
        return max(counts)

    # --- repartition topics

    def _repartition_counts(self) -> dict[str, int]:
        counts = {topic.name: topic.partitions for topic in self._read if topic.partitions != UNDECIDED}
        self._count_sinks(counts)
        if any(name not in counts for each in self._subtopologies for name in each.repartition_sink_topics):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
                "that cannot be resolved."
            )
        if any(topic.name not in counts for topic in self._read):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
                "is never used as a sink topic."
            )
        return counts

    def _count_sinks(self, counts: dict[str, int]) -> None:
        """Add the topics that are written by subtopologies with a known input.

        Kafka passes over all subtopologies until a pass finds nothing new. Here a subtopology is visited just in the
        pass and at the place at which it finds its first input known, so that a long chain costs no square.
        """
        readers: dict[str, list[int]] = {}
        visits = []
        for place, subtopology in enumerate(self._subtopologies):
            known = (topic.name in counts for topic in subtopology.repartition_source_topics)
            if subtopology.source_topics or any(known):
                visits.append((0, place))
            else:
                for topic in subtopology.repartition_source_topics:
                    readers.setdefault(topic.name, []).append(place)
        while visits:
            turn, place = heappop(visits)
            subtopology = self._subtopologies[place]
            count = self._highest_input(subtopology, counts)
            for name in subtopology.repartition_sink_topics:
                if name not in counts:
                    counts[name] = count
                    for reader in readers.pop(name, ()):
                        heappush(visits, (turn if reader > place else turn + 1, reader))

    def _highest_input(self, subtopology: Subtopology, counts: Mapping[str, int]) -> int:
        known = [counts.get(topic.name, 0) for topic in subtopology.repartition_source_topics]
        return max(*known, 0, *(self._existing[name] for name in subtopology.source_topics))

    # --- copartition groups

    @cached_property
    def _fixed_counts(self) -> dict[str, int]:
        """Nothing changes them: a fixed topic is given its own number or is a misfit."""
        return {name: self._count(name) for name in self._fixed}

    def _copartition(self, names: Collection[str]) -> None:
        """Give the repartition topics among the names one number."""
        if not names:
            return
        internal = {name: self._count(name) for name in names if name in self._read_names}
        external = {name: self._count(name) for name in names if name not in internal}
        if external:
            count = _common_count(external, external)
        elif self._fixed:  # those of the whole topology, as in Kafka
            count = _common_count(self._fixed_counts, internal)
        else:
            count = max(internal.values())
        for name in java_hash_order(internal):
            if name in self._fixed and internal[name] != count:
                raise _Misfit(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{internal[name]}] of repartition topic [{name}] doesn't match number of "
                    f"partitions [{count}] of the source topic.",
                )
        self._decided.update(dict.fromkeys(internal, count))


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _common_count(counts: Mapping[str, int], named: Mapping[str, int]) -> int:
    """The one number of partitions, or the fault that names topics with their numbers."""
    if len(found := set(counts.values())) == 1:
        return found.pop()
    shown = ", ".join(f"{name}={named[name]}" for name in sorted(named, key=java_order))
    raise _Misfit(
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        f"Following topics do not have the same number of partitions: [{{{shown}}}]",
    )


def _check_sources(topology: Topology, partition_counts: Mapping[str, int]) -> None:
    sources = {name for each in topology.subtopologies for name in each.source_topics}
    if missing := sorted(sources - partition_counts.keys(), key=java_order):
        raise _Misfit(Status.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")


def _missing_topics(
    topology: Topology, subtopologies: Iterable[ConfiguredSubtopology], partition_counts: Mapping[str, int]
) -> tuple[InternalTopic, ...]:
    """The internal topics that do not exist, in the order of Kafka's hash map."""
    expected = {
        topic.name: topic
        for each in subtopologies
        for topic in (*each.repartition_source_topics, *each.changelog_topics)
    }
    ordered = java_hash_order(expected)
    for name in topology.required_topics():
        if name in expected and partition_counts.get(name, expected[name].partitions) != expected[name].partitions:
            raise _Misfit(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {expected[name].partitions}, "
                f"found {partition_counts[name]}",
            )
    return tuple(expected[name] for name in ordered if name not in partition_counts)


def _summary(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN_MAX
    return ", ".join(names[:_NAMES_SHOWN_MAX]) + (f" and {more} additional topics" if more > 0 else "")


class TopologyState:
    """The topology of one group as the topics of the cluster allow it now. It is not stored, but computed for another
    topology, and when the topics that it needs have changed. `configured` is None before the first heartbeat since the
    group was loaded. Source: StreamsGroup (configuredTopology, metadataRefreshDeadline; 4.3)."""

    __slots__ = ("_metadata_hash", "_topics", "_topology", "configured", "refresh")

    def __init__(self, topics: Topics) -> None:
        self.configured: ConfiguredTopology | None = None
        self.refresh = MetadataRefresh(topics)
        self._topics = topics
        self._topology: Topology | None = None  # the one that is configured, with the hash of its topics
        self._metadata_hash = 0

    def update(self, tables: StreamsGroupTables, topology: Topology) -> tuple[ConfiguredTopology, int]:
        """The topology as the topics allow it, and their hash. Raises KafkaError(STREAMS_INVALID_TOPOLOGY) if it does
        not say how many partitions a topic has."""
        names, configured = tables.subscribed_topics, self.configured
        is_other = configured is None or self._topology is not topology
        metadata_hash = tables.metadata.metadata_hash
        if is_other or self.refresh.is_due(tables):
            metadata_hash = self._topics.hash_of(names)
        if configured is None or is_other or metadata_hash != self._metadata_hash:
            configured = configure(topology, self._topics.partition_counts_by_name(names))
            self.configured, self._topology, self._metadata_hash = configured, topology, metadata_hash
        return configured, metadata_hash
