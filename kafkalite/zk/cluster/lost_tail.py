"""Takes a broker whose logs may have lost their ends out of the ISR and ELR of every partition, before it registers;
and one whose logs have failed out of those of their partitions.

So no election counts it before it has caught up, also if the controller has not noticed. Kafka's controller has to
notice that a broker was away (KIP-380). The rule is `metadata.partition_state.leave_with_lost_tail`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

from kafkalite.common.names import TopicPartition
from kafkalite.config.topic_config import MIN_ISR
from kafkalite.metadata.cluster_metadata import CLUSTER_DEFAULT
from kafkalite.metadata.partition_state import effective_min_isr, leave_with_lost_tail
from kafkalite.zk.client.operations import BadVersion, Check, NoNode, SetData, Unavailable
from kafkalite.zk.client.transactions import perform
from kafkalite.zk.cluster.cluster_view import ClusterView, isr_state, state_node
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession
    from kafkalite.zk.client.transactions import Write

_AT_ONCE = 250  # partitions in one turn of the loop: some 10 ms


async def leave_lists(
    session: ZooKeeperSession,
    view: ClusterView,
    refresh: Callable[[], Awaitable[None]],
    broker_id: int,
    fence: Sequence[Check],
    min_insync_replicas: int,
    failed: Collection[TopicPartition] | None = None,
) -> int:
    """Returns when no partition with several replicas counts on the broker any more, except as the last one: their
    number. `fence` checks its registration; `min_insync_replicas` is for topics without a setting. With `failed` only
    those are checked, and one whose last member the broker is stays as it is.

    Raises Unavailable, OperationFailed.
    """
    left = 0
    while True:
        await session.sync()
        await refresh()
        keys = _listing(view, broker_id, failed)
        if not keys:
            break
        for first in range(0, len(keys), _AT_ONCE):
            changes = (_change(view, key, broker_id, min_insync_replicas) for key in keys[first : first + _AT_ONCE])
            writes: list[Write] = [[*view.deletion_fence, change] for change in changes if change is not None]
            results = await perform(session, writes, fence)
            left += results.count(None)
            for result in results:
                if isinstance(result, Unavailable):
                    raise result
                if result is not None and not isinstance(result.reason, BadVersion | NoNode):
                    raise result.reason  # such as an access list that forbids it: a retry would fail alike
    return left


def _listing(view: ClusterView, broker_id: int, failed: Collection[TopicPartition] | None) -> list[TopicPartition]:
    """The partitions whose states must change. One with a single replica is left out: the controller elects it again. A
    node that can no longer be parsed stays as it is.
    """
    found = []
    for name, states in view.states.items():
        topic = view.assignments.get(name)
        for number, known in states.items():
            value = known.value
            if (
                (value.leader == broker_id or broker_id in value.isr or broker_id in value.elr)
                and topic is not None
                and len(topic.value.partitions.get(number, ())) > 1
                and (failed is None or ((name, number) in failed and {*value.isr, *value.elr} != {broker_id}))
                and view.node(znode_paths.state(name, number)) is known.node
                and leave_with_lost_tail(broker_id, isr_state(known), 1) is not None
            ):
                found.append((name, number))
    return found


def _change(view: ClusterView, key: TopicPartition, broker_id: int, default: int) -> SetData | None:
    """Write one state; None if another writer has changed it meanwhile."""
    name, number = key
    topic, known = view.assignments.get(name), view.states.get(name, {}).get(number)
    replicas = topic.value.partitions.get(number, ()) if topic is not None else ()
    if known is None or len(replicas) < 2:
        return None
    min_isr = effective_min_isr(_min_insync_replicas(view, name, broker_id, default), len(replicas))
    after = leave_with_lost_tail(broker_id, isr_state(known), min_isr)
    if after is None:
        return None
    data = znode_data.state_json(state_node(known.value, after, replicas))
    return SetData(znode_paths.state(name, number), data, known.node.version)


def _min_insync_replicas(view: ClusterView, name: str, broker_id: int, default: int) -> int:
    topic = view.topics.get(name)
    layers = (
        topic.config if topic is not None else {},
        view.broker_configs.get(str(broker_id), {}),
        view.broker_configs.get(CLUSTER_DEFAULT, {}),
    )
    found = next((text for layer in layers if (text := layer.get(MIN_ISR, "").strip()).isdecimal()), None)
    return default if found is None else int(found)
