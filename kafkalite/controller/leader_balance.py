"""The return of leadership to preferred replicas, where too much of it has moved elsewhere.

A broker that was away leads nothing when it comes back. Once in a while the controller counts, for each broker, the
partitions that it should lead and another one leads; with more than leader.imbalance.per.broker.percentage of them they
are led by their first replica again, as far as that is in sync. A partition that is being reassigned is left alone: its
first replica may just be on the way.
Source: kafka.controller.KafkaController.checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kafkalite.common.names import TopicPartition
from kafkalite.controller.isr_election import imbalanced
from kafkalite.controller.pending_changes import ElectionContext, StateChange, preferred_change
from kafkalite.zk.cluster.cluster_view import ClusterView

_PER_TURN = 1_000  # partitions in one turn of the loop: about 1 ms


async def preferred_changes(view: ClusterView, context: ElectionContext) -> list[StateChange]:
    """The elections that are due now. The view may change meanwhile: what is based on an old state is refused."""
    leaders: dict[TopicPartition, tuple[Sequence[int], int]] = {}
    since_pause = 0
    for name in list(view.assignments):
        known, states = view.assignments.get(name), view.states.get(name, {})
        if known is None or name in view.deletions:
            continue
        moving = known.value.adding.keys() | known.value.removing.keys()
        for number, replicas in known.value.partitions.items():
            if number in states and number not in moving:
                leaders[name, number] = replicas, states[number].value.leader
        since_pause += len(known.value.partitions)
        if since_pause >= _PER_TURN:
            since_pause = 0
            await asyncio.sleep(0)
    due = imbalanced(leaders, context.brokers.live.keys(), context.config.leader_imbalance_per_broker_percentage)
    changes = []
    for at, key in enumerate(due, start=1):
        if (change := preferred_change(view, *key, context)) is not None:
            changes.append(change)
        if at % _PER_TURN == 0:
            await asyncio.sleep(0)
    return changes
