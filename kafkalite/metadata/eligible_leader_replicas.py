"""The replicas besides the ISR that may be elected (ELR): they hold every committed record.

While the ISR is smaller than min.insync.replicas, the high watermark stands still. So a replica that left it then still
holds everything below the high watermark, and may lead when the others are gone or have lost the end of their logs.
Kafka keeps these replicas from 4.0 on (KRaft); with ZooKeeper it forgets them, and the last member of the ISR decides
alone what was written. Here they stand in the partition's state node beside the ISR.

Invariant: each replica in ISR or ELR holds every record below the high watermark, unless it lost the end of its log
after it joined. A broker that may have lost it leaves both lists, by its own write, before it registers again.
Source: KIP-966; org.apache.kafka.controller.PartitionChangeBuilder.
"""

from __future__ import annotations

from collections.abc import Collection, Set

from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.metadata.isr_state import IsrState


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """min.insync.replicas, but not more than there are replicas (KAFKA-15583)."""
    return min(min_insync_replicas, replica_count)


def target_elr(state: IsrState, isr: Set[int], min_isr: int, lost: Collection[int] = ()) -> frozenset[int]:
    """The ELR to be written with the new `isr`. `lost`: replicas that may have lost the end of their logs."""
    if len(isr) >= min_isr:
        return frozenset()
    return (state.isr | state.elr) - isr - frozenset(lost)


def leave_with_lost_tail(broker_id: int, state: IsrState, min_isr: int) -> IsrState | None:
    """The state that a broker writes before it registers, if the end of its log may be lost; None: nothing to write.

    It leaves ISR and ELR, so no election counts it before it has caught up (KIP-380 leaves that to the controller, who
    may be late). The last of both stays, but leads under a new epoch: its old one may have had other records.
    """
    others = (state.isr | state.elr) - {broker_id}
    led = state.leader == broker_id
    if not others or broker_id not in state.isr | state.elr:
        if not led:
            return None
        return state._replace(leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)
    isr = state.isr - {broker_id} or others
    state = state._replace(isr=isr, elr=target_elr(state, isr, min_isr, lost=[broker_id]))
    return state._replace(leader=NO_LEADER, leader_epoch=state.leader_epoch + 1) if led else state
