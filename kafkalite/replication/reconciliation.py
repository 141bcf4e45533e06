"""The steps that make a topic on this broker agree with the cluster metadata. Pure.

`decide` compares the two and returns effects in the order in which they are performed. Most take effect at once;
`BecomeLeader` must open a log, and `WriteLeaderEpoch` waits for the cluster.
Source: kafka.server.ReplicaManager (becomeLeaderOrFollower, stopReplicas).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from kafkalite.metadata.cluster_metadata import PartitionRecord, TopicRecord


class Role(NamedTuple):
    """This broker's part in the cluster. A broker that `is_alone` leads everything. In a cluster a broker leads the
    partitions that it was elected for while it `may_lead`: it is registered, or merely cut off from ZooKeeper."""

    broker_id: int
    is_alone: bool
    may_lead: bool

    def leads(self, state: PartitionRecord) -> bool:
        return self.is_alone or (self.may_lead and state.leader == self.broker_id)

    def keeps(self, state: PartitionRecord) -> bool:
        """Whether this broker has a replica of the partition, led here or elsewhere."""
        return self.is_alone or self.broker_id in state.replicas


class LocalTopic(NamedTuple):
    """The local state of a topic: its own settings, and the leader epoch of each partition led here."""

    topic_id: uuid.UUID
    overrides: Mapping[str, str]
    leader_epochs: Mapping[int, int]


class RemoveTopic(NamedTuple):
    """The topic is gone. `keeps_logs`: it vanished without an order to delete it, and may come back."""

    keeps_logs: bool


class Resign(NamedTuple):
    """Another broker leads the partition, or none does."""

    partition: int


class RaiseLeaderEpoch(NamedTuple):
    """This broker was elected again."""

    partition: int
    leader_epoch: int


class Configure(NamedTuple):
    """The topic's own settings have changed."""

    overrides: Mapping[str, str]


class BecomeLeader(NamedTuple):
    """This broker was elected, and the partition's log is not open for clients yet."""

    partition: int
    leader_epoch: int


class WriteLeaderEpoch(NamedTuple):
    """The log has a later epoch than the metadata, so the metadata must be updated: an epoch never goes back."""

    partition: int
    leader_epoch: int


Effect = RemoveTopic | Resign | RaiseLeaderEpoch | Configure | BecomeLeader | WriteLeaderEpoch


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
    written_later: list[Effect] = []
    epochs: Mapping[int, int] = {} if local is None else local.leader_epochs
    for index, epoch in epochs.items():
        state = record.partitions.get(index)
        if state is None or not role.leads(state):
            effects.append(Resign(index))
        elif state.leader_epoch > epoch:
            effects.append(RaiseLeaderEpoch(index, state.leader_epoch))
        elif state.leader_epoch < epoch:
            written_later.append(WriteLeaderEpoch(index, epoch))
    if local is not None and record.config != local.overrides:
        effects.append(Configure(record.config))
    for index, state in record.partitions.items():
        if index not in epochs and role.leads(state):
            effects.append(BecomeLeader(index, state.leader_epoch))
    return effects + written_later
