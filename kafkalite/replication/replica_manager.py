"""The topics of the cluster on this broker: all topics by name and id, and the open partitions that this broker leads.

Look-ups are plain dictionary accesses and belong on the hot path. The metadata decides the leaders; `MetadataApplier`
applies it with the methods of the lower half. The log of a partition that another broker leads stays open: retention
and flushing continue, and it is available when this broker leads the partition again.
Source: kafka.server.ReplicaManager, kafka.server.HostedPartition.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.common.event import Event
from kafkalite.common.names import INTERNAL_TOPICS, NO_LEADER, TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig, TopicConfigs
from kafkalite.log.segment.segment import NEVER
from kafkalite.log.storage.files import outcome_of
from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord, RegistrationState, TopicRecord
from kafkalite.replication import found_logs
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.replication.partition import OfflinePartition, Partition
from kafkalite.replication.reconciliation import Followed, LocalTopic, Role

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog
    from kafkalite.replication.follower_partition import FollowerPartition
    from kafkalite.replication.replica_roles import ReplicaRoles

logger = logging.getLogger(__name__)

EARLY_EPOCHS_MIN = 4  # fewer are not worth a thread
_MAY_LEAD = (RegistrationState.MEMBER, RegistrationState.DISCONNECTED)


class Topic:
    """One topic. `states` are all of its partitions as the cluster sees them; `partitions` are the ones that this
    broker leads, or would lead if their disk had not failed, `followers` the ones that it copies from their leaders.
    `overrides` are the topic's own settings as text; `config` follows from them. `admission` is kept here by the API,
    which makes it once per topic."""

    __slots__ = (
        "admission", "config", "followers", "internal", "name", "overrides", "partitions", "states", "topic_id",
    )  # fmt: skip

    def __init__(self, record: TopicRecord, config: TopicConfig) -> None:
        self.name = record.name
        self.topic_id = record.topic_id
        self.overrides = dict(record.config)
        self.config = config
        self.internal = record.name in INTERNAL_TOPICS
        self.states: Mapping[int, PartitionRecord] = record.partitions
        self.partitions: dict[int, Partition] = {}
        self.followers: dict[int, FollowerPartition] = {}
        self.admission: Any = None


class ReplicaManager:
    """All topics, by name and by id. Invariant: both hold the same topics; for each listed topic, the logs of all
    partitions that this broker led at its last reconciliation are open.

    `on_election` and `on_resignation` are called with each partition, `when_deleted` with a topic's name, in the turn
    of the loop in which it happens. Without `roles` a partition is led like one with a single replica.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        logs: LogManager,
        broker_id: int,
        roles: ReplicaRoles | None = None,
    ) -> None:
        self.configs = TopicConfigs(config)
        self._metadata = metadata
        self._logs = logs
        self._broker_id = broker_id
        self.roles = roles
        self._former_epochs: dict[TopicPartition, int] = {}
        self._former_registration = -1
        self._opening: dict[str, Topic] = {}  # being created: hidden from clients until all logs are open
        self._offline: dict[TopicPartition, str] = {}  # logs in failed directories, with the reasons of the failures
        self._truncated: set[TopicPartition] = set()  # logs that lost bytes, until they are led under a new epoch
        self._unresolved: set[str] = set()  # topics with logs here whose settings are not in the metadata yet
        self._is_loaded = False
        self.on_election = Event[[Partition]]()
        self.on_resignation = Event[[Partition]]()
        self.when_deleted = Event[[str]]()
        self.on_config_change = Event[[]]()  # of any topic, when it has taken effect
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[uuid.UUID, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    # Look-ups

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.by_name.get(topic)
        return found.partitions.get(index) if found is not None else None

    def require(self, topic: str, index: int) -> Partition:
        """The partition, or the KafkaError that says why it is not served here."""
        found = self.by_name.get(topic)
        partition = found.partitions.get(index) if found is not None else None
        if partition is None:
            raise KafkaError(self.missing_partition_error(topic, index))
        return partition

    def missing_partition_error(self, topic: str, index: int) -> ErrorCode:
        """NOT_LEADER_OR_FOLLOWER if the partition exists but is not led here, else UNKNOWN_TOPIC_OR_PARTITION."""
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if self.exists(topic, index) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def exists(self, topic: str, index: int) -> bool:
        """Whether the cluster has this partition, led here or elsewhere."""
        record = self._metadata.topics.get(topic)
        return record is not None and index in record.partitions

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether this broker's replica may be in a directory that has failed."""
        return (topic, index) in self._offline

    def leader_of(self, topic: str, index: int) -> int | None:
        """The broker that leads the partition, or NO_LEADER; None if the cluster does not have this partition."""
        if self.partition(topic, index) is not None:
            return self._broker_id
        record = self._metadata.topics.get(topic)
        state = record.partitions.get(index) if record is not None else None
        if state is None:
            return NO_LEADER if self._metadata.has_unresolved_topic(topic) else None
        return state.leader

    def log_of(self, topic: str, index: int) -> PartitionLog | None:
        return self._logs.get(topic, index)

    def partition_count(self, topic: str) -> int:
        """The number of a topic's partitions in the cluster; 0 if the topic does not exist."""
        record = self._metadata.topics.get(topic)
        return len(record.partitions) if record is not None else 0

    def id_of(self, topic: str) -> uuid.UUID | None:
        """The id of a topic that the metadata knows."""
        record = self._metadata.topics.get(topic)
        return record.topic_id if record is not None else None

    def config_for(self, topic: str) -> TopicConfig:
        """The settings of a topic that the metadata knows; the broker's defaults for others."""
        record = self._metadata.topics.get(topic)
        return self.configs.build(topic, record.config if record is not None else {})

    @property
    def role(self) -> Role:
        return Role(
            self._broker_id,
            self._metadata.registration_state in _MAY_LEAD,
            self.roles is not None,
            self._former_epochs,
        )

    def on_registration(self) -> None:
        """Note the epochs that name this broker as a leader, if it has just begun a new life in the cluster."""
        registration = self._metadata.registration
        is_new = registration != self._former_registration
        if is_new and self._metadata.registration_state is RegistrationState.MEMBER:
            self._former_registration = registration
            self._former_epochs = {
                (topic.name, index): state.leader_epoch
                for topic in self._metadata.topics.values()
                for index, state in topic.partitions.items()
                if state.leader == self._broker_id
            }

    # Start

    async def check_logs(self) -> None:
        """Compare the logs that were found with the metadata (`found_logs.py`)."""
        findings = await found_logs.compare(self._logs, self._metadata, self.role, self.configs.keeping_all())
        self._unresolved |= findings.unresolved
        self._offline |= findings.offline
        self._truncated = findings.truncated

    def finish_load(self) -> None:
        """Every topic of the metadata is here."""
        self._logs.complete_start()
        self._is_loaded = True

    # Effects of the metadata

    def local(self, topic: Topic) -> LocalTopic:
        """The topic as it is on this broker."""
        epochs, replicated = {}, []
        for index, partition in topic.partitions.items():
            epochs[index] = partition.leader_epoch
            if isinstance(partition, LeaderPartition):
                replicated.append(index)
        followed = {index: Followed(one.leader_epoch, one.leader_id) for index, one in topic.followers.items()}
        name, logs = topic.name, self._logs
        kept = [index for index in topic.states if logs.get(name, index) is not None] if self.roles is not None else ()
        return LocalTopic(topic.topic_id, topic.overrides, epochs, replicated, followed, kept)

    def begin(self, record: TopicRecord) -> Topic:
        """A topic that is seen from `add` on, when its logs are open."""
        topic = self._opening[record.name] = Topic(record, self.configs.build(record.name, record.config))
        return topic

    def add(self, topic: Topic) -> None:
        self._opening.pop(topic.name, None)
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        if topic.name in self._unresolved:
            self._unresolved.discard(topic.name)
            self._configure_logs(topic)

    async def write_early(self, elected: Sequence[tuple[PartitionLog, int]]) -> bool:
        """Writes many epochs that logs are about to begin to the disk, before this broker leads them. False if some
        could not be written: each election tries again for its log, and reports it.

        A leader notes its epoch on the disk before anything else, with two fsyncs: 3 ms of the event loop for each
        partition. After a start, or the end of another broker, there may be thousands. They are written by another
        thread, to one file of each data directory (`log/directories/election_file.py`).
        """
        return await write_early(self._logs, elected)

    def become_leader(self, topic: Topic, index: int, leader_epoch: int) -> Partition | None:
        """Open a partition, under a later epoch if its log knows one or was cut. It is offline if it may have a log in
        a directory that has failed. None if the metadata must have a later epoch first. Raises StorageError if the log
        cannot be made."""
        key = topic.name, index
        state = topic.states.get(index)
        if key in self._offline:
            partition: Partition | None = OfflinePartition(*key, self._offline[key], leader_epoch)
        elif self.roles is not None and state is not None and self.role.is_replicated(state):
            partition = self._lead_replicated(self.roles, topic, index, state)
        else:
            log = self._log(topic, index)
            epoch = max(leader_epoch, log.epochs.latest, 0)  # an epoch never goes back
            if key in self._truncated:
                epoch += 1
            log.replicated_offset = NEVER
            partition = Partition(*key, log, epoch)
        if partition is not None:
            self._truncated.discard(key)
            topic.partitions[index] = partition
        return partition

    def _lead_replicated(
        self, roles: ReplicaRoles, topic: Topic, index: int, state: PartitionRecord
    ) -> LeaderPartition | None:
        log = self._log(topic, index)
        if log.epochs.latest > state.leader_epoch:  # ZooKeeper has lost something
            self._former_epochs[topic.name, index] = log.epochs.latest
            return None
        return roles.lead(topic.name, index, log, state, topic.config.min_insync_replicas)

    def become_follower(self, topic: Topic, index: int, leader_epoch: int, leader: int) -> None:
        """Copy the partition from its leader. Does nothing if it may have a log in a directory that has failed. Raises
        StorageError if the log cannot be made."""
        key = topic.name, index
        if self.roles is not None and key not in self._offline:
            log = self._log(topic, index)
            self._truncated.discard(key)
            follower = self.roles.follow(topic.name, topic.topic_id, index, log, leader_epoch, leader)
            follower.is_being_added = self._is_being_added(topic, index)
            topic.followers[index] = follower

    def _is_being_added(self, topic: Topic, index: int) -> bool:
        state = topic.states.get(index)
        return state is not None and self._broker_id in state.adding

    def _log(self, topic: Topic, index: int) -> PartitionLog:
        key = topic.name, index
        if self._is_loaded:
            found_logs.rename_foreign(self._logs, self._logs.get(*key), topic.topic_id)
        log = self._logs.get(*key) or self._logs.create(*key, topic.topic_id, topic.config)
        if (self._metadata.is_shared or log.metadata.is_corrupt) and log.topic_id is None:  # or from before topic ids
            log.metadata.set_topic_id(topic.topic_id)
        return log

    def update_replicas(self, topic: Topic) -> None:
        """The states of partitions have changed, or the settings; each leads under the same epoch as before."""
        for index, partition in topic.partitions.items():
            if isinstance(partition, LeaderPartition):
                state = topic.states.get(index)
                if state is not None and state.leader_epoch == partition.leader_epoch:
                    partition.on_record(state, topic.config.min_insync_replicas)
        for index, follower in topic.followers.items():
            follower.is_being_added = self._is_being_added(topic, index)

    def change_replication(self, topic: Topic, index: int) -> None:
        """A partition that is led here got further replicas, or lost all others; operations that wait continue. Raises
        StorageError if its epoch cannot be written; it is offline then."""
        former = topic.partitions[index]
        log, state = self._logs.get(topic.name, index), topic.states[index]
        if log is None or self.roles is None or former.is_offline:
            return
        if isinstance(former, LeaderPartition):
            self.roles.end_leading(former)
            log.replicated_offset = NEVER
            partition = Partition(topic.name, index, log, former.leader_epoch)
        else:
            try:
                partition = self.roles.lead(topic.name, index, log, state, topic.config.min_insync_replicas)
            except StorageError as error:
                topic.partitions[index] = OfflinePartition(topic.name, index, str(error), former.leader_epoch)
                former.retire(error)
                raise
        topic.partitions[index] = partition
        partition.take_over(former)

    def stop_following(self, topic: Topic, index: int) -> None:
        if self.roles is not None:
            self.roles.end_following(topic.followers.pop(index))

    def drop_replica(self, topic: Topic, index: int) -> None:
        """Delete the log of a partition that was reassigned to other brokers."""
        self._offline.pop((topic.name, index), None)
        log = self._logs.get(topic.name, index)
        if log is not None and log.topic_id in (None, topic.topic_id):
            logger.info("%s-%d was reassigned to other brokers, and is deleted here", topic.name, index)
            try:
                self._logs.delete(topic.name, index)
            except StorageError as error:  # the next start makes the directory a stray
                logger.error("%s", error)

    def resign(self, topic: Topic, index: int) -> None:
        partition = topic.partitions.pop(index)
        if self.roles is not None and isinstance(partition, LeaderPartition):
            self.roles.end_leading(partition)
        partition.retire()
        self.on_resignation(partition)

    def configure(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        topic.overrides = dict(overrides)
        topic.config = self.configs.build(topic.name, overrides)
        self._configure_logs(topic)
        self.on_config_change()

    def _configure_logs(self, topic: Topic) -> None:
        for index in topic.states:
            log = self._logs.get(topic.name, index)
            if log is not None:
                log.config = topic.config

    def remove(self, name: str, *, keeps_logs: bool = False) -> None:
        """Remove a topic that was deleted, or whose creation failed: for clients at once, its files a little later.
        With `keeps_logs` the logs stay as strays, and the committed offsets of groups stay, too. Does nothing if the
        topic is not on this broker."""
        being_opened = self._opening.pop(name, None)
        topic = being_opened or self.by_name.get(name)
        if topic is None:
            return
        if keeps_logs:
            logger.warning("topic %s has vanished from the metadata, though nobody ordered its deletion", name)
        if being_opened is None:
            del self.by_name[name]
            del self.by_id[topic.topic_id]
        indexes = topic.states.keys() | topic.partitions.keys()
        for index in list(topic.partitions):
            self.resign(topic, index)
        for index in list(topic.followers):
            self.stop_following(topic, index)
        for index in sorted(indexes):
            self._offline.pop((name, index), None)
            log = self._logs.get(name, index)
            if log is not None and log.topic_id not in (None, topic.topic_id):
                continue  # of another topic with that name
            try:
                (self._logs.keep_as_stray if keeps_logs else self._logs.delete)(name, index)
            except StorageError as error:  # removed nevertheless; the next start makes the directory a stray
                logger.error("%s", error)
        if being_opened is None and not keeps_logs:
            self.when_deleted(name)

    # Changes on this broker

    def take_offline(self, keys: Iterable[TopicPartition], why: str) -> None:
        """The directory of these logs has failed: requests for them, waiting or new, get StorageError."""
        for name, index in keys:
            self._offline[name, index] = why
            topic = self._opening.get(name) or self.by_name.get(name)
            partition = topic.partitions.get(index) if topic is not None else None
            if topic is not None and index in topic.followers:
                self.stop_following(topic, index)
            if topic is not None and partition is not None:
                if self.roles is not None and isinstance(partition, LeaderPartition):
                    self.roles.end_leading(partition)
                topic.partitions[index] = OfflinePartition(name, index, why, partition.leader_epoch)
                partition.retire(StorageError(why))

    def on_failed_log(self, key: TopicPartition) -> None:
        """A log takes no more records."""
        topic = self.by_name.get(key[0])
        follower = topic.followers.get(key[1]) if topic is not None else None
        if follower is not None and self.roles is not None:
            self.roles.fail(follower)

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings have changed, and with them the defaults of every topic."""
        self.configs.reconfigure(config)
        for topic in (*self, *self._opening.values()):
            self.configure(topic, topic.overrides)


async def write_early(logs: LogManager, elected: Sequence[tuple[PartitionLog, int]]) -> bool:
    """As `ReplicaManager.write_early`."""
    if len(elected) < EARLY_EPOCHS_MIN:
        return True
    loop = asyncio.get_running_loop()
    is_written = True
    for job, note in list(logs.record_elections(elected)):
        fault = await loop.run_in_executor(None, outcome_of, job)
        if fault is None:
            note()
        else:
            logger.warning("the epochs of elections are not written yet: %s", fault)
            is_written = False
    return is_written
