"""Records of groups of Kafka Streams beside those that Kafka 4.3's own serializer writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkalite.common.errors import Malformed
from kafkalite.coordinator.group.record_codec import KIND_OF_STEP
from kafkalite.coordinator.group.streams.streams_member import CurrentTasks, StreamsMemberState
from kafkalite.coordinator.group.streams.streams_records import (
    KINDS,
    group_id_of,
    records_of,
    step_of,
    tombstones_of_group,
)
from kafkalite.coordinator.group.streams.streams_tables import SetCurrent
from kafkalite.coordinator.group.streams.tasks import AssignedTasks
from kafkalite.protocol.codec.codec import version_of, versioned
from kafkalite.protocol.records import MemberKey
from kafkalite.protocol.streams_records import AssignedTaskIds, StreamsCurrentAssignmentValue
from tests.support.places import ROOT
from tests.support.streams_steps import STREAMS_STEPS

GOLDEN: list[dict[str, Any]] = json.loads((ROOT / "tests" / "golden" / "groups" / "streams_records.json").read_text())


@pytest.mark.parametrize("at", range(len(STREAMS_STEPS)))
def test_records_equal_those_of_kafka(at: int) -> None:
    step, golden = STREAMS_STEPS[at], GOLDEN[at]
    [(key, value)] = records_of("g", [step])
    assert value is not None
    assert (key.hex(), value.hex()) == (golden["key"], golden["value"])
    assert step_of(key, value) == step
    assert group_id_of(key) == golden["key text"]["groupId"] == "g"


def test_all_kinds_of_records_are_loaded() -> None:
    assert {version_of(key) for key, _ in records_of("g", STREAMS_STEPS)} == KINDS
    assert {kind for kind, group in KIND_OF_STEP.items() if group == "streams"} == KINDS


def test_a_record_from_before_4_3_has_the_epoch_of_its_member() -> None:
    row = AssignedTaskIds(subtopology_id="0", partitions=[3])
    value = StreamsCurrentAssignmentValue(member_epoch=5, previous_member_epoch=4, state=9, active_tasks=[row])
    step = step_of(versioned(MemberKey(group_id="g", member_id="m"), 22), versioned(value, 0))
    assert step == SetCurrent("m", CurrentTasks(5, 4, StreamsMemberState.UNKNOWN, AssignedTasks({"0": {3: 5}})))


def test_tombstones_come_in_kafkas_order() -> None:
    tombstones = tombstones_of_group("g", ["m", "n"])
    assert [version_of(key) for key, _ in tombstones] == [22, 22, 21, 21, 20, 19, 19, 17, 23]
    assert all(value is None for _, value in tombstones)


def test_values_of_another_version_are_refused() -> None:
    for key, value in records_of("g", STREAMS_STEPS):
        assert value is not None
        with pytest.raises(Malformed):
            step_of(key, b"\0\1" + value[2:])
