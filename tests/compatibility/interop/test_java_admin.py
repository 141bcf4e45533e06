"""Requests of Java's tools besides those for topics and records: single offsets, log directories, reassignments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.interop.java_tools import JavaTools

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
COUNT = 10


def filled(java: JavaTools, topic: str, partitions: int = 1) -> None:
    java.create_topic(topic, partitions)
    java.produce(topic, "".join(f"{number}\n" for number in range(COUNT)))


def test_single_offsets_are_deleted(
    java: JavaTools,
    prove: Callable[[str], None],
    unique: Callable[[str], str],
    until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    prove("kafka-consumer-groups --delete-offsets: of a topic that is read, of one that is not any more, unknown group")
    topic, group = unique("watched"), unique("watchers")
    filled(java, topic)

    def delete_offsets(**how: Any) -> str:
        which = ("--group", group, "--topic", topic)
        return java("ConsumerGroupCommand", "--timeout", 30_000, "--delete-offsets", *which, **how)

    reading = ["--topic", topic, "--group", group, "--from-beginning"]
    often = "--consumer-property=auto.commit.interval.ms=100"
    member = java.start("ConsoleConsumer", *reading, often, output=tmp_path / "member.txt")
    try:
        until(lambda: len(member.said().split()) == COUNT, "the member to read all")
        refused = delete_offsets(check=False)
        assert re.search(rf"{topic}\s+0\s+Error: .*(?i:subscribed)", refused), refused
    finally:
        member.stop()

    deleted = delete_offsets()
    assert re.search(rf"{topic}\s+0\s+Successful", deleted), deleted
    gone = delete_offsets(check=False)
    assert re.search(r"GroupIdNotFoundException|group id does not exist|GROUP_ID_NOT_FOUND", gone), gone
    assert java.consume(topic, COUNT, *reading[2:]) == [str(number) for number in range(COUNT)], "it begins again"


def test_log_directories_are_described(
    java: JavaTools, prove: Callable[[str], None], unique: Callable[[str], str], broker: Any
) -> None:
    prove("kafka-log-dirs --describe: the sizes of the files")
    topic = unique("weighed")
    filled(java, topic, 2)
    printed = java("LogDirsCommand", "--describe", "--topic-list", topic)
    described = {one["broker"]: one["logDirs"] for one in json.loads(printed.splitlines()[-1])["brokers"]}
    assert described.keys() == broker.log_dirs.keys()
    partitions = []
    for broker_id, (directory,) in described.items():
        log_dir = broker.log_dirs[broker_id]
        assert (directory["error"], Path(directory["logDir"])) == (None, log_dir)
        for one in directory["partitions"]:
            assert one["size"] == (log_dir / one["partition"] / f"{0:020}.log").stat().st_size
        partitions += directory["partitions"]
    assert sum(one["size"] for one in partitions) > 0
    assert {(one["offsetLag"], one["isFuture"]) for one in partitions} == {(0, False)}
    names = {one["partition"] for one in partitions}
    assert names == {f"{topic}-0", f"{topic}-1"} and len(partitions) == 2

    everything = json.loads(java("LogDirsCommand", "--describe").splitlines()[-1])["brokers"]
    assert {part["partition"] for one in everything for part in one["logDirs"][0]["partitions"]} >= names


def test_no_reassignment_is_under_way(java: JavaTools, prove: Callable[[str], None]) -> None:
    prove("kafka-reassign-partitions --list")
    assert "No partition reassignments found." in java("ReassignPartitionsCommand", "--list")


def test_replicas_are_reassigned_to_where_they_are(
    java: JavaTools, prove: Callable[[str], None], unique: Callable[[str], str], tmp_path: Path
) -> None:
    prove("kafka-reassign-partitions --execute (to where it is, to an unknown broker), --verify, --cancel")
    topic = unique("placed")
    filled(java, topic, 2)
    leaders = [int(one) for one in re.findall(r"Leader: (\d+)", java("TopicCommand", "--describe", "--topic", topic))]
    assert len(leaders) == 2

    def plan(name: str, *brokers: int) -> Path:
        rows = [{"topic": topic, "partition": index, "replicas": [broker]} for index, broker in enumerate(brokers)]
        path = tmp_path / name
        path.write_text(json.dumps({"version": 1, "partitions": rows}))
        return path

    def reassign(command: str, file: Path, **how: Any) -> str:
        return java("ReassignPartitionsCommand", command, "--reassignment-json-file", file, **how)

    here = plan("here.json", *leaders)
    assert "Successfully started partition reassignment" in reassign("--execute", here)
    verified = reassign("--verify", here)
    assert f"Reassignment of partition {topic}-0 is complete" in verified, verified
    assert f"Reassignment of partition {topic}-1 is complete" in verified, verified
    refused = reassign("--execute", plan("elsewhere.json", 7, 7), check=False)
    assert re.search(r"Unknown broker|does not exist|not found|InvalidReplicaAssignment", refused), refused
    assert "None of the specified partition moves are active." in reassign("--cancel", here)
    assert java.consume(topic, COUNT, "--from-beginning")


def test_leaders_are_right_already(java: JavaTools, prove: Callable[[str], None], unique: Callable[[str], str]) -> None:
    prove("kafka-leader-election: preferred and unclean, of one partition and of all")
    topic = unique("led")
    filled(java, topic, 2)
    for kind in ("PREFERRED", "UNCLEAN"):
        one = ("--election-type", kind, "--topic", topic, "--partition", 1)
        printed = java("LeaderElectionCommand", *one)
        assert "Valid replica already elected for partitions" in printed, printed  # 2.7 does not say which
        unknown = java("LeaderElectionCommand", *one[:-1], 9, check=False)
        assert re.search(r"UnknownTopicOrPartitionException|does not exist", unknown), unknown
        java("LeaderElectionCommand", "--election-type", kind, "--all-topic-partitions")


def test_a_log_is_moved_to_where_it_is(
    java: JavaTools, prove: Callable[[str], None], unique: Callable[[str], str], broker: Any, tmp_path: Path
) -> None:
    prove("kafka-reassign-partitions --execute with log_dirs: the directory where it is, an unknown one")
    topic = unique("shelved")
    filled(java, topic)
    (broker_id,) = re.findall(r"Leader: (\d+)", java("TopicCommand", "--describe", "--topic", topic))
    log_dir = str(broker.log_dirs[int(broker_id)])
    for directory, told in ((log_dir, "Successfully started"), ("/nowhere", "LogDirNotFoundException")):
        row = {"topic": topic, "partition": 0, "replicas": [int(broker_id)], "log_dirs": [directory]}
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"version": 1, "partitions": [row]}))
        arguments = ("--execute", "--timeout", 2_000, "--reassignment-json-file", path)
        printed = java("ReassignPartitionsCommand", *arguments, check=False)
        assert told in printed or "No such directory" in printed, printed
