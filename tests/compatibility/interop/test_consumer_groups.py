"""Clients of the consumer protocol (KIP-848): Java 4.3 with its tools, and librdkafka beside classic ones."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.compatibility.interop.java_tools import JavaTools

if TYPE_CHECKING:
    from tests.compatibility.interop.conftest import BrokerProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
RECORDS = 300


def test_java_consumes_and_its_tools_describe(
    broker: BrokerProcess, tools_4_3: Callable[[str], JavaTools], unique: Callable[[str], str]
) -> None:
    tools, topic, group = tools_4_3(broker.bootstrap), unique("t"), unique("g")
    tools.create_topic(topic, 3)
    tools.produce(topic, "".join(f"{number}\n" for number in range(20)))
    words = ["--group", group, "--command-property", "group.protocol=consumer"]
    read = tools.consume(topic, 20, "--from-beginning", *words)
    assert sorted(map(int, read)) == list(range(20))
    listed = {tuple(line.split()) for line in tools("GroupsCommand", "--list").splitlines()[1:]}
    assert (group, "Consumer", "consumer") in listed
    state = tools("ConsumerGroupCommand", "--describe", "--group", group, "--state", "--verbose")
    assert re.search(rf"{group}\s+\S+ +\(\d\)\s+uniform\s+Empty\s+\d+\s+\d+\s+0", state), state
    offsets = tools("ConsumerGroupCommand", "--describe", "--group", group, "--offsets")
    assert sum(int(line.split()[3]) for line in offsets.splitlines() if line.startswith(group)) == 20, offsets
    tools("ConsumerGroupCommand", "--delete", "--group", group)
    assert group not in tools("ConsumerGroupCommand", "--list")


def test_two_protocols_in_one_group(
    broker: BrokerProcess, tools_4_3: Callable[[str], JavaTools], unique: Callable[[str], str]
) -> None:
    """A classic consumer works, one of the consumer protocol joins it, the classic one leaves, and back again: every
    record is read, and the group keeps its offsets."""
    from confluent_kafka import Producer

    topic, group = unique("t"), unique("g")
    tools_4_3(broker.bootstrap).create_topic(topic, 4)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    crowd = Crowd(broker.bootstrap, topic, group)
    for protocol in ("classic", "consumer", "classic"):
        crowd.join(protocol)
        first = len(crowd.read)
        crowd.settle()
        for number in range(RECORDS):
            producer.produce(topic, str(first + number), partition=number % 4)
        producer.flush()
        crowd.poll_until(lambda goal=first + RECORDS: len(crowd.read) >= goal)
        if len(crowd.members) > 1:
            crowd.leave_first()
            crowd.settle()
    assert sorted(crowd.read) == list(range(3 * RECORDS))
    tools = tools_4_3(broker.bootstrap)
    described = tools("ConsumerGroupCommand", "--describe", "--group", group, "--members", "--verbose")
    assert group in described
    crowd.close()


class Crowd:
    """Consumers of one group by librdkafka; `read` are the records that any of them got."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.members: list[Any] = []
        self.read: list[int] = []
        self._settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        self._topic = topic

    def join(self, protocol: str) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(self._settings | {"group.protocol": protocol})
        consumer.subscribe([self._topic])
        self.members.append(consumer)

    def leave_first(self) -> None:
        self.members.pop(0).close()

    def settle(self) -> None:
        """Until each member has its share."""
        share = 4 // len(self.members)
        self.poll_until(lambda: all(len(each.assignment()) == share for each in self.members))

    def poll_until(self, is_done: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not is_done():
            assert time.monotonic() < end, (len(self.read), [each.assignment() for each in self.members])
            for each in self.members:
                message = each.poll(0.05)
                if message is not None and message.error() is None:
                    self.read.append(int(message.value()))

    def close(self) -> None:
        for each in self.members:
            each.close()
