"""Records of consumer groups beside those that Kafka 4.3's own serializer writes."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from kafkalite.common.errors import Malformed
from kafkalite.coordinator.group.consumer.group_tables import SetCurrent, SetTopicMetadata
from kafkalite.coordinator.group.consumer.member import CurrentAssignment, MemberState
from kafkalite.coordinator.group.consumer.member_records import (
    group_id_of,
    records_of,
    step_of,
    tombstones_of_group,
)
from kafkalite.protocol.codec.codec import versioned
from kafkalite.protocol.records import AssignedTopicPartitions, CurrentAssignmentValue, MemberKey
from tests.support.group_steps import STEPS
from tests.support.places import ROOT

GOLDEN: list[dict[str, Any]] = json.loads((ROOT / "tests" / "golden" / "groups" / "records.json").read_text())


@pytest.mark.parametrize("at", range(len(STEPS)))
def test_records_equal_those_of_kafka(at: int) -> None:
    step, golden = STEPS[at], GOLDEN[at]
    [(key, value)] = records_of("g", [step])
    assert value is not None
    assert (key.hex(), value.hex()) == (golden["key"], golden["value"])
    assert step_of(key, value) == step
    assert group_id_of(key) == golden["key text"]["groupId"] == "g"


def test_a_record_from_before_4_3_has_the_epoch_of_its_member() -> None:
    row = AssignedTopicPartitions(topic_id=uuid.UUID(int=1), partitions=[3])
    value = CurrentAssignmentValue(member_epoch=5, previous_member_epoch=4, state=9, assigned_partitions=[row])
    step = step_of(versioned(MemberKey(group_id="g", member_id="m"), 8), versioned(value, 0))
    assert step == SetCurrent("m", CurrentAssignment(5, 4, MemberState.UNKNOWN, {uuid.UUID(int=1): {3: 5}}))


def test_a_record_of_4_0_is_known_and_removed() -> None:
    [*_, (key, removed), (_, last)] = tombstones_of_group("g", [], [])
    assert removed is None and last is None
    assert step_of(key, b"\0\0\1\0") == SetTopicMetadata(is_present=True)


def test_values_of_another_version_are_refused() -> None:
    [(key, value)] = records_of("g", STEPS[:1])
    assert value is not None
    with pytest.raises(Malformed):
        step_of(key, b"\0\1" + value[2:])
