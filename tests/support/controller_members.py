"""Brokers as the controller sees them: metadata and a controller each, and nothing else, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kazoo.client import KazooClient

from kafkalite.common.clock import SystemClock
from kafkalite.common.names import random_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import RegistrationState
from kafkalite.zk.client.operations import Create, Node, Operation, SetData
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.cluster.zookeeper_metadata import ZooKeeperMetadata
from kafkalite.zk.controller.controller import Controller
from kafkalite.zk.znodes import znode_data, znode_paths
from tests.support.wait import DEADLINE_S

ENDPOINTS = (ListenerConfig("PLAINTEXT", "127.0.0.1", 9092),)  # nobody dials them


class Place(NamedTuple):
    """Where a cluster is: its zookeeper.connect, and a directory for those of its `members`."""

    connect: str
    directory: Path
    members: list[Member]

    async def clear(self) -> None:
        """End whatever a story that failed has left, lest other tests find its threads."""
        await asyncio.gather(*(member.metadata.stop() for member in self.members), return_exceptions=True)


class Member:
    """A broker that is registered and takes part in elections from `start` to `stop`."""

    def __init__(
        self, place: Place, broker_id: int, session_timeout_ms: int = 6000, config: BrokerConfig | None = None
    ) -> None:
        directory = place.directory / str(broker_id)
        directory.mkdir(exist_ok=True)
        clock = SystemClock(asyncio.get_running_loop())
        settings = ZooKeeperConfig(connect=place.connect, session_timeout_ms=session_timeout_ms)
        self.broker_id = broker_id
        self.metadata = ZooKeeperMetadata(settings, [directory], clock, broker_id=broker_id)
        self.view = self.metadata.view
        self.controller = Controller(self.metadata, clock, config or BrokerConfig())
        place.members.append(self)
        self._moved = asyncio.Event()
        self.metadata.listen(lambda change, name: self._moved.set())
        self.metadata.listen_paths(lambda changed: self._moved.set())

    @property
    def session(self) -> ZooKeeperSession:
        return self.metadata.session

    @property
    def registration_state(self) -> RegistrationState:
        return self.metadata.registration_state

    @property
    def is_controller(self) -> bool:
        return self.controller.epoch is not None

    async def start(self) -> Member:
        await self.metadata.start()
        await self.metadata.register(ENDPOINTS, None)
        self.controller.start()
        return self

    async def stop(self) -> None:
        await self.controller.stop()
        await self.metadata.unregister()
        await self.metadata.stop()

    async def vanish(self) -> None:
        """As with kill -9, but for the session, whose nodes go at once."""
        task = self.controller._task
        assert task is not None
        task.cancel()
        await asyncio.wait([task])
        await self.metadata.stop()

    async def until(self, probe: Callable[[], object], what: str, limit_s: float = DEADLINE_S) -> None:
        """Wait until something is so, in this member's view or elsewhere."""
        deadline = asyncio.get_running_loop().time() + limit_s
        while not probe():
            assert asyncio.get_running_loop().time() < deadline, f"waited {limit_s:g} s for {what}"
            self._moved.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), 0.05)  # what no view shows is looked at now and then

    async def until_gone(self, *gone: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until ZooKeeper itself has none of these."""
        await self._until_read(gone, lambda nodes: not any(nodes), f"the end of {gone}", meanwhile)

    async def until_made(self, path: str) -> None:
        """Wait until ZooKeeper itself has this one."""
        await self._until_read([path], any, path)

    async def _until_read(
        self,
        paths: Sequence[str],
        probe: Callable[[Sequence[Node | None]], bool],
        what: str,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        deadline = asyncio.get_running_loop().time() + DEADLINE_S
        while not probe(await self.session.read(paths)):
            meanwhile()
            assert asyncio.get_running_loop().time() < deadline, f"waited {DEADLINE_S:g} s for {what}"

    def leaders(self, name: str) -> dict[int, int]:
        return {number: known.value.leader for number, known in self.view.states.get(name, {}).items()}

    def isr(self, name: str, number: int = 0) -> set[int]:
        known = self.view.states.get(name, {}).get(number)
        return set() if known is None else set(known.value.isr)

    async def write_isr(self, name: str, number: int, *isr: int) -> None:
        """As the leader does."""
        known = self.view.states[name][number]
        data = znode_data.state_json(known.value._replace(isr=isr))
        await self.session.write([SetData(znode_paths.state(name, number), data, known.node.version)])

    def epochs(self, name: str) -> dict[int, int]:
        return {number: known.value.leader_epoch for number, known in self.view.states.get(name, {}).items()}


@asynccontextmanager
async def cluster(place: Place, *broker_ids: int) -> AsyncIterator[list[Member]]:
    """Members of one cluster, started one after the other: the first is the controller."""
    members: list[Member] = []
    try:
        for broker_id in broker_ids:
            members.append(await Member(place, broker_id).start())
            await members[0].until(lambda: members[0].is_controller, "a controller")
        yield members
    finally:
        for member in members:
            await member.stop()


def topic(name: str, replicas: list[tuple[int, ...]], with_id: bool = True) -> list[Operation]:
    """The nodes that an admin tool writes for a new topic."""
    topic_id = random_uuid() if with_id else None
    return [
        Create(znode_paths.config(znode_paths.CONFIG_TOPICS, name), znode_data.config_json({})),
        Create(
            znode_paths.topic(name), znode_data.topic_json(znode_data.TopicNode(dict(enumerate(replicas)), topic_id))
        ),
    ]


async def expire(member: Member) -> None:
    """Its session ends, on the side of the servers, and the member hears of it."""
    connection = member.session._connection
    assert connection is not None
    identity = (connection.session_id, connection._client._session_passwd)

    def take_over() -> None:
        thief = KazooClient(member.session.settings.servers, client_id=identity)
        thief.start(20)
        thief.stop()
        thief.close()

    session_id = member.session.session_id
    await asyncio.get_running_loop().run_in_executor(None, take_over)
    await member.until(
        lambda: member.session.session_id != session_id and member.registration_state is RegistrationState.MEMBER,
        "a new session",
    )
