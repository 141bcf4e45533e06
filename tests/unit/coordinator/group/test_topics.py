"""Hashes of topics and groups beside those that Kafka 4.3's own code computes."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any

import pytest

from kafkalite.coordinator.group.topics import group_hash, topic_hash
from tests.support.places import ROOT

GROUPS: list[dict[str, Any]] = json.loads((ROOT / "tests" / "golden" / "groups" / "hashes.json").read_text())


@pytest.mark.parametrize("group", GROUPS)
def test_hashes_equal_those_of_kafka(group: dict[str, Any]) -> None:
    hashes = {one["name"]: topic_hash(one["name"], uuid.UUID(one["id"]), one["racks"]) for one in group["topics"]}
    assert hashes == {one["name"]: one["hash"] for one in group["topics"]}
    assert group_hash(hashes) == group["hash"]


def test_the_order_of_racks_and_topics_does_not_matter() -> None:
    for group in GROUPS:
        hashes = {}
        for one in random.sample(group["topics"], len(group["topics"])):
            racks = [random.sample(racks, len(racks)) for racks in one["racks"]]
            hashes[one["name"]] = topic_hash(one["name"], uuid.UUID(one["id"]), racks)
        assert group_hash(hashes) == group["hash"]
