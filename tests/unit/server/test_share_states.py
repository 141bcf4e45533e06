"""Requests to share coordinators: those of one key are made one after another, each once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import SHARE_STATE_TOPIC
from kafkalite.replication.share.durable_state import SharePartitionKey
from kafkalite.server.share_states import ShareStateClient
from tests.support.manual_clock import ManualClock

ME = 1
KEY = SharePartitionKey("group", UUID(int=7), 0)


class Coordinator:
    """This broker's own, which answers when a test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Callable[[Any], None]]] = []

    def read(self, key: SharePartitionKey, leader_epoch: int, done: Callable[[Any], None]) -> None:
        self.asked.append((f"read {leader_epoch}", done))

    def delete(self, key: SharePartitionKey, done: Callable[[Any], None]) -> None:
        self.asked.append(("delete", done))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.asked]

    def answer(self, result: Any = None) -> None:
        self.asked[-1][1](result)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client(coordinator: Coordinator, clock: ManualClock) -> ShareStateClient:
    topic: Any = SimpleNamespace(partition_for=lambda text: 0)
    replicas: Any = SimpleNamespace(by_name={SHARE_STATE_TOPIC: None}, leader_of=lambda name, index: ME)
    of_this_broker: Any = coordinator
    return ShareStateClient(of_this_broker, topic, replicas, ME, clock, None)


def test_requests_of_a_key_wait_for_each_other(client: ShareStateClient, coordinator: Coordinator) -> None:
    done: list[Any] = []
    client.read(KEY, 5, done.append)
    client.delete(KEY, done.append)
    client.read(KEY, 6, done.append)
    assert coordinator.names == ["read 5"]
    coordinator.answer("state")
    assert coordinator.names == ["read 5", "delete"] and done == ["state"]
    coordinator.answer()
    coordinator.answer("another")
    assert coordinator.names == ["read 5", "delete", "read 6"] and done == ["state", None, "another"]


def test_a_request_that_an_answer_leads_to_is_made_once(client: ShareStateClient, coordinator: Coordinator) -> None:
    done: list[Any] = []
    client.read(KEY, 5, lambda state: client.delete(KEY, done.append))
    coordinator.answer("state")
    assert coordinator.names == ["read 5", "delete"]
    coordinator.answer()
    assert done == [None]
    client.read(KEY, 6, done.append)
    coordinator.answer("later")
    assert done == [None, "later"]


def test_a_coordinator_that_loads_is_asked_again(
    client: ShareStateClient, coordinator: Coordinator, clock: ManualClock
) -> None:
    done: list[Any] = []
    client.read(KEY, 5, done.append)
    coordinator.answer(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert coordinator.names == ["read 5"] and not done
    clock.advance(100)
    assert coordinator.names == ["read 5", "read 5"]
    coordinator.answer("state")
    assert done == ["state"]
