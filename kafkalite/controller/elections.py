"""The rules by which leaders are elected: THE SWITCH.

As long as `REPLICATES` (metadata.replica_assignment) is false, brokers do not copy records, each partition has one
replica with the records, and the rules are those of `leader_election`; then those of `eligible_election` and
`isr_election`, here in the form of state nodes. Still to come with that: the brokers that are about to stop, and those
that are intact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkalite.controller import eligible_election, isr_election, leader_election
from kafkalite.controller.leader_election import RECOVERING, LeaderAndIsr, LiveBrokers
from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.metadata.eligible_leader_replicas import effective_min_isr
from kafkalite.metadata.isr_state import IsrState
from kafkalite.metadata.replica_assignment import REPLICATES

Replicas = Sequence[int]
_ANY_VERSION = -1  # of a node: the step that writes it has the right one


class Elections(NamedTuple):
    """Arguments: the replicas, the state, the transaction that wrote it, the live brokers, whether an unclean election
    is allowed, min.insync.replicas. `initial` has the leader epoch to begin with."""

    initial: Callable[[Replicas, LiveBrokers, int], LeaderAndIsr | None]
    next: Callable[[Replicas, LeaderAndIsr, int, LiveBrokers, bool, int], LeaderAndIsr | None]
    preferred: Callable[[Replicas, LeaderAndIsr, int, LiveBrokers, int], LeaderAndIsr | None]


def _next_of_one(
    replicas: Replicas, state: LeaderAndIsr, written_by: int, live: LiveBrokers, unclean: bool, min_isr: int
) -> LeaderAndIsr | None:
    return leader_election.next_leader(replicas, state, written_by, live, unclean)


def _preferred_of_one(
    replicas: Replicas, state: LeaderAndIsr, written_by: int, live: LiveBrokers, min_isr: int
) -> LeaderAndIsr | None:
    return leader_election.preferred_leader(replicas, state, live)


def _initial_in_sync(replicas: Replicas, live: LiveBrokers, leader_epoch: int) -> LeaderAndIsr | None:
    return isr_election.initial_leader(replicas, live, leader_epoch)


def _next_in_sync(
    replicas: Replicas, state: LeaderAndIsr, written_by: int, live: LiveBrokers, unclean: bool, min_isr: int
) -> LeaderAndIsr | None:
    least = effective_min_isr(min_isr, len(replicas))
    after = eligible_election.next_state(replicas, _read(state), written_by, live, least, unclean=unclean)
    return None if after is None else _written(after, state, replicas)


def _preferred_in_sync(
    replicas: Replicas, state: LeaderAndIsr, written_by: int, live: LiveBrokers, min_isr: int
) -> LeaderAndIsr | None:
    least = effective_min_isr(min_isr, len(replicas))
    after = eligible_election.next_state(replicas, _read(state), written_by, live, least, prefer=True)
    if after is None or after.leader == state.leader or after.leader not in replicas[:1]:
        return None
    return _written(after, state, replicas)


def _read(state: LeaderAndIsr) -> IsrState:
    return IsrState(state.leader, state.leader_epoch, frozenset(state.isr), frozenset(state.elr), _ANY_VERSION)


def _written(after: IsrState, before: LeaderAndIsr, replicas: Replicas) -> LeaderAndIsr:
    """Members keep their places. A leader that was neither in sync nor eligible has to recover (KIP-704)."""
    is_unclean = after.leader not in (NO_LEADER, *before.isr, *before.elr)
    order = (*before.isr, *before.elr, *replicas)
    return LeaderAndIsr(
        after.leader,
        after.leader_epoch,
        tuple(one for one in dict.fromkeys(order) if one in after.isr),
        RECOVERING if is_unclean else before.recovery,
        tuple(one for one in dict.fromkeys(order) if one in after.elr),
    )


ONE_REPLICA = Elections(leader_election.initial_leader, _next_of_one, _preferred_of_one)
IN_SYNC_REPLICAS = Elections(_initial_in_sync, _next_in_sync, _preferred_in_sync)

ELECTIONS = IN_SYNC_REPLICAS if REPLICATES else ONE_REPLICA
