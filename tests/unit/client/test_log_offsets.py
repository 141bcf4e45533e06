"""Offsets of many partitions: whole, or an error that names one that does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client.cluster_client import PartitionPlace
from kafkalite.client.group_admin import EARLIEST, LATEST, OFFSET, SHIFT, TIME, NotReset, Target, new_offsets
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import ConfigError, ErrorCode, Unanswered
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

AWAY, NOT_THERE, LEFT_OUT, UNREACHABLE = "away", "not there", "left out", "unreachable"
_TIMEOUT_S = 2.0
_PAUSE_S = 0.5
_START, _END, _LAST_MS = 10, 20, 1_000  # of every log; the record at offset o has the time 100 * (o - 10)


class Cluster:
    """Two brokers that lead all partitions by turns. `faults` of a partition are what it answers first, one a round."""

    address = "here:9092"

    def __init__(self, faults: dict[TopicPartition, list[ErrorCode | str]]) -> None:
        self.brokers = {1: "one:9092", 2: "two:9092"}
        self.faults = faults
        self.now_s = 0.0
        self.asked: list[int] = []
        self.refresh()

    def refresh(self) -> None:
        self.places = {}
        for number, (key, faults) in enumerate(sorted(self.faults.items())):
            first = faults[0] if faults else None
            if first in (AWAY, NOT_THERE):
                faults.pop(0)
            if first != NOT_THERE:
                leader = NO_LEADER if first == AWAY else 1 + number % 2
                self.places[key] = PartitionPlace(leader, (1, 2))

    def client(self, broker_id: int) -> Any:
        return SimpleNamespace(ask=self.ask)

    def ask(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for one in topic.partitions:
                self.asked.append(one.timestamp)
                faults = self.faults[topic.name, one.partition_index]
                fault = faults.pop(0) if faults and faults[0] not in (AWAY, NOT_THERE) else ErrorCode.NONE
                if fault == UNREACHABLE:
                    raise Unanswered("one:9092 closes the connection")
                if fault != LEFT_OUT:
                    answers.append(self._answer(one.partition_index, one.timestamp, cast("ErrorCode", fault)))
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _answer(self, index: int, timestamp: int, fault: ErrorCode) -> ListOffsetsPartitionResponse:
        offset = {-2: _START, -1: _END}.get(timestamp, _START + -(-timestamp // 100))
        found = not fault and offset <= _END and timestamp <= _LAST_MS
        return ListOffsetsPartitionResponse(
            partition_index=index, error_code=fault, offset=offset if found else -1, timestamp=-1
        )

    def pause(self, _: float) -> None:
        self.now_s += _PAUSE_S

    @property
    def offsets(self) -> LogOffsets:
        return LogOffsets(cast("Any", self), _TIMEOUT_S, monotonic_s=lambda: self.now_s, sleep=self.pause)


A, B = ("bills", 0), ("orders", 0)
_RETRIABLE = [code for code in ErrorCode if code.is_retriable]
_PASSING = st.sampled_from([*_RETRIABLE, AWAY, UNREACHABLE])
_LASTING = st.sampled_from([*sorted(set(ErrorCode) - {*_RETRIABLE, ErrorCode.NONE}), LEFT_OUT])


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.lists(_PASSING, max_size=6), min_size=1, max_size=6
    ),
    st.sampled_from([-5, -2, -1, 0, 500, _LAST_MS, _LAST_MS + 1]),
)
def test_what_passes_is_asked_again_until_all_answer(
    faults: dict[TopicPartition, list[ErrorCode | str]], time_ms: int
) -> None:
    cluster = Cluster({key: list(each) for key, each in faults.items()})
    try:
        found = cluster.offsets.at_time(faults, time_ms)
    except Unanswered as error:
        assert cluster.now_s >= _TIMEOUT_S and str(error).startswith("the offsets of ")
    else:
        assert found == {} if time_ms > _LAST_MS else found.keys() == faults.keys()
        assert set(found.values()) <= {_START if time_ms < 0 else _START + time_ms // 100}
        assert not cluster.asked or min(cluster.asked) >= (-2 if time_ms < 0 else 0)


@given(st.lists(_PASSING, max_size=3), _LASTING)
def test_a_lasting_error_is_one_that_names_the_partition(passing: list[ErrorCode | str], lasting: ErrorCode) -> None:
    cluster = Cluster({A: [], B: [*passing, lasting]})
    with pytest.raises(Unanswered, match="the offsets of orders-0 cannot be read: "):
        cluster.offsets.ends([A, B])


@pytest.mark.parametrize("target", [EARLIEST, LATEST, OFFSET, TIME, SHIFT])
@pytest.mark.parametrize("round_", range(3))
def test_a_partition_that_does_not_answer_refuses_a_reset(target: str, round_: int) -> None:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster = Cluster({A: [], B: [ErrorCode.NONE] * round_ + [error] * 9})
    committed = {A: 12, B: 15}
    rounds = 3 if target == TIME else 2
    if round_ >= rounds:
        assert new_offsets(cluster.offsets, committed, committed, Target(target)).keys() == committed.keys()
        return
    with pytest.raises(Unanswered, match=f"the offsets of orders-0 cannot be read: {error.name}"):
        new_offsets(cluster.offsets, committed, committed, Target(target))


def test_targets_lie_within_the_logs() -> None:
    cluster = Cluster({A: [], B: []})
    committed = {A: 12, B: 15}

    def to(target: str, value: int = 0) -> list[int]:
        return list(new_offsets(cluster.offsets, committed, committed, Target(target, value)).values())

    assert to(EARLIEST) == [10, 10] and to(LATEST) == [20, 20]
    assert to(OFFSET, 3) == [10, 10] and to(OFFSET, 1 << 70) == [20, 20] and to(OFFSET, 17) == [17, 17]
    assert to(SHIFT, -3) == [10, 12] and to(SHIFT, 99) == [20, 20]
    assert to(TIME, 450) == [15, 15] and to(TIME, _LAST_MS + 1) == [20, 20]
    assert to(TIME, -1) == to(TIME, -2) == to(TIME, -(10**15)) == [10, 10], "before 1970, and no special offset"
    with pytest.raises(NotReset, match="the group has no offset of orders-0"):
        new_offsets(cluster.offsets, committed, {A: 12}, Target(SHIFT, 1))


def test_a_partition_that_is_not_there_is_looked_for_once_more() -> None:
    assert Cluster({A: [], B: [NOT_THERE]}).offsets.starts([A, B]) == {A: 10, B: 10}
    cluster = Cluster({A: [], B: [NOT_THERE] * 9})
    with pytest.raises(Unanswered, match="orders-0 cannot be read: there is no such partition"):
        cluster.offsets.starts([A, B])
    assert cluster.now_s == _PAUSE_S


def test_a_leader_that_is_gone_is_asked_again() -> None:
    cluster = Cluster({A: [], B: []})
    ask, failures = cluster.client, [ConfigError("broker 1 not found at here:9092")]

    def client(broker_id: int) -> Any:
        if failures:
            raise failures.pop()
        return ask(broker_id)

    cluster.client = client  # type: ignore[method-assign]
    assert cluster.offsets.ends([A, B]) == {A: 20, B: 20}


def test_a_table_shows_what_is_known_and_why_not_the_rest() -> None:
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert Cluster({A: [], B: [moved]}).offsets.known_ends([A, B]) == ({A: 20, B: 20}, {})
    known = Cluster({A: [], B: [moved, moved]}).offsets.known_starts([A, B])
    assert known == ({A: 10}, {B: "NOT_LEADER_OR_FOLLOWER"})
    with pytest.raises(Unanswered, match="orders-0"):
        Cluster({A: [], B: [moved]}).offsets.newest_timestamps([A, B])
