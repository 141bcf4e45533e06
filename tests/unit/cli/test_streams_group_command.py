"""`kafkalite group` for groups of Kafka Streams (KIP-1071), and how else such a group shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite import Broker
from kafkalite.cli.main import main
from tests.support.streams_members import PROMPT, StreamsMember, counting_topology
from tests.support.wait import until

REPARTITION, CHANGELOG = "app-by-key-repartition", "app-counts-changelog"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(**PROMPT) as broker:
        broker.create_topic("lines", partitions=2)
        yield broker


@pytest.fixture
def member(broker: Broker) -> Iterator[StreamsMember]:
    member = StreamsMember(broker.bootstrap_servers, "app", "m", counting_topology("app", "lines"))
    until(lambda: {REPARTITION, CHANGELOG} <= set(broker.topics), "the internal topics")
    member.await_tasks()
    yield member
    member.close()


def rows(broker: Broker, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["group", *arguments, "--json", "--bootstrap", broker.bootstrap_servers]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_group_is_shown(broker: Broker, member: StreamsMember, capsys: pytest.CaptureFixture[str]) -> None:
    [listed] = rows(broker, capsys, "list", "--type", "streams", "--state", "stable")
    assert (listed["group"], listed["type"], listed["protocol"]) == ("app", "streams", "streams")
    [state] = rows(broker, capsys, "describe", "app", "--state")
    assert (state["state"], state["type"], state["members"], state["group_epoch"]) == (
        "Stable",
        "streams",
        1,
        member.epoch,
    )
    [row] = rows(broker, capsys, "describe", "app", "--members")
    assert (row["member"], row["type"], row["epoch"]) == ("m", "streams", member.epoch)
    assert row["assignment"] == row["target"] == {"0": [0, 1], "1": [0, 1]}
    found = rows(broker, capsys, "describe", "app")
    assert [(each["topic"], each["partition"], each["member"]) for each in found] == [
        (topic, index, "m") for topic in (REPARTITION, "lines") for index in (0, 1)
    ]
    assert main(["group", "describe", "--bootstrap", broker.bootstrap_servers]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("app: Stable, members: 1, coordinator 0, group epoch ")
    assert lines[1:3] == [
        f"  subtopology 0 reads lines, writes {REPARTITION}",
        f"  subtopology 1 reads {REPARTITION}, keeps its state in {CHANGELOG}",
    ]


def test_a_test_sees_the_group(broker: Broker, member: StreamsMember) -> None:
    found = broker.groups["app"]
    assert (found.kind, found.state, found.protocol, found.offsets) == ("streams", "Stable", "sticky", {})
    assert found.generation == found.target_epoch == member.epoch
    [one] = found.members
    expected = {(topic, index) for topic in ("lines", REPARTITION) for index in (0, 1)}
    assert one.partitions == one.target == expected and one.epoch == member.epoch
    member.leave()
    assert broker.groups["app"].state == "Empty"


def test_a_group_is_deleted(broker: Broker, member: StreamsMember, capsys: pytest.CaptureFixture[str]) -> None:
    delete = ["group", "delete", "app", "--bootstrap", broker.bootstrap_servers]
    assert main(delete) == 1
    assert "it has members" in capsys.readouterr().err
    member.leave()
    assert main(delete) == 0
    assert "app" not in broker.groups
