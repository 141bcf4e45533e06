"""Java clients of different generations on the same topics and in the same group."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.interop.java_tools import VERSIONS, JavaTools, Running, java_command

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
CLIENT = "kafka-clients, generations mixed"
CODEC_OF = dict(zip(VERSIONS, ("snappy", "lz4", "zstd", "gzip"), strict=True))


@pytest.fixture
def javas(broker: Any, run: Callable[..., str]) -> list[JavaTools]:
    return [JavaTools(version, broker.bootstrap, run) for version in VERSIONS]


@pytest.fixture
def prove(proved: Callable[..., None]) -> Callable[[str], None]:
    def prove(what: str) -> None:
        proved(CLIENT, ", ".join(VERSIONS), what)
        for version in VERSIONS:
            java_command(version)

    return prove


class Member:
    """A verifiable consumer in the background; what it did is read off its events."""

    def __init__(self, running: Running, version: str) -> None:
        self.running = running
        self.version = version

    def events(self) -> list[dict[str, Any]]:
        found = []
        for line in self.running.said().splitlines():
            with contextlib.suppress(ValueError):  # the line that is being written, or a warning
                found.append(json.loads(line))
        return [event for event in found if isinstance(event, dict)]

    def partitions(self) -> set[int]:
        """The partitions that it owns now."""
        owned: set[int] = set()
        for event in self.events():
            named = {entry["partition"] for entry in event.get("partitions", [])}
            if event["name"] == "partitions_assigned":
                owned |= named
            elif event["name"] == "partitions_revoked":
                owned -= named
        return owned

    def records(self) -> list[tuple[int, int]]:
        return [(event["partition"], event["offset"]) for event in self.events() if event["name"] == "record_data"]

    def commits(self) -> dict[int, int]:
        """The last offset that it committed, by partition."""
        done = [event for event in self.events() if event["name"] == "offsets_committed" and event["success"]]
        return {entry["partition"]: entry["offset"] for event in done for entry in event["offsets"]}


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """Starts members; those that a test leaves behind are ended."""
    members: list[Member] = []

    def join(java: JavaTools, topic: str, group: str) -> Member:
        arguments = ["--topic", topic, "--group-id", group, "--reset-policy", "earliest", "--verbose"]
        output = tmp_path / f"member-{len(members)}-{java.version}.txt"
        members.append(Member(java.start("VerifiableConsumer", *arguments, output=output), java.version))
        return members[-1]

    yield join
    for member in members:
        member.running.kill()


def test_each_reads_what_each_wrote(
    javas: list[JavaTools], prove: Callable[[str], None], unique: Callable[[str], str]
) -> None:
    prove("written by each (each with a codec of its own) into one topic, read by each")
    topic = unique("mixed")
    javas[0].create_topic(topic)
    told: list[str] = []
    for java in javas:
        lines = [f"{java.version} {number}\tsaid {number} times" for number in range(50)]
        codec = ["--compression-codec", CODEC_OF[java.version]]
        java.produce(topic, "\n".join(lines) + "\n", *codec, "--property", "parse.key=true")
        told += lines
    for java in javas:
        assert java.consume(topic, len(told), "--from-beginning", "--property", "print.key=true") == told, java.version


def test_one_group_of_three_generations(
    javas: list[JavaTools],
    prove: Callable[[str], None],
    unique: Callable[[str], str],
    until: Callable[..., Any],
    join: Callable[..., Member],
) -> None:
    prove("one group with a member of each: joins, rebalances and leaves one after another, every record read once")
    topic, group, partitions = unique("shared"), unique("mixed-group"), {0, 1, 2, 3, 4, 5}
    javas[0].create_topic(topic, len(partitions))

    def fair(*members: Member) -> bool:
        owned = [member.partitions() for member in members]
        return [len(some) for some in owned] == [6 // len(members)] * len(members) and set().union(*owned) == partitions

    first = join(javas[0], topic, group)
    until(lambda: fair(first), "the first member to own everything")
    second = join(javas[2], topic, group)
    until(lambda: fair(first, second), "two members to share")
    limit = ["--topic", topic, "--max-messages", 3000, "--throughput", 1000]
    sent = [json.loads(line) for line in javas[1]("VerifiableProducer", *limit).splitlines()]
    acked = {(event["partition"], event["offset"]) for event in sent if event["name"] == "producer_send_success"}
    assert len(acked) == 3000
    ends = {partition: sum(1 for p, _ in acked if p == partition) for partition, _ in acked}
    until(lambda: first.commits() | second.commits() == ends, "two members to read and commit all")

    third = join(javas[1], topic, group)
    until(lambda: fair(first, second, third), "three members to share")
    first.running.stop()
    until(lambda: fair(second, third), "those who stay to take over")
    sent = [json.loads(line) for line in javas[1]("VerifiableProducer", *limit).splitlines()]
    acked |= {(event["partition"], event["offset"]) for event in sent if event["name"] == "producer_send_success"}
    assert len(acked) == 6000

    def read() -> Counter[tuple[int, int]]:
        return Counter(first.records() + second.records() + third.records())

    until(lambda: len(read()) == 6000, "every record to be read")
    seen = read()
    assert seen.keys() == acked
    assert set(seen.values()) == {1}, "members that commit what they read and leave in peace read nothing twice"


def test_clients_outlive_a_restart_of_the_broker(
    broker: Any,
    javas: list[JavaTools],
    prove: Callable[[str], None],
    unique: Callable[[str], str],
    until: Callable[..., Any],
    join: Callable[..., Member],
    tmp_path: Path,
) -> None:
    prove("the broker is stopped and started again under a producer of 3.9 and a group: all acknowledged, all read")
    topic, count = unique("restarted"), 3000
    javas[1].create_topic(topic, 2)
    members = [join(java, topic, group) for java, group in ((javas[0], unique("old")), (javas[2], unique("new")))]
    for member in members:
        until(lambda member=member: member.partitions() == {0, 1}, "each group to own both partitions")
    patient = tmp_path / "client.producer.properties"
    patient.write_text("retries=2147483647\nenable.idempotence=true\n")  # the tool's own default is not to try again
    limit = ["--topic", topic, "--max-messages", count, "--throughput", 500, "--producer.config", patient]
    producer = javas[1].start("VerifiableProducer", *limit, output=tmp_path / "client.producer.txt")
    until(lambda: "producer_send_success" in producer.said(), "the first acknowledgement")
    broker.restart()
    events = [json.loads(line) for line in producer.wait().splitlines() if line.startswith("{")]
    acked = {(event["partition"], event["offset"]) for event in events if event["name"] == "producer_send_success"}
    assert len(acked) == count, events[-1]
    for member in members:
        until(lambda member=member: set(member.records()) == acked, f"{member.version} to read everything")
