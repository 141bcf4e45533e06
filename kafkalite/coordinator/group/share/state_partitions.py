"""The partitions whose state the share coordinators keep for a share group, and how they come and go.

A partition is initializing from the heartbeat that first wants it until the share coordinator has begun its state, and
only then may it be assigned. Its state is deleted in two steps, so that a crash between them is noticed.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager (subscribedTopicsChangeMap, initializeShareGroupState,
alterShareGroupOffsets, sharePartitionsEligibleForOffsetDeletion; 4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.changes import Change, Changes, HeldAnswer
from kafkalite.coordinator.group.deadlines import remaining_ms
from kafkalite.coordinator.group.share.share_tables import (
    SetStatePartitions,
    SharedPartitions,
    ShareGroupTables,
    StatePartitions,
    Step,
)
from kafkalite.coordinator.group.topics import Topics
from kafkalite.coordinator.runtime.effects import Waiter


class InitializeState(NamedTuple):
    """An effect: have the share coordinator begin these partitions at these offsets (-1: by the group's settings), then
    call `on_state_initialized` with those for which it was done."""

    state_epoch: int
    offsets: Mapping[UUID, Mapping[int, int]]


class StatePartitionChanges:
    """The changes of one group's partitions."""

    __slots__ = ("_changes", "_tables", "_topics")

    def __init__(self, tables: ShareGroupTables, topics: Topics, changes: Changes[Step]) -> None:
        self._tables = tables
        self._topics = topics
        self._changes = changes

    def initialize(self, change: Change[Step], retry_ms: int, wall_ms: int) -> InitializeState | None:
        """Begin to initialize the partitions that members want and the share coordinator does not know."""
        tables, topics = self._tables, self._topics
        state = tables.state_partitions
        missing: dict[UUID, SharedPartitions] = {}
        for name in sorted(tables.subscribed_topics):
            topic_id = topics.id_of(name)
            if topic_id is None:
                continue
            known: frozenset[int] = frozenset()
            if topic_id in state.initialized:
                known = state.initialized[topic_id].partitions
            begun = state.initializing.get(topic_id)
            if begun is not None and remaining_ms(begun.since_ms, retry_ms, wall_ms):
                known |= begun.partitions
            wanted = frozenset(range(topics.partition_counts([topic_id])[topic_id])) - known
            if wanted:
                missing[topic_id] = SharedPartitions(name, wanted, wall_ms)
        if not missing:
            return None
        deleting = {each: name for each, name in state.deleting.items() if each not in missing}
        initializing = _joined(state.initializing, missing)
        change.make(SetStatePartitions(StatePartitions(initializing, state.initialized, deleting)))
        return InitializeState(
            tables.group_epoch, {each: dict.fromkeys(sorted(some.partitions), -1) for each, some in missing.items()}
        )

    def on_initialized(
        self, done: Mapping[UUID, Iterable[int]], failed: Mapping[UUID, Iterable[int]], now: Moment
    ) -> Sequence[Any]:
        """The share coordinator has begun the partitions that are `done`; a later heartbeat tries the others again."""
        state = self._tables.state_partitions
        if self._changes.is_closed or (not done and not failed):
            return ()
        over = {each: frozenset(done.get(each, ())) | frozenset(failed.get(each, ())) for each in (*done, *failed)}
        initializing = {
            topic_id: some._replace(partitions=left)
            for topic_id, some in state.initializing.items()
            if (left := some.partitions - over.get(topic_id, frozenset()))
        }
        topics = self._topics
        begun = {
            each: SharedPartitions(topics.name_of(each) or "<UNKNOWN>", frozenset(some), now.wall_ms)
            for each, some in done.items()
        }
        change = Change[Step](self._tables)
        initialized = _joined(state.initialized, begun)
        change.make(SetStatePartitions(StatePartitions(initializing, initialized, state.deleting)))
        return self._changes.store(change)

    def alter_offsets(
        self, offsets: Mapping[UUID, Mapping[int, int]], waiter: Waiter[ErrorCode], now: Moment
    ) -> Sequence[Any]:
        """AlterShareGroupOffsets: begin at other offsets. `waiter` is answered when that is in the log; the state
        itself follows by `InitializeState`, whose outcome the caller waits for."""
        topics, state = self._topics, self._tables.state_partitions
        begun = {
            each: SharedPartitions(topics.name_of(each) or "<UNKNOWN>", frozenset(some), now.wall_ms)
            for each, some in offsets.items()
        }
        deleting = {each: name for each, name in state.deleting.items() if each not in begun}
        change = Change[Step](self._tables)
        initializing = _joined(state.initializing, begun)
        change.make(SetStatePartitions(StatePartitions(initializing, state.initialized, deleting)))
        return self._changes.store(change, [HeldAnswer(waiter, ErrorCode.NONE, _same)])

    def begin_deletion(self, topic_ids: Collection[UUID], waiter: Waiter[ErrorCode]) -> Sequence[Any]:
        """DeleteShareGroupOffsets: the topics are not initialized any more, and their state is about to be deleted."""
        state, topics = self._tables.state_partitions, self._topics
        deleting = {**state.deleting, **{each: topics.name_of(each) or "<UNKNOWN>" for each in topic_ids}}
        initialized = {each: some for each, some in state.initialized.items() if each not in topic_ids}
        change = Change[Step](self._tables)
        change.make(SetStatePartitions(StatePartitions(state.initializing, initialized, deleting)))
        return self._changes.store(change, [HeldAnswer(waiter, ErrorCode.NONE, _same)])

    def end_deletion(self, topic_ids: Collection[UUID], waiter: Waiter[ErrorCode]) -> Sequence[Any]:
        """The state of the topics is deleted."""
        state = self._tables.state_partitions
        change = Change[Step](self._tables)
        deleting = {each: name for each, name in state.deleting.items() if each not in topic_ids}
        change.make(SetStatePartitions(state._replace(deleting=deleting)))
        return self._changes.store(change, [HeldAnswer(waiter, ErrorCode.NONE, _same)])

    def forget_deleted_topics(self) -> Sequence[Any]:
        """Forget the partitions of topics that are no more."""
        state, names = self._tables.state_partitions, self._topics
        kept = StatePartitions(
            {each: some for each, some in state.initializing.items() if names.name_of(each) is not None},
            {each: some for each, some in state.initialized.items() if names.name_of(each) is not None},
            {each: name for each, name in state.deleting.items() if names.name_of(each) is not None},
        )
        if kept == state:
            return ()
        change = Change[Step](self._tables)
        change.make(SetStatePartitions(kept))
        return self._changes.store(change)


def _same(error: ErrorCode) -> ErrorCode:
    return error


def _joined(
    one: Mapping[UUID, SharedPartitions], other: Mapping[UUID, SharedPartitions]
) -> dict[UUID, SharedPartitions]:
    """Both together; where both have a topic, with the later date."""
    joined = dict(one)
    for topic_id, some in other.items():
        known = joined.get(topic_id)
        partitions = some.partitions if known is None else some.partitions | known.partitions
        joined[topic_id] = some._replace(partitions=partitions)
    return joined
