"""The topics of the cluster as this broker serves them: all of them by name, and the partitions that it leads, open.

Reads are plain dictionary look-ups and belong on the hot path. The registry decides who leads; `resign` lets go of what
is led no longer, at once, in the turn of the loop in which that is known, and `settle` brings what is newly led, when
its log is open. Both may be called at any time and as often as one likes. The log of a partition that somebody else
leads stays open: retention and flushing go on, and it is there when the partition comes back.
Source: kafka.server.ReplicaManager (becomeLeaderOrFollower, stopReplicas), kafka.server.HostedPartition.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.common.names import INTERNAL_TOPICS, TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord, TopicRecord
from kafkalite.metadata.registration_state import RegistrationState
from kafkalite.replication.partition import OfflinePartition, Partition

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_LOGS_PER_TURN = 32  # made before the loop gets to serve others
_LEADS = (RegistrationState.MEMBER, RegistrationState.DISCONNECTED)
_KEEPS_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class Topic:
    """One topic. `states` are all of its partitions as the cluster sees them; `partitions` those that this broker
    leads, or would lead if their disk had not failed. `overrides` are the topic's own settings as text; `config` is
    what follows from them."""

    __slots__ = ("config", "internal", "name", "overrides", "partitions", "states", "topic_id")

    def __init__(self, record: TopicRecord, config: TopicConfig) -> None:
        self.name = record.name
        self.topic_id = record.topic_id
        self.overrides = dict(record.config)
        self.config = config
        self.internal = record.name in INTERNAL_TOPICS
        self.states: Mapping[int, PartitionRecord] = record.partitions
        self.partitions: dict[int, Partition] = {}


class ReplicaManager:
    """All topics, by name and by id. Invariant: both hold the same topics, and whatever stands in them is in the
    registry and has the logs open of the partitions that it was settled to lead.

    `on_election` and `on_resignation` are told of each partition, `when_deleted` of a topic's name, in the turn of the
    loop in which it happens.
    """

    def __init__(self, config: BrokerConfig, registry: ClusterMetadata, logs: LogManager, broker_id: int) -> None:
        self._config = config
        self._registry = registry
        self._logs = logs
        self._broker_id = broker_id
        self._opening = asyncio.Lock()
        self._new: dict[str, Topic] = {}  # being made: nobody knows of them yet, but their first logs are there
        self._offline: dict[TopicPartition, str] = {}  # logs that are in directories that failed, and why those did
        self._cut: set[TopicPartition] = set()  # logs that lost bytes, until they are led with a new epoch
        self._unclear: set[TopicPartition] = set()  # logs that wait for the registry to say what their topics are
        self._defaults: TopicConfig | None = None  # what holds for a topic without settings of its own
        self._is_loaded = False
        self.on_election: Callable[[Partition], object] = lambda partition: None
        self.on_resignation: Callable[[Partition], object] = lambda partition: None
        self.when_deleted: Callable[[str], object] = lambda name: None
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[uuid.UUID, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.by_name.get(topic)
        return found.partitions.get(index) if found is not None else None

    def require(self, topic: str, index: int) -> Partition:
        """The partition, or the KafkaError that says why it is not served here."""
        found = self.by_name.get(topic)
        partition = found.partitions.get(index) if found is not None else None
        if partition is None:
            raise KafkaError(self.why_not(topic, index))
        return partition

    def why_not(self, topic: str, index: int) -> ErrorCode:
        """Of a partition that is not served here: it is led elsewhere, or by nobody; or there is none."""
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if self.exists(topic, index) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def exists(self, topic: str, index: int) -> bool:
        """Whether the cluster has this partition, whoever leads it."""
        record = self._registry.topics.get(topic)
        return record is not None and index in record.partitions

    def partition_count(self, topic: str) -> int:
        """How many partitions the cluster has of a topic; 0 if there is none."""
        record = self._registry.topics.get(topic)
        return len(record.partitions) if record is not None else 0

    def id_of(self, topic: str) -> uuid.UUID | None:
        """The id of a topic that the registry knows."""
        record = self._registry.topics.get(topic)
        return record.topic_id if record is not None else None

    def config_for(self, topic: str) -> TopicConfig:
        """The settings of a topic that the registry knows; the broker's defaults for others."""
        record = self._registry.topics.get(topic)
        return self._config_of(topic, record.config if record is not None else {})

    # at start

    async def load(self) -> None:
        """Take over what registry and disk hold at start: the registry decides.

        After an unclean stop a log may be left of a topic that was deleted; it is set aside, also when there is a new
        topic of that name. One whose topic the registry does not tell clearly stays as it is until it does. A log that
        had to be cut gets a new leader epoch, so that a client that has read more than is there now finds out
        (KIP-320). Epochs that only the log knew are written down: they never go back.
        """
        logs = self._logs.logs.items()
        held = {key: log.topic_id for key, log in logs if self._registry.has_unresolved_topic(key[0])}
        if held:  # loaded with the defaults: their own settings come with `_add`
            self._unclear.update(held)
            await self._registry.return_ids(held)
        records = list(self._registry.topics.values())
        self._set_aside_unknown(records)
        self._tell_of_missing(records)
        self._cut = {key for key, log in self._logs.logs.items() if log.lost_bytes}
        for record in records:
            self._add(topic := self._topic_of(record))
            for index, state in record.partitions.items():
                if self._is_led_here(state):
                    topic.partitions[index] = self._open(topic, index, state)
            await self._write_epochs(topic)
        self._logs.settled()
        self._is_loaded = True

    def _set_aside_unknown(self, records: Iterable[TopicRecord]) -> None:
        """Before any log is made, so that checkpoints are written once and not for every name that is used again."""
        known = {(record.name, index): record.topic_id for record in records for index in record.partitions}
        for key, log in list(self._logs.logs.items()):
            topic_id = known.get(key)
            if topic_id is None and self._registry.has_unresolved_topic(key[0]):
                logger.warning("%s-%d stays as it is until the registry says more clearly what its topic is", *key)
                log.config = TopicConfig.build(_KEEPS_ALL, self._config)
            elif topic_id is None:
                logger.warning(
                    "%s-%d is not in the registry, and is set aside: was its topic deleted? If another broker made it "
                    "here, take the rest of its directory's name away again and start with --adopt",
                    *key,
                )
                self._logs.set_aside(*key)
            elif self._registry.is_shared or not self._logs.was_clean:  # others delete topics while this one is away
                self._set_aside_if_foreign(log, topic_id)

    def _tell_of_missing(self, records: Iterable[TopicRecord]) -> None:
        missing = [
            (one.name, index)
            for one in records
            for index, state in one.partitions.items()
            if not self._logs.get(one.name, index) and self._is_kept_here(state)
        ]
        offline = self._logs.offline
        if offline:  # then they may be there, and stay offline
            self._offline.update(dict.fromkeys(missing, str(offline[0].failure)))
        elif missing:
            logger.warning(
                "%d partitions, such as %s-%d, have no log in any directory of log.dirs, and begin empty. If they were "
                "in a directory that is not named there, or on a disk that is not mounted, stop now and give it back",
                len(missing),
                *missing[0],
            )

    def _set_aside_if_foreign(self, log: PartitionLog | None, topic_id: uuid.UUID) -> None:
        """A log of the right name that belongs to another topic is not the one that is wanted."""
        if log is not None and log.topic_id not in (None, topic_id):
            logger.warning("%s-%d is left of a deleted topic of that name, and is set aside", log.topic, log.partition)
            self._logs.set_aside(log.topic, log.partition)

    # as the registry says

    def resign(self, name: str) -> Topic | None:
        """Let go of what this broker leads no longer of a topic, and of the topic with its logs if it is gone. The
        topic, if there still is one here; what it has to lead now comes with `settle`."""
        topic = self.by_name.get(name)
        if topic is None:
            return None
        record = self._registry.topics.get(name)
        if record is None or record.topic_id != topic.topic_id:
            self._forget(topic, is_ordered=self._registry.is_deletion_ordered(name))
            return None
        for index, partition in list(topic.partitions.items()):
            state = record.partitions.get(index)
            if state is None or not self._is_led_here(state):
                del topic.partitions[index]
                self._retire(partition)
            elif state.leader_epoch > partition.leader_epoch:  # elected anew: whoever asks for the old epoch is refused
                partition.leader_epoch = state.leader_epoch
                partition.wake_all()
        topic.states = record.partitions
        if record.config != topic.overrides:
            self._configure(topic, record.config)
        return topic

    async def settle(self, name: str) -> None:
        """Bring what is served here to what the registry says of a topic: may be called at any time, as often as one
        likes. Raises StorageError when a log cannot be made; in a cluster that partition is offline then, and the
        others are led all the same."""
        async with self._opening:
            topic = self.resign(name)
            record = self._registry.topics.get(name)
            if record is None:
                return
            if topic is None:
                topic = self._new[name] = self._topic_of(record)
            led, fault = await self._open_all(topic)
            self._new.pop(name, None)
            if self._registry.topics.get(name) is None:
                self._forget(topic, is_ordered=self._registry.is_deletion_ordered(name))
                return
            self._add(topic)
            self.resign(name)  # what has changed since
            for partition in led:
                if topic.partitions.get(partition.index) is partition:
                    self.on_election(partition)
        await self._write_epochs(topic)
        if fault is not None:
            raise fault

    async def _open_all(self, topic: Topic) -> tuple[list[Partition], StorageError | None]:
        """Open what is to be led and is not led yet. Returns it, and why some of it is offline."""
        fault: StorageError | None = None
        led: list[Partition] = []
        for index in list(topic.states):
            record = self._registry.topics.get(topic.name)  # it may have changed while others had their turn
            if record is None or record.topic_id != topic.topic_id:
                break
            state = record.partitions.get(index)
            if state is None or index in topic.partitions or not self._is_led_here(state):
                continue
            try:
                partition = self._open(topic, index, state)
            except StorageError as error:
                if not self._registry.is_shared:
                    raise
                logger.error("%s-%d cannot be led: %s", topic.name, index, error)
                partition = OfflinePartition(topic.name, index, str(error), state.leader_epoch)
                fault = fault or error
            topic.partitions[index] = partition
            led.append(partition)
            if len(led) % _LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
        return led, fault

    def _open(self, topic: Topic, index: int, state: PartitionRecord) -> Partition:
        """Raises StorageError. A log that is not here was never made, unless it is in a directory that has failed."""
        key = topic.name, index
        if key in self._offline:
            return OfflinePartition(*key, self._offline[key], state.leader_epoch)
        if self._is_loaded:
            self._set_aside_if_foreign(self._logs.get(*key), topic.topic_id)
        log = self._logs.get(*key) or self._logs.create(*key, topic.topic_id, topic.config)
        if self._registry.is_shared and log.topic_id is None:  # of a time before there were ids
            log.set_topic_id(topic.topic_id)
        # an epoch never goes backwards, whichever of registry and log remembers more
        epoch = max(state.leader_epoch, log.latest_epoch, 0)
        if key in self._cut:
            self._cut.discard(key)
            epoch += 1
        return Partition(*key, log, epoch)

    async def _write_epochs(self, topic: Topic) -> None:
        """Epochs that the registry does not know. In a cluster, what cannot be written now is tried again when the
        topic is settled the next time."""
        for index, partition in list(topic.partitions.items()):
            state = topic.states.get(index)
            if state is None or partition.leader_epoch <= state.leader_epoch:
                continue
            try:
                await self._registry.set_leader_epoch(topic.name, index, partition.leader_epoch)
            except KafkaError as error:
                if not self._registry.is_shared:
                    raise
                logger.warning(
                    "the new leader epoch of %s-%d, %d, is not written yet: %s",
                    *(topic.name, index, partition.leader_epoch, error),
                )
        record = self._registry.topics.get(topic.name)
        if record is not None and record.topic_id == topic.topic_id:
            topic.states = record.partitions

    def take_offline(self, keys: Iterable[TopicPartition], why: str) -> None:
        """The directory of these logs has failed: whoever asks for them, or waits for them, is told so."""
        for name, index in keys:
            self._offline[name, index] = why
            topic = self._new.get(name) or self.by_name.get(name)
            partition = topic.partitions.get(index) if topic is not None else None
            if topic is not None and partition is not None:
                topic.partitions[index] = OfflinePartition(name, index, why, partition.leader_epoch)
                partition.retire(StorageError(why))

    def _is_led_here(self, state: PartitionRecord) -> bool:
        """A registry of one broker's own has nobody else to lead anything; in a cluster a broker leads what it was
        elected for, as long as it is a member."""
        if not self._registry.is_shared:
            return True
        return state.leader == self._broker_id and self._registry.registration_state in _LEADS

    def _is_kept_here(self, state: PartitionRecord) -> bool:
        return self._broker_id in state.replicas or not self._registry.is_shared

    def _retire(self, partition: Partition) -> None:
        partition.retire()
        self.on_resignation(partition)

    def _forget(self, topic: Topic, *, is_ordered: bool = True) -> None:
        """The topic is gone, or was never whole: for clients at once, its files a little later. If nobody asked for
        that, they are kept, and so are the offsets that groups have in it."""
        known = self.by_name.get(topic.name) is topic
        if not is_ordered:
            logger.warning("topic %s has vanished from the registry, though nobody ordered its deletion", topic.name)
        if known:
            del self.by_name[topic.name]
            del self.by_id[topic.topic_id]
        partitions = dict(topic.partitions)
        topic.partitions.clear()
        for partition in partitions.values():
            self._retire(partition)
        for index in {**topic.states, **partitions}:
            self._offline.pop((topic.name, index), None)
            log = self._logs.get(topic.name, index)
            if log is not None and log.topic_id not in (None, topic.topic_id):
                continue  # of another topic of that name
            try:
                (self._logs.delete if is_ordered else self._logs.set_aside)(topic.name, index)
            except StorageError as error:  # the topic is gone all the same; a start sets the directory aside
                logger.error("%s", error)
        if known and is_ordered:
            self.when_deleted(topic.name)

    # settings

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings have changed, and with them the defaults of every topic."""
        self._config = config
        self._defaults = None
        for topic in (*self, *self._new.values()):
            self._configure(topic, topic.overrides)

    def _configure(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        topic.overrides = dict(overrides)
        topic.config = self._config_of(topic.name, overrides)
        for index in topic.states:
            log = self._logs.get(topic.name, index)
            if log is not None:
                log.config = topic.config

    def _add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        for key in self._unclear and [(topic.name, index) for index in topic.states]:
            if key in self._unclear and (log := self._logs.get(*key)) is not None:
                log.config = topic.config
            self._unclear.discard(key)

    def _topic_of(self, record: TopicRecord) -> Topic:
        return Topic(record, self._config_of(record.name, record.config))

    def _config_of(self, name: str, overrides: Mapping[str, str]) -> TopicConfig:
        """What follows from a topic's own settings. Another broker, or a tool, may have given it some that nobody here
        understands: those are left out."""
        if not overrides:  # most topics: 0.1 ms each
            if self._defaults is None:
                self._defaults = TopicConfig.build({}, self._config)
            return self._defaults
        try:
            return TopicConfig.build(overrides, self._config)
        except KafkaError as fault:
            if not self._registry.is_shared:
                raise
            logger.warning("a setting of topic %s has no effect here: %s", name, fault)
        understood = {}
        for key, value in overrides.items():
            with suppress(KafkaError):
                TopicConfig.build({key: value}, self._config)
                understood[key] = value
        return TopicConfig.build(understood, self._config)
