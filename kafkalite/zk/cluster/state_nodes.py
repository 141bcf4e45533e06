"""Partitions' state nodes as the values that decisions are made of, and back."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.metadata.partition_state import IsrState, in_order
from kafkalite.zk.cluster.cluster_view import Known
from kafkalite.zk.znodes import znode_data


def isr_state(known: Known[znode_data.StateNode]) -> IsrState:
    value = known.value
    leader = max(value.leader, NO_LEADER)
    return IsrState(leader, value.leader_epoch, frozenset(value.isr), frozenset(value.elr), known.node.version)


def state_node(before: znode_data.StateNode, after: IsrState, replicas: Sequence[int]) -> znode_data.StateNode:
    """The next content of a node. Members keep their places, and those that join follow, in order of assignment."""
    order = (*before.isr, *before.elr, *replicas)
    return before._replace(
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        isr=in_order(after.isr, order),
        elr=in_order(after.elr, order),
    )
