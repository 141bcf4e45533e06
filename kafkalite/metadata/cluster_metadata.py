"""What a cluster agrees on, and how to change it: brokers, topics, settings, leader epochs, producer ids.

Reads are plain look-ups in memory and never wait. Writes are coroutines: when one returns, the change is durable, is
in memory, and the listeners were told. Changes that another node made come in through the same listeners. Records are
never changed in place; a change puts a new record in the place of the old one.

Who leads a partition is for the controller to say. A single node is its own controller, and leads from the first
moment; in a cluster one of the brokers is, and a topic that was created waits for it.
Source: kafka.zk.KafkaZkClient (the data), kafka.server.metadata.ZkMetadataCache.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import ClassVar, NamedTuple

from kafkalite.common.names import TopicPartition
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.registration_state import RegistrationState

PRODUCER_ID_BLOCK = 1000  # ids that one reservation brings, as in Kafka
PRODUCER_ID_MAX = 1 << 62  # nobody counts that far: who claims more is not to end the counting
CLUSTER_DEFAULT = ""  # the name under which settings of all brokers stand
NO_LEADER = -1  # of a partition that no live broker can lead
NO_CONTROLLER = -1


class BrokerRecord(NamedTuple):
    """One live broker. `endpoints` are what others are to dial; `epoch` grows with each registration."""

    broker_id: int
    endpoints: tuple[ListenerConfig, ...]
    rack: str | None = None
    epoch: int = 0


class PartitionRecord(NamedTuple):
    """One partition's place in the cluster. `leader_epoch` and `partition_epoch` never go backwards."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class TopicRecord(NamedTuple):
    """One topic. `config` is what was set for it, as text by Kafka's names. Invariant: partitions are 0..n-1."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionRecord]
    config: Mapping[str, str]


class Change(Enum):
    """What a listener is told about."""

    TOPIC_CREATED = "topic created"
    TOPIC_DELETED = "topic deleted"
    PARTITIONS_ADDED = "partitions added"
    PARTITION_STATE = "partition state"
    TOPIC_CONFIG = "topic config"
    BROKER_CONFIG = "broker config"
    BROKERS = "brokers"
    CONTROLLER = "controller"
    REGISTRATION = "registration"


Listener = Callable[[Change, str], None]
"""Gets what changed and the topic's name (with BROKER_CONFIG the broker's id as text; else ""), on the event loop,
after memory has it."""


class ClusterMetadata(ABC):
    """The interface that the embedded file and ZooKeeper share.

    Writes raise KafkaError when the change cannot be (each says which code), StorageError when it could not be kept,
    and KafkaError(REQUEST_TIMED_OUT), which names what cannot be reached, when nothing can be changed at the moment.
    """

    is_shared: ClassVar[bool] = True
    """Whether there are other brokers. Where there are none this one leads everything, registered or not."""

    @property
    @abstractmethod
    def cluster_id(self) -> str:
        """22 characters. Valid after `start`."""

    @property
    @abstractmethod
    def topics(self) -> Mapping[str, TopicRecord]:
        """Every topic by name; a live view."""

    @property
    @abstractmethod
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Settings that were changed while running, by broker id as text, or CLUSTER_DEFAULT; a live view."""

    @property
    @abstractmethod
    def brokers(self) -> Mapping[int, BrokerRecord]:
        """The live brokers by id; a live view."""

    @property
    @abstractmethod
    def controller_id(self) -> int:
        """NO_CONTROLLER while none is known."""

    @property
    @abstractmethod
    def registration_state(self) -> RegistrationState:
        """This broker's own."""

    @property
    def last_transaction(self) -> int:
        """All that was changed up to here is known, in the cluster's own counting (`BrokerRecord.epoch` is in it)."""
        return -1

    def is_deletion_ordered(self, name: str) -> bool:
        """Whether a topic that is gone was asked to be. What merely vanished may come back, and wants its records."""
        return True

    def has_unresolved_topic(self, name: str) -> bool:
        """Whether something stands there for a topic of this name that is not among `topics`: it has no id yet, or
        cannot be understood."""
        return False

    async def return_ids(self, held: Mapping[TopicPartition, uuid.UUID | None]) -> None:
        """Give unclear topics their ids back, from those that this broker's logs have (None: they never had one).
        Raises ConfigError when that cannot be done now."""
        return

    @abstractmethod
    async def start(self) -> None:
        """Load or join. Raises ConfigError, one line, when that cannot be."""

    @abstractmethod
    async def register(self, endpoints: tuple[ListenerConfig, ...], rack: str | None) -> None:
        """Tell the others that this broker serves, at what they are to dial. Raises ConfigError, which names the other
        one, when a live broker has this id."""

    @abstractmethod
    async def unregister(self) -> None:
        """This broker is going: it leads nothing from now on. Does nothing when it is not registered."""

    @abstractmethod
    async def stop(self) -> None:
        """Finish the writes under way and let go. Writes fail from now on; reads go on answering."""

    @abstractmethod
    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on every change from now on. Returns what ends that."""

    @abstractmethod
    async def create_topic(self, topic: TopicRecord) -> None:
        """Made, with a leader for each partition that a live broker can lead; what `topic` says of leaders and epochs
        is a proposal. TOPIC_ALREADY_EXISTS if the name is taken."""

    @abstractmethod
    async def delete_topic(self, name: str) -> None:
        """UNKNOWN_TOPIC_OR_PARTITION if there is none."""

    @abstractmethod
    async def add_partitions(self, name: str, partitions: Mapping[int, PartitionRecord]) -> None:
        """UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS unless the numbers follow the ones there are."""

    @abstractmethod
    async def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Replace all that was set for the topic. UNKNOWN_TOPIC_OR_PARTITION."""

    @abstractmethod
    async def set_broker_config(self, broker: str, config: Mapping[str, str]) -> None:
        """Replace all that was set for a broker (its id as text, or CLUSTER_DEFAULT); empty takes it away."""

    @abstractmethod
    async def set_leader_epoch(self, name: str, partition: int, leader_epoch: int) -> None:
        """UNKNOWN_TOPIC_OR_PARTITION; FENCED_LEADER_EPOCH unless it grows."""

    @abstractmethod
    async def skip_producer_ids(self, last: int) -> None:
        """Give no id up to `last` from now on: logs that came from elsewhere know them."""

    @abstractmethod
    async def next_producer_id_block(self) -> range:
        """Ids that nobody was given before and nobody else will be."""
