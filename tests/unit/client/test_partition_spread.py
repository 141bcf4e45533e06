"""The plan of moves that spread partitions over brokers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.client.partition_spread import Load, Move, plan_moves
from kafkalite.common.names import TopicPartition

Placed = dict[TopicPartition, int]


def placed_on(*counts: int) -> Placed:
    return {("t", sum(counts[:broker]) + i): broker for broker, count in enumerate(counts) for i in range(count)}


def after(placed: Placed, moves: list[Move]) -> Placed:
    return placed | {move.key: move.target for move in moves}


def test_partitions_of_one_broker_are_shared() -> None:
    placed = placed_on(4)
    loads = {key: Load(100 + key[1]) for key in placed}  # not quite alike
    moves = plan_moves(placed, loads, [0, 1])
    assert [move.key[1] for move in moves] == [3, 2] and {move.target for move in moves} == {1}
    assert plan_moves(after(placed, moves), loads, [0, 1]) == [], "they are spread"
    assert sorted(after(placed, plan_moves(placed, {}, range(4))).values()) == [0, 1, 2, 3]


def test_bytes_and_traffic_count() -> None:
    placed = placed_on(4)
    large = {("t", 0): Load(1_000_000)}
    moved = after(placed, plan_moves(placed, large, [0, 1]))
    assert sum(broker == moved["t", 0] for broker in moved.values()) == 1, "the large one has a broker for itself"
    busy = {("t", 2): Load(10, 1_000_000), ("t", 3): Load(10, 900_000)}
    moved = after(placed, plan_moves(placed, busy, [0, 1]))
    assert moved["t", 2] != moved["t", 3]


def test_brokers_that_are_left_out_keep_nothing() -> None:
    placed = placed_on(3, 3, 3)
    assert set(after(placed, plan_moves(placed, {}, [0])).values()) == {0}
    spread = sorted(after(placed, plan_moves(placed, {}, [0, 2])).values())
    assert set(spread) == {0, 2} and abs(spread.count(0) - spread.count(2)) == 1


@given(st.data())
def test_a_plan_makes_no_broker_heavier_than_the_heaviest_was(data: st.DataObject) -> None:
    brokers = data.draw(st.integers(1, 6))
    count = data.draw(st.integers(0, 30))
    placed = {("t", i): data.draw(st.integers(0, 5)) for i in range(count)}
    loads = {key: Load(data.draw(st.integers(0, 1000)), data.draw(st.integers(0, 100))) for key in placed}
    moves = plan_moves(placed, loads, range(brokers))
    assert len({move.key for move in moves}) == len(moves), "each at most once"
    assert all(move.source == placed[move.key] != move.target for move in moves)
    moved = after(placed, moves)
    assert set(moved.values()) <= set(range(brokers))
    if set(placed.values()) <= set(range(brokers)) and placed:
        alike = {key: Load(1) for key in placed}
        even = list(after(placed, plan_moves(placed, alike, range(brokers))).values())
        assert max(map(even.count, range(brokers))) - min(map(even.count, range(brokers))) <= 1
