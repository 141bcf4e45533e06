"""Elects the leader of a partition that has one replica with the records. Pure; from the replicas, the last state that
was written, and the live brokers. `isr_election` has the rules for brokers that copy records, `elections` the choice.

A partition has a leader as long as one of its in-sync replicas lives. Without one it has no leader (NO_LEADER) and the
list of in-sync replicas stays; the first of them to return becomes leader. Every change is one step of the leader
epoch. Kafka's NewPartition (no state node yet), OnlinePartition (led) and OfflinePartition follow from the state node;
the controller keeps no states of its own.

A leader that restarted unnoticed (it "bounced") is found by ZooKeeper's transaction ids: its state node is older than
its registration. So a controller that was elected in between finds it, too. Kafka's cannot, because it compares with
the broker epoch that it remembers.

Differences from Kafka, because brokers do not copy records yet:
 * the in-sync replicas after an election are the leader alone. Other listed replicas no longer receive records;
   electing one would lose records, so they are dropped.
 * a dead replica that was in sync but did not lead stays in the list until then: Kafka takes it out at once.
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


RECOVERED = 0
RECOVERING = 1  # the leader was elected although it was not in sync, and has not taken note of it yet


class LeaderAndIsr(NamedTuple):
    """Invariant: `isr` is never empty; `leader` is in it or NO_LEADER; `leader_epoch` never goes back."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery: int = RECOVERED
    elr: tuple[int, ...] = ()  # replicas besides the ISR that may be elected (KIP-966)


def initial_leader(replicas: Sequence[int], live: LiveBrokers, leader_epoch: int = 0) -> LeaderAndIsr | None:
    """For a partition that has no state node: its first live replica leads. None if no replica lives: nothing is
    written until one comes, since the first to come leads then."""
    leader = next((replica for replica in replicas if replica in live), None)
    return None if leader is None else LeaderAndIsr(leader, leader_epoch, (leader,))


def next_leader(
    replicas: Sequence[int], state: LeaderAndIsr, written_by: int, live: LiveBrokers, unclean: bool = False
) -> LeaderAndIsr | None:
    """The state to be written now, None if the partition may stay as it is. `written_by` is the transaction that wrote
    `state`. With `unclean` a live replica that is not in sync is better than none."""
    leader, leader_epoch, isr = state[:3]
    if leader in live and live[leader] < written_by:
        return None
    successor = next((replica for replica in replicas if replica in live and replica in isr), None)
    if successor is None and unclean:
        successor = next((replica for replica in replicas if replica in live), None)
    if successor is not None:
        return LeaderAndIsr(successor, leader_epoch + 1, (successor,))
    return None if leader == NO_LEADER else LeaderAndIsr(NO_LEADER, leader_epoch + 1, isr)


def preferred_leader(replicas: Sequence[int], state: LeaderAndIsr, live: LiveBrokers) -> LeaderAndIsr | None:
    """The first replica leads, if it does not yet, lives and is in sync; else None."""
    leader, leader_epoch, isr = state[:3]
    preferred = replicas[0] if replicas else NO_LEADER
    if preferred == leader or preferred not in live or preferred not in isr:
        return None
    return LeaderAndIsr(preferred, leader_epoch + 1, (preferred,))
