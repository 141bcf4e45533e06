"""The steps that make a topic on this broker agree with the cluster metadata. Pure.

`decide` compares the two and returns effects in the order in which they are performed. Most take effect at once;
`BecomeLeader` and `BecomeFollower` must open a log, and `WriteLeaderEpoch` waits for the cluster.

A broker leads a partition with several replicas under an epoch that is newer than its registration. Under an older one
its former life may have had other records at the same offsets, so it takes the next epoch first ("A new life, a new
epoch" in docs/replication.md).
Source: kafka.server.ReplicaManager (becomeLeaderOrFollower, stopReplicas).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.metadata.cluster_metadata import PartitionRecord, TopicRecord

_NO_EPOCHS: Mapping[TopicPartition, int] = {}


class Role(NamedTuple):
    """This broker's part in the cluster. It leads the partitions that it was elected for, and follows the leaders of
    its other replicas, while it `may_lead`: it is registered, or merely cut off from ZooKeeper. `former_epochs` are the
    epochs of replicated partitions that named it as their leader when it registered. Without `replicates` each
    partition is led like one with a single replica."""

    broker_id: int
    may_lead: bool
    replicates: bool = False
    former_epochs: Mapping[TopicPartition, int] = _NO_EPOCHS

    def leads(self, state: PartitionRecord) -> bool:
        return self.may_lead and state.leader == self.broker_id

    def keeps(self, state: PartitionRecord) -> bool:
        """Whether this broker has a replica of the partition, led here or elsewhere."""
        return self.broker_id in state.replicas

    def follows(self, state: PartitionRecord) -> bool:
        others = (self.broker_id, NO_LEADER)
        return self.replicates and self.may_lead and state.leader not in others and self.keeps(state)

    def is_replicated(self, state: PartitionRecord) -> bool:
        """Whether another replica than the leader may have the records."""
        return self.replicates and (len(state.replicas) > 1 or len(state.isr) > 1 or bool(state.elr))

    def leads_by_former_epoch(self, name: str, index: int, state: PartitionRecord) -> bool:
        return self.is_replicated(state) and state.leader_epoch <= self.former_epochs.get((name, index), -1)


class Followed(NamedTuple):
    leader_epoch: int
    leader: int


class LocalTopic(NamedTuple):
    """The local state of a topic: its own settings, the leader epoch of each partition led here, `replicated` among
    them with other replicas, the leader of each partition followed here, and the partitions with a log here."""

    topic_id: uuid.UUID
    overrides: Mapping[str, str]
    leader_epochs: Mapping[int, int]
    replicated: Collection[int] = ()
    followed: Mapping[int, Followed] = {}
    kept: Collection[int] = ()


class RemoveTopic(NamedTuple):
    """The topic is gone. `keeps_logs`: it vanished without an order to delete it, and may come back."""

    keeps_logs: bool


class Resign(NamedTuple):
    """Another broker leads the partition, or none does, or this one under another epoch."""

    partition: int


class StopFollowing(NamedTuple):
    """The leader is another one, or has another epoch."""

    partition: int


class DropReplica(NamedTuple):
    """The partition was reassigned to other brokers: its log is deleted here."""

    partition: int


class RaiseLeaderEpoch(NamedTuple):
    """This broker was elected again."""

    partition: int
    leader_epoch: int


class ChangeReplication(NamedTuple):
    """The partition got other replicas besides this one, or lost the last of them, under the same leader epoch."""

    partition: int


class Configure(NamedTuple):
    """The topic's own settings have changed."""

    overrides: Mapping[str, str]


class BecomeLeader(NamedTuple):
    """This broker was elected, and the partition's log is not open for clients yet."""

    partition: int
    leader_epoch: int


class BecomeFollower(NamedTuple):
    """Another broker was elected, and this one copies its log."""

    partition: int
    leader_epoch: int
    leader: int


class WriteLeaderEpoch(NamedTuple):
    """The log or a former life of this broker had this epoch or the one before, and the metadata must have it, too: an
    epoch never goes back."""

    partition: int
    leader_epoch: int


Effect = (
    RemoveTopic
    | Resign
    | StopFollowing
    | DropReplica
    | RaiseLeaderEpoch
    | ChangeReplication
    | Configure
    | BecomeLeader
    | BecomeFollower
    | WriteLeaderEpoch
)


def decide(
    record: TopicRecord | None, local: LocalTopic | None, role: Role, *, is_deletion_ordered: bool = True
) -> list[Effect]:
    """The effects that make `local` agree with `record`. `local` None: the topic is not on this broker; `record` None:
    it is not in the metadata. Effects after `RemoveTopic` concern the new topic of the same name."""
    effects: list[Effect] = []
    if local is not None and (record is None or record.topic_id != local.topic_id):
        effects.append(RemoveTopic(keeps_logs=not is_deletion_ordered))
        local = None
    if record is None:
        return effects
    if local is None:
        local = LocalTopic(record.topic_id, record.config, {})
    written_later: list[Effect] = []
    for effect in (*_of_led(record, local, role), *_of_followed(record, local, role)):
        (written_later if isinstance(effect, WriteLeaderEpoch) else effects).append(effect)
    if record.config != local.overrides:
        effects.append(Configure(record.config))
    resigned = {effect.partition for effect in effects if isinstance(effect, Resign)}
    me = role.broker_id
    for index, state in record.partitions.items():
        if state.leader != me and me not in state.replicas:
            continue  # most of a large cluster's, and neither led nor followed here
        if role.leads(state):
            if role.leads_by_former_epoch(record.name, index, state):
                written_later.append(WriteLeaderEpoch(index, role.former_epochs[record.name, index] + 1))
            elif index not in local.leader_epochs or index in resigned:
                effects.append(BecomeLeader(index, state.leader_epoch))
        elif role.follows(state) and local.followed.get(index) != (state.leader_epoch, state.leader):
            effects.append(BecomeFollower(index, state.leader_epoch, state.leader))
    return effects + written_later


def _of_led(record: TopicRecord, local: LocalTopic, role: Role) -> Iterator[Effect]:
    for index, epoch in local.leader_epochs.items():
        state = record.partitions.get(index)
        was_replicated = index in local.replicated
        if state is None or not role.leads(state):
            yield Resign(index)
        elif state.leader_epoch > epoch:
            is_replicated = was_replicated or role.is_replicated(state)
            yield Resign(index) if is_replicated else RaiseLeaderEpoch(index, state.leader_epoch)
        elif state.leader_epoch < epoch:
            yield WriteLeaderEpoch(index, epoch)
        elif was_replicated != role.is_replicated(state):
            yield ChangeReplication(index)


def _of_followed(record: TopicRecord, local: LocalTopic, role: Role) -> Iterator[Effect]:
    for index, followed in local.followed.items():
        state = record.partitions.get(index)
        if state is None or not role.follows(state) or followed != (state.leader_epoch, state.leader):
            yield StopFollowing(index)
    if role.replicates:
        for index in local.kept:
            state = record.partitions.get(index)
            if state is not None and not role.keeps(state) and state.leader != role.broker_id:
                yield DropReplica(index)
