"""The rules by which leaders are elected: THE SWITCH.

As long as `REPLICATES` (metadata.replica_assignment) is false, brokers do not copy records, each partition has one
replica with the records, and the rules are those of `leader_election`; then those of `eligible_election` and
`isr_election`, here in the form of state nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkalite.controller import eligible_election, isr_election, leader_election
from kafkalite.controller.leader_election import RECOVERING, LeaderAndIsr, LiveBrokers
from kafkalite.metadata import replica_assignment
from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.metadata.eligible_leader_replicas import effective_min_isr
from kafkalite.metadata.isr_state import IsrState

Replicas = Sequence[int]
_ANY_VERSION = -1  # of a node: the step that writes it has the right one


class Brokers(NamedTuple):
    """The brokers of a cluster as an election sees them. `stopping` ones live, and are about to leave; `intact` ones
    have vouched at their registration that their logs are as they left them."""

    live: LiveBrokers
    stopping: frozenset[int] = frozenset()
    intact: frozenset[int] = frozenset()


class Elections(NamedTuple):
    """Arguments: the replicas, the state, the transaction that wrote it, the brokers, whether an unclean election is
    allowed, min.insync.replicas. `initial` has the leader epoch to begin with. `moves_replicas`: brokers copy records,
    so partitions can be reassigned, and leadership can go from one replica to another without a loss."""

    initial: Callable[[Replicas, Brokers, int], LeaderAndIsr | None]
    next: Callable[[Replicas, LeaderAndIsr, int, Brokers, bool, int], LeaderAndIsr | None]
    preferred: Callable[[Replicas, LeaderAndIsr, int, Brokers, int], LeaderAndIsr | None]
    moves_replicas: bool


def _initial_of_one(replicas: Replicas, brokers: Brokers, leader_epoch: int) -> LeaderAndIsr | None:
    return leader_election.initial_leader(replicas, brokers.live, leader_epoch)


def _next_of_one(
    replicas: Replicas, state: LeaderAndIsr, written_by: int, brokers: Brokers, unclean: bool, min_isr: int
) -> LeaderAndIsr | None:
    return leader_election.next_leader(replicas, state, written_by, brokers.live, unclean)


def _preferred_of_one(
    replicas: Replicas, state: LeaderAndIsr, written_by: int, brokers: Brokers, min_isr: int
) -> LeaderAndIsr | None:
    return leader_election.preferred_leader(replicas, state, brokers.live)


def _initial_in_sync(replicas: Replicas, brokers: Brokers, leader_epoch: int) -> LeaderAndIsr | None:
    return isr_election.initial_leader(replicas, brokers.live, leader_epoch, brokers.stopping)


def _next_in_sync(
    replicas: Replicas, state: LeaderAndIsr, written_by: int, brokers: Brokers, unclean: bool, min_isr: int
) -> LeaderAndIsr | None:
    least = effective_min_isr(min_isr, len(replicas))
    live, stopping, intact = brokers
    after = eligible_election.next_state(
        replicas, isr_state(state), written_by, live, least, unclean=unclean, stopping=stopping, intact=intact
    )
    return None if after is None else leader_and_isr(after, state, replicas)


def _preferred_in_sync(
    replicas: Replicas, state: LeaderAndIsr, written_by: int, brokers: Brokers, min_isr: int
) -> LeaderAndIsr | None:
    least = effective_min_isr(min_isr, len(replicas))
    live, stopping, intact = brokers
    after = eligible_election.next_state(
        replicas, isr_state(state), written_by, live, least, prefer=True, stopping=stopping, intact=intact
    )
    if after is None or after.leader == state.leader or after.leader not in replicas[:1]:
        return None
    return leader_and_isr(after, state, replicas)


def isr_state(state: LeaderAndIsr) -> IsrState:
    return IsrState(state.leader, state.leader_epoch, frozenset(state.isr), frozenset(state.elr), _ANY_VERSION)


def leader_and_isr(after: IsrState, before: LeaderAndIsr, replicas: Replicas) -> LeaderAndIsr:
    """Members keep their places. A leader that was neither in sync nor eligible has to recover (KIP-704)."""
    order = tuple(dict.fromkeys((*before.isr, *before.elr, *replicas)))
    return LeaderAndIsr(
        after.leader,
        after.leader_epoch,
        tuple(one for one in order if one in after.isr),
        RECOVERING if is_unclean(before, after.leader) else before.recovery,
        tuple(one for one in order if one in after.elr),
    )


def is_unclean(before: LeaderAndIsr, leader: int) -> bool:
    """Whether `leader` may lack committed records: it was neither in sync nor eligible."""
    return leader not in (NO_LEADER, *before.isr, *before.elr)


ONE_REPLICA = Elections(_initial_of_one, _next_of_one, _preferred_of_one, moves_replicas=False)
IN_SYNC_REPLICAS = Elections(_initial_in_sync, _next_in_sync, _preferred_in_sync, moves_replicas=True)


def chosen() -> Elections:
    """The rules that the switch chooses."""
    return IN_SYNC_REPLICAS if replica_assignment.REPLICATES else ONE_REPLICA
