"""Java's SubscriptionPattern, which the broker matches with RE2's syntax: the same topics and the same refusals here
as at Kafka 4.3.0."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.interop.asked_program import AskedProgram, Failed
from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.java_tools import SOURCES, java_command
from tests.support.wait import DEADLINE_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Consumer protocol"
VERSION = "4.3.0"
BROKER_SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}
TOPICS = ("orders", "orders-eu", "Orders-us", "payments", "x.y", "x_y1")
MATCHED = {
    "orders": ["orders"],  # the whole name
    "orders.*": ["orders", "orders-eu"],
    "(?i)orders-(eu|us)": ["Orders-us", "orders-eu"],
    r"x\.y": ["x.y"],
    r"\w+[[:digit:]]": ["x_y1"],
    r"\pL+": ["orders", "payments"],
    "(?P<name>p)a.+": ["payments"],
    "[^o]{3}": ["x.y"],
}
REFUSED = ("(?=a)b", "(a", "[[:odd:]]", "*", "a**", r"\1", "(?<a>b)+(", "[b-a]", "a{2,1}")


@pytest.fixture
def places(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[list[tuple[str, AskedProgram]]]:
    """kafkalite and Kafka with the same topics, each with a program."""
    found = [broker.bootstrap, request.getfixturevalue("kafka_4_3").bootstrap]
    for bootstrap in found:
        create(bootstrap, *TOPICS)
    words = [*java_command(VERSION), str(SOURCES / "PatternMember.java")]
    with AskedProgram(words) as ours, AskedProgram(words) as theirs:
        yield list(zip(found, (ours, theirs), strict=True))


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        future.result(DEADLINE_S)


def test_patterns(places: list[tuple[str, AskedProgram]], proved: Callable[[str, str, str], None]) -> None:
    proved("kafka-clients and its tools", VERSION, "SubscriptionPattern: topics, later ones, refusals as at Kafka")
    for bootstrap, program in places:
        for number, (pattern, topics) in enumerate(MATCHED.items()):
            program.ask(do="open", bootstrap=bootstrap, group=f"g{number}", pattern=pattern)
            found = [one.decode() for one in program.ask(do="await", count=len(topics), seconds=30)]
            assert found == sorted(topics), (pattern, bootstrap)
            program.ask(do="close")
        program.ask(do="open", bootstrap=bootstrap, group="later", pattern="later-.*")
        assert program.ask(do="await", count=1, seconds=1) == []
        create(bootstrap, "later-1", "not-later-2")
        assert program.ask(do="await", count=1, seconds=30) == [b"later-1"]
        program.ask(do="close")
    for pattern in REFUSED:
        ours, theirs = (refusal(bootstrap, program, pattern) for bootstrap, program in places)
        assert ours == theirs and "InvalidRegularExpression" in ours, pattern


def refusal(bootstrap: str, program: AskedProgram, pattern: str) -> str:
    program.ask(do="open", bootstrap=bootstrap, group="refused", pattern=pattern)
    with pytest.raises(Failed) as refused:
        program.ask(do="await", count=1, seconds=20)
    program.ask(do="close")
    return str(refused.value)
