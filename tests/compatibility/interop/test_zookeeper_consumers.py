"""Consumers of the time when ZooKeeper kept groups: their ids, their owners and their offsets.

Kafka 0.8.2.2's high level consumer in groups of two, with its offsets in ZooKeeper, in Kafka, and in both (the way from
one to the other); pykafka's balanced consumer; and OffsetCommit 0 and OffsetFetch 0, which put into ZooKeeper what the
high level consumer finds there. kafkalite has no hand in /consumers but for the last.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkalite.client.blocking_client import BlockingClient
from kafkalite.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.old_clients import KAFKA, old_java_program, python_with
from tests.compatibility.interop.zookeeper_broker import broker_on
from tests.support.wait import DEADLINE_S, until
from tests.support.zk.znode_tree import zookeeper_client
from tests.support.zookeeper import KafkaliteZooKeeper, ZooKeeper, without_zookeeper

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Before 0.11"
HERE = Path(__file__).parent
CHROOT = "/consumers-of-old"
PARTITIONS = 4
KAFKA_PYTHON = "1.4.7"
PYKAFKA = "2.8.0"
IN_ZOOKEEPER = ("offsets.storage=zookeeper",)
IN_BOTH = ("offsets.storage=kafka", "dual.commit.enabled=true")
IN_KAFKA = ("offsets.storage=kafka", "dual.commit.enabled=false")

Record = tuple[int, int, str]  # partition, offset, value


@pytest.fixture(scope="module", params=[ZooKeeper, KafkaliteZooKeeper], ids=["apache", "kafkalite"])
def connect(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param is ZooKeeper and (reason := without_zookeeper()) is not None:
        pytest.skip(reason)
    with request.param(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.connect + CHROOT


@pytest.fixture(scope="module")
def broker(connect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_on(connect, tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def znodes(connect: str, broker: BrokerProcess) -> Iterator[KazooClient]:
    with zookeeper_client(connect) as client:
        yield client


class Topic:
    """Its records go round the partitions; `offsets` is where each ends."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(DEADLINE_S)
        self.name = name
        self.count = 0
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})

    def write(self, count: int) -> None:
        for n in range(self.count, self.count + count):
            self._producer.produce(self.name, b"v%d" % n, partition=n % PARTITIONS)
        assert self._producer.flush(30) == 0
        self.count += count

    def records(self, first: int = 0) -> set[Record]:
        return {(n % PARTITIONS, n // PARTITIONS, f"v{n}") for n in range(first, self.count)}

    @property
    def offsets(self) -> dict[int, int]:
        return dict.fromkeys(range(PARTITIONS), self.count // PARTITIONS)


@pytest.fixture
def topic(broker: BrokerProcess, unique: Callable[[str], str]) -> Topic:
    return Topic(broker, unique("t"))


class Member:
    """A process that reads until its input ends, and says each record in a line of three words."""

    def __init__(self, command: list[str], home: Path, name: str) -> None:
        self.name = name
        self._output, self._errors = home / f"{name}.out", home / f"{name}.err"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=errors)

    def records(self) -> list[Record]:
        if self._process.poll() not in (None, 0):
            pytest.fail(f"{self.name} ended with code {self._process.returncode}: {self._errors.read_text()[-4000:]}")
        lines = self._output.read_text().rpartition("\n")[0].splitlines()
        return [(int(partition), int(offset), value) for partition, offset, value in map(str.split, lines)]

    def leave(self) -> list[Record]:
        """Commit, leave the group, end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(DEADLINE_S)
        assert code == 0, f"{self.name} ended with code {code}: {self._errors.read_text()[-4000:]}"
        return self.records()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def member(connect: str, tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """member("a", group, topic, *settings) begins one of Kafka 0.8.2.2."""
    members: list[Member] = []

    def begin(name: str, group: str, topic: Topic, *settings: str) -> Member:
        command = [*old_java_program("OldGroup.java"), connect, group, topic.name, f"consumer.id={name}", *settings]
        members.append(Member(command, tmp_path, f"{name}-{len(members)}"))
        return members[-1]

    yield begin
    for one in members:
        one.kill()


def owners(znodes: KazooClient, group: str, topic: Topic) -> dict[int, str]:
    """The owner of each partition, as the members have agreed in ZooKeeper: the consumer.id of each."""
    found = {}
    where = f"/consumers/{group}/owners/{topic.name}"
    try:
        for partition in znodes.get_children(where):
            owner = znodes.get(f"{where}/{partition}")[0].decode()
            found[int(partition)] = owner.removeprefix(f"{group}_").rpartition("-")[0]
    except NoNodeError:
        return {}
    return found


def shares(znodes: KazooClient, group: str) -> list[int]:
    """How many partitions each member owns. pykafka has names of its own for a topic and its partitions there."""
    found: Counter[bytes] = Counter()
    try:
        for name in znodes.get_children(where := f"/consumers/{group}/owners"):
            found.update(znodes.get(f"{where}/{name}/{one}")[0] for one in znodes.get_children(f"{where}/{name}"))
    except NoNodeError:
        return []
    return sorted(found.values())


def offsets_in_zookeeper(znodes: KazooClient, group: str, topic: Topic) -> dict[int, int]:
    where = f"/consumers/{group}/offsets/{topic.name}"
    return {int(partition): int(znodes.get(f"{where}/{partition}")[0]) for partition in znodes.get_children(where)}


def offsets_told(broker: BrokerProcess, group: str, topic: Topic, version: int) -> dict[int, int]:
    """By OffsetFetch: version 0 tells what stands in ZooKeeper."""
    asked = OffsetFetchRequestTopic(name=topic.name, partition_indexes=list(range(PARTITIONS)))
    with BlockingClient(broker.bootstrap, 20) as client:
        answer = client.ask(OffsetFetchRequest(group_id=group, topics=[asked]), version)
    return {one.partition_index: one.committed_offset for one in answer.topics[0].partitions}


def test_the_high_level_consumer_in_a_group_of_two(
    broker: BrokerProcess, topic: Topic, znodes: KazooClient, member: Callable[..., Member], proved: Any,
    unique: Callable[[str], str],
) -> None:  # fmt: skip
    proved(
        "Java ConsumerConnector", KAFKA, "two members share partitions by ids and owners in ZooKeeper, one leaves; "
        "offsets in ZooKeeper; each record once",
    )  # fmt: skip
    group = unique("g")
    topic.write(40)
    a = member("a", group, topic, *IN_ZOOKEEPER)
    until(lambda: set(a.records()) == topic.records(), "all that was there")
    assert owners(znodes, group, topic) == dict.fromkeys(range(PARTITIONS), "a")
    b = member("b", group, topic, *IN_ZOOKEEPER)
    until(lambda: owners(znodes, group, topic) == {0: "a", 1: "a", 2: "b", 3: "b"}, "both to own half of it")
    topic.write(40)
    until(lambda: set(a.records() + b.records()) == topic.records(), "what came since")
    assert {partition for partition, _, _ in b.records()} == {2, 3}
    left = b.leave()
    until(lambda: owners(znodes, group, topic) == dict.fromkeys(range(PARTITIONS), "a"), "one to own all again")
    topic.write(40)
    until(lambda: set(a.records() + left) == topic.records(), "what came at last")
    seen = a.leave() + left
    assert {record: times for record, times in Counter(seen).items() if times > 1} == {}
    assert offsets_in_zookeeper(znodes, group, topic) == topic.offsets
    assert offsets_told(broker, group, topic, 0) == topic.offsets
    assert set(offsets_told(broker, group, topic, 1).values()) == {-1}
    assert znodes.get_children(f"/consumers/{group}/ids") == []


def test_offsets_move_from_zookeeper_to_kafka(
    broker: BrokerProcess, topic: Topic, znodes: KazooClient, member: Callable[..., Member], proved: Any,
    unique: Callable[[str], str],
) -> None:  # fmt: skip
    proved(
        "Java ConsumerConnector, offsets.storage=kafka", KAFKA, "a group's offsets move from ZooKeeper to Kafka "
        "by dual.commit.enabled=true; each record once",
    )  # fmt: skip
    group = unique("g")

    def read(what: str, first: int, *settings: str) -> None:
        one = member("a", group, topic, *settings)
        until(lambda: set(one.records()) >= topic.records(first), what)
        assert set(one.leave()) == topic.records(first)

    topic.write(20)
    read("what was there", 0, *IN_ZOOKEEPER)
    assert offsets_in_zookeeper(znodes, group, topic) == topic.offsets
    topic.write(20)
    read("the next, with offsets in both", 20, *IN_BOTH)
    assert offsets_in_zookeeper(znodes, group, topic) == offsets_told(broker, group, topic, 1) == topic.offsets
    topic.write(20)
    last_in_zookeeper = offsets_in_zookeeper(znodes, group, topic)
    read("the last, with offsets in Kafka", 40, *IN_KAFKA)
    assert offsets_told(broker, group, topic, 1) == topic.offsets
    assert offsets_in_zookeeper(znodes, group, topic) == offsets_told(broker, group, topic, 0) == last_in_zookeeper


def test_the_broker_puts_offsets_where_the_high_level_consumer_finds_them(
    broker: BrokerProcess, topic: Topic, znodes: KazooClient, member: Callable[..., Member], run: Callable[..., str],
    proved: Any, unique: Callable[[str], str],
) -> None:  # fmt: skip
    proved(
        "kafka-python", KAFKA_PYTHON, "api_version=0.8.1: OffsetCommit 0 and OffsetFetch 0; "
        f"the Java ConsumerConnector {KAFKA} resumes there",
    )  # fmt: skip
    python = python_with(
        f"kafka-python-{KAFKA_PYTHON}", f"kafka-python=={KAFKA_PYTHON}", "lz4", "xxhash", "python-snappy"
    )
    group = unique("g")
    topic.write(40)
    task = {"bootstrap": broker.bootstrap, "topic": topic.name, "api_version": (0, 8, 1), "group": group, "count": 7}
    told = json.loads(run([python, HERE / "python" / "old_client.py", "consume", json.dumps(task)], 120))
    assert told["committed"] == 7
    assert offsets_in_zookeeper(znodes, group, topic) == {0: 7}
    a = member("a", group, topic, *IN_ZOOKEEPER)
    rest = {(partition, offset, value) for partition, offset, value in topic.records() if partition or offset >= 7}
    until(lambda: set(a.records()) >= rest, "the rest")
    assert set(a.leave()) == rest


def test_pykafkas_balanced_consumer(
    broker: BrokerProcess, connect: str, topic: Topic, znodes: KazooClient, tmp_path: Path, proved: Any,
    unique: Callable[[str], str],
) -> None:  # fmt: skip
    proved("pykafka", PYKAFKA, "balanced consumer: two members that share partitions by ZooKeeper, one leaves")
    python = python_with(f"pykafka-{PYKAFKA}", f"pykafka=={PYKAFKA}", "setuptools<81")
    group = unique("g")
    task = json.dumps({"bootstrap": broker.bootstrap, "zookeeper": connect, "group": group, "topic": topic.name})
    command = [python, str(HERE / "python" / "pykafka_member.py"), task]
    topic.write(40)
    a = Member(command, tmp_path, "a")
    try:
        until(lambda: set(a.records()) == topic.records(), "all that was there")
        b = Member(command, tmp_path, "b")
        try:
            until(lambda: shares(znodes, group) == [2, 2], "both to own half of it")
            topic.write(40)
            until(lambda: set(a.records() + b.records()) >= topic.records(), "what came since")
            left = b.leave()
        finally:
            b.kill()
        until(lambda: shares(znodes, group) == [4], "one to own all again")
        topic.write(40)
        until(lambda: set(a.records() + left) >= topic.records(), "what came at last")
        a.leave()
    finally:
        a.kill()
    assert offsets_told(broker, group, topic, 1) == topic.offsets
