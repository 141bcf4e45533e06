"""`kafkalite group` for share groups (KIP-932): positions, records in flight, members, resets and deletions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalite import Broker
from kafkalite.cli.main import main
from tests.support.consumer_members import ConsumerMember
from tests.support.share_requests import ACCEPT, REJECT, RELEASE, ShareRequester, begin_at_earliest
from tests.support.wait import until

Said = tuple[int, list[str], list[str]]
Say = Callable[..., Said]


@pytest.fixture
def broker() -> Iterator[Broker]:
    """The group `workers` begins at the first of six records."""
    with Broker(group_share_assignment_interval_ms=0) as broker:
        broker.create_topic("jobs", partitions=1)
        begin_at_earliest(broker.bootstrap_servers, "workers")
        for number in range(6):
            broker.produce("jobs", str(number), timestamp=1_000_000 + number)
        yield broker


@pytest.fixture
def worker(broker: Broker) -> Iterator[ShareRequester]:
    """Holds a record, and has accepted one, rejected one, and given one back."""
    worker = ShareRequester(broker.bootstrap_servers, "workers", "jobs").join()
    worker.fetch(max_records=4)
    worker.acknowledge((0, 0, [ACCEPT]), (1, 1, [RELEASE]), (3, 3, [REJECT]))
    yield worker
    worker.close()


@pytest.fixture
def say(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run the command: (exit code, lines on stdout, lines on stderr)."""

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        code = main(["group", *arguments, "--bootstrap", broker.bootstrap_servers])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def rows(said: Said) -> list[dict[str, Any]]:
    assert said[0] == 0, said
    return [json.loads(line) for line in said[1]]


def test_positions_and_what_became_of_records_are_shown(worker: ShareRequester, say: Say) -> None:
    assert rows(say("describe", "workers", "--json")) == [
        {
            "group": "workers",
            "topic": "jobs",
            "partition": 0,
            "start": 0,  # as it was stored with the acknowledgement
            "end": 6,
            "lag": 4,
            "acquired": 1,
            "available": 1,
            "acknowledged": 1,
            "archived": 1,
            "lock_timeouts": 0,
            "members": 1,
        }
    ]
    headline, columns, values = say("describe", "workers")[1]
    assert headline.startswith("workers: Stable, members: 1, simple, coordinator 0, group epoch ")
    assert columns.split()[:6] == ["group", "topic", "partition", "start", "end", "lag"]
    assert values.split() == ["workers", "jobs", "0", "0", "6", "4", "1", "1", "1", "1", "0", "1"]


def test_records_in_flight_are_shown_with_their_holders(broker: Broker, worker: ShareRequester, say: Say) -> None:
    free, held = rows(say("describe", "workers", "--records", "--json"))
    assert (free["first"], free["last"], free["state"], free["deliveries"], free["member"]) == (
        1,
        1,
        "available",
        1,
        None,
    )
    assert (held["first"], held["last"], held["state"], held["deliveries"], held["member"]) == (
        2,
        2,
        "acquired",
        1,
        "m",
    )
    assert held["locked_until"] - held["acquired_at"] == 30_000 and held["host"] == "/127.0.0.1"
    lines = say("describe", "workers", "--records")[1]
    assert lines[1].split()[:4] == ["group", "topic", "partition", "first"]
    assert broker.share_group("workers").expire_locks() == 1
    [both] = rows(say("describe", "workers", "--records", "--json"))
    assert (both["first"], both["last"], both["state"], both["acquired_at"]) == (1, 2, "available", None)


def test_groups_of_all_kinds_are_shown_together(broker: Broker, worker: ShareRequester, say: Say) -> None:
    ConsumerMember(broker.bootstrap_servers, "billing", "m1", subscribed_topic_names=["jobs"])
    assert {(row["group"], row["type"]) for row in rows(say("list", "--json"))} == {
        ("billing", "consumer"),
        ("workers", "share"),
    }
    assert [row["group"] for row in rows(say("list", "--type", "share", "--json"))] == ["workers"]
    found = rows(say("describe", "--json"))
    assert {(row["group"], "member" in row) for row in found} == {("billing", True), ("workers", False)}
    [row] = [row for row in rows(say("describe", "--state", "--json")) if row["group"] == "workers"]
    assert (row["state"], row["type"], row["assignor"], row["members"]) == ("Stable", "share", "simple", 1)
    assert row["group_epoch"] == row["target_epoch"] == worker.epoch
    [member] = rows(say("describe", "workers", "--members", "--json"))
    assert (member["member"], member["assignment"], member["topics"]) == ("m", {"jobs": [0]}, ["jobs"])


def test_a_group_is_reset_when_it_is_empty(broker: Broker, worker: ShareRequester, say: Say) -> None:
    reset = ("reset", "workers", "--to-offset", "4", "--execute")
    code, _, complaints = say(*reset)
    assert code == 1 and "workers has members (1)" in complaints[0]
    broker.faults.expire_session("workers", "m")
    worker.close()
    shown = rows(say("reset", "workers", "--shift-by", "-1", "--json"))
    assert shown == [
        {"group": "workers", "topic": "jobs", "partition": 0, "offset": 1, "new_offset": 0}
    ]  # stored with the release of what it held
    assert broker.share_group("workers").start_offsets == {("jobs", 0): 1}, "nothing is changed without --execute"
    assert say(*reset)[0] == 0
    [row] = rows(say("describe", "workers", "--json"))
    assert (row["start"], row["lag"], row["acquired"]) == (4, 2, None), "no member reads it, so no leader reports it"
    assert rows(say("describe", "workers", "--records", "--json")) == []


def test_offsets_and_groups_are_deleted(broker: Broker, worker: ShareRequester, say: Say) -> None:
    assert "it has members" in say("delete", "workers")[2][0]
    assert "keeps its offsets: NON_EMPTY_GROUP" in say("delete-offsets", "workers", "--topic", "jobs")[2][0]
    broker.faults.expire_session("workers", "m")
    worker.close()
    code, _, complaints = say("delete-offsets", "workers", "--topic", "jobs:0")
    assert code == 1 and "for whole topics" in complaints[0]
    assert say("delete-offsets", "workers", "--topic", "jobs")[0] == 0
    assert rows(say("describe", "workers", "--json")) == []
    code, _, complaints = say("delete-offsets", "workers", "--topic", "jobs")
    assert code == 1 and "jobs keeps its offsets: UNKNOWN_TOPIC_OR_PARTITION" in complaints[0]
    assert say("delete", "workers")[0] == 0
    until(lambda: "workers" not in broker.groups, "its deletion")
    assert "group workers not found" in say("describe", "workers")[2][0]
