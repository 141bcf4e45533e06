"""Answers about several partitions or groups, one of which does not answer: whole, waited for, or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalite.testing import Broker
from tests.support.console import Browser, console
from tests.support.wait import DEADLINE_S, until

LEADS_NOT, DENIED = "NOT_LEADER_OR_FOLLOWER", "TOPIC_AUTHORIZATION_FAILED"
RESET = {"group_id": "g", "topics": ["bills", "orders"], "to": "time"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    """`bills` and `orders` have three records each."""
    with Broker() as broker:
        for topic in ("bills", "orders"):
            broker.create_topic(topic)
            for number in range(3):
                broker.produce(topic, str(number), timestamp=1_000_000 + number)
        yield broker


@pytest.fixture
def browser(broker: Broker) -> Iterator[Browser]:
    with console(broker.bootstrap_servers) as browser:
        yield browser


def commit(broker: Broker, **offsets: int) -> None:
    places = [TopicPartition(topic, 0, offset) for topic, offset in offsets.items()]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", places)])["g"].result(DEADLINE_S)


@pytest.mark.parametrize("after", range(3))
def test_a_reset_waits_for_a_leader_or_is_refused(broker: Broker, browser: Browser, after: int) -> None:
    commit(broker, bills=1, orders=2)
    with broker.faults.error("LIST_OFFSETS", DENIED, topic="orders", after=after):
        status, answer = browser.reset({**RESET, "time_ms": 1_000_001})
    assert status == 403 and f"the offsets of orders-0 cannot be read: {DENIED}" in answer["message"]
    assert broker.groups["g"].offsets == {("bills", 0): 1, ("orders", 0): 2}, "as it was"
    with broker.faults.error("LIST_OFFSETS", LEADS_NOT, topic="orders", after=after, times=2):
        assert browser.reset({**RESET, "time_ms": 1_000_001})[0] == 200
    assert broker.groups["g"].offsets == {("bills", 0): 1, ("orders", 0): 1}


def test_a_reset_without_its_number_is_refused_as_ever(broker: Broker, browser: Browser) -> None:
    assert browser.reset(RESET)[0] == 400
    shift = {**RESET, "to": "shift", "shift": 1}
    assert browser.reset(shift)[1]["error"] == "REFUSED"


def test_offsets_beyond_the_end_are_a_problem(broker: Broker, browser: Browser) -> None:
    commit(broker, bills=100)
    found = {one["kind"]: one for one in browser.get("problems")["items"]}
    assert found["beyond_end"]["sentence"] == "group g has committed offsets beyond the end of 1 partitions"
    assert found["beyond_end"]["link"] == "/group?group_id=g" and found["beyond_end"]["since_ms"] > 0


@pytest.mark.parametrize("time_ms", [-1, -2, -(10**14)])
def test_a_time_before_1970_is_before_all_records(broker: Broker, browser: Browser, time_ms: int) -> None:
    commit(broker, bills=3, orders=3)
    assert browser.reset({**RESET, "time_ms": time_ms})[0] == 200
    assert set(broker.groups["g"].offsets.values()) == {0}
    found, _ = browser.search("orders", **{"from": "time"}, time_ms=time_ms)
    assert [one["offset"] for one in found] == [0, 1, 2]


def test_a_search_over_a_partition_that_does_not_answer_is_refused(broker: Broker, browser: Browser) -> None:
    with broker.faults.error("LIST_OFFSETS", DENIED, topic="orders"):
        answer = browser.client.get("/api/topics/orders/messages")
    assert "the offsets of orders-0 cannot be read" in answer.text and "record" not in answer.text.split("\n")[0]


def in_list(broker: Broker) -> dict[str, Any]:
    """The group as the list has it, in a console that keeps nothing yet."""
    with console(broker.bootstrap_servers) as browser:
        found: dict[str, Any] = browser.get("groups")["items"][0]
        return found


def on_page(broker: Broker) -> dict[str, Any]:
    """The group as its own page has it."""
    with console(broker.bootstrap_servers) as browser:
        found: dict[str, Any] = browser.get("group", group_id="g")
        return found


def test_a_lag_is_that_of_kafkas_tool_on_every_page(broker: Broker) -> None:
    """Negative beyond the end, and of an emptied topic the distance to its end; in records there is nothing to get."""
    commit(broker, bills=1, orders=8)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    emptied = TopicPartition("bills", 0, OFFSET_END)
    admin.delete_records([emptied])[emptied].result(DEADLINE_S)
    for row in (in_list(broker), on_page(broker)):
        assert (row["lag"], row["lag_records"]) == (2 - 5, 0)
    assert in_list(broker)["beyond_end"] == 1
    partitions = on_page(broker)["partitions"]
    assert [(row["lag"], row["lag_records"]) for row in partitions] == [(2, 0), (-5, 0)]


@pytest.mark.parametrize("row_of", [in_list, on_page])
def test_a_lag_of_which_a_part_is_not_known_is_not_known(
    broker: Broker, row_of: Callable[[Broker], dict[str, Any]]
) -> None:
    commit(broker, bills=0, orders=0)
    with broker.faults.error("LIST_OFFSETS", LEADS_NOT, topic="orders", times=2):
        assert row_of(broker)["lag"] is None
    assert row_of(broker)["lag"] == 6


def test_members_that_are_not_told_are_not_none(broker: Broker) -> None:
    commit(broker, bills=0)
    assert in_list(broker)["members"] == 0
    with broker.faults.error("DESCRIBE_GROUPS", "COORDINATOR_LOAD_IN_PROGRESS"):
        assert in_list(broker)["members"] is None


def test_the_lag_of_a_deleted_topic_counts_nowhere(broker: Broker) -> None:
    broker.create_topic("gone")
    commit(broker, bills=1, gone=0)
    broker.delete_topic("gone")
    until(lambda: in_list(broker)["lag"] == on_page(broker)["lag"] == 2, "the lag without the topic")
