"""How far one group has come: the committed offset of each partition, and which of them are too old.

A commit is visible when it is on disk. Commits whose append is still under way are `pending`: their partitions do not
expire. Each carries the order in which it was sent to the log, so that answers of the log that come out of order never
turn an offset back. Transactional commits will wait here for their marker.
Source: kafka.coordinator.group.{GroupMetadata, OffsetAndMetadata} (3.9); KIP-211 (expiry), KIP-496.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkalite.common.names import TopicPartition
from kafkalite.protocol.records.group_records import NO_TIMESTAMP

NO_SUBSCRIPTION: frozenset[str] = frozenset()


class CommittedOffset(NamedTuple):
    """One partition's commit."""

    offset: int
    leader_epoch: int  # -1: the client did not say
    metadata: str  # the client's own note
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP  # only where an old client asked for a retention of its own
    order: int = 0  # among the commits of this group: a higher one lies behind it in the log


class ExpiryRule(NamedTuple):
    """From when on offsets grow old. None: each from its own commit."""

    since_ms: int | None
    except_topics: frozenset[str] = NO_SUBSCRIPTION  # topics that members are reading: their offsets stay


class OffsetStore:
    """The offsets of one group, by topic and partition."""

    __slots__ = ("_next_order", "_pending", "by_topic")

    def __init__(self) -> None:
        self.by_topic: dict[str, dict[int, CommittedOffset]] = {}  # Invariant: no topic without partitions
        self._pending: dict[TopicPartition, int] = {}  # how many commits are under way
        self._next_order = 1

    def __len__(self) -> int:
        return sum(map(len, self.by_topic.values()))

    def __iter__(self) -> Iterator[TopicPartition]:
        return ((topic, index) for topic, partitions in self.by_topic.items() for index in partitions)

    @property
    def is_empty(self) -> bool:
        return not self.by_topic and not self._pending

    def get(self, topic: str, index: int) -> CommittedOffset | None:
        partitions = self.by_topic.get(topic)
        return None if partitions is None else partitions.get(index)

    def next_order(self) -> int:
        """The place of the next commit in the log, as counted here."""
        order = self._next_order
        self._next_order = order + 1
        return order

    def note_order(self, order: int) -> None:
        """A commit that was read from the log has this place: later ones come behind it."""
        self._next_order = max(self._next_order, order + 1)

    def put(self, topic: str, index: int, committed: CommittedOffset) -> None:
        """The commit is on disk. One that lies before what is known in the log changes nothing."""
        partitions = self.by_topic.get(topic)
        if partitions is None:
            self.by_topic[topic] = {index: committed}
            return
        known = partitions.get(index)
        if known is None or known.order <= committed.order:
            partitions[index] = committed

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Commits for these are under way and will not be done before the caller returns."""
        for partition in partitions:
            self._pending[partition] = self._pending.get(partition, 0) + 1

    def end(self, partition: TopicPartition) -> bool:
        """A commit that was under way is done. False if its partition was removed meanwhile: then forget it."""
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
        """Those that have an offset, or will have one once their commit is done."""
        return [each for each in partitions if each in self._pending or self.get(*each) is not None]

    def matching(self, topic: str) -> list[TopicPartition]:
        """Everything known or under way for `topic`."""
        known = [(topic, index) for index in self.by_topic.get(topic, ())]
        return known + [each for each in self.under_way() if each[0] == topic]

    def under_way(self) -> list[TopicPartition]:
        """Partitions that have no offset yet, but will once their commit is done."""
        return [(topic, index) for topic, index in self._pending if self.get(topic, index) is None]

    def expired(self, rule: ExpiryRule, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """The partitions whose offset is too old by `rule` and has no commit under way."""
        return [
            (topic, index)
            for topic, partitions in self.by_topic.items()
            if topic not in rule.except_topics
            for index, committed in partitions.items()
            if _is_too_old(committed, rule.since_ms, now_ms, retention_ms) and (topic, index) not in self._pending
        ]


def _is_too_old(committed: CommittedOffset, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - (committed.commit_timestamp_ms if since_ms is None else since_ms) >= retention_ms
