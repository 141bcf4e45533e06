"""The topics of the cluster as groups see them whose coordinator assigns partitions.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage,
org.apache.kafka.coordinator.group.modern.ModernGroup (metadataRefreshDeadline; 4.3).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol


class Topics(Protocol):
    """The topics of the cluster. `version` grows when a topic is created, `changes` when any topic changes."""

    @property
    def version(self) -> int: ...

    @property
    def changes(self) -> int: ...

    @property
    def names(self) -> Collection[str]: ...

    def id_of(self, name: str) -> uuid.UUID | None: ...

    def name_of(self, topic_id: uuid.UUID) -> str | None: ...

    def ids_of(self, names: Iterable[str]) -> set[uuid.UUID]: ...

    def partition_counts(self, topic_ids: Iterable[uuid.UUID]) -> Mapping[uuid.UUID, int]: ...

    def partition_counts_by_name(self, names: Iterable[str]) -> Mapping[str, int]: ...

    def hash_of(self, names: Iterable[str]) -> int: ...

    def is_changed(self, names: Iterable[str], since: int) -> bool: ...


class TopicTables(Protocol):
    """The epoch of a group, and the topics that it has a hash of."""

    @property
    def group_epoch(self) -> int: ...

    @property
    def subscribed_topics(self) -> Collection[str]: ...


class MetadataRefresh:
    """Tells when the topics of a group have to be compared with the hash that it has of them.

    They are compared at first, when one of them has changed, and when a group epoch was taken back that a comparison
    had led to.
    """

    __slots__ = ("_epoch", "_seen_changes", "_topics")

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._epoch: int | None = None  # the group epoch of the last comparison; None: not yet
        self._seen_changes = 0

    def is_due(self, tables: TopicTables) -> bool:
        if self._epoch is None or tables.group_epoch < self._epoch:
            return True
        topics = self._topics
        if topics.changes != self._seen_changes:
            if topics.is_changed(tables.subscribed_topics, self._seen_changes):
                return True
            self._seen_changes = topics.changes
        return False

    def complete(self, group_epoch: int) -> None:
        """The topics were compared."""
        self._epoch = group_epoch
        self._seen_changes = self._topics.changes

    def reset(self) -> None:
        """They have to be compared again."""
        self._epoch = None
