"""Checks of new topics and of growing ones, and where their partitions go: Kafka's own examples, and invariants."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.metadata.new_topics import (
    PARTITION_COUNT_MAX,
    assign_added_partitions,
    assign_replicas,
    check_more_partitions,
    check_new_topic,
    rack_alternated,
)

RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
NO_RACKS: dict[int, str | None] = dict.fromkeys(range(5))


def test_partitions_walk_through_the_brokers_and_further_replicas_shift_with_each_round() -> None:
    assert assign_replicas(NO_RACKS, 10, 3, start_index=0, shift=0) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_racks_take_turns() -> None:
    assert rack_alternated(RACKS) == [0, 3, 1, 5, 4, 2]
    assert rack_alternated({broker: rack for broker, rack in RACKS.items() if broker != 5}) == [0, 3, 1, 4, 2]


def test_every_rack_has_a_replica_before_one_has_two() -> None:
    assert assign_replicas(RACKS, 7, 3, start_index=0, shift=0) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_added_partitions_go_on_where_the_others_left_off() -> None:
    whole = assign_replicas(NO_RACKS, 9, 1, start_index=3, shift=3)
    first = {partition: whole[partition] for partition in range(4)}
    assert {**first, **assign_added_partitions(NO_RACKS, first, 5)} == whole


def test_added_partitions_begin_at_the_next_broker_when_the_first_leader_is_gone() -> None:
    alive = {broker: None for broker in NO_RACKS if broker != 2}
    assert assign_added_partitions(alive, {0: (2,), 1: (3,)}, 3) == {2: (0,), 3: (1,), 4: (3,)}


def test_brokers_of_which_only_some_have_a_rack_are_spread_as_if_none_had() -> None:
    some: dict[int, str | None] = {**RACKS, 5: None}
    assert assign_replicas(some, 6, 1, start_index=0, shift=0) == {number: (number,) for number in range(6)}


@pytest.mark.parametrize(
    ("partition_count", "replication_factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-1, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 6, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_what_cannot_be_spread_is_refused(partition_count: int, replication_factor: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refusal:
        assign_replicas(NO_RACKS, partition_count, replication_factor)
    assert refusal.value.code == code


@given(
    st.dictionaries(st.integers(0, 99), st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8),
    st.integers(1, 40),
    st.integers(0, 50),
    st.data(),
)
def test_any_spread_is_even_and_without_doubles(
    racks: dict[int, str | None], partition_count: int, first_partition: int, data: st.DataObject
) -> None:
    replication_factor = data.draw(st.integers(1, len(racks)))
    assignment = assign_replicas(racks, partition_count, replication_factor, first_partition=first_partition)
    assert list(assignment) == list(range(first_partition, first_partition + partition_count))
    for replicas in assignment.values():
        assert len(set(replicas)) == replication_factor
        assert set(replicas) <= set(racks)
        if None not in racks.values():
            rack_count = len(set(racks.values()))
            assert len({racks[each] for each in replicas}) == min(rack_count, replication_factor)
    led = Counter(replicas[0] for replicas in assignment.values())
    counts = [led[broker] for broker in racks]
    assert max(counts) - min(counts) <= 1


names = st.text("ab._-", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))


def code_of(name: str, partition_count: int = 1, others: tuple[str, ...] = ()) -> ErrorCode:
    try:
        check_new_topic(name, partition_count, others)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "partition_count", "others", "code"),
    [
        ("orders", 1, ("clicks",), ErrorCode.NONE),
        ("orders", PARTITION_COUNT_MAX, (), ErrorCode.NONE),
        ("or/ders", 1, (), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("orders", 1, ("orders",), ErrorCode.TOPIC_ALREADY_EXISTS),
        ("orders", 0, (), ErrorCode.INVALID_PARTITIONS),
        ("orders", PARTITION_COUNT_MAX + 1, (), ErrorCode.INVALID_PARTITIONS),
        ("a.b", 1, ("a_b",), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a.b", 0, ("a_b",), ErrorCode.INVALID_PARTITIONS),
        ("orders", 0, ("orders",), ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_the_first_fault_decides(name: str, partition_count: int, others: tuple[str, ...], code: ErrorCode) -> None:
    assert code_of(name, partition_count, others) == code


@given(names, st.lists(names, max_size=5))
def test_two_topics_never_share_a_metric_name(name: str, others: list[str]) -> None:
    """A dot and an underscore are one character in the name of a metric."""
    taken = {other.replace(".", "_") for other in others}
    assert (code_of(name, others=tuple(others)) == ErrorCode.NONE) == (name.replace(".", "_") not in taken)


@given(st.integers(1, PARTITION_COUNT_MAX + 5), st.integers(-5, PARTITION_COUNT_MAX + 5))
def test_a_topic_only_grows(current: int, total_count: int) -> None:
    if current < total_count <= PARTITION_COUNT_MAX:
        check_more_partitions("orders", current, total_count)
        return
    with pytest.raises(KafkaError) as refusal:
        check_more_partitions("orders", current, total_count)
    assert refusal.value.code == ErrorCode.INVALID_PARTITIONS
