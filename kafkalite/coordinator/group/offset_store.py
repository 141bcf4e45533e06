"""The committed offsets of one group, and their expiration.

A commit is visible when it is on disk. Commits whose append is in progress are pending: their partitions do not expire.
Each commit carries the order in which it was sent to the log, so that appends completing out of order never replace a
later offset by an earlier one. Transactional commits will be pending here until their marker.
Source: kafka.coordinator.group.{GroupMetadata, OffsetAndMetadata} (3.9); KIP-211 (expiry), KIP-496.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkalite.common.names import TopicPartition
from kafkalite.protocol.records.group_records import NO_TIMESTAMP

NO_TOPICS: frozenset[str] = frozenset()


class OffsetAndMetadata(NamedTuple):
    """The committed offset of one partition."""

    offset: int
    leader_epoch: int  # -1: unknown
    metadata: str  # the client's own note
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP  # only if the client asked for a retention time (v2 to v4)
    order: int = 0  # among the commits of this group: a higher one is later in the log


class ExpirationCondition(NamedTuple):
    """Retention counts from `since_ms`; if None, from each offset's commit time."""

    since_ms: int | None
    subscribed_topics: frozenset[str] = NO_TOPICS  # their offsets do not expire


class OffsetStore:
    """The offsets of one group, by topic and partition."""

    __slots__ = ("_next_order", "_pending", "by_topic")

    def __init__(self) -> None:
        self.by_topic: dict[str, dict[int, OffsetAndMetadata]] = {}  # Invariant: no topic without partitions
        self._pending: dict[TopicPartition, int] = {}  # the number of pending commits
        self._next_order = 1

    def __iter__(self) -> Iterator[TopicPartition]:
        return ((topic, index) for topic, partitions in self.by_topic.items() for index in partitions)

    @property
    def is_empty(self) -> bool:
        return not self.by_topic and not self._pending

    def get(self, topic: str, index: int) -> OffsetAndMetadata | None:
        partitions = self.by_topic.get(topic)
        return None if partitions is None else partitions.get(index)

    def next_order(self) -> int:
        """The order of the next commit."""
        order = self._next_order
        self._next_order = order + 1
        return order

    def put(self, topic: str, index: int, committed: OffsetAndMetadata) -> None:
        """The commit is on disk. Changes nothing if a later commit is known."""
        partitions = self.by_topic.get(topic)
        if partitions is None:
            self.by_topic[topic] = {index: committed}
            return
        known = partitions.get(index)
        if known is None or known.order <= committed.order:
            partitions[index] = committed

    def load(self, topic: str, index: int, committed: OffsetAndMetadata) -> None:
        """The commit was read from the log. Commits from now on are later."""
        self.put(topic, index, committed)
        self._next_order = max(self._next_order, committed.order + 1)

    def prepare_commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Commits of these partitions are pending."""
        for partition in partitions:
            self._pending[partition] = self._pending.get(partition, 0) + 1

    def complete_commit(self, partition: TopicPartition) -> bool:
        """A pending commit is done or has failed. False if the partition was removed meanwhile; then its offset is
        discarded."""
        count = self._pending.get(partition, 0)
        if count > 1:
            self._pending[partition] = count - 1
        else:
            self._pending.pop(partition, None)
        return count > 0

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for topic, index in partitions:
            self._pending.pop((topic, index), None)
            known = self.by_topic.get(topic)
            if known is not None and known.pop(index, None) is not None and not known:
                del self.by_topic[topic]

    def known(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The subset of `partitions` that have an offset or a pending commit."""
        return [each for each in partitions if each in self._pending or self.get(*each) is not None]

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions that have an offset or a pending commit."""
        known = [(topic, index) for index in self.by_topic.get(topic, ())]
        return known + [each for each in self.pending_partitions() if each[0] == topic]

    def pending_partitions(self) -> list[TopicPartition]:
        """Partitions that have a pending commit and no offset yet."""
        return [(topic, index) for topic, index in self._pending if self.get(topic, index) is None]

    def expired(self, condition: ExpirationCondition, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """The partitions with an expired offset and no pending commit."""
        return [
            (topic, index)
            for topic, partitions in self.by_topic.items()
            if topic not in condition.subscribed_topics
            for index, committed in partitions.items()
            if _is_expired(committed, condition.since_ms, now_ms, retention_ms) and (topic, index) not in self._pending
        ]


def _is_expired(committed: OffsetAndMetadata, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - (committed.commit_timestamp_ms if since_ms is None else since_ms) >= retention_ms
