"""Groups of group.protocol=consumer (KIP-848): stock clients alone, all together, and beside classic ones.

What counts as read is what a member has committed: at the end of a story every record was read once.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition, libversion
from confluent_kafka.admin import NewPartitions

from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.golang import Go, pinned
from tests.compatibility.interop.java_members import JavaMember, java_member
from tests.compatibility.interop.java_tools import JavaTools
from tests.compatibility.interop.stories import Encounter, create_topic, encounters
from tests.compatibility.interop.strangers import Member
from tests.support.wait import DEADLINE_S, until

ECOSYSTEM = "Consumer protocol"
FRANZ = pinned("franz", "github.com/twmb/franz-go")
JAVA = "kafka-clients and its tools"
BROKER_SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}
PROGRAM = Path(__file__).parent / "python" / "group_member.py"
CONSUMER = {"group.protocol": "consumer"}
CLASSIC = {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}

pytestmark = [pytest.mark.long, pytest.mark.timeout(960)]


@pytest.fixture
def confluent(broker: BrokerProcess, proved: Callable[..., None]) -> Iterator[Callable[[str], Encounter]]:
    with encounters(broker) as meet:

        def confluent(what: str) -> Encounter:
            proved("confluent-kafka", libversion()[0], what)
            return meet([sys.executable, str(PROGRAM)])

        yield confluent


@pytest.fixture
def franz(broker: BrokerProcess, proved: Any, need: Any, cache: Any) -> Iterator[Callable[[str], Encounter]]:
    with encounters(broker) as meet:

        def franz(what: str) -> Encounter:
            proved("franz-go", FRANZ, what)
            return meet([Go(need("go"), cache("go")).build("franz")], idempotent=True)

        yield franz


@pytest.fixture
def tools(broker: BrokerProcess, tools_4_3: Callable[[str], JavaTools]) -> JavaTools:
    return tools_4_3(broker.bootstrap)


class Stream:
    """Numbers that are written one after the other, to all partitions in turn, until the block ends."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self.topic = topic
        self.partitions = partitions
        self.written = 0
        self.refused: list[Any] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        while not self._end.wait(0.005):
            where = self.written % self.partitions
            self.producer.produce(self.topic, b"%d" % self.written, partition=where, on_delivery=self._delivered)
            self.written += 1
            self.producer.poll(0)
        self.producer.flush(DEADLINE_S)

    def _delivered(self, error: Any, _record: Any) -> None:
        if error is not None:
            self.refused.append(error)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        assert not self.refused, self.refused


def numbers(member: Member | JavaMember) -> list[int]:
    return member.values() if isinstance(member, JavaMember) else [int(r.value or b"-1") for r in [*member.records]]


def more_at(member: Member | JavaMember, stream: Stream) -> None:
    """Waits until the member tells something that was written from now on."""
    begin = stream.written

    def told() -> bool:
        assert member.is_well(), member.last_words()
        return max(numbers(member), default=-1) >= begin

    until(told, f"a record after {begin} at a member")


def each_once(written: int, *members: Member | JavaMember) -> None:
    """Waits for the last, while members are there to read it; then: none is missing, none was told twice."""

    def told() -> Counter[int]:
        return Counter(number for member in members for number in numbers(member))

    def missing() -> list[int]:
        return sorted(set(range(written)) - told().keys())

    until(lambda: not missing(), lambda: f"{written} records; missing {missing()[:10]} of {len(missing())}")
    twice = {number: count for number, count in told().items() if count > 1}
    assert not twice, f"{len(twice)} of {written} told more than once: {sorted(twice.items())[:10]}"
    assert sorted(told()) == list(range(written))


def group_type(tools: JavaTools, group: str) -> str:
    """As kafka-groups has it: Classic or Consumer."""
    lines = [line.split() for line in tools("GroupsCommand", "--list").splitlines()]
    return next(line[1] for line in lines if line[0] == group)


def test_confluent_grows_and_shrinks(confluent: Callable[[str], Encounter]) -> None:
    confluent("group of two: rebalance, commit, resume").group_grows_and_shrinks("", settings=CONSUMER)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_confluent_chooses_an_assignor(confluent: Callable[[str], Encounter], assignor: str) -> None:
    encounter = confluent(f"group.remote.assignor={assignor}: rebalance, commit, resume")
    encounter.group_grows_and_shrinks("", settings=CONSUMER | {"group.remote.assignor": assignor})


def test_franz_grows_and_shrinks(franz: Callable[[str], Encounter]) -> None:
    franz("kgo.ServerSideBalancer: group of two: rebalance, commit, resume").group_grows_and_shrinks("uniform")


def test_topics_and_partitions_come_while_a_pattern_is_consumed(
    confluent: Callable[[str], Encounter], tools: JavaTools
) -> None:
    encounter = confluent("subscription to a regular expression: topics and partitions come")
    stem = f"seen{uuid.uuid4().hex[:6]}"
    first = create_topic(encounter.confluent, stem, 1)
    with encounter.stranger.member(f"^{stem}.*", f"of-{stem}", settings=CONSUMER) as member:
        tools.produce(first, "0\n1\n")
        until(lambda: len(member.records) == 2, "records of the first topic")
        second = create_topic(encounter.confluent, stem, 2)
        tools.produce(second, "2\n3\n")
        until(lambda: len(member.records) == 4, "records of a topic that came later")
        admin = encounter.confluent.admin()
        admin.create_partitions([NewPartitions(first, 3)])[first].result(DEADLINE_S)
        for partition in (1, 2):
            encounter.confluent.send(first, [{"partition": partition, "value": b"%d" % (3 + partition)}])
        until(lambda: len(member.records) == 6, "records of partitions that came later")
    assert sorted(numbers(member)) == list(range(6))


def test_a_static_member_comes_back_to_its_partitions(confluent: Callable[[str], Encounter]) -> None:
    encounter = confluent("group.instance.id: away and back without a rebalance")
    topic = create_topic(encounter.confluent, "static", 4)
    group = f"static-{uuid.uuid4().hex[:6]}"
    settings = [CONSUMER | {"group.instance.id": name} for name in ("one", "two")]

    def described() -> dict[str, set[int]]:
        told = encounter.confluent.admin().describe_consumer_groups([group])[group].result(DEADLINE_S)
        return {m.group_instance_id: {p.partition for p in m.assignment.topic_partitions} for m in told.members}

    with encounter.stranger.member(topic, group, settings=settings[0]) as one:
        with encounter.stranger.member(topic, group, settings=settings[1]):
            encounter.shares_are(group, topic, [2, 2])
            before = described()
        assert described() == before, "what a static member left stays its own"
        with encounter.stranger.member(topic, group, settings=settings[1]) as two:
            for partition in before["two"]:
                encounter.confluent.send(topic, [{"partition": partition, "value": b"1"}])
            until(lambda: len(two.records) == 2, "records at the member that came back")
            assert described() == before
        assert not one.records


@pytest.mark.parametrize("first_kind", ["classic", "consumer"])
def test_members_of_both_kinds_share_a_group(
    first_kind: str,
    confluent: Callable[[str], Encounter],
    franz: Callable[[str], Encounter],
    tools: JavaTools,
    broker: BrokerProcess,
    proved: Callable[..., None],
    tmp_path: Path,
) -> None:
    """Online, under writes: classic members, then all five in one group, consumer members alone, and the way back."""
    what = f"a group of classic and consumer members, {first_kind} first: there and back under writes, each record once"
    proved(JAVA, tools.version, what)
    others, go = confluent(what).stranger, franz(what).stranger
    topic = create_topic(confluent(what).confluent, "both", 6)
    group = f"both-{uuid.uuid4().hex[:6]}"
    everybody: list[Member | JavaMember] = []
    with contextlib.ExitStack() as stack:
        with Stream(broker.bootstrap, topic, 6) as stream:

            def joins(member: Any) -> Any:
                everybody.append(stack.enter_context(member))
                more_at(everybody[-1], stream)
                return everybody[-1]

            def classic() -> list[Any]:
                return [
                    joins(others.member(topic, group, settings=CLASSIC)),
                    joins(java_member(tools, tmp_path / f"{len(everybody)}.txt", topic, group, "classic")),
                ]

            def modern() -> list[Any]:
                return [
                    joins(others.member(topic, group, settings=CONSUMER)),
                    joins(java_member(tools, tmp_path / f"{len(everybody)}.txt", topic, group, "consumer")),
                    joins(go.member(topic, group, style="uniform")),
                ]

            kinds = [classic, modern] if first_kind == "classic" else [modern, classic]
            here = kinds[0]()
            assert group_type(tools, group).lower() == first_kind
            for round_number in (1, 0):
                more = kinds[round_number]()
                assert group_type(tools, group) == "Consumer"
                for member in here:
                    member.leave()
                for member in more:
                    more_at(member, stream)
                here = more
                kind = "classic" if kinds[round_number] is classic else "consumer"
                assert group_type(tools, group).lower() == kind
        each_once(stream.written, *everybody)


def test_java_tools_tell_of_a_group(tools: JavaTools, proved: Callable[..., None], tmp_path: Path) -> None:
    proved(JAVA, tools.version, "a group of VerifiableConsumer: kafka-consumer-groups describes, resets, deletes")
    topic, group = f"told-{uuid.uuid4().hex[:6]}", f"told-{uuid.uuid4().hex[:6]}"
    tools.create_topic(topic, 2)
    tools.produce(topic, "".join(f"{number}\n" for number in range(20)))
    words = ["--describe", "--group", group]
    with java_member(tools, tmp_path / "1.txt", topic, group, "consumer") as member:
        each_once(20, member)
        state = tools("ConsumerGroupCommand", *words, "--state", "--verbose")
        assert "Stable" in state and "uniform" in state, state
        members = tools("ConsumerGroupCommand", *words, "--members", "--verbose")
        assert f"{topic}:0,1" in members, members
        until(lambda: set(_lags(tools, words)) in ({0}, {0, -1}), "no lag")  # a partition may have got no record
    tools("ConsumerGroupCommand", "--group", group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    assert sum(_lags(tools, words)) == 20
    tools("ConsumerGroupCommand", "--delete", "--group", group)
    assert group not in tools("GroupsCommand", "--list")


def _lags(tools: JavaTools, words: list[str]) -> list[int]:
    rows = [line.split() for line in tools("ConsumerGroupCommand", *words).splitlines() if line.strip()]
    head = next(row for row in rows if "LAG" in row)
    lags = [row[head.index("LAG")] for row in rows if row[0] == words[-1]]
    return [int(lag) if lag.isdigit() else -1 for lag in lags]  # "-" where nothing is committed yet


def test_committed_offsets_outlive_a_restart(confluent: Callable[[str], Encounter], broker: BrokerProcess) -> None:
    encounter = confluent("members continue through a restart of the broker: each record once")
    topic = create_topic(encounter.confluent, "restart", 4)
    group = f"restart-{uuid.uuid4().hex[:6]}"
    member = encounter.stranger.member
    with member(topic, group, settings=CONSUMER) as one, member(topic, group, settings=CONSUMER) as two:
        with Stream(broker.bootstrap, topic, 4) as stream:
            more_at(one, stream)
            more_at(two, stream)
            broker.restart()
            more_at(one, stream)
            more_at(two, stream)
        each_once(stream.written, one, two)
    asked = [TopicPartition(topic, number) for number in range(4)]
    ends = encounter.confluent.consumer(group_id=group).committed(asked, timeout=DEADLINE_S)
    assert sum(end.offset for end in ends) == stream.written
