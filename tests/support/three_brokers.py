"""Three brokers in one process on one real ZooKeeper, asked by raw frames.

async with three_brokers(zookeeper.connect + chroot, tmp_path) as cluster:
    await cluster.create("orders", 6)
    answer = await cluster.ask(1, MetadataRequest(topics=None), 9)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import RegistrationState
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.topic_admin import TopicAdmin
from kafkalite.server.broker import Broker
from tests.support.wait import DEADLINE_S
from tests.unit.api.conftest import Crowd

IDS = (1, 2, 3)
INTERNAL_TOPICS = {
    "offsets_topic_num_partitions": 6,
    "offsets_topic_replication_factor": 1,  # what is led by one broker is nowhere else, unless a test wants it
    "transaction_state_log_replication_factor": 1,
}


class ThreeBrokers:
    """`settings` are of all brokers, `own` of single ones; None is the default. A broker that is down is None in
    `crowds`."""

    def __init__(self, connect: str, directory: Path, settings: Mapping[str, Any], own: Mapping[int, Any]) -> None:
        self.brokers = {}
        self.crowds: dict[int, Crowd] = {}
        for number in IDS:
            values = {
                "broker_id": number,
                "port": 0,
                "zookeeper_connect": connect,
                "zookeeper_connection_timeout_ms": int(1000 * DEADLINE_S),
                "group_initial_rebalance_delay_ms": 0,
            }
            values |= {**INTERNAL_TOPICS, **settings, **own.get(number, {})}
            values = {name: value for name, value in values.items() if value is not None}
            if "listeners" in values:
                del values["port"]
            self.brokers[number] = Broker(data_dir=directory / f"broker-{number}", **values)

    async def start(self, number: int) -> None:
        """Started, and known to all that reach ZooKeeper: a broker is ready before the others have heard of it."""
        await self.brokers[number].start()
        self.crowds[number] = Crowd(self.brokers[number])
        members = [each for each in self.crowds if self.metadata(each).registration_state is RegistrationState.MEMBER]
        ids = {self.server(each).broker_id for each in members}
        await self.until(lambda: all(ids <= self.metadata(each).brokers.keys() for each in members))

    async def stop(self, number: int) -> None:
        crowd = self.crowds.pop(number, None)
        if crowd is not None:
            crowd.leave()
        await self.brokers[number].stop()

    async def ask(self, number: int, request: Any, version: int) -> Any:
        return await self.crowds[number].ask(request, version)

    def topics(self, number: int) -> ReplicaManager:
        return self.server(number).replica_manager

    def topic_admin(self, number: int) -> TopicAdmin:
        return self.server(number).topic_admin

    def metadata(self, number: int) -> Any:
        return self.server(number).metadata

    def server(self, number: int) -> Any:
        running = self.brokers[number]._running
        assert running is not None
        return running

    def leaders(self, topic: str, seen_by: int | None = None) -> dict[int, int]:
        """The leader of each partition, as one broker sees it; the first that runs if none is named."""
        number = next(iter(self.crowds)) if seen_by is None else seen_by
        record = self.metadata(number).topics.get(topic)
        return {} if record is None else {index: state.leader for index, state in record.partitions.items()}

    async def create(self, name: str, partitions: int, at: int = 1) -> None:
        """Made, and known and led everywhere."""
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = await self.ask(at, CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
        await self.until(lambda: self.is_led(name, partitions))

    def is_led(self, name: str, partitions: int) -> bool:
        """Whether all brokers that run agree on who leads the topic, and those do."""
        for number in self.crowds:
            leaders = self.leaders(name, number)
            topic = self.topics(number).by_name.get(name)
            own = {index for index, leader in leaders.items() if leader == number}
            if len(leaders) != partitions or NO_LEADER in leaders.values():
                return False
            if topic is None or set(topic.partitions) != own:
                return False
        return True

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.005)

    async def produce(self, number: int, topic: str, index: int, value: bytes = b"value", version: int = 9) -> Any:
        """The answer for the one partition, or the whole one from version 10 on."""
        records = memoryview(build_batch([NewRecord(None, value, timestamp=1_000)]))
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])
        answer = await self.ask(number, ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data]), version)
        return answer if version > 9 else answer.responses[0].partition_responses[0]

    async def fetch(self, number: int, topic: str, index: int, offset: int = 0, version: int = 11) -> Any:
        wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        called: dict[str, Any] = {"topic": topic}
        if version >= 13:
            called = {"topic_id": self.metadata(number).topics[topic].topic_id}
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(**called, partitions=[wanted])],
        )
        answer = await self.ask(number, request, version)
        return answer if version >= 16 else answer.responses[0].partitions[0]


@asynccontextmanager
async def three_brokers(
    connect: str, directory: Path, own: Mapping[int, Any] | None = None, **settings: Any
) -> AsyncIterator[ThreeBrokers]:
    """All of them, with `settings`; some with settings of their `own`."""
    cluster = ThreeBrokers(connect, directory, settings, own or {})
    try:
        for number in IDS:
            await cluster.start(number)
        yield cluster
    finally:
        for number in IDS:
            with contextlib.suppress(Exception):
                await cluster.stop(number)
