"""Produce requests that come before this broker leads: they wait for an election that is to be expected."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.api.request.awaited_election import WAIT_MS, may_lead_soon
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import BrokerRecord, PartitionRecord, RegistrationState
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.server.broker import Broker
from tests.support.bound_apis import replace_parts
from tests.support.loop import until
from tests.support.manual_clock import ManualClock
from tests.support.replication.led_in_broker import lead, resign
from tests.unit.api.conftest import Asker, Crowd

ME, TWO, THREE = 1, 2, 3
BATCH = bytes(build_batch([NewRecord(None, b"value", timestamp=1)]))


@pytest.mark.parametrize(
    ("leader", "isr", "stopping", "expected"),
    [
        (ME, (ME, TWO), (), True),  # elected, and about to lead
        (TWO, (ME, TWO), (), False),
        (TWO, (ME, TWO), (TWO,), True),
        (TWO, (TWO, THREE), (TWO,), False),  # not in sync
        (NO_LEADER, (ME,), (), False),
        (7, (ME, 7), (), False),  # gone
    ],
)
def test_who_may_lead_soon(leader: int, isr: tuple[int, ...], stopping: tuple[int, ...], expected: bool) -> None:
    brokers = {one: BrokerRecord(one, (), stopping=one in stopping) for one in (ME, TWO, THREE)}
    state = PartitionRecord((ME, TWO, THREE), leader, 5, isr, 1)
    assert may_lead_soon(state, ME, brokers) is expected


@pytest.mark.parametrize(("replicas", "expected"), [((ME, TWO), True), ((TWO, ME), False)])
def test_the_first_replica_may_lead_a_new_partition_soon(replicas: tuple[int, ...], expected: bool) -> None:
    new = PartitionRecord(replicas, NO_LEADER, -1, (), -1)
    assert may_lead_soon(new, ME, {one: BrokerRecord(one, ()) for one in (ME, TWO)}) is expected


def produce(crowd: Crowd) -> Any:
    data = PartitionProduceData(index=0, records=memoryview(BATCH))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    return crowd.begin(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=topics))


def outcome(response: Any) -> tuple[int, int]:
    partition = response.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


def await_election(broker: Broker, stopping: bool) -> None:
    """Broker 2 leads t-0, and this one is in sync."""
    lead(broker, "t")
    resign(broker, "t", leader=TWO)
    share(broker, stopping)


def share(broker: Broker, stopping: bool) -> None:
    """All that this broker knows of the cluster is shared with others, of which broker 2 is one."""
    running: Any = broker._running
    metadata = running.metadata
    brokers = {**metadata.brokers, TWO: BrokerRecord(TWO, (), stopping=stopping)}
    shared = SimpleNamespace(
        is_shared=True, brokers=brokers, topics=metadata.topics, registration_state=metadata.registration_state
    )
    replace_parts(running, metadata=shared)


@pytest.mark.parametrize("ending", ["elected", "late"])
def test_a_produce_waits_until_this_broker_leads(tell: Callable[..., None], ending: str) -> None:
    clock = ManualClock()

    async def story(_: Asker, broker: Broker) -> None:
        running: Any = broker._running
        await running.topic_admin.create("t", 1, {})
        first = running.replica_manager.by_name["t"].partitions[0]
        await_election(broker, stopping=True)
        crowd = Crowd(broker)
        early = produce(crowd)
        await until(lambda: running.apis.follower_fetches.ahead)
        if ending == "elected":
            running.replica_manager.by_name["t"].partitions[0] = first
            running.replica_manager.on_election(first)
            assert outcome(await early) == (ErrorCode.NONE, 0)
        else:
            clock.advance(WAIT_MS - 1)
            assert not early.done()
            clock.advance(1)
            assert outcome(await early) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            assert outcome(await produce(crowd)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)  # at once
        assert not running.apis.follower_fetches.ahead
        crowd.leave()

    tell(story, clock=clock)


def test_a_produce_waits_for_the_first_election_of_a_topic(tell: Callable[..., None]) -> None:
    """Another broker has told the client of a leader that does not know yet."""

    async def story(_: Asker, broker: Broker) -> None:
        running: Any = broker._running
        await running.topic_admin.create("t", 1, {})
        topic = running.replica_manager.by_name.pop("t")
        share(broker, stopping=False)
        record = running.metadata.topics["t"]
        new = PartitionRecord((running.broker_id,), NO_LEADER, -1, (), -1)
        running.metadata.topics["t"] = record._replace(partitions={0: new})
        crowd = Crowd(broker)
        early = produce(crowd)
        await until(lambda: running.apis.follower_fetches.ahead)
        running.replica_manager.add(topic)
        running.replica_manager.on_election(topic.partitions[0])
        assert outcome(await early) == (ErrorCode.NONE, 0)
        crowd.leave()

    tell(story, clock=ManualClock())


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_produce_that_no_election_helps_is_refused_at_once(tell: Callable[..., None], is_registered: bool) -> None:
    async def story(_: Asker, broker: Broker) -> None:
        running: Any = broker._running
        await running.topic_admin.create("t", 1, {})
        await_election(broker, stopping=not is_registered)
        if not is_registered:
            running.apis.produce.metadata.registration_state = RegistrationState.DISCONNECTED
        crowd = Crowd(broker)
        assert outcome(await produce(crowd)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        crowd.leave()

    tell(story, clock=ManualClock())
