"""Who leads a partition: from its replicas, what was last written about it, and the live brokers. Pure.

A partition has a leader as long as a replica lives that is in sync. The leader goes: nobody leads (NO_LEADER), the
in-sync replicas stay as they are, for one of them has to come back. One comes back: it leads. Every change is one step
of the leader epoch. "Not written yet" (no state node), "led" and "offline" are Kafka's NewPartition, OnlinePartition
and OfflinePartition; here they are read off the state node and are no states of the controller's.

A leader that was away and came back without anybody seeing it gone (it "bounced") is told by ZooKeeper's transaction
ids: the state that names it was written before it registered. So it is also seen by a controller that was elected in
between, which Kafka's is blind to, since that compares with what it remembers of the broker's epoch.

What differs from Kafka, because nobody copies records yet:
 * the in-sync replicas after an election are the leader alone. Others that stand there were in sync once and get
   nothing any more; to keep them would be to lose records when one of them is elected.
 * a dead replica that was in sync but did not lead is left where it is until then: Kafka takes it out at once.
 * a bounced leader gets one new epoch. Kafka gives it two, one for going and one for coming.
 * an unclean election writes no leader_recovery_state: the new leader has nothing to recover.
Source: kafka.controller.PartitionStateMachine, ReplicaStateMachine (OfflineReplica), Election.leaderForOffline,
PartitionLeaderElectionAlgorithms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkalite.metadata.cluster_metadata import NO_LEADER

LiveBrokers = Mapping[int, int]
"""The live brokers by id, each with its epoch: the transaction id of its registration."""


class Leadership(NamedTuple):
    """Who leads. Invariant: `isr` is never empty; `leader` is in it or NO_LEADER; `leader_epoch` never goes back."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


class Written(NamedTuple):
    """What a state node says, and the transaction that wrote it last."""

    leadership: Leadership
    transaction_id: int


def first_leadership(replicas: Sequence[int], live: LiveBrokers, leader_epoch: int = 0) -> Leadership | None:
    """Of a partition that nothing was written about, or nothing is any more: its first live replica leads. None if
    there is none: nothing is written until one comes, since whoever comes first leads then."""
    leader = next((replica for replica in replicas if replica in live), None)
    return None if leader is None else Leadership(leader, leader_epoch, (leader,))


def next_leadership(
    replicas: Sequence[int], written: Written, live: LiveBrokers, unclean: bool = False
) -> Leadership | None:
    """What is to be written now, or None when the partition stands as it should. With `unclean` a live replica that is
    not in sync is better than none."""
    leader, leader_epoch, isr = written.leadership
    if leader in live and live[leader] < written.transaction_id:
        return None
    successor = next((replica for replica in replicas if replica in live and replica in isr), None)
    if successor is None and unclean:
        successor = next((replica for replica in replicas if replica in live), None)
    if successor is not None:
        return Leadership(successor, leader_epoch + 1, (successor,))
    return None if leader == NO_LEADER else Leadership(NO_LEADER, leader_epoch + 1, isr)


def preferred_leadership(replicas: Sequence[int], written: Written, live: LiveBrokers) -> Leadership | None:
    """The first of the replicas leads, if it does not yet, lives and is in sync; else None."""
    leader, leader_epoch, isr = written.leadership
    preferred = replicas[0] if replicas else NO_LEADER
    if preferred == leader or preferred not in live or preferred not in isr:
        return None
    return Leadership(preferred, leader_epoch + 1, (preferred,))
