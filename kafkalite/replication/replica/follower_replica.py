r"""A partition's replica as a follower: it copies the log of its leader, after truncating its own to it.

    TRUNCATING ---> FETCHING <---> OUT_OF_RANGE       FENCED: the leader has a newer epoch than this broker has seen
         \_____________\_______________\___________-> FAILED: the disk, or something unexpected

It fetches from the end of its log and names the epoch of its last record. If the leader's log departs below, the
answer says where (KIP-595), the log is truncated, and the next fetch asks again, until the logs agree. A leader that
cannot say so in a fetch is asked by OffsetForLeaderEpoch before the first one. An instance lives for one leader epoch;
one request is in flight, and an answer counts only if nothing has changed since.
Source: kafka.server.{AbstractFetcherThread, ReplicaFetcherThread, PartitionFetchState}; KIP-101, KIP-279, KIP-320,
KAFKA-6975, KAFKA-7414.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.replication.replica.effects import (
    Append,
    Fail,
    FollowerEffect,
    RaiseLogStart,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from kafkalite.replication.replica.epoch_divergence import NO_EPOCH, EpochEndOffset, ReplicaLog, truncation_point


class FollowerPhase(Enum):
    TRUNCATING = "Truncating"
    FETCHING = "Fetching"
    OUT_OF_RANGE = "OutOfRange"
    FENCED = "Fenced"
    FAILED = "Failed"


TRUNCATING, FETCHING, OUT_OF_RANGE, FENCED, FAILED = FollowerPhase

ENTERED_FROM: Mapping[FollowerPhase, frozenset[FollowerPhase]] = {
    TRUNCATING: frozenset(),
    FETCHING: frozenset({TRUNCATING, FETCHING, OUT_OF_RANGE}),
    OUT_OF_RANGE: frozenset({FETCHING, OUT_OF_RANGE}),
    FENCED: frozenset({TRUNCATING, FETCHING, OUT_OF_RANGE}),
    FAILED: frozenset({TRUNCATING, FETCHING, OUT_OF_RANGE}),
}

LATEST = -1
EARLIEST = -2

_BEHIND_BACKOFF_MS = 50  # the leader lets a fetch wait for its own view; Kafka's 1 s would add to every failover


class Fetch(NamedTuple):
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class AskEpochEnd(NamedTuple):
    """OffsetForLeaderEpoch: the end of `epoch` in the leader's log."""

    leader_epoch: int
    epoch: int


class AskOffset(NamedTuple):
    """ListOffsets as a replica: LATEST is the end of the leader's log, EARLIEST its start."""

    leader_epoch: int
    timestamp: int


Request = Fetch | AskEpochEnd | AskOffset


class FetchAnswer(NamedTuple):
    """`first_offset` is the base offset of the first batch, None without records."""

    error: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset | None = None
    first_offset: int | None = None


class FollowerReplica:
    """`retry_at_ms`: no request before that time (monotonic). Invariant: `asked_epoch` is an epoch of the local log, in
    TRUNCATING only; `asked_offset` is LATEST, then EARLIEST, in OUT_OF_RANGE only."""

    __slots__ = ("_backoff_ms", "asked_epoch", "asked_offset", "leader", "leader_epoch", "phase", "retry_at_ms")

    def __init__(
        self, leader: int, leader_epoch: int, log: ReplicaLog, *, truncates_on_fetch: bool, backoff_ms: float
    ) -> None:
        """`truncates_on_fetch`: the leader answers fetches with diverging epochs (Fetch 12, Kafka 2.7).
        `backoff_ms` is replica.fetch.backoff.ms."""
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.retry_at_ms = float("-inf")
        self._backoff_ms = backoff_ms
        self.asked_epoch = log.last_epoch
        self.asked_offset = LATEST
        self.phase = FETCHING if truncates_on_fetch and self.asked_epoch != NO_EPOCH else TRUNCATING

    def begin(self, log: ReplicaLog) -> list[FollowerEffect]:
        """A log without epochs cannot be compared: only records that are known to be committed stay. Nor would a
        comparison notice records that are missing in between: later ones are fetched again."""
        whole_to = log.end_offset if log.whole_to is None else log.whole_to
        if self.phase is TRUNCATING and self.asked_epoch == NO_EPOCH:
            self._enter(FETCHING)
            return [TruncateTo(min(log.high_watermark, whole_to))]
        return [TruncateTo(whole_to)] if whole_to < log.end_offset else []

    def next_request(self, log: ReplicaLog, now_ms: float) -> Request | None:
        """The request to be sent now; None: none yet. A fetch offset shows the leader that the records below are here
        to stay, so with flush.messages it waits for the disk."""
        if now_ms < self.retry_at_ms or log.synced_offset < log.end_offset:
            return None
        if self.phase is FETCHING:
            return Fetch(self.leader_epoch, log.end_offset, log.last_epoch, log.start_offset)
        if self.phase is TRUNCATING:
            return AskEpochEnd(self.leader_epoch, self.asked_epoch)
        return AskOffset(self.leader_epoch, self.asked_offset) if self.phase is OUT_OF_RANGE else None

    # --- answers

    def on_fetch(self, sent: Fetch, answer: FetchAnswer, log: ReplicaLog, now_ms: float) -> list[FollowerEffect]:
        is_current = sent.leader_epoch == self.leader_epoch and sent.fetch_offset == log.end_offset
        if self.phase is not FETCHING or not is_current:
            return []
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.asked_offset = LATEST
            self._enter(OUT_OF_RANGE)
            return []
        if answer.error:
            return self._on_error(answer.error, now_ms)
        if answer.diverging_epoch is not None:
            return [TruncateTo(truncation_point(answer.diverging_epoch, log).offset)]
        effects: list[FollowerEffect] = []
        if answer.first_offset is not None and answer.first_offset < log.end_offset:
            if log.start_offset < log.end_offset and answer.log_start_offset < log.end_offset:
                return self.on_failure(ErrorCode.CORRUPT_MESSAGE, now_ms)
            # the leader's log starts within a batch (KAFKA-6975), and nothing here is above that start
            effects.append(TruncateFullyAndStartAt(answer.first_offset))
        return [*effects, Append(answer.high_watermark, answer.log_start_offset)]

    def on_append(self, appended: Append, log: ReplicaLog) -> list[FollowerEffect]:
        """The records of an answer, if there were any, are in the log."""
        start_offset = max(log.start_offset, min(appended.log_start_offset, log.end_offset))
        high_watermark = max(start_offset, min(appended.high_watermark, log.end_offset))
        effects: list[FollowerEffect] = []
        if start_offset > log.start_offset:  # first: records below may be of a log that the leader never had
            effects.append(RaiseLogStart(start_offset))
        if high_watermark != log.high_watermark:
            effects.append(SetHighWatermark(high_watermark))
        return effects

    def on_epoch_end(
        self, error: ErrorCode, end: EpochEndOffset, log: ReplicaLog, now_ms: float
    ) -> list[FollowerEffect]:
        """The answer to `AskEpochEnd`."""
        if self.phase is not TRUNCATING:
            return []
        if error:
            return self._on_error(error, now_ms)
        point = truncation_point(end, log)
        if point.is_done:
            self._enter(FETCHING)
        else:
            self.asked_epoch = log.epochs.epoch_at(point.offset - 1)
            if self.asked_epoch == NO_EPOCH:  # nothing remains to be compared
                self._enter(FETCHING)
        return [TruncateTo(point.offset)]

    def on_offset(
        self, sent: AskOffset, error: ErrorCode, offset: int, log: ReplicaLog, now_ms: float
    ) -> list[FollowerEffect]:
        """The answer to `AskOffset`. In any case the replica continues (KAFKA-7414)."""
        if self.phase is not OUT_OF_RANGE or sent.timestamp != self.asked_offset:
            return []
        if error:
            return self._on_error(error, now_ms)
        if sent.timestamp == LATEST and offset >= log.end_offset:
            self.asked_offset = EARLIEST
            return []
        self._enter(FETCHING)
        if sent.timestamp == LATEST:
            return [TruncateTo(offset)]
        return [TruncateFullyAndStartAt(offset)] if offset > log.end_offset else []

    def on_failure(self, error: ErrorCode, now_ms: float) -> list[FollowerEffect]:
        """The request got no answer, or the records cannot be appended: corrupt ones are fetched again."""
        if self.phase in (FENCED, FAILED):
            return []
        if error is ErrorCode.KAFKA_STORAGE_ERROR:  # of the own disk
            self._enter(FAILED)
            return [Fail("the log cannot be written")]
        return self._on_error(error, now_ms)

    def _on_error(self, error: ErrorCode, now_ms: float) -> list[FollowerEffect]:
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._enter(FENCED)
        elif error.is_retriable or error is ErrorCode.UNKNOWN_SERVER_ERROR:
            is_behind = error is ErrorCode.UNKNOWN_LEADER_EPOCH
            self.retry_at_ms = now_ms + (_BEHIND_BACKOFF_MS if is_behind else self._backoff_ms)
        else:
            self._enter(FAILED)
            return [Fail(f"the leader answers {error.name}")]
        return []

    def _enter(self, phase: FollowerPhase) -> None:
        assert self.phase in ENTERED_FROM[phase], f"{self.phase} -> {phase}"
        self.phase = phase
