"""The topics of the cluster on this broker: all topics by name and id, and the open partitions that this broker leads.

Look-ups are plain dictionary accesses and belong on the hot path. The metadata decides the leaders; `MetadataApplier`
applies it, topic by topic here and replica by replica with `hosted`.
Source: kafka.server.ReplicaManager.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.event import Event
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig, TopicConfigs
from kafkalite.log.storage.files import outcome_of
from kafkalite.metadata.cluster_metadata import ClusterMetadata, TopicRecord
from kafkalite.replication import found_logs
from kafkalite.replication.hosted_replicas import HostedReplicas, Topic
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.replication.partition import Partition
from kafkalite.replication.reconciliation import Followed, LocalTopic

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog
    from kafkalite.replication.replica_roles import ReplicaRoles

logger = logging.getLogger(__name__)

EARLY_EPOCHS_MIN = 4  # fewer are not worth a thread


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
        self.hosted = HostedReplicas(metadata, logs, broker_id, roles)
        self._opening: dict[str, Topic] = {}  # being created: hidden from clients until all logs are open
        self._unresolved: set[str] = set()  # topics with logs here whose settings are not in the metadata yet
        self.on_election = Event[[Partition]]()
        self.on_resignation = self.hosted.on_resignation
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
        return (topic, index) in self.hosted.offline

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

    # Start

    async def check_logs(self) -> None:
        """Compare the logs that were found with the metadata (`found_logs.py`)."""
        findings = await found_logs.compare(self._logs, self._metadata, self.hosted.role, self.configs.keeping_all())
        self._unresolved |= findings.unresolved
        self.hosted.offline |= findings.offline
        self.hosted.truncated = findings.truncated

    def finish_load(self) -> None:
        """Every topic of the metadata is here."""
        self._logs.complete_start()
        self.hosted.is_loaded = True

    # Effects of the metadata

    def local(self, topic: Topic) -> LocalTopic:
        """The topic as it is on this broker."""
        epochs, replicated = {}, []
        for index, partition in topic.partitions.items():
            epochs[index] = partition.leader_epoch
            if isinstance(partition, LeaderPartition):
                replicated.append(index)
        followed = {index: Followed(one.leader_epoch, one.leader_id) for index, one in topic.followers.items()}
        name, logs = topic.name, self._logs.logs
        kept = [index for index in topic.states if (name, index) in logs] if self.roles is not None else ()
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
            logger.warning("topic %s has vanished from the metadata, though its deletion was not requested", name)
        if being_opened is None:
            del self.by_name[name]
            del self.by_id[topic.topic_id]
        self.hosted.delete(topic, keeps_logs=keeps_logs)
        if being_opened is None and not keeps_logs:
            self.when_deleted(name)

    # Changes on this broker

    def take_offline(self, keys: Iterable[TopicPartition], why: str) -> None:
        """The directory of these logs has failed: requests for them, waiting or new, get StorageError."""
        for name, index in keys:
            self.hosted.offline[name, index] = why
            topic = self._opening.get(name) or self.by_name.get(name)
            if topic is not None:
                self.hosted.take_offline(topic, index, why)

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
