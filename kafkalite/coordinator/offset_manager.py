"""The committed offsets of all groups: commit, fetch, delete, expire.

The offsets of one commit are appended as one batch, and the result of the append is the error of each. They are visible
in the group's `OffsetStore` when the append is done; those of a transaction are a batch of its producer, and visible
from the commit marker on. The first partition costs 2.3 us besides the append, each further one 0.9 us.
Source: kafka.coordinator.group.GroupMetadataManager (storeOffsets, getOffsets, cleanupGroupMetadata,
handleTxnCompletion; 3.9); KIP-98, KIP-211, KIP-447.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import STRING_BYTES_MAX, ZERO_UUID, ProducerIdAndEpoch, TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.group.group import Group, Identity
from kafkalite.coordinator.group.offset_store import OffsetAndMetadata, OffsetStore, OpenTransaction
from kafkalite.coordinator.group.record_codec import KEY_TAIL, offset_key, offset_key_prefix, offset_value
from kafkalite.coordinator.group_store import GroupStore
from kafkalite.coordinator.runtime.effects import (
    COMMIT_APPEND_ERROR,
    CONSUMER_GROUP_APPEND_ERROR,
    STAYS_IN_LOG,
    AppendDone,
    Records,
    Waiter,
)
from kafkalite.log.state.transaction_verification import VerificationGuard
from kafkalite.protocol.records import NO_TIMESTAMP

logger = logging.getLogger(__name__)

NO_OFFSET = OffsetAndMetadata(-1, -1, "", NO_TIMESTAMP)  # not an error: nothing is committed yet
UNSTABLE_OFFSET = OffsetAndMetadata(-1, -1, "", NO_TIMESTAMP, order=-1)  # a commit is pending; compared by identity
NO_RETENTION_MS = -1
LONG_MAX = (1 << 63) - 1
MS_PER_MINUTE = 60_000
TOMBSTONES_PER_BATCH_MAX = 1_000

OffsetToCommit = tuple[str, int, int, int, str, int]
"""Topic, partition, offset, leader epoch, metadata, commit timestamp (NO_TIMESTAMP: now). A plain tuple, which takes
0.1 us less per partition than a named one."""

CommittedOffsets = list[tuple[str, list[tuple[int, OffsetAndMetadata]]]]
"""By topic: (partition, offset)."""


CommitWaiter = Waiter[Sequence[ErrorCode]]
"""Receives one error per offset of a commit, in their order."""


class TransactionalCommit(NamedTuple):
    """A TxnOffsetCommit. A producer that does not know its member has no member id and epoch -1.

    `adds_partition`: the group's partition may not belong to the transaction yet, and is added (KIP-890, part 2).
    """

    group_id: str
    identity: Identity
    transactional_id: str
    producer: ProducerIdAndEpoch
    offsets: Sequence[OffsetToCommit]
    adds_partition: bool = False


class VerifyCommit(Protocol):
    """Checks that partition `index` of `__consumer_offsets` belongs to the transaction of `request`. Calls `done` with
    an error, or with NONE and the proof for the log, which is None where the log needs none."""

    def __call__(
        self, index: int, request: TransactionalCommit, done: Callable[[ErrorCode, VerificationGuard | None], None], /
    ) -> None: ...


class OffsetManager:
    """Commits, serves and removes the offsets of the groups in `store`. Counts those that were committed, that expired
    and that clients have deleted."""

    def __init__(self, config: BrokerConfig, clock: Clock, store: GroupStore) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self.commit_count = self.expiration_count = self.deletion_count = 0

    def commit(
        self,
        group_id: str,
        identity: Identity,
        offsets: Sequence[OffsetToCommit],
        retention_ms: int,
        waiter: CommitWaiter,
        topic_ids: Mapping[str, uuid.UUID] = MappingProxyType({}),
    ) -> None:
        """OffsetCommit: `waiter` is answered when the append is done.

        The epoch is -1 for an administrator, and for a consumer that assigns its partitions itself.
        `retention_ms` is that of versions 2 to 4, else NO_RETENTION_MS; `topic_ids` are those of version 10, by name.
        """
        store = self._store
        error = ErrorCode.NONE
        group = store.by_id.get(group_id)
        if group is None:
            error = store.unknown_group_error(group_id, may_be_empty=True)
            if not error and identity.epoch >= 0:
                is_new = identity.knows_member_epochs
                error = ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION
            if not error:
                group = store.new_group(group_id)
        if group is not None:
            now_ms = self._clock.monotonic_ms()
            partitions = _partitions(offsets, self._config.offset_metadata_max_bytes)
            error, effects = group.validate_commit(identity, partitions, now_ms)
            if effects:
                store.perform(group, effects)
        if error or group is None:
            waiter.answer([error] * len(offsets))
            return
        now_ms = self._clock.wall_ms()
        expire_ms = NO_TIMESTAMP
        if retention_ms != NO_RETENTION_MS:  # limited to an int64; Kafka's sum wraps around
            expire_ms = min(max(now_ms + retention_ms, 0), LONG_MAX)
        commit = _PendingCommit(group.offsets, waiter)
        length_max = self._config.offset_metadata_max_bytes
        records = commit.prepare(group_id, offsets, length_max, now_ms, expire_ms, topic_ids)
        if not records:
            waiter.answer(commit.errors)
            return
        self.commit_count += len(records)
        store.by_id[group_id] = group  # the first offset creates a new group
        store.append(group.partition, records, commit.on_append)
        if not commit.is_done:
            commit.wait()

    def commit_in_transaction(self, request: TransactionalCommit, waiter: CommitWaiter, verify: VerifyCommit) -> None:
        """TxnOffsetCommit: `waiter` is answered when `verify` has confirmed the transaction and the append is done; the
        offsets are pending until `on_transaction_end`."""
        _, error = self._store.find(request.group_id)
        if error:
            waiter.answer([error] * len(request.offsets))
            return

        def on_verified(error: ErrorCode, guard: VerificationGuard | None) -> None:
            if error:
                waiter.answer([COMMIT_APPEND_ERROR.get(error, error)] * len(request.offsets))
            else:
                self._commit_verified(request, guard, waiter)

        verify(self._store.partition_for(request.group_id), request, on_verified)

    def _commit_verified(
        self, request: TransactionalCommit, guard: VerificationGuard | None, waiter: CommitWaiter
    ) -> None:
        """The transaction includes the group's partition. The group may have changed during the verification."""
        group_id, identity, _, producer, offsets, _ = request
        store = self._store
        group, error = store.find(group_id)
        length_max = self._config.offset_metadata_max_bytes
        if not error and group is None and request.adds_partition and identity.epoch >= 0:
            error = ErrorCode.ILLEGAL_GENERATION  # as Kafka 4 does, the first with this version
        elif not error:
            group = group or store.new_group(group_id)
            error = group.validate_transactional_commit(identity, _partitions(offsets, length_max))
        if error or group is None:
            waiter.answer([error] * len(offsets))
            return
        commit = _PendingCommit(group.offsets, waiter)
        records = commit.prepare(group_id, offsets, length_max, self._clock.wall_ms(), NO_TIMESTAMP, {})
        if not records:
            waiter.answer(commit.errors)
            return
        self.commit_count += len(records)
        store.by_id[group_id] = group
        store.add_to_transaction(group, producer.producer_id)
        commit.begin_in_transaction(producer.producer_id)
        store.append(group.partition, records, commit.on_append, producer=producer, guard=guard)
        if not commit.is_done:
            commit.wait()

    def on_transaction_end(self, partition: int, producer_id: int, *, is_committed: bool) -> None:
        """The marker of the producer's transaction is in the log of this partition of `__consumer_offsets`."""
        self._store.end_transaction(partition, producer_id, is_committed=is_committed)

    def fetch(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, Iterable[int]]] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[ErrorCode, CommittedOffsets]:
        """OffsetFetch: the offsets of `partitions` by topic, or of all (None); NO_OFFSET for a partition without one.
        A member of a consumer group is refused if it is not of this epoch, as it is stored.

        With `require_stable`, UNSTABLE_OFFSET for a partition with a pending commit: the client asks again.
        """
        group, error = self._store.find(group_id, may_be_empty=True)
        if group is None:
            return error, [(topic, [(index, NO_OFFSET) for index in indexes]) for topic, indexes in partitions or ()]
        with self._store.as_stored(group) as stored:
            error = ErrorCode.NONE if stored is None else stored.validate_fetch(member_id, member_epoch)
        if error:
            return error, []
        offsets = group.offsets
        if partitions is None:
            partitions = list(offsets.by_topic.items())
        get = offsets.get
        found = [
            (topic, [(index, get(topic, index) or NO_OFFSET) for index in indexes]) for topic, indexes in partitions
        ]
        if require_stable and offsets.has_pending:
            is_pending = offsets.is_pending
            found = [
                (topic, [(index, UNSTABLE_OFFSET if is_pending((topic, index)) else each) for index, each in row])
                for topic, row in found
            ]
        return error, found

    async def delete(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """OffsetDelete: the error of the group, and if that is NONE, of each partition. The deletions are in the log
        when this returns; if it refuses them, the offsets stay."""
        group, error = self._store.find(group_id)
        if not error:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_offset_delete()
        if error or group is None:
            return error, {}
        errors = {
            each: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to_topic(each[0]) else ErrorCode.NONE
            for each in partitions
        }
        deleted = [each for each, error in errors.items() if not error]
        if deleted:
            known = group.offsets.known(deleted)
            if error := await self.remove(group, known):
                return error, {}
            self.deletion_count += len(known)
        return ErrorCode.NONE, errors

    def remove(self, group: Group, partitions: Sequence[TopicPartition]) -> asyncio.Future[ErrorCode]:
        """Removes these offsets, and the group if it has no members and no offsets left. What the log refuses to remove
        stays. The result is NONE when all of it is removed for good, else the error for a client."""
        removal: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode) -> None:
            if not removal.done():
                removal.set_result(CONSUMER_GROUP_APPEND_ERROR.get(error, error))

        self._begin_removal(group, partitions, done)
        return removal

    def _begin_removal(
        self,
        group: Group,
        partitions: Sequence[TopicPartition],
        done: AppendDone | None = None,
        *,
        at_once: bool = False,
    ) -> bool:
        """Whether the log takes it. `at_once`: what it refuses is gone until the group is loaded again."""
        tombstones: Records = [(offset_key(group.group_id, topic, index), None) for topic, index in partitions]
        takes_group = not group.has_members and group.offsets.is_empty_without(partitions)
        if takes_group:
            tombstones += group.tombstones()
        starts = range(0, len(tombstones), TOMBSTONES_PER_BATCH_MAX)
        removal = _Removal(group.group_id, len(starts), done or _ignore)
        for start in starts:
            end = start + TOMBSTONES_PER_BATCH_MAX
            self._store.append(group.partition, tombstones[start:end], removal.on_append)
            if removal.is_refused and not at_once:
                return False
            group.offsets.remove(partitions[start:end])
        if takes_group:
            logger.info("group %s is removed", group.group_id)
            self._store.drop(group)
        return not removal.is_refused

    def expire(self) -> int:
        """Remove expired offsets, and groups left without members and offsets. Returns the number of removed offsets.

        The broker calls this every offsets.retention.check.interval.ms.
        """
        now_ms = self._clock.wall_ms()
        retention_ms = self._config.offsets_retention_minutes * MS_PER_MINUTE
        removed = 0
        for group in self._store:
            condition = group.offset_expiration_condition()
            if condition is None:
                continue
            partitions = group.offsets.expired(condition, now_ms, retention_ms)
            if self._begin_removal(group, partitions):
                removed += len(partitions)
        self.expiration_count += removed
        if removed:
            logger.info("removed %d expired offsets", removed)
        return removed

    def on_topic_deleted(self, topic: str) -> None:
        """Remove all offsets of the topic, and groups that have had no others."""
        for group in self._store:
            if partitions := group.offsets.of_topic(topic):
                self._begin_removal(group, partitions, at_once=True)


def _ignore(error: ErrorCode) -> None:
    """The next expiration tries again."""


class _Removal:
    """The tombstones of a removal on their way to the log, in `count` batches. `is_refused`: the log has not taken one
    of them. `done` is called once: with the first error, or when the log has all of them."""

    __slots__ = ("_count", "_done", "_group_id", "is_refused")

    def __init__(self, group_id: str, count: int, done: AppendDone) -> None:
        self.is_refused = False
        self._group_id = group_id
        self._count = count
        self._done = done
        if not count:
            done(ErrorCode.NONE)

    def on_append(self, error: ErrorCode) -> None:
        self._count -= 1
        if error:
            logger.warning("group %s: the removal of offsets could not be stored: %s", self._group_id, error.name)
            self.is_refused = self.is_refused or error not in STAYS_IN_LOG
        if error or not self._count:
            done, self._done = self._done, _ignore
            done(error)


class _PendingCommit:
    """One commit until its append is done. `errors` has one entry per offset."""

    __slots__ = ("_accepted", "_is_pending", "_store", "_transaction", "_waiter", "errors", "is_done")

    def __init__(self, store: OffsetStore, waiter: CommitWaiter) -> None:
        self.errors: list[ErrorCode] = []
        self._accepted: list[tuple[str, int, OffsetAndMetadata]] = []  # the offsets without an error
        self._store = store
        self._transaction: OpenTransaction | None = None
        self._waiter = waiter
        self.is_done = False
        self._is_pending = False  # the append was not done when it returned

    def prepare(
        self,
        group_id: str,
        offsets: Sequence[OffsetToCommit],
        metadata_length_max: int,
        now_ms: int,
        expire_ms: int,
        topic_ids: Mapping[str, uuid.UUID],
    ) -> Records:
        """The records to append; empty if every offset has an error."""
        order = self._store.next_order()
        records: Records = []
        errors, accepted, pack_index = self.errors, self._accepted, KEY_TAIL.pack
        prefix_of = prefix = None
        topic_id = ZERO_UUID
        for topic, index, offset, leader_epoch, metadata, commit_ms in offsets:
            if metadata and _is_too_long(metadata, metadata_length_max):
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            if commit_ms == NO_TIMESTAMP:
                commit_ms = now_ms
            if prefix is None or topic is not prefix_of:
                prefix_of, prefix = topic, offset_key_prefix(group_id, topic)
                topic_id = topic_ids.get(topic, ZERO_UUID)
            committed = OffsetAndMetadata(offset, leader_epoch, metadata, commit_ms, expire_ms, order, topic_id)
            records.append((prefix + pack_index(index), offset_value(committed)))
            accepted.append((topic, index, committed))
        return records

    def on_append(self, error: ErrorCode) -> None:
        """The append is done, or failed with `error`. Offsets that are in the log although it failed count here, too:
        another broker would read them, and a later commit may follow them."""
        self.is_done = True
        store, transaction = self._store, self._transaction
        is_in_log = not error or error in STAYS_IN_LOG
        for topic, index, committed in self._accepted:
            # an offset that was removed while its commit was pending stays removed
            is_kept = not self._is_pending or store.complete_commit((topic, index), committed.order)
            if not is_in_log or not is_kept:
                continue
            if transaction is None:
                store.put(topic, index, committed)
            else:
                store.put_in_transaction(transaction, topic, index, committed)
        if transaction is not None:
            store.end_append(transaction)
        if error:
            error = COMMIT_APPEND_ERROR.get(error, error)
            self.errors = [each or error for each in self.errors]
        self._waiter.answer(self.errors)

    def begin_in_transaction(self, producer_id: int) -> None:
        """The offsets belong to the producer's transaction."""
        self._transaction = self._store.begin_append(producer_id)

    def wait(self) -> None:
        """Marks the offsets as pending: the append has returned before it was done."""
        self._is_pending = True
        for topic, index, committed in self._accepted:
            self._store.prepare_commit((topic, index), committed.order)


def _partitions(offsets: Iterable[OffsetToCommit], metadata_length_max: int) -> Iterator[TopicPartition]:
    """The partitions that a group checks: those whose metadata is too long are refused by themselves."""
    return (
        (topic, index) for topic, index, _, _, metadata, _ in offsets
        if not (metadata and _is_too_long(metadata, metadata_length_max))
    )  # fmt: skip


def _is_too_long(metadata: str, limit: int) -> bool:
    """Kafka's limit counts UTF-16 code units, as Java's strings do; the log's own limit counts bytes."""
    if metadata.isascii():
        return len(metadata) > min(limit, STRING_BYTES_MAX)
    return len(metadata.encode("utf-16-le")) // 2 > limit or len(metadata.encode()) > STRING_BYTES_MAX
