"""Topologies beside the topics of a cluster, and beside those that Kafka 4.3's own classes configured."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.coordinator.group.streams.configured_topology import (
    TASKS_MAX,
    ConfiguredTopology,
    Fault,
    Status,
    configure,
)
from kafkalite.coordinator.group.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from tests.support.drawn_streams import configuration_as_json, topology_as_json, topology_of_json
from tests.support.places import ROOT

CASES: list[dict[str, Any]] = [
    case
    for case in json.loads((ROOT / "tests" / "golden" / "groups" / "streams.json").read_text())
    if case["kind"] == "configuration"
]
WORD_COUNT = (
    Subtopology("0", ("lines",), repartition_sink_topics=("by-word",)),
    Subtopology("1", (), (), (InternalTopic("counts"),), (), (InternalTopic("by-word"),)),
)


def configured(*subtopologies: Subtopology, **counts: int) -> ConfiguredTopology:
    return configure(Topology(1, subtopologies), {name.replace("_", "-"): count for name, count in counts.items()})


@pytest.mark.parametrize("case", CASES)
def test_topologies_are_configured_as_by_kafka(case: dict[str, Any]) -> None:
    topology, counts = topology_of_json(case)
    assert topology_as_json(topology, counts).keys() <= case.keys()
    try:
        mine: dict[str, Any] = configuration_as_json(configure(topology, counts))
    except KafkaError as refusal:
        assert refusal.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
        mine = {"refusal": refusal.message}
    assert mine == case["answer"]


def test_missing_internal_topics_are_to_be_created_with_the_partitions_of_the_source() -> None:
    found = configured(*WORD_COUNT, lines=3)
    assert found.subtopologies is not None and not found.is_ready
    assert {key: each.task_count for key, each in found.subtopologies.items()} == {"0": 3, "1": 3}
    assert sorted(found.missing_topics) == [InternalTopic("by-word", 3), InternalTopic("counts", 3)]
    assert found.fault == Fault(Status.MISSING_INTERNAL_TOPICS, "Internal topics are missing: counts, by-word")


def test_with_its_internal_topics_a_topology_is_ready() -> None:
    found = configured(*WORD_COUNT, lines=3, by_word=3, counts=3)
    assert found.is_ready and found.subtopologies is not None and not found.missing_topics
    assert [each.is_stateful for each in found.subtopologies.values()] == [False, True]


def test_four_missing_source_topics_are_three_and_one_more() -> None:
    found = configured(Subtopology("0", ("d", "b", "a", "c")))
    assert found == ConfiguredTopology(
        1,
        None,
        (),
        Fault(Status.MISSING_SOURCE_TOPICS, "Source topics a, b, c and 1 additional topics are missing."),
    )


def test_an_internal_topic_with_other_partitions_is_a_fault() -> None:
    found = configured(*WORD_COUNT, lines=3, by_word=3, counts=2)
    detail = "Existing topic counts has different number of partitions: expected 3, found 2"
    assert found.fault == Fault(Status.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_copartitioned_sources_must_have_as_many_partitions() -> None:
    found = configured(Subtopology("0", ("a", "b"), copartition_groups=(CopartitionGroup((0, 1)),)), a=1, b=2)
    detail = "Following topics do not have the same number of partitions: [{a=1, b=2}]"
    assert found.fault == Fault(Status.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_a_repartition_topic_follows_the_source_that_it_is_joined_with() -> None:
    joined = Subtopology(
        "1",
        ("b",),
        repartition_source_topics=(InternalTopic("r"),),
        copartition_groups=(CopartitionGroup((0,), (), (0,)),),
    )
    found = configured(Subtopology("0", ("a",), repartition_sink_topics=("r",)), joined, a=2, b=5)
    assert found.missing_topics == (InternalTopic("r", 5),)


def test_a_long_chain_costs_no_square() -> None:
    last = 20_000
    chain = [
        Subtopology(
            str(number),
            ("a",) if number == last else (),
            repartition_sink_topics=(f"r{number}",),
            repartition_source_topics=() if number == last else (InternalTopic(f"r{number + 1}"),),
            copartition_groups=() if number == last else (CopartitionGroup((), (), (0,)),),
        )
        for number in range(last + 1)
    ]
    started = time.process_time()
    found = configured(*chain, a=2)
    assert time.process_time() - started < 5  # about 0.5 s
    assert found.fault is not None and found.fault.status is Status.MISSING_INTERNAL_TOPICS


def test_there_is_a_limit_to_tasks() -> None:
    with pytest.raises(KafkaError, match="100001 tasks"):
        configured(Subtopology("0", ("a",)), a=TASKS_MAX + 1)
    assert configured(Subtopology("0", ("a",)), a=TASKS_MAX).is_ready


@pytest.mark.parametrize(
    ("subtopologies", "message"),
    [
        ([Subtopology("0")], "No source topics found for subtopology 0"),
        (
            [Subtopology("0", repartition_sink_topics=("r",), repartition_source_topics=(InternalTopic("r"),))],
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved.",
        ),
        (
            [Subtopology("0", repartition_source_topics=(InternalTopic("r"),))],
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic.",
        ),
    ],
)
def test_a_topology_without_numbers_is_refused(subtopologies: list[Subtopology], message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        configured(*subtopologies)
    assert (refused.value.code, refused.value.message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
