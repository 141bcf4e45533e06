"""The share coordinator: the durable state of share partitions, in `__share_group_state`.

Each share partition belongs to the partition of the topic that its key hashes to, and is served by that partition's
leader. Changes of one share partition are appended one after another: each is decided on the state that the one before
has left, and answered when it is in the log.
Source: org.apache.kafka.coordinator.share.{ShareCoordinatorService, ShareCoordinatorShard,
ShareCoordinatorOffsetsManager} (4.3).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.common.metrics import LatestValues
from kafkalite.common.names import SHARE_STATE_TOPIC, format_uuid, parse_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.runtime.effects import STAYS_IN_LOG, TRANSACTION_APPEND_ERROR, AppendRecords
from kafkalite.coordinator.runtime.partitioned_store import PartitionedStore, PartitionLoader
from kafkalite.coordinator.share.share_state import (
    ShareState,
    ShareSummary,
    StateRecord,
    applied,
    deleted,
    initialized,
    read_by,
    read_key,
    refreshed,
    written,
)
from kafkalite.replication.share.durable_state import SharePartitionKey, StateWrite, StoredState

if TYPE_CHECKING:
    from kafkalite.record.columns.batch_columns import Flags
    from kafkalite.record.columns.record_columns import Columns

logger = logging.getLogger(__name__)

NO_PRUNING = -1


_UNKNOWN = ShareSummary(0, 0, -1, -1)

Decision = Callable[["StoredShare"], tuple[StateRecord | None, object]]
"""The record that a request appends, and its result. Raises KafkaError."""
Done = Callable[[object], None]
"""Receives the result, or the KafkaError."""


class StoredShare:
    """One share partition. `state` is None before its first record and after its last one."""

    __slots__ = ("is_appending", "key", "partition", "requests", "snapshot_offset", "state")

    def __init__(self, key: SharePartitionKey, partition: int) -> None:
        self.key = key
        self.partition = partition  # of the topic
        self.state: ShareState | None = None
        self.snapshot_offset = NO_PRUNING  # where its last snapshot is; records before it are not needed
        self.requests: deque[tuple[Decision, Done]] = deque()
        self.is_appending = False


class ShareStateLoader(PartitionLoader):
    """The share partitions of one partition of the topic. Its records count in their order, each of them."""

    topic = SHARE_STATE_TOPIC

    def __init__(self) -> None:
        super().__init__()
        self.shares: dict[SharePartitionKey, tuple[ShareState, int]] = {}  # with the offset of the last snapshot

    def known_key(self, key: bytes | None, value: bytes | None, offset: int) -> bytes | None:
        """Takes the record in; there is no last value to keep."""
        try:
            found = None if key is None else read_key(key)
            if found is None:
                logger.warning("skipped the record at offset %d of %s: its key is unknown", offset, self.topic)
                return None
            share, kind = found
            state, snapshot_offset = self.shares.get(share, (None, NO_PRUNING))
            after = applied(state, kind, value)
            if after is None:
                self.shares.pop(share, None)
            else:
                self.shares[share] = after, snapshot_offset if after.update_count else offset
        except Malformed as fault:
            logger.warning("skipped the record at offset %d of %s: %s", offset, self.topic, fault)
        return None

    def counted_rows(self, columns: Columns) -> Flags | None:
        return None

    def decode(self, key: bytes, value: bytes, order: int, producer_id: int) -> None:
        """Never called: `known_key` keeps no value."""


class ShareStateStore(PartitionedStore[StoredShare, ShareStateLoader]):
    """The share partitions whose state this broker keeps, by the text of their keys."""

    def find(self, key: SharePartitionKey) -> StoredShare:
        """The share partition, which may be unknown as yet. Raises KafkaError."""
        identity = text_of(key)
        share = self.by_id.get(identity)
        if share is None:
            error = self.error_without_value(identity)
            if error:
                raise KafkaError(error)
            share = self.by_id[identity] = StoredShare(key, self.partition_for(identity))
        return share

    def forget(self, share: StoredShare) -> None:
        """Drop a share partition of which nothing is known."""
        if share.state is None and not share.requests and not share.is_appending:
            self.by_id.pop(text_of(share.key), None)

    def redundant_before(self, partition: int) -> int:
        """The offset before which no record of the partition is needed; NO_PRUNING: none is known."""
        return min((share.snapshot_offset for share in self.values_of(partition)), default=NO_PRUNING)

    def _add_loaded(self, partition: int, loader: ShareStateLoader) -> None:
        for key, (state, snapshot_offset) in loader.shares.items():
            share = StoredShare(key, partition)
            share.state, share.snapshot_offset = state, snapshot_offset
            self.by_id[text_of(key)] = share
        if loader.shares:
            logger.info("loaded %d share partitions of %s-%d", len(loader.shares), SHARE_STATE_TOPIC, partition)

    def _drop(self, share: StoredShare, error: ErrorCode) -> None:
        self.by_id.pop(text_of(share.key), None)
        while share.requests:
            share.requests.popleft()[1](KafkaError(error))


@lru_cache(1024)  # with `partition_for_id` below it 10 us less for each write
def text_of(key: SharePartitionKey) -> str:
    """The key as FindCoordinator names it, and as it is hashed."""
    return f"{key.group_id}:{format_uuid(key.topic_id)}:{key.partition}"


def is_share_key(text: str) -> bool:
    """Whether the text names a share partition."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or not parts[2].isdecimal():
        return False
    try:
        parse_uuid(parts[1])
    except ValueError:
        return False
    return True


class ShareCoordinator:
    """All requests about the durable state. `partition_count_of` gives the number of partitions of a topic id, None if
    there is no such topic; `end_offset_of` the end of the log of a partition of the topic.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        append: AppendRecords,
        partition_count_of: Callable[[UUID], int | None],
        end_offset_of: Callable[[int], int],
    ) -> None:
        self.store = ShareStateStore(config().share_coordinator_state_topic_num_partitions)
        self.write_count = 0  # of leaders, those included that begin
        self.write_times = LatestValues()  # in milliseconds, until they are in the log
        self._config = config
        self._clock = clock
        self._append = append
        self._partition_count_of = partition_count_of
        self._end_offset_of = end_offset_of

    # --- requests

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: Done) -> None:
        """The group begins again at the offset. `done` gets None, or KafkaError: FENCED_STATE_EPOCH, or any of the
        coordinator's errors, UNKNOWN_TOPIC_OR_PARTITION and INVALID_REQUEST."""

        def decide(share: StoredShare) -> tuple[StateRecord, None]:
            record = initialized(key, share.state, state_epoch, start_offset, self._clock.wall_ms())
            self._check_topic(key)
            return record, None

        self._submit(key, decide, done)

    def read(self, key: SharePartitionKey, leader_epoch: int, done: Done) -> None:
        """A leader begins: `done` gets a StoredState, and earlier leaders are fenced."""

        def decide(share: StoredShare) -> tuple[StateRecord | None, StoredState]:
            state = share.state
            if state is None:
                raise _uninitialized("Read")
            record = read_by(key, state, leader_epoch, self._updates_per_snapshot, self._clock.wall_ms())
            self._check_topic(key)
            self.write_count += record is not None
            return record, StoredState(state.state_epoch, state.start_offset, state.ranges)

        self._submit(key, decide, done)

    def write(self, key: SharePartitionKey, write: StateWrite, done: Done) -> None:
        """`done` gets None, or KafkaError: FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, and those of `initialize`."""
        began_ms = self._clock.monotonic_ms()
        self.write_count += 1

        def on_written(result: object) -> None:
            self.write_times.add(self._clock.monotonic_ms() - began_ms)
            done(result)

        def decide(share: StoredShare) -> tuple[StateRecord, None]:
            if share.state is None:
                raise _uninitialized("Write")
            record = written(key, share.state, write, self._updates_per_snapshot, self._clock.wall_ms())
            self._check_topic(key)
            return record, None

        self._submit(key, decide, on_written)

    def delete(self, key: SharePartitionKey, done: Done) -> None:
        """`done` gets None also if nothing is known of the share partition."""

        def decide(share: StoredShare) -> tuple[StateRecord | None, None]:
            self._check_topic(key)
            return None if share.state is None else deleted(key), None

        self._submit(key, decide, done)

    def summary(self, key: SharePartitionKey, done: Done) -> None:
        """`done` gets a ShareSummary."""

        def decide(share: StoredShare) -> tuple[None, ShareSummary]:
            self._check_topic(key)
            state = share.state
            if state is None:
                return None, _UNKNOWN
            return None, ShareSummary(
                state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count
            )

        self._submit(key, decide, done)

    # --- upkeep

    def forget_deleted_topics(self) -> None:
        """Forget what is known of partitions of topics that are no more."""
        for share in self.store:
            if share.state is not None and self._partition_count_of(share.key.topic_id) is None:
                self._enqueue(share, _end, _ignore)

    def refresh_cold(self) -> None:
        """Write snapshots of share partitions that have had none for long, so that the log before can be deleted."""
        interval_ms = self._config().share_coordinator_cold_partition_snapshot_interval_ms
        now_ms = self._clock.wall_ms()
        for share in self.store:
            state = share.state
            if state is not None and state.update_count and now_ms - state.write_timestamp_ms >= interval_ms:
                self._enqueue(share, self._refresh, _ignore)

    def _refresh(self, share: StoredShare) -> tuple[StateRecord | None, None]:
        if share.state is None:
            return None, None
        return refreshed(share.key, share.state, self._clock.wall_ms()), None

    def close(self) -> None:
        self.store.close()

    # --- one change after another

    def _submit(self, key: SharePartitionKey, decide: Decision, done: Done) -> None:
        try:
            if key.partition < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
            share = self.store.find(key)
        except KafkaError as error:
            done(error)
            return
        self._enqueue(share, decide, done)

    def _enqueue(self, share: StoredShare, decide: Decision, done: Done) -> None:
        share.requests.append((decide, done))
        self._next(share)

    def _next(self, share: StoredShare) -> None:
        while share.requests and not share.is_appending:
            decide, done = share.requests.popleft()
            try:
                record, result = decide(share)
            except KafkaError as error:
                done(error)
                continue
            if record is None:
                done(result)
            else:
                self._append_record(share, record, result, done)
        self.store.forget(share)

    def _append_record(self, share: StoredShare, record: StateRecord, result: object, done: Done) -> None:
        share.is_appending = True
        offset = self._end_offset_of(share.partition)

        def on_append(error: ErrorCode) -> None:
            share.is_appending = False
            if not error or error in STAYS_IN_LOG:
                share.state = record.state
                if share.state is not None and not share.state.update_count:
                    share.snapshot_offset = offset
            done(KafkaError(TRANSACTION_APPEND_ERROR.get(error, error)) if error else result)
            self._next(share)

        self._append(share.partition, [(record.key, record.value)], on_append)

    @property
    def _updates_per_snapshot(self) -> int:
        return self._config().share_coordinator_snapshot_update_records_per_snapshot

    def _check_topic(self, key: SharePartitionKey) -> None:
        count = self._partition_count_of(key.topic_id)
        if count is None or key.partition >= count:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _end(share: StoredShare) -> tuple[StateRecord | None, None]:
    return None if share.state is None else deleted(share.key), None


def _uninitialized(operation: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{operation} operation on uninitialized share partition not allowed.")


def _ignore(result: object) -> None:
    if isinstance(result, KafkaError):
        logger.warning("a change of a share partition could not be stored: %s", result)
