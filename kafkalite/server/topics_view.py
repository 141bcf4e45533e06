"""The topics of the cluster for groups whose coordinator assigns partitions: ids, partition counts, hashes.

Each change of a topic has a number, by which a group finds whether one of its topics has changed since its last check.
The racks of a topic's replicas are part of its hash, which is computed once for each change.
Source: org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage,
org.apache.kafka.coordinator.group.GroupMetadataManager (onMetadataUpdate, topicHashCache; 4.3).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from kafkalite.coordinator.group.topics import group_hash, topic_hash
from kafkalite.metadata.cluster_metadata import BrokerRecord, Change, Listener, TopicRecord

_TOPIC_CHANGES = frozenset(
    {Change.TOPIC_CREATED, Change.TOPIC_DELETED, Change.PARTITIONS_ADDED, Change.PARTITION_STATE}
)


class TopicSource(Protocol):
    """The part of the cluster's metadata that a view reads."""

    @property
    def topics(self) -> Mapping[str, TopicRecord]: ...

    @property
    def brokers(self) -> Mapping[int, BrokerRecord]: ...

    def listen(self, listener: Listener) -> Callable[[], None]: ...


class TopicsView:
    """Topics by name and by id.

    `version` counts the creations of topics: regular expressions may match more topics in a higher one. `changes`
    counts the changes of any topic.
    """

    def __init__(self, source: TopicSource) -> None:
        self.version = 1
        self.changes = 0
        self._source = source
        self._changed_at: dict[str, int] = {}  # by topic: the number of its last change
        self._hashes: dict[str, int] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._ids: dict[str, uuid.UUID] = {}
        self._stop = source.listen(self._on_metadata)
        self.load()

    def load(self) -> None:
        """Read all topics, as at the start, when the metadata has been loaded without a report of each."""
        self._ids = {name: topic.topic_id for name, topic in self._source.topics.items()}
        self._names = {topic_id: name for name, topic_id in self._ids.items()}
        self._hashes.clear()

    def close(self) -> None:
        self._stop()

    @property
    def names(self) -> Collection[str]:
        """All topics, internal ones included."""
        return self._source.topics.keys()

    def id_of(self, name: str) -> uuid.UUID | None:
        topic = self._source.topics.get(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        return self._names.get(topic_id)

    def ids_of(self, names: Iterable[str]) -> set[uuid.UUID]:
        """The ids of those that exist."""
        topics = self._source.topics
        return {topics[name].topic_id for name in names if name in topics}

    def partition_counts(self, topic_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, int]:
        """The counts of those that exist."""
        topics = ((each, self._source.topics.get(self._names.get(each, ""))) for each in topic_ids)
        return {topic_id: len(topic.partitions) for topic_id, topic in topics if topic is not None}

    def partition_counts_by_name(self, names: Iterable[str]) -> dict[str, int]:
        """The counts of those that exist."""
        topics = self._source.topics
        return {name: len(topics[name].partitions) for name in names if name in topics}

    def hash_of(self, names: Iterable[str]) -> int:
        """The hash of all these topics; those that do not exist are left out."""
        topics = self._source.topics
        return group_hash({name: self._topic_hash(name) for name in names if name in topics})

    def is_changed(self, names: Iterable[str], since: int) -> bool:
        """Whether one of these topics was created, deleted or changed after this number of `changes`."""
        return any(self._changed_at.get(name, 0) > since for name in names)

    def _topic_hash(self, name: str) -> int:
        known = self._hashes.get(name)
        if known is None:
            topic, brokers = self._source.topics[name], self._source.brokers
            racks = [
                [broker.rack for each in partition.replicas if (broker := brokers.get(each)) and broker.rack]
                for _, partition in sorted(topic.partitions.items())
            ]
            known = self._hashes[name] = topic_hash(name, topic.topic_id, racks)
        return known

    def _on_metadata(self, change: Change, name: str) -> None:
        if change not in _TOPIC_CHANGES:
            return
        self._hashes.pop(name, None)
        if (old_id := self._ids.pop(name, None)) is not None:
            self._names.pop(old_id, None)
        topic = self._source.topics.get(name)
        if topic is not None:
            self._ids[name] = topic.topic_id
            self._names[topic.topic_id] = name
        if change is Change.TOPIC_CREATED:
            self.version += 1
        self.changes += 1
        self._changed_at[name] = self.changes
