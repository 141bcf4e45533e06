"""Errors of fetches: of partitions that a request does not name, since its session knows them (KIP-227)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalite import Broker
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
LONG_MS = 3_600_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("others")
        broker.produce("orders", "a", partition=0)
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[BlockingClient]:
    with BlockingClient(broker.bootstrap_servers, 30) as client:
        yield client


def full(broker: Broker, version: int) -> FetchRequest:
    """The first fetch of a session: of all topics, by name or id."""
    topics = []
    for name, count in broker.topics.items():
        partitions = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(count)]
        topic_id = broker.server.replica_manager.by_name[name].topic_id
        by_id = version >= 13
        topics.append(FetchTopic(partitions=partitions, **({"topic_id": topic_id} if by_id else {"topic": name})))
    return FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=topics)


def following(session_id: int, epoch: int, max_wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_id=session_id, session_epoch=epoch)


def fetched(broker: Broker, response: FetchResponse) -> dict[tuple[str, int], tuple[int, bool]]:
    """Topic and partition -> the error, and whether there are records."""
    by_id = broker.server.replica_manager.by_id
    return {
        (topic.topic or by_id[topic.topic_id].name, each.partition_index): (each.error_code, bool(each.records))
        for topic in response.responses
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("topic", [None, "orders"])
def test_partitions_of_a_session_fail_and_the_session_goes_on(
    broker: Broker, client: BlockingClient, version: int, topic: str | None
) -> None:
    session_id = client.ask(full(broker, version), version).session_id
    with broker.faults.error("FETCH", CODE, topic=topic, times=2):
        for epoch in (1, 2):
            answer = client.ask(following(session_id, epoch, LONG_MS), version)  # it does not wait
            expected = {("orders", 0): (CODE, False), ("orders", 1): (CODE, False)}
            if topic is None:
                expected[("others", 0)] = (CODE, False)
            assert fetched(broker, answer) == expected and answer.session_id == session_id
    answer = client.ask(following(session_id, 3), version)
    assert answer.error_code == 0 and fetched(broker, answer)["orders", 0] == (0, True)


@pytest.mark.parametrize("version", [3, 12, 17])
def test_the_other_topics_of_a_fetch_are_fetched(broker: Broker, client: BlockingClient, version: int) -> None:
    with broker.faults.error("FETCH", CODE, topic="others"):
        answer = client.ask(full(broker, version), version)
    assert fetched(broker, answer) == {
        ("orders", 0): (0, True),
        ("orders", 1): (0, False),
        ("others", 0): (CODE, False),
    }


def test_a_session_without_the_topic_is_left_alone(broker: Broker, client: BlockingClient) -> None:
    broker.create_topic("third")
    request = full(broker, 12)
    request.topics = [topic for topic in request.topics if topic.topic != "third"]
    session_id = client.ask(request, 12).session_id
    fault = broker.faults.error("FETCH", CODE, topic="third")
    answer = client.ask(following(session_id, 1), 12)
    assert (answer.error_code, answer.session_id, fault.fired) == (0, session_id, 0)


def test_an_error_of_the_session_is_that_of_the_fetch(broker: Broker, client: BlockingClient) -> None:
    session_id = client.ask(full(broker, 12), 12).session_id
    with broker.faults.error("FETCH", "FETCH_SESSION_ID_NOT_FOUND"):
        answer = client.ask(following(session_id, 1, LONG_MS), 12)
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
