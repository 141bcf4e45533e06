"""Topologies: read, written, compared and checked."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.coordinator.group.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
    check_changelogs,
    check_consistency,
    check_supported,
    check_topic_names,
    read_topology,
    topology_value,
)
from kafkalite.protocol.codec.codec import read_versioned, versioned
from kafkalite.protocol.streams_records import StreamsSubtopology, StreamsTopology, StreamsTopologyValue
from tests.support.drawn_streams import drawn_topology

WORD_COUNT = Topology(
    1,
    (
        Subtopology("0", ("lines",), repartition_sink_topics=("by-word",)),
        Subtopology(
            "1",
            (),
            (),
            (InternalTopic("counts", configs=(("cleanup.policy", "compact"),)),),
            ("out",),
            (InternalTopic("by-word", 4, 2),),
            (CopartitionGroup((), (), (0,)),),
        ),
    ),
)


@given(st.randoms(use_true_random=False))
def test_a_topology_survives_its_record(random: Random) -> None:
    topology, _ = drawn_topology(random)
    data = versioned(topology_value(topology), 0)
    assert read_topology(read_versioned(StreamsTopologyValue, 0, data)) == topology


def test_a_topology_is_the_same_in_any_order_of_its_subtopologies() -> None:
    parts = [StreamsSubtopology(subtopology_id=each, source_topics=["t"]) for each in ("0", "1")]
    one, other = (read_topology(StreamsTopology(epoch=0, subtopologies=each)) for each in (parts, parts[::-1]))
    assert one == other and [each.subtopology_id for each in one.subtopologies] == ["0", "1"]


def test_topics_that_are_read_are_required_and_all_are_named() -> None:
    assert sorted(WORD_COUNT.required_topics()) == ["by-word", "counts", "lines"]
    assert WORD_COUNT.named_topics() == ["lines", "by-word", "out", "counts"]
    assert WORD_COUNT.subtopologies[1].copartitioned_topics() == [{"by-word"}]


def test_a_topology_of_word_count_passes_every_check() -> None:
    check_topic_names(WORD_COUNT.named_topics())
    for check in (check_supported, check_changelogs, check_consistency):
        check(WORD_COUNT)


def check_names(topology: Topology) -> None:
    check_topic_names(topology.named_topics())


@pytest.mark.parametrize(
    ("check", "broken", "code", "message"),
    [
        (
            check_names,
            Subtopology("0", ("a", "__consumer_offsets"), repartition_sink_topics=("__transaction_state",)),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Use of Kafka internal topics __consumer_offsets,__transaction_state in a Kafka Streams topology is "
            "prohibited.",
        ),
        (
            check_names,
            Subtopology("0", ("a b", "c"), changelog_topics=(InternalTopic("d/e"),)),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Topic names a b,d/e are not valid topic names.",
        ),
        (
            check_supported,
            Subtopology("0", ("a",), ("b.*",)),
            ErrorCode.INVALID_REQUEST,
            "Regular expressions for source topics are not supported yet.",
        ),
        (
            check_changelogs,
            Subtopology("0", ("a",), changelog_topics=(InternalTopic("log", 3),)),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Changelog topic log must have an undefined partition count, but it is set to 3.",
        ),
    ],
)
def test_a_topology_is_refused_in_kafkas_words(
    check: Callable[[Topology], None], broken: Subtopology, code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        check(Topology(0, (broken,)))
    assert (refused.value.code, refused.value.message) == (code, message)


@pytest.mark.parametrize(
    "broken",
    [
        Topology(-1),
        Topology(0, (Subtopology("0"), Subtopology("0"))),
        Topology(0, (Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((1,)),)),)),
        Topology(0, (Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((-1,)),)),)),
        Topology(0, (Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((), (), (0,)),)),)),
        Topology(0, (Subtopology("0", repartition_source_topics=(InternalTopic("r", -1),)),)),
    ],
)
def test_a_topology_that_contradicts_itself_is_refused(broken: Topology) -> None:
    with pytest.raises(KafkaError) as refused:
        check_consistency(broken)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
