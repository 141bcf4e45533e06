"""The controller's work besides topics: /feature, notifications that are out of date, and requests of old tools.

Tools of before 2.4 write a request below /admin and wait until the node is gone. An election of preferred leaders is
performed if the first replica is alive and in sync. The partitions of a reassignment leave its node one by one: when
they have reached their target, cannot reach it, or a client has named another target; then the node is deleted. A
refusal is a line in the log.

Notifications of changed in-sync replicas and of failed log directories have no reader here: every broker watches the
states, and the leader of a partition on a failed disk says so to clients. Kafka's controller reads them before it
removes them. Notifications of changed settings stay for a quarter of an hour, as in Kafka, where each broker removes
them by their creation time; here the controller does, by the time since it first read them, which needs no synchronized
clocks.
Source: kafka.controller.KafkaController (enableFeatureVersioning, processZkPartitionReassignment,
processReplicaLeaderElection, processIsrChangeNotification), kafka.common.ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from kafkalite.common.clock import Clock
from kafkalite.common.names import TopicPartition
from kafkalite.metadata.cluster_metadata import Election
from kafkalite.zk.client.operations import Create, Delete, Node, SetData
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.controller import admin_checks, pending_changes, reassignment
from kafkalite.zk.controller.controller_store import ControllerStore, Step, removals
from kafkalite.zk.controller.pending_changes import ControllerStats, ElectionContext, StateChange
from kafkalite.zk.controller.reassignment import assignment_of
from kafkalite.zk.znodes import security_nodes, znode_data, znode_paths

logger = logging.getLogger(__name__)

_CHANGES = (
    znode_paths.CONFIG_CHANGES,
    security_nodes.LITERAL_CHANGES,
    security_nodes.EXTENDED_CHANGES,
    security_nodes.TOKEN_CHANGES,
)
_CHANGE_MS = 15 * 60_000


class AdminRequests:
    """For one controller epoch."""

    def __init__(self, view: ClusterView, clock: Clock, stats: ControllerStats) -> None:
        self._view = view
        self._clock = clock
        self._stats = stats
        self._known_since_ms: dict[str, int] = {}  # each notification of a changed setting, on the monotonic clock
        self.is_reassigning = False  # there was a request for reassignments at the last `process`

    async def clean_up(self, store: ControllerStore) -> None:
        """Bring /feature up to date and remove old notifications. A refused step is left for the next time."""
        (feature,) = await store.read([znode_paths.FEATURE])
        steps = []
        if (data := pending_changes.pending_feature(None if feature is None else feature.data)) is not None:
            path = znode_paths.FEATURE
            steps.append(Step((Create(path, data) if feature is None else SetData(path, data, feature.version),)))
        for parent in (znode_paths.ISR_CHANGES, znode_paths.LOG_DIR_EVENTS):
            steps += removals(await store.children(parent))
        now_ms = self._clock.monotonic_ms()
        changes = [path for parent in _CHANGES for path in await store.children(parent)]
        self._known_since_ms = {path: self._known_since_ms.get(path, now_ms) for path in changes}
        steps += removals(path for path, since in self._known_since_ms.items() if now_ms - since > _CHANGE_MS)
        await store.write(steps)

    async def process(self, store: ControllerStore, context: ElectionContext) -> bool:
        """Perform or refuse the requests of old tools, and remove them. False if that has to be tried again."""
        reassignment, election = await store.read(
            [znode_paths.REASSIGN_PARTITIONS, znode_paths.PREFERRED_REPLICA_ELECTION]
        )
        self.is_reassigning = reassignment is not None
        is_done = reassignment is None or await self._reassign(reassignment, store, context)
        if election is not None:
            changes = self._elect_preferred(election, context)
            refused = await store.write([change.step for change in changes])
            self._stats.count(changes, refused)
            if refused:
                return False
            removal = Step((Delete(znode_paths.PREFERRED_REPLICA_ELECTION, election.version),))
            is_done = not await store.write([removal]) and is_done
        return is_done

    async def _reassign(self, request: Node, store: ControllerStore, context: ElectionContext) -> bool:
        """Begin the new reassignments of the request, and take out finished and impossible ones."""
        try:
            wanted = znode_data.parse_reassignment(request.data)
        except ValueError as fault:
            logger.warning("%s is not understood and is removed: %s", znode_paths.REASSIGN_PARTITIONS, fault)
            return not await store.write([Step((Delete(znode_paths.REASSIGN_PARTITIONS, request.version),))])
        new: dict[str, dict[int, tuple[int, ...]]] = {}
        under_way = set()
        for key, target in wanted.items():
            if (reason := _refusal(self._view, key, target, context)) is not None:
                logger.warning("reassignment refused: %s", reason)
                continue
            assignment = assignment_of(self._view.assignments[key[0]].value, key[1])
            if assignment.target != target:
                new.setdefault(key[0], {})[key[1]] = target
            if assignment.target != target or assignment.is_being_reassigned:
                under_way.add(key)
        steps = []
        for name, targets in new.items():
            moves, refused = reassignment.beginnings(self._view, name, targets, context)
            steps += [move.step for move in moves]
            for number, refusal in refused.items():
                logger.warning("reassignment refused: %s", refusal)
                under_way.discard((name, number))
        if steps:
            logger.info("reassignment of %d partitions begins", sum(map(len, new.values())))
        if await store.write(steps):
            return False
        return not await store.write(without_entries(request, wanted.keys() - under_way))

    def _elect_preferred(self, request: Node, context: ElectionContext) -> list[StateChange]:
        try:
            wanted = znode_data.parse_partitions(request.data)
        except ValueError as fault:
            logger.warning("%s is not understood and is removed: %s", znode_paths.PREFERRED_REPLICA_ELECTION, fault)
            return []
        found = [pending_changes.requested_change(self._view, *each, context, Election.PREFERRED) for each in wanted]
        changes = [change for change in found if change is not None]
        logger.info("election of preferred leaders: %d of %d partitions get another one", len(changes), len(wanted))
        return changes


def without_entries(request: Node, keys: Collection[TopicPartition]) -> list[Step]:
    """The step that takes partitions out of /admin/reassign_partitions, and with the last one the node; none if it has
    none of them."""
    path = znode_paths.REASSIGN_PARTITIONS
    try:
        wanted = znode_data.parse_reassignment(request.data)
    except ValueError:
        return []
    left = {key: target for key, target in wanted.items() if key not in keys}
    if not left:
        return [Step((Delete(path, request.version),))]
    if len(left) == len(wanted):
        return []
    return [Step((SetData(path, znode_data.reassignment_json(left), request.version),))]


def _refusal(view: ClusterView, key: TopicPartition, target: tuple[int, ...], context: ElectionContext) -> str | None:
    name, number = key
    known = view.assignments.get(name)
    current = known.value.partitions.get(number) if known is not None and name not in view.deletions else None
    if current is None:
        return f"{name}-{number} does not exist"
    fault = admin_checks.reassignment_refusal(current, target, context.brokers.live, is_reassigned=False)
    return None if fault is None else f"{name}-{number}: {fault}"
