"""The consequences for partitions while a broker is away."""

from __future__ import annotations

from kafkalite.client.cluster_client import PartitionPlace
from kafkalite.common.names import TopicPartition
from kafkalite.console.handlers.overview import consequences


def place(leader: int, replicas: list[int], isr: list[int]) -> PartitionPlace:
    return PartitionPlace(leader=leader, leader_epoch=0, replicas=tuple(replicas), isr=tuple(isr))


PLACES: dict[TopicPartition, PartitionPlace] = {
    ("alone", 0): place(1, [1], [1]),
    ("safe", 0): place(1, [1, 2, 3], [1, 2, 3]),
    ("tight", 0): place(2, [1, 2, 3], [1, 2]),
    ("late", 0): place(1, [1, 2], [1]),
    ("short", 0): place(2, [1, 2, 3], [2]),
    ("elsewhere", 0): place(2, [2, 3], [2, 3]),
}
MINIMUM = {"safe": 2, "tight": 2, "late": 1, "short": 2}


def test_partitions_are_handed_over_out_of_reach_or_refuse() -> None:
    told = consequences(1, PLACES.items(), MINIMUM)
    assert told["handed_over"] == 1  # safe
    assert told["unavailable_names"] == ["alone-0", "late-0"] and told["unavailable"] == 2
    assert told["refusing_names"] == ["tight-0"]  # short refuses already, whatever this broker does


def test_a_broker_without_replicas_is_not_missed() -> None:
    told = consequences(4, PLACES.items(), MINIMUM)
    assert (told["handed_over"], told["unavailable"], told["refusing"]) == (0, 0, 0)
