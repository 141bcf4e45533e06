"""Fetches of followers of one leader: a broker that leads t-0, and the connections of its followers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.server.broker import Broker
from tests.support.replication.led_in_broker import REGISTRATIONS, lead
from tests.unit.api.conftest import Crowd

BATCH = bytes(build_batch([NewRecord(None, b"value", timestamp=1)]))
VERSION = 17
TWO, THREE = 2, 3
WAIT_MS = 500
NEWS_WAIT_MS = 3


class World:
    """A broker that leads t-0 with followers 2 and 3, and connections of all of them."""

    def __init__(self, crowd: Crowd, broker: Broker) -> None:
        self.crowd = crowd
        self.broker = broker
        self.running: Any = broker._running

    @property
    def topic(self) -> Any:
        return self.running.replica_manager.by_name["t"]

    def wanted(self, offset: int, *, epoch: int | None = None, index: int = 0, last_epoch: int = -1) -> FetchPartition:
        leader_epoch = self.topic.states[index].leader_epoch if epoch is None else epoch
        return FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=leader_epoch,
            last_fetched_epoch=last_epoch, log_start_offset=0,
        )  # fmt: skip

    def fetch(
        self,
        follower: int,
        *wanted: FetchPartition,
        max_wait_ms: int = WAIT_MS,
        topic_id: UUID | None = None,
        **how: Any,
    ) -> FetchRequest:
        topic_id = topic_id or self.topic.topic_id
        return FetchRequest(
            replica_state=ReplicaState(replica_id=follower, replica_epoch=REGISTRATIONS.get(follower, -1)),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            topics=[FetchTopic(topic_id=topic_id, topic="t", partitions=list(wanted))] if wanted else [],
            **how,
        )

    def begin(self, follower: int, offset: int, **how: Any) -> asyncio.Task[Any]:
        return self.crowd.begin(self.fetch(follower, self.wanted(offset), **how), VERSION)

    async def ask(self, follower: int, offset: int, **how: Any) -> Any:
        return await self.crowd.ask(self.fetch(follower, self.wanted(offset), **how), VERSION)

    def produce(self, acks: int = -1, timeout_ms: int = 60_000) -> asyncio.Task[Any]:
        data = PartitionProduceData(index=0, records=memoryview(BATCH))
        topics = [TopicProduceData(name="t", partition_data=[data])]
        return self.crowd.begin(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics))


def only(response: Any) -> Any:
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


def outcome(response: Any) -> tuple[int, int]:
    partition = response.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


@pytest.fixture
def world(tell: Callable[..., None]) -> Callable[..., None]:
    def run(
        story: Callable[[World, Any], Awaitable[None]], *, isr: tuple[int, ...] = (TWO, THREE), **settings: Any
    ) -> None:
        async def whole(_: Any, broker: Broker) -> None:
            running: Any = broker._running
            await running.topic_admin.create("t", 2, {})
            crowd = Crowd(broker)
            try:
                await story(World(crowd, broker), lead(broker, "t", isr=isr))
            finally:
                crowd.leave()

        tell(whole, **settings)

    return run
