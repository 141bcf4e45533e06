"""`kafkalite group` beside kafka-groups and kafka-consumer-groups of Kafka 4.3, at a kafkalite and at Kafka 4.3.0.

The same members, epochs, states, assignments and offsets at each step of a consumer group and of a share
group, and the same effects of resets and deletions.

pytest -m long tests/compatibility/interop/test_group_commands_beside_kafka.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from kafkalite import Broker
from kafkalite.cli.main import main
from tests.compatibility.interop.java_tools import JavaTools
from tests.support.consumer_members import ConsumerMember
from tests.support.share_requests import ACCEPT, ShareRequester, acquired, begin_at_earliest
from tests.support.wait import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

Row = dict[str, str | None]
Ours = Callable[..., list[dict[str, Any]]]
_TITLE = re.compile(r"\S+(?: \(ID\))?")


@pytest.fixture(params=["kafkalite", "kafka 4.3.0"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafkalite":
        with Broker() as broker:
            yield broker.bootstrap_servers
    else:
        yield request.getfixturevalue("kafka_4_3").bootstrap


@pytest.fixture
def ours(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Ours:
    """Rows that `kafkalite group` prints."""

    def run(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["group", *arguments, "--json", "--bootstrap", bootstrap]) == code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def theirs(bootstrap: str, tools_4_3: Callable[[str], JavaTools]) -> JavaTools:
    return tools_4_3(bootstrap)


def table(printed: str) -> list[Row]:
    """The rows of a table of Kafka's tools; an empty cell and - are None."""
    lines = [line for line in printed.splitlines() if line.strip()]
    titles = list(_TITLE.finditer(lines[0]))
    ends = [title.start() for title in titles[1:]] + [None]
    return [
        {
            title.group(): (None if (cell := line[title.start() : end].strip()) in ("", "-") else cell)
            for title, end in zip(titles, ends, strict=True)
        }
        for line in lines[1:]
    ]


def text_of(assignment: dict[str, list[int]] | None) -> str | None:
    """As the tool prints it."""
    parts = (f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in (assignment or {}).items())
    return ";".join(parts) or None


def compare(ours: Ours, theirs: JavaTools, group: str, *members: ConsumerMember) -> None:
    """Both commands at this moment. The members stay alive: a JVM may take its time."""
    compare_states(ours, theirs, group)
    _all_beat(members)
    compare_members(ours, theirs, group)
    _all_beat(members)
    compare_offsets(ours, theirs, group)
    _all_beat(members)
    listed = {(row["group"], row["type"].capitalize(), row["protocol"] or None) for row in ours("list")}
    assert {(row["GROUP"], row["TYPE"], row["PROTOCOL"]) for row in table(theirs("GroupsCommand", "--list"))} == listed
    _all_beat(members)
    states = {(row["group"], row["state"]) for row in ours("list", "--type", "consumer")}
    their_list = table(theirs("ConsumerGroupCommand", "--list", "--type", "consumer", "--state"))
    assert {(row["GROUP"], row["STATE"]) for row in their_list} == states


def _all_beat(members: Iterable[ConsumerMember]) -> None:
    for member in members:
        member.beat()


def _all_confirm(*members: ConsumerMember) -> bool:
    for member in members:
        member.confirm()
    return True


def compare_states(ours: Ours, theirs: JavaTools, group: str) -> None:
    [state] = ours("describe", group, "--state")
    [their_state] = table(theirs("ConsumerGroupCommand", "--describe", "--group", group, "--state", "--verbose"))
    assert [state["state"], state["assignor"], str(state["members"])] == [
        their_state["STATE"], their_state["ASSIGNMENT-STRATEGY"], their_state["#MEMBERS"],
    ]  # fmt: skip
    assert [str(state["group_epoch"]), str(state["target_epoch"])] == [
        their_state["GROUP-EPOCH"], their_state["TARGET-ASSIGNMENT-EPOCH"],
    ]  # fmt: skip
    assert str(their_state["COORDINATOR (ID)"]).endswith(f"({state['coordinator']})")


def compare_members(ours: Ours, theirs: JavaTools, group: str) -> None:
    found = {
        row["CONSUMER-ID"]: [
            row.get("GROUP-INSTANCE-ID"), row["HOST"], row["CLIENT-ID"], row["CURRENT-EPOCH"],
            row["CURRENT-ASSIGNMENT"], row["TARGET-ASSIGNMENT"],
        ]
        for row in table(theirs("ConsumerGroupCommand", "--describe", "--group", group, "--members", "--verbose"))
    }  # fmt: skip
    members = ours("describe", group, "--members")
    assert {
        row["member"]: [
            row["instance"], row["host"], row["client"], str(row["epoch"]), text_of(row["assignment"]),
            text_of(row["target"]),
        ]
        for row in members
    } == found  # fmt: skip


def compare_offsets(ours: Ours, theirs: JavaTools, group: str) -> None:
    rows = [row for row in ours("describe", group) if row["topic"] is not None]
    printed = theirs("ConsumerGroupCommand", "--describe", "--group", group, "--offsets")
    start = printed.index("GROUP ")  # a group without members has a sentence before the table
    found = {
        (row["TOPIC"], row["PARTITION"]): [row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]]
        for row in table(printed[start:])
    }
    shown = {(row["topic"], str(row["partition"])): [row["offset"], row["end"], row["lag"]] for row in rows}
    assert {key: [None if one is None else str(one) for one in each] for key, each in shown.items()} == found


def test_a_group_is_described_alike_while_it_moves(bootstrap: str, ours: Ours, theirs: JavaTools) -> None:
    theirs.create_topic("moving", 3)
    theirs.produce("moving", "a\nb\nc\nd\ne\n")
    ours("reset", "moving-group", "--to-offset", "1", "--topic", "moving:0", "--topic", "moving:1", "--execute")
    group, topics = "moving-group", ["moving"]
    first = ConsumerMember(bootstrap, group, "m1", subscribed_topic_names=topics)
    until(lambda: _all_confirm(first) and first.owned, "the first assignment")
    compare(ours, theirs, group, first)
    second = ConsumerMember(bootstrap, group, "m2", subscribed_topic_names=topics, instance_id="till")

    def is_ordered() -> bool:
        first.beat()
        second.beat()
        return sum(map(len, first.owned.values())) < 3

    until(is_ordered, "an order to give something up")
    compare(ours, theirs, group, first, second)  # m1 has not confirmed it
    until(lambda: _all_confirm(first, second) and second.owned, "a share for the other")
    compare(ours, theirs, group, first, second)
    third = ConsumerMember(bootstrap, group, "m3", subscribed_topic_regex="mov.*")
    until(lambda: _all_confirm(first, second, third) and third.owned, "a share by a regular expression")
    compare(ours, theirs, group, first, second, third)
    [row] = [row for row in ours("describe", group, "--members") if row["member"] == "m3"]
    assert (row["topics"], row["regex"], row["type"]) == ([], "mov.*", "consumer")
    for member in (first, second, third):
        member.leave()


def test_a_classic_member_among_others_is_described_alike(bootstrap: str, ours: Ours, theirs: JavaTools) -> None:
    theirs.create_topic("mixed", 2)
    theirs.produce("mixed", "a\nb\n")
    member = ConsumerMember(bootstrap, "mixed-group", "m1", subscribed_topic_names=["mixed"])
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "mixed-group",
            "client.id": "old",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
        }
    )
    consumer.subscribe(["mixed"])

    def is_stable() -> bool:
        consumer.poll(0.2)
        member.confirm()
        [row] = ours("describe", "mixed-group", "--state")
        return bool(row["state"] == "Stable" and row["members"] == 2)

    until(is_stable, "a stable group of both")
    compare(ours, theirs, "mixed-group", member)
    types = {row["client"]: row["type"] for row in ours("describe", "mixed-group", "--members")}
    assert types == {"kafkalite": "consumer", "old": "classic"}
    printed = theirs("ConsumerGroupCommand", "--describe", "--group", "mixed-group", "--members", "--verbose")
    upgraded = {row["CLIENT-ID"]: row["UPGRADED"] for row in table(printed)}
    assert upgraded == {"kafkalite": "true", "old": "false"}
    consumer.close()
    member.leave()


def test_an_empty_group_is_changed_alike(bootstrap: str, ours: Ours, theirs: JavaTools) -> None:
    theirs.create_topic("changed", 2)
    theirs.produce("changed", "a\nb\nc\n")
    only = ConsumerMember(bootstrap, "changed-group", "m1", subscribed_topic_names=["changed"])
    reset = ("reset", "changed-group", "--to-latest", "--topic", "changed", "--execute")
    ours(*reset, code=1)
    ours("delete", "changed-group", code=1)
    only.leave()
    ours(*reset)
    compare_offsets(ours, theirs, "changed-group")
    [row] = ours("describe", "changed-group", "--state")
    assert (row["state"], row["type"], row["members"]) == ("Empty", "consumer", 0)
    ours("delete-offsets", "changed-group", "--topic", "changed:1")
    compare_offsets(ours, theirs, "changed-group")
    words = ["--group", "changed-group", "--topic", "changed:0", "--to-earliest", "--execute"]
    theirs("ConsumerGroupCommand", "--reset-offsets", *words)
    [row] = ours("describe", "changed-group")
    assert (row["partition"], row["offset"]) == (0, 0)
    ours("delete", "changed-group")
    assert not [row for row in ours("list") if row["group"] == "changed-group"]
    assert "changed-group" not in theirs("GroupsCommand", "--list")


def share_positions(ours: Ours, theirs: JavaTools, group: str) -> list[tuple[str, int, int | None, int | None]]:
    """Topic, partition, start and lag, by both commands."""
    positions = [(row["topic"], row["partition"], row["start"], row["lag"]) for row in ours("describe", group)]
    shown = [
        (row["TOPIC"], int(row["PARTITION"] or -1), _number(row["START-OFFSET"]), _number(row["LAG"]))
        for row in table(theirs("ShareGroupCommand", "--describe", "--group", group, "--offsets"))
    ]
    assert sorted(shown) == positions
    return positions


def _number(cell: str | None) -> int | None:
    return None if cell is None else int(cell)


def test_a_share_group_is_described_and_changed_alike(bootstrap: str, ours: Ours, theirs: JavaTools) -> None:
    theirs.create_topic("jobs")
    theirs.produce("jobs", "".join(f"{number}\n" for number in range(10)))
    begin_at_earliest(bootstrap, "workers", share_session_timeout_ms="60000")
    worker = ShareRequester(bootstrap, "workers", "jobs").join()
    assert len(acquired(worker.fetch(max_records=4))) > 0
    worker.acknowledge((0, 1, [ACCEPT]))
    assert share_positions(ours, theirs, "workers") == [("jobs", 0, 0, 8)]
    worker.beat()
    [state] = ours("describe", "workers", "--state")
    [their_state] = table(theirs("ShareGroupCommand", "--describe", "--group", "workers", "--state", "--verbose"))
    assert [state["state"], str(state["members"])] == [their_state["STATE"], their_state["#MEMBERS"]]
    assert [state["group_epoch"], state["target_epoch"]] == [
        _number(their_state["GROUP-EPOCH"]), _number(their_state["ASSIGNMENT-EPOCH"])
    ]  # fmt: skip
    worker.beat()
    [member] = ours("describe", "workers", "--members")
    [their_member] = table(theirs("ShareGroupCommand", "--describe", "--group", "workers", "--members", "--verbose"))
    assert [member["member"], str(member["epoch"]), text_of(member["assignment"])] == [
        their_member["CONSUMER-ID"], their_member["MEMBER-EPOCH"], their_member["ASSIGNMENT"]
    ]  # fmt: skip
    assert [row["type"] for row in ours("list") if row["group"] == "workers"] == ["share"]
    assert worker.leave().error_code == 0
    worker.close()
    assert ours("reset", "workers", "--to-offset", "7", "--execute")[0]["new_offset"] == 7
    assert share_positions(ours, theirs, "workers") == [("jobs", 0, 7, 3)]
    ours("delete-offsets", "workers", "--topic", "jobs")
    assert ours("describe", "workers") == []
    ours("delete", "workers")
    assert "workers" not in theirs("ShareGroupCommand", "--list").split()
