"""The registration as the connection comes and goes; test_broker_registration has the stories on a ZooKeeper."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafkalite.common.clock import ManualClock
from kafkalite.metadata.cluster_metadata import Change
from kafkalite.metadata.registration_state import DISCONNECTED, FENCED, MEMBER, UNREGISTERED
from kafkalite.zk.client.operations import ConnectionState, Node
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.cluster.broker_lifecycle import BrokerLifecycle
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.znodes.znode_data import BrokerNode, broker_json

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
            tell=lambda change, name: self.told.append(change),
            applied=lambda paths: None,
        )
        self.lifecycle._session = self.session  # type: ignore[assignment]
        self.lifecycle._registration = SimpleNamespace(path=PATH, broker_id=1)  # type: ignore[assignment]

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
