"""A cluster's registry in memory: several brokers on one truth, with a controller that acts at once, or when told.

    cluster = ClusterMemory()
    one, two = cluster.registry(1), cluster.registry(2)      # ClusterMetadata, each with its own registration state

What is written is true at once; each registry hears of it in the same call, unless it is `deaf`, and then all at once
when it hears again. `elect` is what a controller does: live replicas lead, a dead leader is replaced by nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import (
    NO_CONTROLLER,
    NO_LEADER,
    PRODUCER_ID_BLOCK,
    BrokerRecord,
    Change,
    ClusterMetadata,
    Listener,
    PartitionRecord,
    TopicRecord,
)
from kafkalite.metadata.registration_state import RegistrationState

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class ClusterMemory:
    """The truth, and who listens. `elects` False: topics that are made have no leader until `elect`."""

    def __init__(self, *, elects: bool = True) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.brokers: dict[int, BrokerRecord] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.registries: dict[int, MemoryRegistry] = {}
        self.elects = elects
        self.next_producer_id = 0
        self.epoch = 0

    def registry(self, broker_id: int) -> MemoryRegistry:
        self.registries[broker_id] = MemoryRegistry(self, broker_id)
        return self.registries[broker_id]

    def tell(self, change: Change, name: str) -> None:
        for registry in self.registries.values():
            registry.hear(change, name)

    def put(self, topic: TopicRecord, change: Change) -> None:
        self.topics[topic.name] = topic
        self.tell(change, topic.name)

    def remove(self, name: str) -> None:
        del self.topics[name]
        self.tell(Change.TOPIC_DELETED, name)

    def lead(self, name: str, index: int, leader: int) -> None:
        """Somebody leads from now on, whatever was before."""
        topic = self.topics[name]
        state = topic.partitions[index]
        isr = (leader,) if leader != NO_LEADER else state.isr
        state = PartitionRecord(state.replicas, leader, state.leader_epoch + 1, isr, state.partition_epoch + 1)
        self.put(topic._replace(partitions={**topic.partitions, index: state}), Change.PARTITION_STATE)

    def elect(self) -> None:
        for topic in list(self.topics.values()):
            for index, state in topic.partitions.items():
                leader = next((each for each in state.replicas if each in self.brokers), NO_LEADER)
                if leader != state.leader:
                    self.lead(topic.name, index, leader)


class MemoryRegistry(ClusterMetadata):
    """One broker's."""

    def __init__(self, cluster: ClusterMemory, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self._registration_state = RegistrationState.UNREGISTERED
        self._listeners: list[Listener] = []
        self._unheard: dict[tuple[Change, str], None] | None = None
        self._known: tuple[dict[str, TopicRecord], dict[int, BrokerRecord]] | None = None

    # being deaf: cut off, or just behind

    def become_deaf(self) -> None:
        self._unheard = {}
        self._known = dict(self.cluster.topics), dict(self.cluster.brokers)

    def hear_again(self) -> None:
        unheard, self._unheard, self._known = self._unheard or {}, None, None
        for change, name in unheard:
            self.hear(change, name)

    def hear(self, change: Change, name: str) -> None:
        if self._unheard is not None:
            self._unheard[change, name] = None
            return
        for listener in tuple(self._listeners):
            listener(change, name)

    def stand(self, state: RegistrationState) -> None:
        self._registration_state = state
        for listener in tuple(self._listeners):
            listener(Change.REGISTRATION, "")

    def fence(self, why: str) -> None:
        self.stand(RegistrationState.FENCED)

    # the interface

    @property
    def cluster_id(self) -> str:
        return CLUSTER_ID

    @property
    def topics(self) -> Mapping[str, TopicRecord]:
        return self.cluster.topics if self._known is None else self._known[0]

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        return self.cluster.configs

    @property
    def brokers(self) -> Mapping[int, BrokerRecord]:
        return self.cluster.brokers if self._known is None else self._known[1]

    @property
    def controller_id(self) -> int:
        return min(self.brokers, default=NO_CONTROLLER)

    @property
    def registration_state(self) -> RegistrationState:
        return self._registration_state

    async def start(self) -> None:
        """Nothing has to be loaded."""

    async def stop(self) -> None:
        """Nothing has to be let go."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def register(self, endpoints: tuple[ListenerConfig, ...], rack: str | None) -> None:
        self.cluster.epoch += 1
        self.cluster.brokers[self.broker_id] = BrokerRecord(self.broker_id, endpoints, rack, self.cluster.epoch)
        self.stand(RegistrationState.MEMBER)
        self.cluster.tell(Change.BROKERS, "")
        if self.cluster.elects:
            self.cluster.elect()

    async def unregister(self) -> None:
        self.cluster.brokers.pop(self.broker_id, None)
        self.stand(RegistrationState.UNREGISTERED)
        self.cluster.tell(Change.BROKERS, "")
        if self.cluster.elects:
            self.cluster.elect()

    async def create_topic(self, topic: TopicRecord) -> None:
        await self._may_write()
        if topic.name in self.cluster.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
        states = {
            index: state._replace(leader=NO_LEADER, leader_epoch=-1, isr=())
            for index, state in topic.partitions.items()
        }
        self.cluster.put(topic._replace(partitions=states), Change.TOPIC_CREATED)
        if self.cluster.elects:
            self.cluster.elect()

    async def delete_topic(self, name: str) -> None:
        await self._may_write()
        self._require(name)
        self.cluster.remove(name)

    async def add_partitions(self, name: str, partitions: Mapping[int, PartitionRecord]) -> None:
        await self._may_write()
        topic = self._require(name)
        self.cluster.put(topic._replace(partitions={**topic.partitions, **partitions}), Change.PARTITIONS_ADDED)
        if self.cluster.elects:
            self.cluster.elect()

    async def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        await self._may_write()
        self.cluster.put(self._require(name)._replace(config=dict(config)), Change.TOPIC_CONFIG)

    async def set_broker_config(self, broker: str, config: Mapping[str, str]) -> None:
        await self._may_write()
        self.cluster.configs[broker] = dict(config)
        self.cluster.tell(Change.BROKER_CONFIG, broker)

    async def set_leader_epoch(self, name: str, partition: int, leader_epoch: int) -> None:
        await self._may_write()
        topic = self._require(name)
        state = topic.partitions[partition]
        if leader_epoch <= state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        states = {**topic.partitions, partition: state._replace(leader_epoch=leader_epoch)}
        self.cluster.put(topic._replace(partitions=states), Change.PARTITION_STATE)

    async def skip_producer_ids(self, last: int) -> None:
        self.cluster.next_producer_id = max(self.cluster.next_producer_id, last + 1)

    async def next_producer_id_block(self) -> range:
        await self._may_write()
        first = self.cluster.next_producer_id
        self.cluster.next_producer_id += PRODUCER_ID_BLOCK
        return range(first, first + PRODUCER_ID_BLOCK)

    async def _may_write(self) -> None:
        await asyncio.sleep(0)  # a real one takes its time
        if self._registration_state is RegistrationState.DISCONNECTED or self._unheard is not None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nothing can be changed at the moment")

    def _require(self, name: str) -> TopicRecord:
        if name not in self.cluster.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.cluster.topics[name]
