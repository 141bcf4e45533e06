"""Elections of leaders in the form of state nodes. Pure; the rules are those of `isr_election` and `eligible_election`.

`written_by` is the transaction that wrote the present state, `min_isr` min.insync.replicas.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.controller import isr_election
from kafkalite.controller.eligible_election import next_state
from kafkalite.controller.leader_and_isr import Brokers, LeaderAndIsr
from kafkalite.metadata.eligible_leader_replicas import effective_min_isr


def initial_leader(replicas: Sequence[int], brokers: Brokers, leader_epoch: int) -> LeaderAndIsr | None:
    """The first state of a partition, with the leader epoch to begin with; None while no replica lives."""
    return isr_election.initial_leader(replicas, brokers.live, leader_epoch, brokers.stopping)


def next_leader(
    replicas: Sequence[int], state: LeaderAndIsr, written_by: int, brokers: Brokers, unclean: bool, min_isr: int
) -> LeaderAndIsr | None:
    """The state to be written now; None if it may stay. With `unclean` any live replica is better than none."""
    least = effective_min_isr(min_isr, len(replicas))
    live, stopping, intact = brokers
    after = next_state(
        replicas, state.isr_state, written_by, live, least, unclean=unclean, stopping=stopping, intact=intact
    )
    return None if after is None else state.followed_by(after, replicas)


def preferred_leader(
    replicas: Sequence[int], state: LeaderAndIsr, written_by: int, brokers: Brokers, min_isr: int
) -> LeaderAndIsr | None:
    """The first replica leads, if it does not yet and can; else None."""
    least = effective_min_isr(min_isr, len(replicas))
    live, stopping, intact = brokers
    after = next_state(
        replicas, state.isr_state, written_by, live, least, prefer=True, stopping=stopping, intact=intact
    )
    if after is None or after.leader == state.leader or after.leader not in replicas[:1]:
        return None
    return state.followed_by(after, replicas)
