"""Leader epochs as the measure of two logs: where a follower's log departs from its leader's.

The leader answers with the end of the follower's last epoch in its own log; the follower truncates to the smaller end,
and asks again while the leader names an epoch that it does not know itself (KIP-279). A high watermark is no measure:
it lags behind the committed records (KIP-101).
Source: kafka.server.AbstractFetcherThread.getOffsetTruncationState, kafka.log.UnifiedLog.read; KIP-101, KIP-279,
KIP-320, KIP-595 (diverging epochs in Fetch).
"""

from __future__ import annotations

from typing import Protocol

from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple

NO_EPOCH = -1
NO_OFFSET = -1


class EpochHistory(Protocol):
    """The leader epochs of a log; `LeaderEpochCache` is one."""

    def epoch_at(self, offset: int) -> int: ...

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]: ...


class ReplicaLog(NamedTuple):
    """The offsets of a local log. `synced_offset`: records below are acknowledged by the log: the end of the log, or
    with flush.messages the end of its fsynced part. From `whole_to` on records may be missing in between; None: they
    are not. Invariant: start <= high watermark <= end; synced <= end."""

    start_offset: int
    end_offset: int
    synced_offset: int
    high_watermark: int
    epochs: EpochHistory
    whole_to: int | None = None

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record. An epoch without records does not count: no other log knows it."""
        return self.epochs.epoch_at(self.end_offset - 1) if self.end_offset > self.start_offset else NO_EPOCH


class EpochEndOffset(NamedTuple):
    """The end of an epoch in the leader's log: the epoch asked for, or the next lower one, and the offset behind it."""

    leader_epoch: int
    end_offset: int


class TruncationPoint(NamedTuple):
    """`is_done`: the logs agree below the offset. If not, the leader is to be asked again."""

    offset: int
    is_done: bool


def check_epoch(requested: int, current: int) -> ErrorCode:
    """The error of a request with that leader epoch; -1 is not checked (KIP-320).

    UNKNOWN_LEADER_EPOCH: this broker is behind; a fetch of a replica waits for its view to come, as long as it may.
    """
    if requested in (NO_EPOCH, current):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if requested < current else ErrorCode.UNKNOWN_LEADER_EPOCH


def diverging_epoch(fetch_offset: int, last_fetched_epoch: int, log: ReplicaLog) -> EpochEndOffset | ErrorCode:
    """For a leader: where the log of a fetching replica departs from this one; NONE if it does not, or
    OFFSET_OUT_OF_RANGE."""
    if last_fetched_epoch != NO_EPOCH:
        end = EpochEndOffset(*log.epochs.end_offset_for(last_fetched_epoch, log.end_offset))
        if divergence := divergence_from(end, fetch_offset, last_fetched_epoch, log.start_offset):
            return divergence
    if not log.start_offset <= fetch_offset <= log.end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def divergence_from(
    end: EpochEndOffset, fetch_offset: int, last_fetched_epoch: int, start_offset: int
) -> EpochEndOffset | ErrorCode:
    """For a leader: as `diverging_epoch`, with the `end` of the last fetched epoch in its log. Below the start of the
    log OFFSET_OUT_OF_RANGE comes first, as in Kafka."""
    if end.leader_epoch == NO_EPOCH or end.end_offset == NO_OFFSET or fetch_offset < start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return ErrorCode.NONE


def truncation_point(of_leader: EpochEndOffset, log: ReplicaLog) -> TruncationPoint:
    """For a follower: the offset to truncate to, when the leader has answered."""
    if of_leader.end_offset == NO_OFFSET:  # the leader knows no epochs
        return TruncationPoint(log.high_watermark, True)
    nearest = min(of_leader.end_offset, log.end_offset)
    if of_leader.leader_epoch == NO_EPOCH:
        return TruncationPoint(nearest, True)
    own = EpochEndOffset(*log.epochs.end_offset_for(of_leader.leader_epoch, log.end_offset))
    if own.end_offset == NO_OFFSET:
        return TruncationPoint(nearest, True)
    if own.leader_epoch != of_leader.leader_epoch:
        return TruncationPoint(min(own.end_offset, log.end_offset), False)
    return TruncationPoint(min(own.end_offset, nearest), True)
