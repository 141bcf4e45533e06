"""What a cluster agrees on, and how to change it: topics, settings, leader epochs, producer ids.

Reads are plain look-ups in memory and never wait. Writes are coroutines: when one returns, the change is durable, is
in memory, and the listeners were told. Changes that another node made come in through the same listeners. Records are
never changed in place; a change puts a new record in the place of the old one.
Source: kafka.zk.KafkaZkClient (the data), kafka.server.metadata.ZkMetadataCache.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

PRODUCER_ID_BLOCK = 1000  # ids that one reservation brings, as in Kafka
CLUSTER_DEFAULT = ""  # the name under which settings of all brokers stand


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


Listener = Callable[[Change, str], None]
"""Gets what changed and the topic's name (or the broker's id as text), on the event loop, after memory has it."""


class Registry(ABC):
    """The interface that the embedded file and ZooKeeper share.

    Writes raise KafkaError when the change cannot be (each says which code) and StorageError when it could not be kept.
    """

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

    @abstractmethod
    async def start(self) -> None:
        """Load or join. Raises ConfigError, one line, when that cannot be."""

    @abstractmethod
    async def stop(self) -> None:
        """Finish the writes under way and let go. Writes fail from now on; reads go on answering."""

    @abstractmethod
    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on every change from now on. Returns what ends that."""

    @abstractmethod
    async def create_topic(self, topic: TopicRecord) -> None:
        """TOPIC_ALREADY_EXISTS if the name is taken."""

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
