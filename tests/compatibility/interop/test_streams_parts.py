"""Parts of streams groups beside those of Kafka 4.3: topologies, the assignor and endpoints, for all drawn."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from kafkalite.common.errors import KafkaError
from kafkalite.coordinator.group.streams.configured_topology import configure
from kafkalite.coordinator.group.streams.endpoint_map import input_partitions
from kafkalite.coordinator.group.streams.sticky_assignor import assign
from tests.compatibility.interop.java_verdicts import streams_parts
from tests.support.drawn_streams import (
    assigned_as_json,
    configuration_as_json,
    drawn_streams_group,
    drawn_topology,
    streams_group_as_json,
    topology_as_json,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
COUNT = 5_000


def test_the_same_configurations() -> None:
    random = Random(1)
    drawn = [drawn_topology(random) for _ in range(COUNT)]
    theirs = streams_parts([{"kind": "configuration", **topology_as_json(*one)} for one in drawn])
    counts: Counter[str] = Counter()
    for one, found in zip(drawn, theirs, strict=True):
        try:
            mine: dict[str, Any] = configuration_as_json(configure(*one))
        except KafkaError as refusal:
            mine = {"refusal": refusal.message}
        assert mine == found, one
        counts[f"fault {found['fault'][0]}" if "fault" in found else "refusal" if "refusal" in found else "ready"] += 1
    assert len(counts) == 5 and min(counts.values()) > COUNT // 100, counts


def test_the_same_assignments() -> None:
    random = Random(2)
    groups = [drawn_streams_group(random) for _ in range(COUNT)]
    theirs = streams_parts([{"kind": "assignment", **streams_group_as_json(group)} for group in groups])
    for group, found in zip(groups, theirs, strict=True):
        assert assigned_as_json(assign(*group)) == found, group


def test_the_same_partitions_of_endpoints() -> None:
    random = Random(3)
    cases = []
    mine = []
    while len(cases) < COUNT // 10:
        topology, counts = drawn_topology(random)
        try:
            configured = configure(topology, counts)
        except KafkaError:
            continue
        if configured.subtopologies is None:
            continue
        counts.update((topic.name, topic.partitions) for topic in configured.missing_topics)
        tasks = {
            key: random.sample(range(each.task_count), random.randrange(1, each.task_count + 1))
            for key, each in configured.subtopologies.items()
            if random.random() < 0.5
        }
        cases.append({"kind": "endpoint", **topology_as_json(topology, counts), "tasks": tasks})
        mine.append([list(row) for row in input_partitions(tasks, configured.subtopologies, counts)])
    for rows, found in zip(mine, streams_parts(cases), strict=True):
        assert sorted(rows) == sorted(found)
