"""The replicas on this broker: their logs opened, led, followed, given up, taken offline.

`MetadataApplier` decides nothing here: it calls these methods for the effects of the metadata (`reconciliation`). The
log of a partition that another broker leads stays open: retention and flushing continue, and it is available when this
broker leads the partition again.
Source: kafka.server.ReplicaManager (makeLeaders, makeFollowers, stopReplicas), kafka.server.HostedPartition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import StorageError
from kafkalite.common.event import Event
from kafkalite.common.names import INTERNAL_TOPICS, TopicPartition
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.segment.segment import NEVER
from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord, RegistrationState, TopicRecord
from kafkalite.replication import found_logs
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.replication.partition import OfflinePartition, Partition
from kafkalite.replication.reconciliation import Role

if TYPE_CHECKING:
    from kafkalite.log.directories.log_manager import LogManager
    from kafkalite.log.partition.partition_log import PartitionLog
    from kafkalite.replication.follower_partition import FollowerPartition
    from kafkalite.replication.replica_roles import ReplicaRoles

logger = logging.getLogger(__name__)

_MAY_LEAD = (RegistrationState.MEMBER, RegistrationState.DISCONNECTED)


class Topic:
    """One topic. `states` are all of its partitions as the cluster sees them; `partitions` are the ones that this
    broker leads, or would lead if their disk had not failed, `followers` the ones that it copies from their leaders.
    `unopened` are added partitions that it was elected for and has not opened yet: no client sees them. `overrides` are
    the topic's own settings as text; `config` follows from them. `admission` and `descriptions` are kept here by the
    API, which makes them once per topic."""

    __slots__ = (
        "admission", "config", "descriptions", "followers", "internal", "name", "overrides", "partitions", "states",
        "topic_id", "unopened",
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
        self.unopened: set[int] = set()
        self.admission: Any = None
        self.descriptions: Any = None


class HostedReplicas:
    """Fields: `offline` are the logs in failed directories, with the reasons of the failures; `truncated` the logs that
    lost bytes, until they are led under a new epoch. `is_loaded`: every topic of the metadata is open.

    `on_resignation` is called with each partition, in the turn of the loop in which it happens. Without `roles` a
    partition is led like one with a single replica.
    """

    def __init__(self, metadata: ClusterMetadata, logs: LogManager, broker_id: int, roles: ReplicaRoles | None) -> None:
        self._metadata = metadata
        self._logs = logs
        self._broker_id = broker_id
        self.roles = roles
        self._former_epochs: dict[TopicPartition, int] = {}
        self._former_registration = -1
        self.offline: dict[TopicPartition, str] = {}
        self.truncated: set[TopicPartition] = set()
        self.is_loaded = False
        self.on_resignation = Event[[Partition]]()

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

    def become_leader(self, topic: Topic, index: int, leader_epoch: int) -> Partition | None:
        """Open a partition, under a later epoch if its log knows one or was cut. It is offline if it may have a log in
        a directory that has failed. None if the metadata must have a later epoch first. Raises StorageError if the log
        cannot be made."""
        key = topic.name, index
        state = topic.states.get(index)
        if key in self.offline:
            partition: Partition | None = OfflinePartition(*key, self.offline[key], leader_epoch)
        elif self.roles is not None and state is not None and self.role.is_replicated(state):
            partition = self._lead_replicated(self.roles, topic, index, state)
        else:
            log = self._log(topic, index)
            epoch = max(leader_epoch, log.epochs.latest, 0)  # an epoch never goes back
            if key in self.truncated:
                epoch += 1
            log.replicated_offset = NEVER
            partition = Partition(*key, log, epoch)
        if partition is not None:
            self.truncated.discard(key)
            topic.partitions[index] = partition
            topic.unopened.discard(index)
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
        if self.roles is not None and key not in self.offline:
            log = self._log(topic, index)
            self.truncated.discard(key)
            follower = self.roles.follow(topic.name, topic.topic_id, index, log, leader_epoch, leader)
            follower.is_being_added = self._is_being_added(topic, index)
            topic.followers[index] = follower

    def may_link(self, topic: Topic, index: int, leader: int) -> bool:
        """Whether a reassignment adds this broker to a partition of which it has no log, and whose leader is the whole
        ISR: all sealed segments of that one are committed."""
        key, state = (topic.name, index), topic.states.get(index)
        is_new = self.roles is not None and key not in self.offline and self._logs.get(*key) is None
        return is_new and state is not None and self._broker_id in state.adding and state.isr == (leader,)

    async def link_log(self, topic: Topic, index: int, leader: int) -> None:
        """Take over the sealed segments of a leader on the same disk. Otherwise, or on an error, all is fetched."""
        key = topic.name, index
        found = await asyncio.get_running_loop().run_in_executor(None, self._logs.link, key, leader, topic.topic_id)
        if found is None or self._logs.get(*key) is not None:
            return
        try:
            self._logs.create_from(key, found, topic.config)
        except StorageError as error:
            logger.error("%s-%d cannot be taken over, and is fetched: %s", *key, error)
            return
        logger.info("%s-%d: %d segments of broker %d are taken over", *key, found[1].segments, leader)

    def _is_being_added(self, topic: Topic, index: int) -> bool:
        state = topic.states.get(index)
        return state is not None and self._broker_id in state.adding

    def _log(self, topic: Topic, index: int) -> PartitionLog:
        key = topic.name, index
        if self.is_loaded:
            found_logs.rename_foreign(self._logs, self._logs.get(*key), topic.topic_id)
        log = self._logs.get(*key) or self._logs.create(*key, topic.topic_id, topic.config)
        if (
            self._metadata.is_shared or log.metadata.is_corrupt
        ) and log.metadata.topic_id is None:  # or from before topic ids
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
            if state.adding:
                self.roles.seal(log)
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
        self.offline.pop((topic.name, index), None)
        log = self._logs.get(topic.name, index)
        if log is not None and log.metadata.topic_id in (None, topic.topic_id):
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

    def delete(self, topic: Topic, *, keeps_logs: bool) -> None:
        """Gives up every replica of a topic, and deletes its log, or with `keeps_logs` keeps it as a stray."""
        name = topic.name
        indexes = topic.states.keys() | topic.partitions.keys()
        for index in list(topic.partitions):
            self.resign(topic, index)
        for index in list(topic.followers):
            self.stop_following(topic, index)
        for index in sorted(indexes):
            self.offline.pop((name, index), None)
            log = self._logs.get(name, index)
            if log is not None and log.metadata.topic_id not in (None, topic.topic_id):
                continue  # of another topic with that name
            try:
                (self._logs.keep_as_stray if keeps_logs else self._logs.delete)(name, index)
            except StorageError as error:  # removed nevertheless; the next start makes the directory a stray
                logger.error("%s", error)

    def take_offline(self, topic: Topic, index: int, why: str) -> None:
        """The directory of the log has failed: requests for the partition, waiting or new, get StorageError."""
        if index in topic.followers:
            self.stop_following(topic, index)
        partition = topic.partitions.get(index)
        if partition is not None:
            if self.roles is not None and isinstance(partition, LeaderPartition):
                self.roles.end_leading(partition)
            topic.partitions[index] = OfflinePartition(topic.name, index, why, partition.leader_epoch)
            partition.retire(StorageError(why))
