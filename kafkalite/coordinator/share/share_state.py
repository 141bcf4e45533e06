"""The durable state of one share partition, its records in `__share_group_state`, and what may change it.

A snapshot holds the whole state, an update what changed since: after `updates_per_snapshot` updates a snapshot is
written. The topic is not compacted; what lies before the last snapshots of all its share partitions is deleted. A
decision gives the record to write, or an error; its effect on the state is that of reading the record (`apply`).
Source: org.apache.kafka.coordinator.share.ShareCoordinatorShard, ShareGroupOffset, PersisterStateBatchCombiner (4.3).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.codec.codec import known_version_of, read_versioned, version_of
from kafkalite.protocol.codec.codec import versioned as encoded
from kafkalite.protocol.records import (
    SHARE_SNAPSHOT,
    SHARE_STATE_RECORDS,
    SHARE_UPDATE,
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
)
from kafkalite.protocol.records import SharePartitionKey as KeyMessage
from kafkalite.replication.share.durable_state import (
    NO_EPOCH,
    UNKNOWN_OFFSET,
    SharePartitionKey,
    StateRange,
    StateWrite,
)

NO_COUNT = -1
_VALUE_VERSION = 0


class ShareState(NamedTuple):
    """The state of one share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    ranges: tuple[StateRange, ...]  # in the order of their offsets, disjoint
    create_timestamp_ms: int
    write_timestamp_ms: int
    update_count: int = 0  # since the last snapshot
    newest_leader_epoch: int = NO_EPOCH  # a new beginning writes 0 as the leader's epoch, and yet fences older leaders


class ShareSummary(NamedTuple):
    """The part of a state that administrators read; -1 and 0 where nothing is known."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class StateRecord(NamedTuple):
    """A record to write: a snapshot, an update, or without a value the end of the share partition. `state` is the one
    after it, which `applied` gives to its readers."""

    key: bytes
    value: bytes | None
    state: ShareState | None


def combined(ranges: Iterable[StateRange], start_offset: int) -> tuple[StateRange, ...]:
    """One state for each offset from `start_offset` on (-1: from the first), neighbours alike joined. Where ranges
    overlap, the higher delivery count counts, and of equal ones the higher state."""
    waiting = sorted(
        found if found.first >= start_offset else found._replace(first=start_offset)
        for found in ranges
        if found.last >= start_offset
    )
    if all(before.last < after.first for before, after in pairwise(waiting)):
        return _joined(waiting)
    joined: list[StateRange] = []
    best: list[tuple[int, int, int]] = []  # a heap of those that have the offset: -count, -state, last offset
    at, offset = 0, waiting[0].first if waiting else 0
    while at < len(waiting) or best:
        if not best:
            offset = max(offset, waiting[at].first)
        while at < len(waiting) and waiting[at].first <= offset:
            found = waiting[at]
            heapq.heappush(best, (-found.delivery_count, -found.state, found.last))
            at += 1
        count, state, last = best[0]
        if last < offset:
            heapq.heappop(best)
            continue
        end = min(last, waiting[at].first - 1) if at < len(waiting) else last
        previous = joined[-1] if joined else None
        if previous is not None and (previous.last + 1, -previous.state, -previous.delivery_count) == (
            offset,
            state,
            count,
        ):
            joined[-1] = previous._replace(last=end)
        else:
            joined.append(StateRange(offset, end, -state, -count))
        offset = end + 1
    return tuple(joined)


def _joined(ranges: Iterable[StateRange]) -> tuple[StateRange, ...]:
    """Of ranges in order that do not overlap, neighbours alike joined."""
    joined: list[StateRange] = []
    for found in ranges:
        previous = joined[-1] if joined else None
        if previous is not None and previous.last + 1 == found.first and previous[2:] == found[2:]:
            joined[-1] = previous._replace(last=found.last)
        else:
            joined.append(found)
    return tuple(joined)


def initialized(
    key: SharePartitionKey, state: ShareState | None, state_epoch: int, start_offset: int, now_ms: int
) -> StateRecord:
    """The group begins again at an offset (-1: decided at the first read). Raises KafkaError: FENCED_STATE_EPOCH."""
    if state is not None and state_epoch != NO_EPOCH and state.state_epoch > state_epoch:
        raise KafkaError.in_kafkas_words(ErrorCode.FENCED_STATE_EPOCH)
    epoch = 0 if state is None else state.snapshot_epoch + 1
    count = NO_COUNT if start_offset == UNKNOWN_OFFSET else 0
    return _snapshot(key, state, ShareState(epoch, state_epoch, 0, start_offset, count, (), now_ms, now_ms))


def written(
    key: SharePartitionKey, state: ShareState, write: StateWrite, updates_per_snapshot: int, now_ms: int
) -> StateRecord:
    """Raises KafkaError: FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH."""
    if write.leader_epoch != NO_EPOCH and state.newest_leader_epoch > write.leader_epoch:
        raise KafkaError.in_kafkas_words(ErrorCode.FENCED_LEADER_EPOCH)
    if write.state_epoch != NO_EPOCH and state.state_epoch > write.state_epoch:
        raise KafkaError.in_kafkas_words(ErrorCode.FENCED_STATE_EPOCH)
    return _changed(key, state, write, state.leader_epoch, updates_per_snapshot, now_ms)


def read_by(
    key: SharePartitionKey, state: ShareState, leader_epoch: int, updates_per_snapshot: int, now_ms: int
) -> StateRecord | None:
    """A leader reads the state: the record that fences earlier leaders, or None. Raises KafkaError:
    FENCED_LEADER_EPOCH."""
    if state.newest_leader_epoch > leader_epoch:
        raise KafkaError.in_kafkas_words(ErrorCode.FENCED_LEADER_EPOCH)
    if leader_epoch in (NO_EPOCH, state.newest_leader_epoch):
        return None
    unchanged = StateWrite(state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, ())
    return _changed(key, state, unchanged, leader_epoch, updates_per_snapshot, now_ms)


def deleted(key: SharePartitionKey) -> StateRecord:
    return StateRecord(_key(key, SHARE_SNAPSHOT), None, None)


def refreshed(key: SharePartitionKey, state: ShareState, now_ms: int) -> StateRecord:
    """A snapshot of an unchanged state, so that what lies before it can be deleted."""
    return _snapshot(key, state, state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp_ms=now_ms))


def _changed(
    key: SharePartitionKey,
    state: ShareState,
    write: StateWrite,
    leader_epoch: int,
    updates_per_snapshot: int,
    now_ms: int,
) -> StateRecord:
    if state.update_count >= updates_per_snapshot:
        start = state.start_offset if write.start_offset == UNKNOWN_OFFSET else write.start_offset
        changed = ShareState(
            state.snapshot_epoch + 1,
            state.state_epoch,
            leader_epoch,
            start,
            write.delivery_complete_count,
            combined((*state.ranges, *write.ranges), start),
            now_ms,
            now_ms,
        )
        return _snapshot(key, state, changed)
    ranges = combined(write.ranges, write.start_offset)
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=write.start_offset,
        delivery_complete_count=write.delivery_complete_count,
        state_batches=_batches(ranges),
    )
    after = _updated(state, leader_epoch, write.start_offset, write.delivery_complete_count, ranges)
    return StateRecord(_key(key, SHARE_UPDATE), encoded(value, _VALUE_VERSION), after)


def _snapshot(key: SharePartitionKey, before: ShareState | None, state: ShareState) -> StateRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_timestamp_ms,
        write_timestamp=state.write_timestamp_ms,
        state_batches=_batches(state.ranges),
    )
    return StateRecord(_key(key, SHARE_SNAPSHOT), encoded(value, _VALUE_VERSION), _replaced(before, state))


def _replaced(before: ShareState | None, snapshot: ShareState) -> ShareState:
    """The state after a snapshot, which lets no older leader return."""
    newest = max(snapshot.leader_epoch, NO_EPOCH if before is None else before.newest_leader_epoch)
    return snapshot._replace(update_count=0, newest_leader_epoch=newest)


def _updated(
    state: ShareState,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    ranges: Sequence[StateRange],
) -> ShareState:
    """The state after an update of these values."""
    start = state.start_offset if start_offset == UNKNOWN_OFFSET else start_offset
    return ShareState(
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch if leader_epoch == NO_EPOCH else leader_epoch,
        start,
        delivery_complete_count,
        combined((*state.ranges, *ranges), start),
        state.create_timestamp_ms,
        state.write_timestamp_ms,
        state.update_count + 1,
        max(state.newest_leader_epoch, leader_epoch),
    )


def _key(key: SharePartitionKey, kind: int) -> bytes:
    return encoded(KeyMessage(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), kind)


def _batches(ranges: Iterable[StateRange]) -> list[StateBatch]:
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in ranges
    ]


def _ranges(batches: Iterable[StateBatch]) -> tuple[StateRange, ...]:
    return tuple(
        StateRange(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    )


def read_key(data: bytes) -> tuple[SharePartitionKey, int] | None:
    """The share partition and the kind of the record; None for an unknown kind. Raises Malformed."""
    kind = version_of(data)
    if kind not in SHARE_STATE_RECORDS:
        return None
    message = read_versioned(KeyMessage, kind, data)
    return SharePartitionKey(message.group_id, message.topic_id, message.partition), kind


def applied(state: ShareState | None, kind: int, value: bytes | None) -> ShareState | None:
    """The state after a record of `kind` in the log; None if it ends the share partition. An update without a
    snapshot is that of a log whose beginning was deleted too far, and counts by itself. Raises Malformed."""
    if value is None:
        return None if kind == SHARE_SNAPSHOT else state
    known_version_of(value, _VALUE_VERSION)
    if kind == SHARE_SNAPSHOT:
        snapshot = read_versioned(ShareSnapshotValue, _VALUE_VERSION, value)
        found = ShareState(
            snapshot.snapshot_epoch,
            snapshot.state_epoch,
            snapshot.leader_epoch,
            snapshot.start_offset,
            snapshot.delivery_complete_count,
            _ranges(snapshot.state_batches),
            snapshot.create_timestamp,
            snapshot.write_timestamp,
        )
        return _replaced(state, found)
    if kind != SHARE_UPDATE:
        raise Malformed(f"a share partition has no record of kind {kind}")
    update = read_versioned(ShareUpdateValue, _VALUE_VERSION, value)
    if state is None:
        state = ShareState(update.snapshot_epoch, NO_EPOCH, NO_EPOCH, UNKNOWN_OFFSET, NO_COUNT, (), -1, -1)
    return _updated(
        state,
        update.leader_epoch,
        update.start_offset,
        update.delivery_complete_count,
        _ranges(update.state_batches),
    )
