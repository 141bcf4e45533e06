"""`kafkalite group`: what stock consumers have committed, where they go on after a reset, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalite import Broker
from kafkalite.cli.main import main
from kafkalite.testing import Cluster
from tests.support.local_zone import local_zone
from tests.support.wait import DEADLINE_S

Said = tuple[int, list[str], list[str]]
Say = Callable[..., Said]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Run the command: (exit code, lines on stdout, lines on stderr)."""

    def run(place: Broker | Cluster, *arguments: str) -> Said:
        capsys.readouterr()
        code = main(["group", *arguments, "--bootstrap", place.bootstrap_servers])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


@contextmanager
def member(place: Broker | Cluster, group: str = "billing") -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": place.bootstrap_servers,
            "group.id": group,
            "client.id": "till",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value())
    return values


@pytest.fixture
def broker() -> Iterator[Broker]:
    """`orders` has three records in each of two partitions, of which `billing` has read all."""
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        for number in range(6):
            broker.produce("orders", str(number), partition=number % 2, timestamp=1_000_000 + number)
        with member(broker) as consumer:
            read(consumer, 6)
            consumer.commit(asynchronous=False)
        yield broker


def rows(said: Said) -> list[dict[str, Any]]:
    assert said[0] == 0, said
    return [json.loads(line) for line in said[1]]


def test_groups_are_listed_with_their_states(broker: Broker, say: Say) -> None:
    assert rows(say(broker, "list", "--json")) == [
        {"group": "billing", "state": "Empty", "type": "classic", "protocol": "consumer", "coordinator": 0}
    ]
    assert say(broker, "list", "--state", "stable")[1] == ["group  state  type  protocol  coordinator"]


def test_lag_and_members_are_described(broker: Broker, say: Say) -> None:
    with member(broker) as consumer:
        broker.produce("orders", "new", partition=1)
        read(consumer, 1)
        first, second = rows(say(broker, "describe", "billing", "--json"))
        assert first["offset"] == first["end"] == 3 and first["lag"] == 0 and first["client"] == "till"
        assert (second["offset"], second["end"], second["lag"]) == (3, 4, 1)
        lines = say(broker, "describe")[1]
        assert lines[0] == "billing: Stable, members: 1, range, coordinator 0" and len(lines) == 4
    first, second = rows(say(broker, "describe", "billing", "--json"))
    assert first["member"] is None and second["lag"] == 1


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [3, 3]),
        (["--to-offset", "2"], [2, 2]),
        (["--to-offset", "99"], [3, 3]),
        (["--shift-by", "-1"], [2, 2]),
        (["--to-datetime", "1970-01-01T00:16:40.003+00:00"], [2, 1]),
        (["--to-datetime", "2020-01-01"], [3, 3]),
        (["--to-earliest", "--topic", "orders:1"], [3, 0]),
    ],
)
def test_a_group_goes_on_where_it_is_set(broker: Broker, say: Say, where: list[str], offsets: list[int]) -> None:
    shown = rows(say(broker, "reset", "billing", *where, "--json"))
    assert [row["offset"] for row in rows(say(broker, "describe", "billing", "--json"))] == [3, 3]
    assert rows(say(broker, "reset", "billing", *where, "--execute", "--json")) == shown
    assert [row["offset"] for row in rows(say(broker, "describe", "billing", "--json"))] == offsets
    with member(broker) as consumer:
        assert sorted(read(consumer, 6 - sum(offsets))) == sorted(
            str(number).encode() for number in range(6) if number // 2 >= offsets[number % 2]
        )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nobody", "--to-latest"], "nobody has no offsets; name topics with --topic"),
        (["billing", "--to-latest", "--topic", "nothing"], "topic nothing not found at"),
        (["billing", "--to-latest", "--topic", "orders:2"], "--topic orders:2: orders has the partitions 0 to 1"),
        (["billing", "--to-latest", "--topic", "orders:x"], "--topic orders:x: must be TOPIC or TOPIC:0,1,2"),
        (["billing", "--to-datetime", "2026-10-25T02:30"], "--to-datetime 2026-10-25T02:30 comes twice here"),
        (["billing", "--to-datetime", "soon"], "--to-datetime soon: must be a date and a time"),
        (["nobody", "--shift-by", "1", "--topic", "orders"], "the group has no offset of orders-0 to begin with"),
    ],
)
def test_a_reset_that_makes_no_sense_is_refused(broker: Broker, say: Say, arguments: list[str], complaint: str) -> None:
    with local_zone():
        code, _, complaints = say(broker, "reset", *arguments, "--execute")
    assert code == 1 and len(complaints) == 1 and complaint in complaints[0]


@pytest.mark.parametrize("place", ["beginning", "middle", "times"])
def test_a_reset_by_time_waits_for_a_leader_or_is_refused(broker: Broker, say: Say, place: str) -> None:
    """`bills` answers with errors, `orders` as ever; nothing may move to an end."""
    broker.create_topic("bills")
    for number in range(3):
        broker.produce("bills", str(number), timestamp=1_000_000 + number)
    assert say(broker, "reset", "billing", "--to-latest", "--topic", "bills", "--execute")[0] == 0
    to = ("reset", "billing", "--to-datetime", "1970-01-01T00:16:40.001Z", "--execute", "--json")
    after = {"beginning": 0, "middle": 1, "times": 2}[place]
    with broker.faults.error("LIST_OFFSETS", "TOPIC_AUTHORIZATION_FAILED", topic="bills", after=after):
        code, lines, complaints = say(broker, *to)
    reason = "kafkalite: the offsets of bills-0 cannot be read: TOPIC_AUTHORIZATION_FAILED"
    assert (code, lines, complaints) == (1, [], [reason])
    assert set(broker.groups["billing"].offsets.values()) == {3}, "as it was"
    with broker.faults.error("LIST_OFFSETS", "NOT_LEADER_OR_FOLLOWER", topic="bills", after=after, times=2):
        assert say(broker, *to)[0] == 0
    assert broker.groups["billing"].offsets == {("bills", 0): 1, ("orders", 0): 1, ("orders", 1): 0}


@pytest.mark.parametrize("time", ["1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z", "1492-10-12T02:00Z"])
def test_a_time_before_1970_is_before_all_records(broker: Broker, say: Say, time: str) -> None:
    assert say(broker, "reset", "billing", "--to-datetime", time, "--execute")[0] == 0
    assert set(broker.groups["billing"].offsets.values()) == {0}


def test_an_end_that_is_not_known_is_no_lag_and_an_error(broker: Broker, say: Say) -> None:
    with broker.faults.error("LIST_OFFSETS", "LEADER_NOT_AVAILABLE", topic="orders", times=2):
        code, lines, complaints = say(broker, "describe", "billing", "--json")
    assert code == 1 and [json.loads(line)["lag"] for line in lines] == [None, None]
    assert complaints[0] == "kafkalite: the end of orders-0 is not known: LEADER_NOT_AVAILABLE"


def test_a_lag_is_that_of_kafkas_tool(broker: Broker, say: Say) -> None:
    """Negative beyond the end; of an emptied topic the distance to its end."""
    broker.create_topic("short")
    broker.create_topic("emptied")
    for number in range(3):
        broker.produce("emptied", str(number))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    places = [TopicPartition("short", 0, 5), TopicPartition("emptied", 0, 1)]
    group = "strange"
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(DEADLINE_S)
    emptied = TopicPartition("emptied", 0, OFFSET_END)
    admin.delete_records([emptied])[emptied].result(DEADLINE_S)
    found = {
        row["topic"]: (row["offset"], row["end"], row["lag"]) for row in rows(say(broker, "describe", group, "--json"))
    }
    assert found == {"short": (5, 0, -5), "emptied": (1, 3, 2)}


def test_a_group_with_members_stays(broker: Broker, say: Say) -> None:
    with member(broker) as consumer:
        broker.produce("orders", "new")
        read(consumer, 1)
        code, _, complaints = say(broker, "reset", "billing", "--to-earliest", "--execute")
        assert code == 1 and complaints == [
            "kafkalite: billing has members (1), which would continue at their own positions; stop them first"
        ]
        assert say(broker, "delete", "billing")[2] == [
            "kafkalite: group billing is not deleted: it has members; stop them first"
        ]
    assert broker.lag("billing") == 1


def test_groups_are_deleted(broker: Broker, say: Say) -> None:
    code, _, complaints = say(broker, "delete", "nobody", "billing")
    assert code == 1 and len(complaints) == 1 and "group nobody not found at" in complaints[0]
    assert not broker.groups
    code, _, complaints = say(broker, "describe", "billing")
    assert code == 1 and "group billing not found at" in complaints[0]


def test_a_group_can_begin_with_a_reset(broker: Broker, say: Say) -> None:
    assert say(broker, "reset", "fresh", "--to-offset", "1", "--topic", "orders", "--execute")[0] == 0
    with member(broker, "fresh") as consumer:
        assert len(read(consumer, 4)) == 4


def test_any_broker_of_a_cluster_is_asked(say: Say) -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=3)
        groups = [f"group{number}" for number in range(4)]
        for group in groups:
            assert say(cluster, "reset", group, "--to-latest", "--topic", "orders", "--execute")[0] == 0
        listed = rows(say(cluster, "list", "--json"))
        assert [row["group"] for row in listed] == groups and len({row["coordinator"] for row in listed}) > 1
        assert len(rows(say(cluster, "describe", "--json"))) == 3 * len(groups)
