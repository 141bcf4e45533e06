"""The registration as the connection comes and goes; test_broker_registration has the stories on a ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.metadata.cluster_metadata import DISCONNECTED, FENCED, MEMBER, UNREGISTERED, Change
from kafkalite.zk.client.operations import ConnectionState, Node
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.cluster.broker_lifecycle import BrokerLifecycle
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.cluster.registration_files import RegistrationFiles
from kafkalite.zk.cluster.session_file import SessionFile
from kafkalite.zk.cluster.view_reader import ViewReader
from kafkalite.zk.znodes import znode_paths
from kafkalite.zk.znodes.znode_data import BrokerNode, broker_json, cluster_id_json
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S

PATH = "/brokers/ids/1"
OLD_SESSION, NEW_SESSION = 7, 8


class Scene:
    def __init__(self) -> None:
        self.told: list[Change] = []
        self.view = ClusterView()
        self.session = SimpleNamespace(session_id=OLD_SESSION, is_connected=True)
        self.lifecycle = BrokerLifecycle(
            ZooKeeperConfig("zk:2181"),
            self.view,
            ManualClock(),
            1,
            SessionFile(""),
            RegistrationFiles([]),
            notify=lambda change, name: self.told.append(change),
            applied=lambda paths: None,
        )
        self.lifecycle.session = self.session  # type: ignore[assignment]

    def register(self, session_id: int = OLD_SESSION) -> None:
        node = Node(broker_json(BrokerNode(())), 0, session_id, session_id, session_id, 0)
        self.view.apply([(PATH, node)])
        self.lifecycle._registered(node)

    def hear(self, connection: ConnectionState, session_id: int = OLD_SESSION) -> None:
        self.session.session_id, self.session.is_connected = session_id, connection is ConnectionState.CONNECTED
        self.lifecycle._on_connection(connection)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_broker_that_is_not_registered_hears_nothing_of_connections(scene):
    for connection in ConnectionState:
        scene.hear(connection)
    scene.lifecycle.fence("somebody said so")
    assert scene.lifecycle.registration_state is UNREGISTERED and not scene.told


def test_a_connection_that_comes_back_with_its_session_leads_back_to_a_member(scene):
    scene.register()
    scene.hear(ConnectionState.SUSPENDED)
    assert scene.lifecycle.registration_state is DISCONNECTED
    scene.hear(ConnectionState.CONNECTED)
    assert scene.lifecycle.registration_state is DISCONNECTED, "the view is to be read first"
    scene.register()
    assert scene.lifecycle.registration_state is MEMBER
    assert scene.told == [Change.REGISTRATION] * 3


@pytest.mark.parametrize("connection", [ConnectionState.EXPIRED, ConnectionState.CONNECTED])
def test_a_session_that_has_ended_fences_until_the_next_registration(scene, connection):
    scene.register()
    scene.hear(ConnectionState.SUSPENDED)
    scene.hear(connection, NEW_SESSION)
    assert scene.lifecycle.registration_state is FENCED
    scene.hear(ConnectionState.SUSPENDED, NEW_SESSION)
    assert scene.lifecycle.registration_state is FENCED
    scene.hear(ConnectionState.CONNECTED, NEW_SESSION)
    scene.register(NEW_SESSION)
    assert scene.lifecycle.registration_state is MEMBER


def test_only_a_disconnected_broker_is_fenced_by_others(scene):
    scene.register()
    scene.lifecycle.fence("broker 2 does not list it")
    assert scene.lifecycle.registration_state is MEMBER
    scene.hear(ConnectionState.SUSPENDED)
    scene.lifecycle.fence("broker 2 does not list it")
    assert scene.lifecycle.registration_state is FENCED


def test_a_member_whose_node_is_taken_away_is_fenced_and_registers_again(scene):
    scene.register()
    scene.view.apply([(PATH, None)])
    scene.lifecycle._on_applied([PATH])
    assert scene.lifecycle.registration_state is FENCED
    assert scene.lifecycle._wake.is_set()


class OtherConnection:
    """A session whose connection is replaced right after the cluster id was agreed on; ZooKeeper is empty but for it.

    `cluster_id` is that of the ZooKeeper to which the new connection leads.
    """

    is_connected = True
    session_id = OLD_SESSION
    session_timeout_ms = 6_000

    def __init__(self, cluster_id: str) -> None:
        self._nodes = {znode_paths.CLUSTER_ID: Node(cluster_id_json(cluster_id), 0, 1, 1, 0, 0)}

    async def sync(self) -> None: ...

    async def watch_tree(self, path: str) -> None: ...

    async def read(self, paths: Sequence[str]) -> list[Node | None]:
        return [self._nodes.get(path) for path in paths]

    async def children(self, paths: Sequence[str]) -> list[None]:
        return [None for _ in paths]

    async def stop(self) -> None: ...


@pytest.mark.parametrize("same_cluster", [True, False])
def test_a_connection_that_comes_before_the_first_read_is_verified_too(same_cluster):
    async def story() -> None:
        scene = Scene()
        lifecycle, session = scene.lifecycle, OtherConnection("ours" if same_cluster else "another")
        lifecycle.session = session  # type: ignore[assignment]
        lifecycle.reader = ViewReader(session, scene.view, lifecycle._notify, lifecycle._on_applied)  # type: ignore[arg-type]
        lifecycle.cluster_found("ours")
        lifecycle._on_connection(ConnectionState.SUSPENDED)
        lifecycle._on_connection(ConnectionState.CONNECTED)
        try:
            if same_cluster:
                await lifecycle.follow()
                await asyncio.wait_for(lifecycle.until_verified(), DEADLINE_S)
            else:
                with pytest.raises(ConfigError, match="leads to the cluster another now"):
                    await lifecycle.follow()
                assert not scene.view.paths, "nothing of another cluster is applied"
        finally:
            await lifecycle.stop()

    asyncio.run(story())
