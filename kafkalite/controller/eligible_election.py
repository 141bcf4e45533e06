"""Elects leaders from the ISR, by the rules of `isr_election`, and behind it from the eligible replicas (ELR). Pure.

A replica that left the ISR while the ISR was smaller than min.insync.replicas has every committed record, so it leads
when no member of the ISR can. A broker that may have lost the end of its log has left both lists before it registered
(`leave_with_lost_tail`), so whoever is in the ELR and lives may be elected.
Source: KIP-966; `metadata.eligible_leader_replicas`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafkalite.controller.isr_election import next_leader, preferred_leader
from kafkalite.controller.leader_and_isr import LeaderAndIsr, LiveBrokers
from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.metadata.eligible_leader_replicas import target_elr
from kafkalite.metadata.isr_state import IsrState, in_order


def next_state(
    replicas: Sequence[int],
    state: IsrState,
    written_by: int,
    live: LiveBrokers,
    min_isr: int,
    *,
    unclean: bool = False,
    prefer: bool = False,
    stopping: Collection[int] = (),
    intact: Collection[int] = (),
) -> IsrState | None:
    """The state to be written now; None if it may stay. Arguments as those of `next_leader`; `min_isr` is the effective
    min.insync.replicas. With `prefer` the first replica leads if it can."""
    known = LeaderAndIsr(state.leader, state.leader_epoch, in_order(state.isr, replicas))
    decided = preferred_leader(replicas, known, written_by, live, stopping) if prefer else None
    decided = decided or next_leader(replicas, known, written_by, live, False, stopping, intact)
    if (decided or known).leader == NO_LEADER:
        eligible = [one for one in replicas if one in state.elr and one in live and one not in stopping]
        if eligible:
            decided = LeaderAndIsr(eligible[0], state.leader_epoch + 1, (eligible[0],))
        elif unclean:
            decided = next_leader(replicas, known, written_by, live, True, stopping, intact) or decided
    if decided is None:
        return None
    isr = frozenset(decided.isr)
    lost = [one for one in live if live[one] > written_by and one not in intact]
    return state._replace(
        leader=decided.leader,
        leader_epoch=decided.leader_epoch,
        isr=isr,
        elr=target_elr(state, isr, min_isr, lost),
    )
