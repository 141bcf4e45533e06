"""A follower: where it fetches from, what it cuts off, and when it asks again."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.replication.replica.effects import (
    Append,
    Fail,
    RaiseLogStart,
    SetHighWatermark,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset, ReplicaLog
from kafkalite.replication.replica.follower_replica import (
    EARLIEST,
    FENCED,
    FETCHING,
    LATEST,
    OUT_OF_RANGE,
    AskEpochEnd,
    AskOffset,
    Fetch,
    FetchAnswer,
    FollowerReplica,
)


class NoFiles:
    def write_atomically(self, *args: Any, **more: Any) -> None:
        pass


def log(
    start: int, end: int, *epochs: tuple[int, int], high_watermark: int = 0, synced: int | None = None
) -> ReplicaLog:
    cache = LeaderEpochCache("", NoFiles())  # type: ignore[arg-type]
    for epoch, offset in epochs:
        cache.assign(epoch, offset)
    return ReplicaLog(start, end, end if synced is None else synced, high_watermark, cache)


def follower(of: ReplicaLog, *, truncates_on_fetch: bool = True) -> FollowerReplica:
    return FollowerReplica(1, 7, of, truncates_on_fetch=truncates_on_fetch, backoff_ms=1000)


OLD = log(0, 20, (3, 0), (5, 12), high_watermark=10)


def test_behind_a_gap_everything_is_fetched_again():
    """A comparison of epochs would not notice it, and the replica would join the ISR without committed records."""
    gap = OLD._replace(whole_to=14)
    assert follower(gap).begin(gap) == [TruncateTo(14)]
    unknown = log(0, 20, high_watermark=10)
    assert follower(unknown).begin(unknown._replace(whole_to=4)) == [TruncateTo(4)]


def test_it_fetches_from_its_end_and_names_its_last_epoch():
    replica = follower(OLD)
    assert replica.begin(OLD) == []
    assert replica.next_request(OLD, 0) == Fetch(7, 20, 5, 0)


def test_a_log_without_epochs_keeps_what_is_known_to_be_committed():
    """KIP-101 begins where there are epochs."""
    unknown = log(0, 20, high_watermark=10)
    replica = follower(unknown)
    assert replica.begin(unknown) == [TruncateTo(10)]
    assert replica.next_request(log(0, 10), 0) == Fetch(7, 10, -1, 0)


def test_an_epoch_without_records_is_not_named():
    """It led, and wrote nothing; an emptied log keeps its epoch for later."""
    replica = follower(OLD)
    assert replica.next_request(log(0, 20, (3, 0), (6, 20)), 0) == Fetch(7, 20, 3, 0)
    assert replica.next_request(log(20, 20, (6, 20)), 0) == Fetch(7, 20, -1, 20)


def test_a_fetch_waits_for_the_disk_with_flushes():
    replica = follower(OLD)
    assert replica.next_request(OLD._replace(synced_offset=19), 0) is None


def test_the_records_come_first_then_the_high_watermark_and_the_start():
    replica = follower(OLD)
    sent = replica.next_request(OLD, 0)
    [append] = replica.on_fetch(sent, FetchAnswer(ErrorCode.NONE, 22, 4, None, 20), OLD, 0)
    assert append == Append(22, 4)
    grown = log(0, 25, (3, 0), (5, 12), high_watermark=10)
    assert replica.on_append(append, grown) == [RaiseLogStart(4), SetHighWatermark(22)]


def test_a_high_watermark_ends_where_the_log_does():
    assert follower(OLD).on_append(Append(99, 0), OLD) == [SetHighWatermark(20)]


@pytest.mark.parametrize(
    ("end", "offset"),
    [
        (EpochEndOffset(5, 15), 15),  # the leader has less of epoch 5
        (EpochEndOffset(4, 30), 12),  # no epoch 5, but one that is not here: compare below it (KIP-279)
        (EpochEndOffset(3, 9), 9),
        (EpochEndOffset(3, 15), 12),
        (EpochEndOffset(2, 0), 0),  # before all
        (EpochEndOffset(-1, 8), 8),
        (EpochEndOffset(-1, -1), 10),
    ],
)
def test_it_cuts_off_where_the_logs_depart(end, offset):
    replica = follower(OLD)
    sent = replica.next_request(OLD, 0)
    answer = FetchAnswer(ErrorCode.NONE, 22, 4, end)
    assert replica.on_fetch(sent, answer, OLD, 0) == [TruncateTo(offset)]
    assert replica.phase is FETCHING


def test_without_diverging_epochs_it_asks_until_the_epochs_meet():
    """KIP-279."""
    replica = follower(OLD, truncates_on_fetch=False)
    assert replica.begin(OLD) == []
    assert replica.next_request(OLD, 0) == AskEpochEnd(7, 5)
    assert replica.on_epoch_end(ErrorCode.NONE, EpochEndOffset(4, 18), OLD, 0) == [TruncateTo(12)]
    shorter = log(0, 12, (3, 0))
    assert replica.next_request(shorter, 0) == AskEpochEnd(7, 3)
    assert replica.on_epoch_end(ErrorCode.NONE, EpochEndOffset(3, 10), shorter, 0) == [TruncateTo(10)]
    assert replica.next_request(log(0, 10, (3, 0)), 0) == Fetch(7, 10, 3, 0)


def test_out_of_range_it_follows_the_leader_and_goes_on():
    replica = follower(OLD)
    replica.on_fetch(replica.next_request(OLD, 0), FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), OLD, 0)
    latest = replica.next_request(OLD, 0)
    assert latest == AskOffset(7, LATEST)
    assert replica.on_offset(latest, ErrorCode.NONE, 30, OLD, 0) == []
    earliest = replica.next_request(OLD, 0)
    assert earliest == AskOffset(7, EARLIEST)
    assert replica.on_offset(earliest, ErrorCode.NONE, 25, OLD, 0) == [TruncateFullyAndStartAt(25)]
    assert replica.phase is FETCHING


def test_out_of_range_behind_a_shorter_leader():
    replica = follower(OLD)
    replica.on_fetch(replica.next_request(OLD, 0), FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), OLD, 0)
    assert replica.phase is OUT_OF_RANGE
    assert replica.on_offset(AskOffset(7, LATEST), ErrorCode.NONE, 15, OLD, 0) == [TruncateTo(15)]


def test_a_start_within_the_own_range_deletes_nothing_here():
    replica = follower(OLD)
    replica.on_fetch(replica.next_request(OLD, 0), FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), OLD, 0)
    replica.on_offset(AskOffset(7, LATEST), ErrorCode.NONE, 30, OLD, 0)
    assert replica.on_offset(AskOffset(7, EARLIEST), ErrorCode.NONE, 8, OLD, 0) == []
    assert replica.phase is FETCHING


def test_a_leader_that_starts_within_a_batch():
    """KAFKA-6975."""
    empty = log(20, 20)
    replica = follower(empty)
    replica.begin(empty)
    sent = replica.next_request(empty, 0)
    assert replica.on_fetch(sent, FetchAnswer(ErrorCode.NONE, 30, 20, None, 18), empty, 0) == [
        TruncateFullyAndStartAt(18),
        Append(30, 20),
    ]


def test_a_leader_that_starts_within_a_batch_above_all_that_is_here():
    """Found by the simulation: the log was cut at the leader's start; Kafka's replica fails here for good."""
    behind = log(5, 20, (3, 5))
    replica = follower(behind)
    sent = replica.next_request(behind, 0)
    assert replica.on_fetch(sent, FetchAnswer(ErrorCode.NONE, 30, 20, None, 18), behind, 0) == [
        TruncateFullyAndStartAt(18),
        Append(30, 20),
    ]


def test_records_from_before_the_end_are_not_appended():
    replica = follower(OLD)
    sent = replica.next_request(OLD, 0)
    assert replica.on_fetch(sent, FetchAnswer(ErrorCode.NONE, 30, 0, None, 18), OLD, 0) == []
    assert replica.retry_at_ms == 1000


def test_fenced_it_waits_for_a_new_epoch():
    replica = follower(OLD)
    replica.on_fetch(replica.next_request(OLD, 0), FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH), OLD, 0)
    assert replica.phase is FENCED
    assert replica.next_request(OLD, 1e9) is None


@pytest.mark.parametrize(("error", "wait_ms"), [(75, 50), (6, 1000), (3, 1000), (100, 1000), (103, 1000), (13, 1000)])
def test_it_asks_again_after_a_while(error, wait_ms):
    replica = follower(OLD)
    sent = replica.next_request(OLD, 0)
    assert replica.on_fetch(sent, FetchAnswer(ErrorCode(error)), OLD, 500) == []
    assert replica.next_request(OLD, 500 + wait_ms - 1) is None
    assert replica.next_request(OLD, 500 + wait_ms) == sent


def test_the_own_disk_ends_it():
    replica = follower(OLD)
    assert replica.on_failure(ErrorCode.KAFKA_STORAGE_ERROR, 0) == [Fail("the log cannot be written")]
    assert replica.next_request(OLD, 1e9) is None


@pytest.mark.parametrize("sent", [Fetch(7, 15, 5, 0), Fetch(6, 20, 5, 0)], ids=["the log has changed", "an old epoch"])
def test_an_answer_to_an_older_request_is_not_used(sent):
    replica = follower(OLD)
    assert replica.on_fetch(sent, FetchAnswer(ErrorCode.NONE, 22, 0, None, 20), OLD, 0) == []
