"""The state that a controller writes next for a partition: a small model of elections with real ISRs.

Kafka's rules (Election, ReplicaStateMachine), with the eligible leader replicas of KIP-966 behind the ISR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.replication.replica.eligible_leader_replicas import IsrState, target_elr


def next_state(
    state: IsrState,
    written_by: int,
    registered_by: Mapping[int, int],
    live: Mapping[int, int],
    replicas: Sequence[int],
    min_isr: int,
    *,
    unclean: bool = False,
    prefer: bool = False,
    stopping: frozenset[int] = frozenset(),
) -> IsrState | None:
    """None: nothing is to be written. `written_by` and `registered_by` are transaction ids: a leader that registered
    after its election has restarted, and needs a new epoch."""
    leader = state.leader
    in_sync = [other for other in replicas if other in live and other in state.isr]
    is_led = leader in live and written_by > registered_by[leader]
    if is_led and not (prefer and in_sync and in_sync[0] == replicas[0] != leader):
        isr = state.isr & live.keys()
        if isr == state.isr:
            return None
        return state._replace(isr=isr, elr=target_elr(state, isr, min_isr))
    candidates = in_sync or [other for other in replicas if other in live and other in state.elr]
    if candidates:
        isr = state.isr & live.keys() or frozenset(candidates[:1])
        elr = target_elr(state, isr, min_isr)
    elif leader in stopping:
        return None
    else:
        candidates = [other for other in replicas if other in live] if unclean else []
        isr, elr = (frozenset(candidates[:1]), frozenset()) if candidates else (state.isr, state.elr)
    if not candidates and leader == NO_LEADER:
        return None
    return IsrState(candidates[0] if candidates else NO_LEADER, state.leader_epoch + 1, isr, elr, state.partition_epoch)
