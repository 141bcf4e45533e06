"""Spring for Apache Kafka and Quarkus as members of groups of both protocols, and their ways with a record that fails.

With `--reference 4.3.0` the same stories run at Apache Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import NewTopic

from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.java_frameworks import (
    quarkus_member,
    quarkus_version,
    spring_member,
    spring_version,
)
from tests.compatibility.interop.stories import START_MS, Encounter, create_topic, encounters, read_by_confluent, send
from tests.compatibility.interop.strangers import Seen
from tests.support.wait import DEADLINE_S, until

ECOSYSTEM = "Consumer protocol"
FRAMEWORKS = {
    "spring": ("Spring for Apache Kafka", spring_version, spring_member),
    "quarkus": ("Quarkus messaging (SmallRye)", quarkus_version, quarkus_member),
}
TRIES = {"spring": 3, "quarkus": 1}
COMMITS_LATE = {("quarkus", "classic")}  # its commits are throttled: a classic rebalance may come before them
PROTOCOLS = {"consumer": {"group.protocol": "consumer"}, "classic": {"heartbeat.interval.ms": 200}}
BROKER_SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(960)]


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def member(
    framework: str, broker: BrokerProcess, proved: Callable[[str, str, str], None]
) -> Iterator[Callable[[str], Encounter]]:
    with encounters(broker) as meet:

        def member(what: str) -> Encounter:
            name, version, command = FRAMEWORKS[framework]
            proved(name, version(), what)
            return meet(command())

        yield member


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_grows_and_shrinks(member: Callable[[str], Encounter], framework: str, protocol: str) -> None:
    encounter = member(f"group.protocol={protocol}, group of two: rebalance, commit, resume")
    encounter.group_grows_and_shrinks(
        "", commits_late=(framework, protocol) in COMMITS_LATE, settings=PROTOCOLS[protocol]
    )


def test_a_record_that_fails_goes_to_the_dead_letters(member: Callable[[str], Encounter], framework: str) -> None:
    encounter = member("group.protocol=consumer, a listener that fails: retries, dead letter, the records behind it")
    topic = create_topic(encounter.confluent, "failing", 1)
    letters = f"{topic}-dlt"
    encounter.confluent.admin().create_topics([NewTopic(letters, 1, 1)])[letters].result(DEADLINE_S)
    group = f"failing-{uuid.uuid4().hex[:6]}"
    values = [b"0", b"1", b"bad", b"3", b"4"]
    send(encounter.confluent, topic, [Seen(0, n, START_MS + n, b"key", value, ()) for n, value in enumerate(values)])
    with encounter.stranger.member(topic, group, settings=PROTOCOLS["consumer"]) as reader:
        until(lambda: reader.is_well() and len(reader.records) == 4, lambda: f"4 records: {reader.last_words()}")
        assert reader.last_words().count("refused at 2") == TRIES[framework], reader.last_words()
    assert [record.value for record in reader.records] == [b"0", b"1", b"3", b"4"]
    assert reader.records[0].key == b"key"
    [letter] = read_by_confluent(encounter.confluent, letters, 0, 1)
    assert (letter.key, letter.value) == (b"key", b"bad")
    names = {name for name, _ in letter.headers}
    assert any(name in names for name in ("kafka_dlt-original-topic", "dead-letter-topic")), names
    assert encounter.committed(group, topic, 1) == [5]
