"""Java's kafka-clients of three generations, each with the console tools of its own release."""

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
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def modern(java: JavaTools) -> bool:
    """Not the generation that is kept for its age."""
    return java.version != "2.7.2"


def table(printed: str) -> list[dict[str, str]]:
    """Rows of a tool's table by heading; the tool may print several tables and sentences between them."""
    rows: list[dict[str, str]] = []
    headings: list[str] = []
    for line in printed.splitlines():
        words = line.split()
        if words[:1] == ["GROUP"]:
            headings = re.split(r"\s{2,}|(?<=[A-Z])\s(?=STATE|LAG)", line.strip())
        elif headings and len(words) >= 2:
            rows.append(dict(zip(headings, words, strict=False)))
    return rows


def groups(java: JavaTools, *arguments: Any, check: bool = True) -> str:
    """kafka-consumer-groups. By itself it gives up after 5 s, with nothing on stdout: too little on a busy machine."""
    return java("ConsumerGroupCommand", "--timeout", 30_000, *arguments, check=check)


def offsets(java: JavaTools, topic: str, time: int) -> dict[int, int]:
    at = "--bootstrap-server" if modern(java) else "--broker-list"
    lines = java("GetOffsetShell", "--topic", topic, "--time", time, at=at).split()
    return {int(partition): int(offset) for _, partition, offset in (line.rsplit(":", 2) for line in lines)}


def test_topics_and_their_configs(java: JavaTools, prove: Callable[[str], None], unique: Callable[[str], str]) -> None:
    prove("kafka-topics: create, list, describe, add partitions, refusals, delete; kafka-configs: alter, describe")
    topic = unique("topic")

    assert f"Created topic {topic}" in java.create_topic(topic, 2, retention_ms=86_400_000, cleanup_policy="compact")
    described = java("TopicCommand", "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 2\s+ReplicationFactor: 1\s", described), described
    assert re.search(r"Configs: (?=.*retention\.ms=86400000)(?=.*cleanup\.policy=compact)", described), described
    assert len(re.findall(r"Partition: \d\s+Leader: (\d)\s+Replicas: \1\s+Isr: \1\b", described)) == 2, described

    twice = java("TopicCommand", "--create", "--topic", topic, check=False)
    assert "already exists" in twice, twice
    java("TopicCommand", "--alter", "--topic", topic, "--partitions", 5)
    fewer = java("TopicCommand", "--alter", "--topic", topic, "--partitions", 3, check=False)
    assert "InvalidPartitionsException" in fewer, fewer

    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    java("ConfigCommand", *of_topic, "--alter", "--add-config", "max.message.bytes=2000000,segment.bytes=1048576")
    java("ConfigCommand", *of_topic, "--alter", "--delete-config", "retention.ms")
    wrong = java("ConfigCommand", *of_topic, "--alter", "--add-config", "segment.bytes=few", check=False)
    assert "InvalidConfigurationException" in wrong or "InvalidRequestException" in wrong, wrong
    config = java("ConfigCommand", *of_topic, "--describe")
    own = dict(re.findall(r"^\s+(\S+)=(\S+) sensitive=false", config, re.MULTILINE))
    assert own == {"max.message.bytes": "2000000", "segment.bytes": "1048576", "cleanup.policy": "compact"}, config

    java("TopicCommand", "--delete", "--topic", topic)
    assert topic not in java("TopicCommand", "--list").split()


def test_console_producer_and_consumer(
    java: JavaTools, prove: Callable[[str], None], unique: Callable[[str], str]
) -> None:
    prove(
        "kafka-console-producer (keys, headers, acks=all, idempotent, all codecs) and -consumer (group, read_committed)"
    )
    topic = unique("console")
    java.create_topic(topic, 2)
    typed: list[str] = []
    for codec in CODECS:
        lines = [f"{codec}-{number}\tvalue {number} of {codec} " + "x" * 200 for number in range(30)]
        headers = ["--property", "parse.headers=true"] if modern(java) else []
        told = [f"from:{java.version},codec:{codec}\t{line}" if headers else line for line in lines]
        java.produce(
            topic,
            "\n".join(told) + "\n",
            *("--compression-codec", codec, "--property", "parse.key=true", *headers),
            **{"acks": "all", "enable.idempotence": "true", "linger.ms": "100"},
        )
        typed += told

    show = [f"--property=print.{what}=true" for what in ("key", "partition", "offset", "timestamp")]
    show += ["--property=print.headers=true"] if modern(java) else []
    group = unique("readers")
    shown = java.consume(
        topic, len(typed), "--from-beginning", "--group", group, "--isolation-level=read_committed", *show
    )
    fields = [re.fullmatch(r"CreateTime:\d+\tPartition:(\d)\tOffset:(\d+)\t(.*)", line) for line in shown]
    assert all(fields), shown[:5]
    assert sorted(field[3] for field in fields if field) == sorted(typed)
    for partition in {field[1] for field in fields if field}:
        seen = [int(field[2]) for field in fields if field and field[1] == partition]
        assert seen == list(range(len(seen))), f"offsets of partition {partition}: {seen}"

    java.produce(topic, "the news\n")
    assert java.consume(topic, 1, "--group", group) == ["the news"], "the group goes on where it was"


def test_consumer_groups(
    java: JavaTools,
    prove: Callable[[str], None],
    unique: Callable[[str], str],
    until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    prove("kafka-consumer-groups: list, describe (offsets, members, state), reset-offsets, delete")
    topic, group = unique("watched"), unique("watchers")
    java.create_topic(topic)
    java.produce(topic, "".join(f"{number}\n" for number in range(10)))

    reading = ["--topic", topic, "--group", group, "--from-beginning"]
    often = "--consumer-property=auto.commit.interval.ms=100"
    member = java.start("ConsoleConsumer", *reading, often, output=tmp_path / "member.txt")
    try:
        until(lambda: member.said().split() == [str(number) for number in range(10)], "the member to read all")
        living = table(groups(java, "--describe", "--group", group, "--members"))
        assert [row["#PARTITIONS"] for row in living] == ["1"], living
        assert "Stable" in groups(java, "--describe", "--group", group, "--state")
        busy = groups(java, "--delete", "--group", group, check=False)
        assert "GroupNotEmptyException" in busy, busy
    finally:
        member.stop()

    assert group in groups(java, "--list").split()
    assert re.search(rf"{group}\s+Empty", groups(java, "--list", "--state"))
    described = groups(java, "--describe", "--group", group)
    columns = [(row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in table(described)]
    assert columns == [("10", "10", "0")], described

    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--execute")
    for how, offset in (
        (["--to-offset", 8], 8),
        (["--shift-by", -3], 5),
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
    ):
        printed = groups(java, *reset, *how)
        assert re.search(rf"{topic}\s+0\s+{offset}\b", printed), printed
    groups(java, *reset, "--to-offset", 7)
    assert java.consume(topic, 3, "--group", group) == ["7", "8", "9"]

    groups(java, "--delete", "--group", group)
    assert group not in groups(java, "--list").split()


def test_offsets_and_delete_records(
    java: JavaTools, prove: Callable[[str], None], unique: Callable[[str], str], tmp_path: Path
) -> None:
    prove("kafka-get-offsets (earliest, latest, of the newest record, by time), kafka-delete-records")
    topic = unique("shortened")
    java.create_topic(topic, segment_bytes=1024 * 1024)
    java.produce(topic, "".join(f"{number}\n" for number in range(20)))
    assert offsets(java, topic, -1) == {0: 20}
    assert offsets(java, topic, 1) == {0: 0}, "the first record later than 1970"
    if modern(java):  # 2.7 has no word for it
        assert 0 <= offsets(java, topic, -3)[0] < 20

    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 12}]}))
    assert "low_watermark: 12" in java("DeleteRecordsCommand", "--offset-json-file", wanted)
    assert (offsets(java, topic, -2), offsets(java, topic, -1)) == ({0: 12}, {0: 20})
    assert java.consume(topic, 8, "--from-beginning") == [str(number) for number in range(12, 20)]


def test_performance_tools(java: JavaTools, prove: Callable[[str], None], unique: Callable[[str], str]) -> None:
    prove("kafka-producer-perf-test and kafka-consumer-perf-test: 30000 records of 200 bytes, lz4")
    topic, count = unique("perf"), 30_000
    java.create_topic(topic, 3, segment_bytes=1024 * 1024)
    properties = [f"bootstrap.servers={java.bootstrap}", "acks=all", "compression.type=lz4"]
    size = ["--num-records", count, "--record-size", 200, "--throughput", -1]
    sent = java("ProducerPerformance", "--topic", topic, *size, "--producer-props", *properties, at=None)
    assert f"{count} records sent" in sent, sent
    assert sum(offsets(java, topic, -1).values()) == count
    read = java("ConsumerPerformance", "--topic", topic, "--messages", count, "--timeout", 30_000)
    heading, figures = (line.split(", ") for line in read.splitlines()[-2:])
    assert int(dict(zip(heading, figures, strict=True))["data.consumed.in.nMsg"]) == count, read


def test_verifiable_tools(java: JavaTools, prove: Callable[[str], None], unique: Callable[[str], str]) -> None:
    prove("kafka-verifiable-producer and kafka-verifiable-consumer: 2000 records, each acknowledged and read once")
    topic, count = unique("verified"), 2000
    java.create_topic(topic, 3)
    limit = ["--topic", topic, "--max-messages", count]
    sent = [json.loads(line) for line in java("VerifiableProducer", *limit).splitlines()]
    acked = {(event["partition"], event["offset"]) for event in sent if event["name"] == "producer_send_success"}
    assert len(acked) == count
    assert sent[-1]["name"] == "tool_data" and sent[-1]["acked"] == count, sent[-1]

    group = ["--group-id", unique("verifiers"), "--reset-policy", "earliest", "--verbose"]
    read = [json.loads(line) for line in java("VerifiableConsumer", *limit, *group).splitlines()]
    data = [(event["partition"], event["offset"]) for event in read if event["name"] == "record_data"]
    assert len(data) == count and set(data) == acked
    assert all(event["success"] for event in read if event["name"] == "offsets_committed")


def test_what_is_offered_is_told_and_what_is_not_configured(java: JavaTools, prove: Callable[[str], None]) -> None:
    prove("kafka-broker-api-versions; kafka-acls reports that there is no authorizer, as at Kafka")
    apis = java("BrokerApiVersionsCommand")
    usable = dict(re.findall(r"(\w+)\(\d+\): [\d to]+ \[usable: (\d+)\]", apis))
    assert {"Produce", "Fetch", "Metadata", "JoinGroup", "InitProducerId", "DescribeConfigs"} <= usable.keys(), apis
    printed = java("AclCommand", "--list", check=False)
    assert "SecurityDisabledException: No Authorizer is configured" in printed, printed
