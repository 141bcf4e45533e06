"""The committed offsets of one group, and their expiration.

A commit is visible when it is on disk, and a commit within a transaction when the transaction's commit marker is. Until
then it is pending, and its partition does not expire. Each commit carries the order in which it was sent to the log:
the later one in the log counts, in any order of markers and of completed appends.

Invariant: with no append in progress, the log read from its start gives the same offsets and the same transactions. So
a removed partition is also removed from open transactions; its tombstone follows their commits in the log.
Source: kafka.coordinator.group.{GroupMetadata, OffsetAndMetadata} (3.9), where the log resurrects offsets that were
removed during a transaction; org.apache.kafka.coordinator.group.OffsetMetadataManager (4.0), where it does not; KIP-98,
KIP-211 (expiry), KIP-447, KIP-496.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import ZERO_UUID, TopicPartition
from kafkalite.protocol.records import NO_TIMESTAMP

NO_PRODUCER_ID = -1
NO_TOPICS: frozenset[str] = frozenset()


class OffsetAndMetadata(NamedTuple):
    """The committed offset of one partition."""

    offset: int
    leader_epoch: int  # -1: unknown
    metadata: str  # the client's own note
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP  # only if the client asked for a retention time (v2 to v4)
    order: int = 0  # among the commits of this group: a higher one is later in the log
    topic_id: uuid.UUID = ZERO_UUID  # if it was committed by id: it is not for another topic of this name


class ExpirationCondition(NamedTuple):
    """Retention counts from `since_ms`; if None, from each offset's commit time."""

    since_ms: int | None
    subscribed_topics: frozenset[str] = NO_TOPICS  # their offsets do not expire


class OpenTransaction:
    """The commits of one producer within its current transaction.

    An append may still be in progress when the transaction ends; `is_committed` is its outcome then.
    """

    __slots__ = ("append_count", "is_committed", "offsets", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}  # on disk; the last one of each partition
        self.append_count = 0  # of appends in progress
        self.is_committed: bool | None = None  # None: open

    def put(self, partition: TopicPartition, committed: OffsetAndMetadata) -> None:
        known = self.offsets.get(partition)
        if known is None or known.order <= committed.order:
            self.offsets[partition] = committed


class OffsetStore:
    """The offsets of one group, by topic and partition; those of open transactions by producer id."""

    __slots__ = ("_next_order", "_pending", "by_topic", "transactions")

    def __init__(self) -> None:
        self.by_topic: dict[str, dict[int, OffsetAndMetadata]] = {}  # Invariant: no topic without partitions
        self.transactions: dict[int, OpenTransaction] = {}  # Invariant: each has offsets or an append in progress
        self._pending: dict[TopicPartition, list[int]] = {}  # the orders of the commits whose append is in progress
        self._next_order = 1

    def __iter__(self) -> Iterator[TopicPartition]:
        return ((topic, index) for topic, partitions in self.by_topic.items() for index in partitions)

    @property
    def is_empty(self) -> bool:
        return not self.by_topic and not self._pending and not self.transactions

    def is_empty_without(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether it would be empty if these were removed."""
        gone = set(partitions)
        return (
            gone.issuperset(self)
            and gone.issuperset(self._pending)
            and all(not each.append_count and gone.issuperset(each.offsets) for each in self.transactions.values())
        )

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

    def load(self, topic: str, partitions: dict[int, OffsetAndMetadata], last_order: int) -> None:
        """These commits were read from the log, one at least. Their orders are `last_order` at most: commits from now
        on are later."""
        known = self.by_topic.get(topic)
        if known is None:
            self.by_topic[topic] = partitions
        else:
            known.update(partitions)
        self._next_order = max(self._next_order, last_order + 1)

    def load_in_transaction(self, topic: str, index: int, committed: OffsetAndMetadata, producer_id: int) -> None:
        """As `load`, within the open transaction of `producer_id`."""
        self._transaction(producer_id).put((topic, index), committed)
        self._next_order = max(self._next_order, committed.order + 1)

    def prepare_commit(self, partition: TopicPartition, order: int) -> None:
        """The append of a commit is in progress."""
        self._pending.setdefault(partition, []).append(order)

    def complete_commit(self, partition: TopicPartition, order: int) -> bool:
        """The append is done or has failed. False if the partition was removed meanwhile; then its offset is
        discarded."""
        orders = self._pending.get(partition)
        if orders is None or order not in orders:
            return False
        orders.remove(order)
        if not orders:
            del self._pending[partition]
        return True

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for topic, index in partitions:
            self._pending.pop((topic, index), None)
            for transaction in list(self.transactions.values()):
                if transaction.offsets.pop((topic, index), None) is not None:
                    self._drop_if_unused(transaction)
            known = self.by_topic.get(topic)
            if known is not None and known.pop(index, None) is not None and not known:
                del self.by_topic[topic]

    # --- transactions

    def begin_append(self, producer_id: int) -> OpenTransaction:
        """The append of a commit within the producer's transaction begins. Ends with `end_append`."""
        transaction = self._transaction(producer_id)
        transaction.append_count += 1
        return transaction

    def put_in_transaction(
        self, transaction: OpenTransaction, topic: str, index: int, committed: OffsetAndMetadata
    ) -> None:
        """The commit is on disk. Its record precedes the marker in the log, even if this comes after
        `end_transaction`."""
        if transaction.is_committed is None:
            transaction.put((topic, index), committed)
        elif transaction.is_committed:
            self.put(topic, index, committed)

    def end_append(self, transaction: OpenTransaction) -> None:
        transaction.append_count -= 1
        self._drop_if_unused(transaction)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """The marker of the producer's transaction is on disk: its commits are visible if `is_committed`, else gone."""
        transaction = self.transactions.pop(producer_id, None)
        if transaction is None:
            return
        transaction.is_committed = is_committed
        if is_committed:
            for (topic, index), committed in transaction.offsets.items():
                self.put(topic, index, committed)

    def _transaction(self, producer_id: int) -> OpenTransaction:
        transaction = self.transactions.get(producer_id)
        if transaction is None:
            transaction = self.transactions[producer_id] = OpenTransaction(producer_id)
        return transaction

    def _drop_if_unused(self, transaction: OpenTransaction) -> None:
        if not transaction.offsets and not transaction.append_count and transaction.is_committed is None:
            del self.transactions[transaction.producer_id]

    # --- pending commits

    @property
    def has_pending(self) -> bool:
        return bool(self._pending or self.transactions)

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether an append or a transaction may still change the offset of the partition."""
        return partition in self._pending or any(partition in each.offsets for each in self.transactions.values())

    def pending_partitions(self) -> list[TopicPartition]:
        """Partitions that have a pending commit and no offset yet."""
        pending = dict.fromkeys(self._pending)
        for transaction in self.transactions.values():
            pending.update(dict.fromkeys(transaction.offsets))
        return [(topic, index) for topic, index in pending if self.get(topic, index) is None]

    def known(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The subset of `partitions` that have an offset or a pending commit."""
        return [each for each in partitions if self.get(*each) is not None or self.is_pending(each)]

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions that have an offset or a pending commit."""
        known = [(topic, index) for index in self.by_topic.get(topic, ())]
        return known + [each for each in self.pending_partitions() if each[0] == topic]

    def expired(self, condition: ExpirationCondition, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """The partitions with an expired offset and no pending commit."""
        return [
            (topic, index)
            for topic, partitions in self.by_topic.items()
            if topic not in condition.subscribed_topics
            for index, committed in partitions.items()
            if _is_expired(committed, condition.since_ms, now_ms, retention_ms) and not self.is_pending((topic, index))
        ]


def _is_expired(committed: OffsetAndMetadata, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - (committed.commit_timestamp_ms if since_ms is None else since_ms) >= retention_ms
