"""The metadata that the brokers of a cluster share: brokers, topics, settings, leader epochs, producer ids.

Reads are look-ups in memory and never wait. Writes are coroutines: when one returns, the change is durable, in memory,
and reported to the listeners. The same listeners get the changes of other brokers. Records are immutable; a change
replaces a record.

The controller chooses the leader of a partition. A single broker is its own controller, and leads from the first
moment; in a cluster one of the brokers is the controller, and a new topic waits for it.
Source: kafka.zk.KafkaZkClient (the data), kafka.server.metadata.ZkMetadataCache.
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import ClassVar, Protocol

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.partition_state import IsrState
from kafkalite.security.acl.acl import Entry, Resource
from kafkalite.security.delegation_tokens import DelegationToken

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK = 1000  # ids that one reservation brings, as in Kafka
PRODUCER_ID_MAX = 1 << 62  # never reached by counting; ids above it, from a foreign log, do not move the count
CLUSTER_DEFAULT = ""  # the name of the settings for all brokers
NO_CONTROLLER = -1
NO_REGISTRATION = -1  # of a broker that has no number, such as Apache Kafka, or a broker by itself


class BrokerRecord(NamedTuple):
    """One live broker. `endpoints` are for clients and other brokers; `epoch` grows with each registration.

    `registration` is the number under which its fetches count; unlike the epoch it grows before a broker registers and
    when it begins to stop. `stopping`: it is about to leave, leads only what no other can lead, and joins no ISR.
    `intact`: at its registration it had all records that it had before.
    """

    broker_id: int
    endpoints: tuple[ListenerConfig, ...]
    rack: str | None = None
    epoch: int = 0
    registration: int = NO_REGISTRATION
    stopping: bool = False
    intact: bool = True


class PartitionRecord(NamedTuple):
    """The replicas and the leader of one partition. Invariant: `leader_epoch` and `partition_epoch` never go back.

    `elr` are replicas besides the ISR that may be elected (KIP-966). `adding` and `removing` are those of `replicas`
    that a reassignment in progress adds and removes.
    """

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether it was never elected. Kafka's controller has the state NewPartition for that."""
        return self.leader == NO_LEADER and not self.isr

    @property
    def isr_state(self) -> IsrState:
        return IsrState(self.leader, self.leader_epoch, frozenset(self.isr), frozenset(self.elr), self.partition_epoch)


class TopicRecord(NamedTuple):
    """One topic. `config` has the settings of its own, as text by Kafka's names. Invariant: partitions are 0..n-1."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionRecord]
    config: Mapping[str, str]


class RegistrationState(Enum):
    """The states of this broker's registration with its cluster; the value is the text in the log.

        UNREGISTERED -> MEMBER -> DISCONNECTED -> FENCED
                        ^ ^  |         |           |
                        | |  +---------|---------> |      the session has expired
                        | +------------+           |      connected again within the session
                        +--------------------------+      registered again

    A broker that leaves its cluster (`unregister`) is UNREGISTERED from any state. ENTERED_FROM has all transitions: an
    event that comes too late for a state changes nothing.
    """

    UNREGISTERED = "not registered"
    MEMBER = "registered"
    DISCONNECTED = "registered when ZooKeeper last answered: it still serves what it leads, but nothing can be changed"
    FENCED = "its session has expired: it leads nothing until it is registered again"

    @property
    def is_member(self) -> bool:
        return self is RegistrationState.MEMBER


UNREGISTERED, MEMBER, DISCONNECTED, FENCED = RegistrationState

ENTERED_FROM: Mapping[RegistrationState, frozenset[RegistrationState]] = {
    UNREGISTERED: frozenset({MEMBER, DISCONNECTED, FENCED}),
    MEMBER: frozenset({UNREGISTERED, DISCONNECTED, FENCED}),
    DISCONNECTED: frozenset({MEMBER}),
    FENCED: frozenset({MEMBER, DISCONNECTED}),
}


class Change(Enum):
    """The kinds of changes reported to listeners."""

    TOPIC_CREATED = "topic created"
    TOPIC_DELETED = "topic deleted"
    PARTITIONS_ADDED = "partitions added"
    PARTITION_STATE = "partition state"
    TOPIC_CONFIG = "topic config"
    BROKER_CONFIG = "broker config"
    ACLS = "access control lists"
    ENTITY_CONFIG = "entity config"
    DELEGATION_TOKEN = "delegation token"
    BROKERS = "brokers"
    CONTROLLER = "controller"
    REGISTRATION = "registration"


Listener = Callable[[Change, str], None]
"""Called with the kind of the change and the topic's name (with BROKER_CONFIG the broker's id as text, with ACLS the
resource's text, with ENTITY_CONFIG the entity's path, with DELEGATION_TOKEN the token's id; else ""), on
the event loop, after memory has the change."""


ChangeConfig = Callable[[Mapping[str, str]], Mapping[str, str]]
ChangeEntries = Callable[[tuple[Entry, ...]], tuple[Entry, ...]]
ChangeToken = Callable[["DelegationToken | None"], "DelegationToken | None"]


class MetadataWrites(ABC):
    """Changes of the metadata. They raise KafkaError when the change is refused (each names its codes), StorageError
    when it could not be stored, and KafkaError(REQUEST_TIMED_OUT), which names the servers, when nothing can be changed
    at the moment."""

    @abstractmethod
    async def create_topic(self, topic: TopicRecord) -> None:
        """Create a topic, with a leader for each partition that a live broker can lead; the leaders and epochs of
        `topic` are a proposal. TOPIC_ALREADY_EXISTS if the name is taken."""

    @abstractmethod
    async def delete_topic(self, name: str) -> None:
        """Delete a topic. UNKNOWN_TOPIC_OR_PARTITION if there is none."""

    @abstractmethod
    async def add_partitions(self, name: str, partitions: Mapping[int, PartitionRecord]) -> None:
        """Add partitions. UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS unless their numbers follow the present
        ones."""

    @abstractmethod
    async def set_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        """Replace the topic's own settings. UNKNOWN_TOPIC_OR_PARTITION."""

    @abstractmethod
    async def set_broker_config(self, broker: str, config: Mapping[str, str]) -> None:
        """Replace the dynamic settings of a broker (its id as text, or CLUSTER_DEFAULT)."""

    @abstractmethod
    async def change_acls(self, resource: Resource, change: ChangeEntries) -> None:
        """Replace the entries of one resource pattern by the result of `change`, which gets the present ones and may be
        called again."""

    @abstractmethod
    async def change_entity_config(self, path: str, change: ChangeConfig) -> None:
        """Replace the config of an entity by the result of `change`, which gets the present one and may be called
        again."""

    @abstractmethod
    async def change_delegation_token(self, token_id: str, change: ChangeToken) -> None:
        """Replace a token by the result of `change`, which gets the present one (None if there is none) and may be
        called again. None as the result deletes it."""

    @abstractmethod
    async def set_leader_epoch(self, name: str, partition: int, leader_epoch: int) -> None:
        """Raise a partition's leader epoch. UNKNOWN_TOPIC_OR_PARTITION; FENCED_LEADER_EPOCH unless it grows."""

    async def set_leader_epochs(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Raise the leader epochs of partitions to at least these. One that is gone is left out. REQUEST_TIMED_OUT."""
        for (name, partition), leader_epoch in epochs.items():
            try:
                await self.set_leader_epoch(name, partition, leader_epoch)
            except KafkaError as error:
                if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.FENCED_LEADER_EPOCH):
                    raise

    @abstractmethod
    async def skip_producer_ids(self, last: int) -> None:
        """Allocate no producer id up to `last` from now on: logs that came from elsewhere use them."""

    @abstractmethod
    async def next_producer_id_block(self) -> range:
        """Allocate a block of producer ids that no broker had before."""


class ClusterMetadata(ABC):
    """The metadata that this broker has read, and its membership. The base of `StandaloneMetadata` (a journal) and
    `ZooKeeperMetadata`."""

    is_shared: ClassVar[bool] = True
    """Whether there may be other brokers. If not, a change waits for no controller, and takes effect at once."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    cluster_id: str = ""
    """22 characters. Valid after `start`."""

    writes: MetadataWrites

    topics: Mapping[str, TopicRecord]
    """Every topic by name; a live view."""

    broker_configs: Mapping[str, Mapping[str, str]]
    """Dynamic settings of brokers, by broker id as text, or CLUSTER_DEFAULT; a live view."""

    acls: Mapping[Resource, tuple[Entry, ...]]
    """The access control lists by their resource patterns; a live view. In ZooKeeper they are read only if the
    broker has an authorizer."""

    entity_configs: Mapping[str, Mapping[str, str]]
    """Credentials and quotas of users, clients and addresses, by Kafka's paths below /config: users/alice,
    users/<default>, with sanitized names; a live view."""

    delegation_tokens: Mapping[str, DelegationToken]
    """The delegation tokens by their ids; a live view. In ZooKeeper they are read only if the broker has a secret
    for them."""

    brokers: Mapping[int, BrokerRecord]
    """The live brokers by id; a live view."""

    @property
    @abstractmethod
    def controller_id(self) -> int:
        """The controller's broker id; NO_CONTROLLER while none is known."""

    @property
    @abstractmethod
    def registration_state(self) -> RegistrationState:
        """The state of this broker's registration."""

    def awaits_election(self, partition: PartitionRecord) -> bool:
        """Whether a new partition has a live replica that is not about to stop, and so will be elected soon. Clients
        see it after that, as in Kafka, whose controller sends brokers no partition without a leader."""
        if not partition.is_new:
            return False
        found = map(self.brokers.get, partition.replicas)
        return any(broker is not None and not broker.stopping for broker in found)

    @property
    def controller_epoch(self) -> int | None:
        """How many times a controller was elected; None where it is not counted."""
        return None

    @property
    def is_surely_registered(self) -> bool:
        """Whether its session cannot have expired yet, so that no other replica has been elected in its place."""
        return True

    @property
    def registration(self) -> int:
        """The number of this broker's registration, which its fetches as a follower name. It grows with each new life
        and each new session; NO_REGISTRATION before the first."""
        return NO_REGISTRATION

    @property
    def last_transaction(self) -> int:
        """The transaction id up to which the metadata is complete (ids as in `BrokerRecord.epoch`)."""
        return -1

    def is_deletion_ordered(self, name: str) -> bool:
        """Whether the deletion of a topic that is gone was requested. A topic that merely vanished may come back, and
        then needs its records."""
        return True

    def has_unresolved_topic(self, name: str) -> bool:
        """Whether the cluster has a topic of this name that is not among `topics`: it has no id yet, or cannot be
        understood."""
        return False

    async def catch_up_with_others(self) -> bool:
        """Apply what other brokers have changed until now, if that can be done soon. Returns False, at once, while
        changes cannot be expected to succeed: the store of the metadata does not answer."""
        return True

    async def return_ids(self, held: Mapping[TopicPartition, uuid.UUID | None]) -> None:
        """Give unresolved topics their ids back, from those that this broker's logs have (None: they never had one).
        Raises ConfigError when that cannot be done now."""
        return

    @abstractmethod
    async def start(self) -> None:
        """Load the metadata, or join the cluster. Raises ConfigError, one line, if that fails."""

    @abstractmethod
    async def register(self, endpoints: tuple[ListenerConfig, ...], rack: str | None) -> None:
        """Register this broker with its `endpoints`. Raises ConfigError, which names the other broker, when a live one
        has this id. A registered broker changes its endpoints by registering again; in a cluster, the others see the
        change a moment later."""

    def distrust_logs(self) -> None:
        """A disk may have lost what it acknowledged, now and later: at all its next registrations this broker is not to
        vouch for its logs."""
        return

    def admit_lost_tail(self) -> None:
        """Logs lack committed records at the start: at its next registration this broker is not to vouch for them."""
        return

    def leave_isrs(self, partitions: Iterable[TopicPartition]) -> None:
        """The logs of these partitions have failed: leave their ISRs soon, so that another replica leads."""
        return

    async def begin_to_stop(self) -> None:
        """Announce that this broker is about to unregister: from now on it joins no ISR, and the controller hands over
        what it leads. It stays registered. Raises nothing; `BrokerRecord.stopping` shows whether it was announced."""
        return

    @abstractmethod
    async def unregister(self) -> None:
        """Remove this broker's registration: it leads nothing from now on. Does nothing if it is not registered."""

    @abstractmethod
    async def stop(self) -> None:
        """Finish the writes in progress and disconnect. Later writes fail; reads still work."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on every change from now on. Returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def notify(self, change: Change, name: str) -> None:
        """Call all listeners."""
        for listener in tuple(self._listeners):
            try:
                listener(change, name)
            except Exception:
                logger.exception("a listener failed on %s of %s", change.value, name)


def may_be_led_elsewhere(metadata: ClusterMetadata, topic: str, index: int) -> bool:
    """Whether another replica may have been elected for a partition that is led here: this broker's session may have
    expired."""
    if metadata.is_surely_registered:
        return False
    record = metadata.topics.get(topic)
    state = record.partitions.get(index) if record is not None else None
    return state is not None and len(state.replicas) > 1


class Election(Enum):
    """The kinds of elections that a client may ask for, by their numbers in ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class Reassignment(NamedTuple):
    """A reassignment in progress. `replicas` are all at present, with those that are being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionAdmin(Protocol):
    """Requests of administrators that the controller decides: elections of leaders, reassignments of replicas. A single
    broker is its own controller; in a cluster only the elected one accepts them (KIP-455, KIP-460).

    Answers are in the order of the request, one for each element: None for success, else the refusal.

    `elect_leaders` and `reassign` raise KafkaError when the whole request is refused: NOT_CONTROLLER,
    REQUEST_TIMED_OUT.
    """

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election
    ) -> Sequence[KafkaError | None]:
        """Elect the preferred leader of each partition, or for UNCLEAN any live replica where no leader lives.
        Refusals: 3 unknown, 17 being deleted, 80 and 83 no live candidate, 84 no election needed."""
        ...

    async def reassign(
        self, targets: Sequence[tuple[TopicPartition, Sequence[int] | None]]
    ) -> Sequence[KafkaError | None]:
        """Begin to move partitions to these replicas, the preferred leader first; None cancels a reassignment.
        Refusals: 3 unknown or being deleted, 39 an impossible target, 85 nothing to cancel."""
        ...

    def reassignments(self) -> Mapping[TopicPartition, Reassignment]:
        """All reassignments in progress."""
        ...
