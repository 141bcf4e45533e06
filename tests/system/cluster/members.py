"""Three brokers, each a process that can be killed, on one real ZooKeeper, each with a way there that can be cut.

Each question goes to the broker, or the ZooKeeper, that it is about: `said_by` and `zookeeper_client`. A broker keeps
its port from its first start on, so that clients find it again.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.support.broker_process import ServedBroker
from tests.support.wait import DEADLINE_S, until
from tests.support.zookeeper import Cut, ZooKeeper
from tests.system.crash.crash_line import Line

SESSION_TIMEOUT_MS = 1500
NO_LEADER = -1
TRANSACTION = 1  # the type of a coordinator
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "zookeeper.connection.timeout.ms": "30000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.replication.factor": "1",  # what is away has no heir: tests/system/replication has replicas
    "transaction.state.log.replication.factor": "1",
    "auto.create.topics.enable": "false",
    "file.delete.delay.ms": "0",
}


class Said(NamedTuple):
    """One broker's view of the cluster: its brokers, who is controller, and who leads what."""

    brokers: frozenset[int]
    controller: int
    leaders: dict[tuple[str, int], int]
    epochs: dict[tuple[str, int], int]


class Member(ServedBroker):
    """One broker's process."""

    def __init__(self, broker_id: int, home: Path, connect: str, settings: dict[str, str]) -> None:
        own = {"broker.id": str(broker_id), "zookeeper.connect": connect}
        super().__init__(home / f"broker{broker_id}", home / f"broker{broker_id}.txt", {**SETTINGS, **settings, **own})
        self.broker_id = broker_id
        self.name = f"broker {broker_id}"

    def stop(self) -> int:
        code = super().stop()
        assert code == 0, f"{self.name} ended with code {code}; it said: {self.said()}"
        return code

    def ask(self, request: Message, version: int) -> Any:
        line = Line(self.port)
        try:
            return line.ask(request, version)
        finally:
            line.close()


class Cluster:
    """`members` by id; `cuts` are their ways to ZooKeeper."""

    def __init__(self, home: Path, zookeeper: ZooKeeper, ids: Sequence[int] = (1, 2, 3), **settings: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.zookeeper = zookeeper
        self.chroot = f"/{uuid.uuid4().hex[:8]}"
        self.cuts = {broker_id: Cut(zookeeper.connect) for broker_id in ids}
        self.members = {i: Member(i, home, f"{self.cuts[i].connect}{self.chroot}", settings) for i in ids}

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self.members.values())

    bootstrap_servers = bootstrap  # its name among the clients of tests/support/replication

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_running]

    def start(self) -> None:
        """Starts all brokers that do not run, side by side; returns when they are one cluster."""
        beginning = [member for member in self.members.values() if not member.is_running]
        for member in beginning:
            member.begin()
        for member in beginning:
            member.await_ready()
        self.await_whole()

    def close(self) -> None:
        for member in self.running:
            member.kill()
        for cut in self.cuts.values():
            cut.close()

    # what is said

    def said_by(self, broker_id: int) -> Said:
        told = self.members[broker_id].ask(MetadataRequest(topics=None), 9)
        leaders = {(topic.name, p.partition_index): p.leader_id for topic in told.topics for p in topic.partitions}
        epochs = {(topic.name, p.partition_index): p.leader_epoch for topic in told.topics for p in topic.partitions}
        return Said(frozenset(broker.node_id for broker in told.brokers), told.controller_id, leaders, epochs)

    def leaders(self, topic: str) -> dict[int, int]:
        """Of each partition, as a broker that runs says it."""
        wanted = [MetadataRequestTopic(name=topic)]
        told = self.running[0].ask(MetadataRequest(topics=wanted), 9).topics[0]
        return {partition.partition_index: partition.leader_id for partition in told.partitions}

    def wait_for_leader(self, topic: str, partition: int) -> int:
        """The leader, which runs."""

        def leader() -> Member | None:
            found = self.members.get(self.leaders(topic).get(partition, NO_LEADER))
            return found if found in self.running else None

        found = until(leader, f"a leader of {topic}-{partition}")
        assert found is not None
        return found.broker_id

    def await_in_sync(self) -> None:
        """Until every replica of every partition is in its ISR, as a broker that runs says it."""

        def lacking() -> list[tuple[str, int]]:
            told = self.running[0].ask(MetadataRequest(topics=None), 9)
            return [
                (topic.name, each.partition_index)
                for topic in told.topics
                for each in topic.partitions
                if set(each.isr_nodes) != set(each.replica_nodes)
            ]

        until(lambda: not lacking(), lambda: f"replicas of {lacking()} to be in sync")

    def led_by(self, broker_id: int, topic: str) -> list[int]:
        return sorted(index for index, leader in self.leaders(topic).items() if leader == broker_id)

    def coordinator(self, group: str) -> int:
        """NO_LEADER while there is none. Makes the topic of the offsets if need be."""
        return self._coordinator(FindCoordinatorRequest(key=group))

    def transaction_coordinator(self, transactional_id: str) -> int:
        """NO_LEADER while there is none. Makes the topic of the transactions if need be."""
        return self._coordinator(FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION))

    def _coordinator(self, request: FindCoordinatorRequest) -> int:
        told = self.running[0].ask(request, 2)
        return int(told.node_id) if told.error_code == 0 else NO_LEADER

    def await_whole(self) -> None:
        """Until every broker that runs says the same, all of them are in it, and every partition of theirs is led."""
        ids = {member.broker_id for member in self.running}

        def whole() -> bool:
            first, *others = [self.said_by(broker_id) for broker_id in ids]
            led = all(leader in ids or self._is_away(where) for where, leader in first.leaders.items())
            return first.brokers == ids and first.controller in ids and led and all(one == first for one in others)

        try:
            until(whole, f"brokers {ids} to be one cluster", DEADLINE_S)
        except (pytest.fail.Exception, OSError) as failure:
            told = {broker_id: self.said_by(broker_id) for broker_id in ids if self.members[broker_id].process}
            said = "\n\n".join(f"{member.broker_id}: {member.said()}" for member in self.members.values())
            pytest.fail(f"{failure}\n{told}\n{said}")

    def _is_away(self, where: tuple[str, int]) -> bool:
        """Whether a partition belongs to a broker that does not run."""
        away = {broker_id for broker_id, member in self.members.items() if not member.is_running}
        return bool(away) and self.replicas(*where) <= away

    def replicas(self, topic: str, partition: int) -> set[int]:
        wanted = [MetadataRequestTopic(name=topic)]
        for one in self.running[0].ask(MetadataRequest(topics=wanted), 9).topics[0].partitions:
            if one.partition_index == partition:
                return set(one.replica_nodes)
        return set()

    # what is done

    def create(self, topic: str, placed_on: Sequence[int]) -> None:
        """A topic with one partition for each broker id, led there, known to every broker that runs."""
        assignments = [
            CreatableReplicaAssignment(partition_index=i, broker_ids=[broker]) for i, broker in enumerate(placed_on)
        ]
        new = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments)
        told = self.running[0].ask(CreateTopicsRequest(topics=[new], timeout_ms=30_000), 5).topics[0]
        assert told.error_code == 0, f"creating {topic}: {told}"
        wanted = {(topic, index): broker for index, broker in enumerate(placed_on)}
        for member in self.running:
            until(
                lambda member=member: wanted.items() <= self.said_by(member.broker_id).leaders.items(),
                f"broker {member.broker_id} to know that {topic} is led",
            )

    @contextmanager
    def zookeeper_client(self) -> Iterator[KazooClient]:
        """Straight to ZooKeeper, at the cluster's chroot."""
        client = KazooClient(hosts=self.zookeeper.connect + self.chroot, timeout=10.0)
        client.start(timeout=DEADLINE_S)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def expire(self, broker_id: int) -> None:
        """End the broker's session from the side, as ZooKeeper would that has not heard of it: the broker lives on."""
        path = f"/brokers/ids/{broker_id}"
        with self.zookeeper_client() as client:
            session_id = client.get(path)[1].ephemeralOwner

            def is_ended() -> bool:
                """The broker, which is told that its session has moved, may take it back before it is closed."""
                stat = client.exists(path)
                if stat is None or stat.ephemeralOwner != session_id:
                    return True
                password = session_password(session_id)
                other = KazooClient(self.zookeeper.connect, timeout=10.0, client_id=(session_id, password))
                with contextlib.suppress(KazooTimeoutError):
                    other.start(timeout=DEADLINE_S)
                other.stop()
                other.close()
                return False

            until(is_ended, f"the session of broker {broker_id} to end")


def exists(client: KazooClient, path: str) -> bool:
    return client.exists(path) is not None


def text_at(client: KazooClient, path: str) -> str:
    try:
        return client.get(path)[0].decode()
    except NoNodeError:
        return ""


def session_password(session_id: int) -> bytes:
    """The credentials of a ZooKeeper session: it can be computed, so that any server of an ensemble can check it.

    Source: org.apache.zookeeper.server.ZooKeeperServer.generatePasswd, java.util.Random.
    """
    mask = (1 << 48) - 1
    state = ((session_id ^ 0xB3415C00) ^ 0x5DEECE66D) & mask
    password = bytearray()
    while len(password) < 16:
        state = (state * 0x5DEECE66D + 0xB) & mask
        password += (state >> 16).to_bytes(4, "little")
    return bytes(password)
