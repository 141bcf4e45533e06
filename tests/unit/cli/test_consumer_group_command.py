"""`kafkalite group` on groups of the consumer protocol: epochs, targets, steps of a reconciliation, and changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalite import Broker
from kafkalite.cli.main import main
from tests.support.consumer_members import ConsumerMember

Say = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(group_consumer_assignment_interval_ms=0) as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", "one", partition=0)
        yield broker


@pytest.fixture
def say(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run the command: (exit code, lines on stdout, lines on stderr)."""

    def run(*arguments: str) -> tuple[int, list[str], list[str]]:
        capsys.readouterr()
        code = main(["group", *arguments, "--bootstrap", broker.bootstrap_servers])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def rows(said: tuple[int, list[str], list[str]]) -> list[dict[str, Any]]:
    assert said[0] == 0, said
    return [json.loads(line) for line in said[1]]


def member(broker: Broker, member_id: str, **subscription: Any) -> ConsumerMember:
    if "subscribed_topic_regex" not in subscription:
        subscription.setdefault("subscribed_topic_names", ["orders"])
    return ConsumerMember(broker.bootstrap_servers, "billing", member_id, **subscription)


def test_types_are_listed_and_filtered(broker: Broker, say: Say) -> None:
    member(broker, "m1")
    assert say("reset", "old", "--to-latest", "--topic", "orders", "--execute")[0] == 0
    new = {"group": "billing", "state": "Stable", "type": "consumer", "protocol": "consumer", "coordinator": 0}
    old = {"group": "old", "state": "Empty", "type": "classic", "protocol": "", "coordinator": 0}
    listed = rows(say("list", "--json"))
    assert listed[0] == new and listed[1]["type"] == old["type"]
    assert rows(say("list", "--json", "--type", "Consumer")) == [new]
    assert [row["group"] for row in rows(say("list", "--json", "--type", "classic"))] == ["old"]
    assert rows(say("list", "--json", "--type", "consumer", "--state", "empty")) == []


def test_a_reconciliation_is_described_step_by_step(broker: Broker, say: Say) -> None:
    first = member(broker, "m1")
    second = member(broker, "m2", instance_id="till")
    headline, step, *_ = say("describe", "billing")[1]
    assert headline == (
        "billing: Reconciling, members: 2, uniform, coordinator 0, group epoch 3, target assignment epoch 3"
    )
    moving = step.removeprefix("  m1 has not confirmed the revocation of ").removesuffix(", for which till waits")
    assert moving in ("orders-0", "orders-1")
    first.beat()  # it is ordered to give the partition up, and still has it
    assert say("describe", "billing")[1][1] == step
    first.confirm()
    assert say("describe", "billing")[1][1] == f"  {moving} goes to till with its next heartbeat"
    second.beat()
    headline, table = say("describe", "billing")[1][:2]
    assert headline.startswith("billing: Stable") and table.startswith("group")
    assert {row["member"] for row in rows(say("describe", "billing", "--json"))} == {"m1", "till"}


def test_members_are_described_with_targets_and_subscriptions(broker: Broker, say: Say) -> None:
    member(broker, "m1")
    member(broker, "m2", subscribed_topic_regex="ord.*")
    first, second = sorted(rows(say("describe", "billing", "--members", "--json")), key=lambda row: row["member"])
    assert first["assignment"] == {"orders": [0, 1]} and (first["topics"], first["regex"]) == (["orders"], None)
    assert first["type"] == "consumer" and first["epoch"] == 2
    assert (second["topics"], second["regex"], second["assignment"]) == ([], "ord.*", {})
    table = say("describe", "billing", "--members")[1]
    assert any("orders:0,1" in line for line in table)


def test_a_row_for_each_group_has_epochs(broker: Broker, say: Say) -> None:
    member(broker, "m1")
    assert rows(say("describe", "--state", "--json")) == [
        {
            "group": "billing",
            "state": "Stable",
            "type": "consumer",
            "assignor": "uniform",
            "group_epoch": 2,
            "target_epoch": 2,
            "members": 1,
            "coordinator": 0,
        }
    ]


def test_a_group_is_reset_and_deleted_when_it_is_empty(broker: Broker, say: Say) -> None:
    only = member(broker, "m1")
    reset = ("reset", "billing", "--to-latest", "--topic", "orders", "--execute")
    assert "billing has members (1)" in say(*reset)[2][0]
    assert say("delete", "billing")[2] == ["kafkalite: group billing is not deleted: it has members; stop them first"]
    only.leave()
    assert say(*reset)[0] == 0
    assert broker.groups["billing"].offsets == {("orders", 0): 1, ("orders", 1): 0}
    assert say("delete-offsets", "billing", "--topic", "orders:1")[0] == 0
    assert broker.groups["billing"].offsets == {("orders", 0): 1}
    assert say("delete", "billing")[0] == 0
    assert not broker.groups


def test_offsets_of_topics_that_are_read_stay(broker: Broker, say: Say) -> None:
    assert say("reset", "billing", "--to-latest", "--topic", "orders", "--execute")[0] == 0
    member(broker, "m1")
    code, _, complaints = say("delete-offsets", "billing", "--topic", "orders:0")
    assert (code, complaints) == (1, ["kafkalite: orders-0 keeps its offset: GROUP_SUBSCRIBED_TO_TOPIC"])
    code, _, complaints = say("delete-offsets", "nobody", "--topic", "orders")
    assert code == 1 and "group nobody not found at" in complaints[0]
