"""A cluster in memory: the shared truth, each broker's `ClusterMetadata` of it, and a controller that acts at once.

    cluster = InMemoryCluster()
    one, two = cluster.metadata(1), cluster.metadata(2)      # each with a registration state of its own

A write is true at once, and each broker's listeners are called before it returns; a broker that has fallen behind is
notified when it catches up. `elect` does a controller's work: the first live replica leads, and a partition without one
has no leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import NO_LEADER
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import (
    NO_CONTROLLER,
    NO_REGISTRATION,
    PRODUCER_ID_BLOCK,
    BrokerRecord,
    Change,
    ChangeConfig,
    ChangeEntries,
    ChangeToken,
    ClusterMetadata,
    MetadataWrites,
    PartitionRecord,
    RegistrationState,
    TopicRecord,
)
from kafkalite.metadata.partition_state import IsrState, IsrStates, WriteIsr, WriteOutcome
from kafkalite.security.acl.acl import Entry, Resource
from kafkalite.security.delegation_tokens import DelegationToken

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class InMemoryCluster:
    """The shared truth. With `elects` False new topics have no leader until `elect` is called."""

    def __init__(self, *, elects: bool = True) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.brokers: dict[int, BrokerRecord] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.registrations: dict[int, int] = {}  # the number of each broker's, also while it is away
        self.members: dict[int, InMemoryMetadata] = {}
        self.elects = elects
        self.next_producer_id = 0
        self.epoch = 0

    def metadata(self, broker_id: int) -> InMemoryMetadata:
        self.members[broker_id] = InMemoryMetadata(self, broker_id)
        return self.members[broker_id]

    def notify(self, change: Change, name: str) -> None:
        for metadata in self.members.values():
            metadata.notify(change, name)

    def put(self, topic: TopicRecord, change: Change) -> None:
        self.topics[topic.name] = topic
        self.notify(change, topic.name)

    def remove(self, name: str) -> None:
        del self.topics[name]
        self.notify(Change.TOPIC_DELETED, name)

    def lead(self, name: str, index: int, leader: int) -> None:
        """Makes `leader` the leader, whatever the state was."""
        topic = self.topics[name]
        state = topic.partitions[index]
        isr = (leader,) if leader != NO_LEADER else state.isr
        epoch, version = state.leader_epoch + 1, state.partition_epoch + 1
        self.set_state(
            name, index, state._replace(leader=leader, leader_epoch=epoch, isr=isr, elr=(), partition_epoch=version)
        )

    def set_state(self, name: str, index: int, state: PartitionRecord) -> None:
        topic = self.topics[name]
        self.put(topic._replace(partitions={**topic.partitions, index: state}), Change.PARTITION_STATE)

    def elect(self) -> None:
        for topic in list(self.topics.values()):
            for index, state in topic.partitions.items():
                leader = next((each for each in state.replicas if each in self.brokers), NO_LEADER)
                if leader != state.leader:
                    self.lead(topic.name, index, leader)


class InMemoryMetadata(ClusterMetadata, MetadataWrites, IsrStates):
    """The view of one broker. `_missed` are the changes since it fell behind, `_known` is the state of that time."""

    def __init__(self, cluster: InMemoryCluster, broker_id: int) -> None:
        super().__init__()
        self.writes = self
        self.cluster = cluster
        self.broker_id = broker_id
        self._registration_state = RegistrationState.UNREGISTERED
        self._registration = NO_REGISTRATION
        self._missed: dict[tuple[Change, str], None] | None = None
        self._known: tuple[dict[str, TopicRecord], dict[int, BrokerRecord]] | None = None

    # falling behind: the connection is cut, or slow

    def fall_behind(self) -> None:
        self._missed = {}
        self._known = dict(self.cluster.topics), dict(self.cluster.brokers)

    def catch_up(self) -> None:
        missed, self._missed, self._known = self._missed or {}, None, None
        for change, name in missed:
            self.notify(change, name)

    def notify(self, change: Change, name: str) -> None:
        if self._missed is not None:
            self._missed[change, name] = None
            return
        for listener in tuple(self._listeners):
            listener(change, name)

    def set_registration_state(self, state: RegistrationState) -> None:
        self._registration_state = state
        for listener in tuple(self._listeners):
            listener(Change.REGISTRATION, "")

    def fence(self, why: str) -> None:
        self.set_registration_state(RegistrationState.FENCED)

    # the interface

    cluster_id = CLUSTER_ID

    @property
    def topics(self) -> Mapping[str, TopicRecord]:
        return self.cluster.topics if self._known is None else self._known[0]

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        return self.cluster.configs

    @property
    def acls(self) -> Mapping[Resource, tuple[Entry, ...]]:
        return {}

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]:
        return {}

    @property
    def entity_configs(self) -> Mapping[str, Mapping[str, str]]:
        return {}

    @property
    def brokers(self) -> Mapping[int, BrokerRecord]:
        return self.cluster.brokers if self._known is None else self._known[1]

    @property
    def controller_id(self) -> int:
        return min(self.brokers, default=NO_CONTROLLER)

    @property
    def registration_state(self) -> RegistrationState:
        return self._registration_state

    @property
    def registration(self) -> int:
        return self._registration

    async def start(self) -> None:
        """There is nothing to load."""

    async def stop(self) -> None:
        """There is nothing to release."""

    async def register(self, endpoints: tuple[ListenerConfig, ...], rack: str | None) -> None:
        self.cluster.epoch += 1
        self._registration = self._raise_registration()
        self.cluster.brokers[self.broker_id] = BrokerRecord(
            self.broker_id, endpoints, rack, self.cluster.epoch, self._registration
        )
        self.set_registration_state(RegistrationState.MEMBER)
        self.cluster.notify(Change.BROKERS, "")
        if self.cluster.elects:
            self.cluster.elect()

    def _raise_registration(self) -> int:
        numbers = self.cluster.registrations
        numbers[self.broker_id] = numbers.get(self.broker_id, 0) + 1
        return numbers[self.broker_id]

    async def begin_to_stop(self) -> None:
        record = self.cluster.brokers.get(self.broker_id)
        if record is None or self._missed is not None:
            return
        self.cluster.brokers[self.broker_id] = record._replace(registration=self._raise_registration(), stopping=True)
        self.cluster.notify(Change.BROKERS, "")

    async def unregister(self) -> None:
        self.cluster.brokers.pop(self.broker_id, None)
        self.set_registration_state(RegistrationState.UNREGISTERED)
        self.cluster.notify(Change.BROKERS, "")
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
        self.cluster.notify(Change.BROKER_CONFIG, broker)

    async def change_delegation_token(self, token_id: str, change: ChangeToken) -> None:
        raise NotImplementedError

    async def change_entity_config(self, path: str, change: ChangeConfig) -> None:
        raise NotImplementedError

    async def change_acls(self, resource: Resource, change: ChangeEntries) -> None:
        raise NotImplementedError

    async def set_leader_epoch(self, name: str, partition: int, leader_epoch: int) -> None:
        await self._may_write()
        topic = self._require(name)
        state = topic.partitions[partition]
        if leader_epoch <= state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        states = {**topic.partitions, partition: state._replace(leader_epoch=leader_epoch)}
        self.cluster.put(topic._replace(partitions=states), Change.PARTITION_STATE)

    async def write_isr(self, name: str, partition: int, write: WriteIsr) -> WriteOutcome:
        try:
            await self._may_write()
        except KafkaError:
            return WriteOutcome.UNKNOWN
        numbers, live = self.cluster.registrations, self.cluster.brokers
        if any(each not in live or numbers.get(each) != number for each, number in write.registrations.items()):
            return WriteOutcome.REFUSED
        topic = self.cluster.topics.get(name)
        state = topic.partitions.get(partition) if topic is not None else None
        if state is None or state.partition_epoch != write.expected_epoch:
            return WriteOutcome.BAD_VERSION
        isr, elr = tuple(sorted(write.isr)), tuple(sorted(write.elr))
        version = write.expected_epoch + 1
        self.cluster.set_state(name, partition, state._replace(isr=isr, elr=elr, partition_epoch=version))
        return WriteOutcome.WRITTEN

    async def read_isr(self, name: str, partition: int) -> IsrState | None:
        await self._may_write()
        topic = self.cluster.topics.get(name)
        state = topic.partitions.get(partition) if topic is not None else None
        return None if state is None else state.isr_state

    async def skip_producer_ids(self, last: int) -> None:
        self.cluster.next_producer_id = max(self.cluster.next_producer_id, last + 1)

    async def next_producer_id_block(self) -> range:
        await self._may_write()
        first = self.cluster.next_producer_id
        self.cluster.next_producer_id += PRODUCER_ID_BLOCK
        return range(first, first + PRODUCER_ID_BLOCK)

    async def _may_write(self) -> None:
        await asyncio.sleep(0)  # a write to a real one takes time
        if self._registration_state is RegistrationState.DISCONNECTED or self._missed is not None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nothing can be changed at the moment")

    def _require(self, name: str) -> TopicRecord:
        if name not in self.cluster.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.cluster.topics[name]
