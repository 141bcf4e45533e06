"""The partitions behind the endpoints of members."""

from __future__ import annotations

from kafkalite.coordinator.group.streams.configured_topology import ConfiguredSubtopology
from kafkalite.coordinator.group.streams.endpoint_map import input_partitions
from kafkalite.coordinator.group.streams.topology import InternalTopic

SUBTOPOLOGIES = {
    "0": ConfiguredSubtopology(4, ("b", "a")),
    "1": ConfiguredSubtopology(4, ("c",), (InternalTopic("r", 4),)),
}
COUNTS = {"a": 4, "b": 2, "c": 4, "r": 4}


def test_tasks_stand_for_the_same_partitions_of_each_input_topic() -> None:
    assert input_partitions({"1": {3, 1}}, SUBTOPOLOGIES, COUNTS) == [("c", [1, 3]), ("r", [1, 3])]
    assert input_partitions({}, SUBTOPOLOGIES, COUNTS) == []


def test_a_topic_has_no_more_partitions_than_it_has() -> None:
    assert input_partitions({"0": [2, 0, 1]}, SUBTOPOLOGIES, COUNTS) == [("a", [0, 1, 2]), ("b", [0, 1])]


def test_a_topic_that_is_gone_is_left_out() -> None:
    assert input_partitions({"0": [0]}, SUBTOPOLOGIES, {"a": 4}) == [("a", [0])]
