"""The same commands to Apache Kafka and to kafkalite, each on its own chroot of one ZooKeeper: the same nodes.

The tree is compared after each step, path by path and JSON key by key (znode_comparison.py lists the allowed
differences). The nodes that Kafka leaves are compared with the golden copy, too, which the default suite compares
kafkalite with; `--record-znodes` writes a new copy:

    pytest -m long tests/compatibility/interop/test_znodes_beside_kafka.py [--record-znodes]
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.reference import ReferenceUnavailable
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from tests.compatibility.differential.asking import create, new_topic
from tests.compatibility.interop.kafka_stage import KafkaStage, kafka_stage
from tests.support.wait import DEADLINE_S
from tests.support.zk import golden_znodes
from tests.support.zk.znode_comparison import differences
from tests.support.zk.znode_story import STORIES, Stage, ask
from tests.support.zk.znode_telling import KafkaliteStage, faults, record
from tests.support.zk.znode_tree import read_tree, zookeeper_client

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaStage]:
    running = kafka_stage(tmp_path / "kafka")
    try:
        stage = running.__enter__()
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    yield stage
    running.__exit__(None, None, None)


@pytest.mark.parametrize("name", STORIES)
def test_the_same_commands_leave_the_same_nodes(
    name: str, kafka: KafkaStage, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    story = STORIES[name]
    theirs = record(kafka, story)
    if request.config.getoption("--record-znodes"):
        golden_znodes.save(name, theirs)
    kept = golden_znodes.load(name)
    stale = [f"{step}: {line}" for step in story for line in differences(theirs[step], kept.get(step, {}))]
    assert not stale, "Kafka leaves something else than recorded:\n" + "\n".join(stale[:40])
    ours = KafkaliteStage(kafka.zookeeper.partition("/")[0] + "/ours", tmp_path / "kafkalite")
    try:
        found = faults(ours, story, theirs)
    finally:
        ours.close()
    assert not found, "\n".join(found)


def commit(group: str, note: str | None = "", **offsets: int) -> OffsetCommitRequest:
    """`t1=5` is partition 1 of topic t."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for name, offset in offsets.items():
        row = OffsetCommitRequestPartition(
            partition_index=int(name[-1]), committed_offset=offset, committed_metadata=note
        )
        topics.setdefault(name[:-1], []).append(row)
    rows = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    return OffsetCommitRequest(group_id=group, topics=rows)


def fetch(group: str, **partitions: list[int]) -> OffsetFetchRequest:
    rows = [OffsetFetchRequestTopic(name=name, partition_indexes=asked) for name, asked in partitions.items()]
    return OffsetFetchRequest(group_id=group, topics=rows)


OFFSETS_OF_OLD: tuple[Message, ...] = (
    fetch("g", t=[0]),
    commit("g", t0=5, t1=6),
    commit("g", None, t0=7),
    commit("g", t0=-1),
    commit("g", t1=9, t2=1, no0=1),
    commit("g", no0=1),
    commit("g"),
    commit("g", "x" * 4096, t0=8),
    commit("g", "x" * 4097, t0=9, t1=9),
    commit("g", "\U0001f600" * 2048, t0=10),
    commit("g", "\U0001f600" * 2049, t0=11),
    commit("a/b", t0=1),
    commit("größe %2F", t0=2),
    *(commit(group, t0=3, no0=1) for group in ("", "/", "g/", "..", "../brokers", "a\x01b")),
    *(fetch(group, t=[0, 1, 2], no=[0]) for group in ("g", "a/b", "größe %2F", "none", "", "/", "..", "a\x01b")),
    fetch("g", t=[1, 1, 0]),
    fetch("g", t=[]),
    fetch("g"),
)


def test_offsets_of_old_are_kept_and_told_as_by_kafka(kafka: KafkaStage, tmp_path: Path) -> None:
    ours = KafkaliteStage(kafka.zookeeper.partition("/")[0] + "/ours", tmp_path / "kafkalite")
    try:
        theirs_said, theirs_kept = offsets_of_old(kafka)
        ours_said, ours_kept = offsets_of_old(ours)
    finally:
        ours.close()
    for request, theirs, own in zip(OFFSETS_OF_OLD, theirs_said, ours_said, strict=True):
        assert own == theirs, request
    assert ours_kept == theirs_kept


def offsets_of_old(stage: Stage) -> tuple[list[Any], dict[str, Any]]:
    """The answer in an order that no hash table decides, and the nodes below /consumers."""
    stage.start(0)
    ask(create(new_topic("t", 2)), 4)(stage)
    ask(commit("ready", t0=1, t1=1), 0)(stage)
    with BlockingClient(stage.address(0), DEADLINE_S) as client:
        answers = [client.ask(request, 0) for request in OFFSETS_OF_OLD]
    for answer in answers:
        answer.topics.sort(key=lambda topic: topic.name)
        for topic in answer.topics:
            topic.partitions.sort(key=lambda partition: partition.partition_index)
    with zookeeper_client(stage.zookeeper) as client:
        tree = read_tree(client, "/consumers")
    stage.stop(0)
    return answers, {path: node.data for path, node in tree.items()}
