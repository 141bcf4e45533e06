"""What the controller sees to besides topics: /feature, notices that are out of date, and requests of old tools.

Tools of before 2.4 write what they want below /admin and wait until the node is gone. An election of preferred leaders
is carried out where the first replica lives and is in sync. A reassignment is refused, with a line in the log: nobody
copies records, so replicas cannot move.

Notices of changed in-sync replicas and of failed log directories concern nobody here: every broker watches the states,
and who leads a partition on a failed disk says so to clients. Kafka's controller reads them before it removes them.
Notices of changed settings stay for a quarter of an hour, as in Kafka, where each broker removes them by the time at
which they were made; here the controller does, by how long it has known them, which needs no clock that is right.
Source: kafka.controller.KafkaController (enableFeatureVersioning, processZkPartitionReassignment,
processReplicaLeaderElection, processIsrChangeNotification), kafka.common.ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

import logging

from kafkalite.common.clock import Clock
from kafkalite.controller import pending_changes
from kafkalite.controller.controller_store import ControllerStore, Step, removals
from kafkalite.zk.client.operations import Create, Delete, Node, SetData
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.znodes import znode_data, znode_paths

logger = logging.getLogger(__name__)

_CONFIG_CHANGE_MS = 15 * 60_000


class AdminRequests:
    """For one term of office."""

    def __init__(self, view: ClusterView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._known_since_ms: dict[str, int] = {}  # each notice of a changed setting, on the monotonic clock

    async def sweep(self, store: ControllerStore) -> None:
        """Bring /feature up to date and remove old notices. What is refused is left for the next time."""
        (feature,) = await store.read([znode_paths.FEATURE])
        steps = []
        if (data := pending_changes.feature_due(None if feature is None else feature.data)) is not None:
            write = (
                Create(znode_paths.FEATURE, data)
                if feature is None
                else SetData(znode_paths.FEATURE, data, feature.version)
            )
            steps.append(Step((write,)))
        for parent in (znode_paths.ISR_CHANGES, znode_paths.LOG_DIR_EVENTS):
            steps += removals(await store.children(parent))
        now_ms = self._clock.monotonic_ms()
        notices = await store.children(znode_paths.CONFIG_CHANGES)
        self._known_since_ms = {path: self._known_since_ms.get(path, now_ms) for path in notices}
        steps += removals(path for path, since in self._known_since_ms.items() if now_ms - since > _CONFIG_CHANGE_MS)
        await store.carry_out(steps)

    async def answer(self, store: ControllerStore) -> bool:
        """Carry out or refuse what old tools ask for, and take the requests away. False if that has to be tried
        again."""
        reassignment, election = await store.read(
            [znode_paths.REASSIGN_PARTITIONS, znode_paths.PREFERRED_REPLICA_ELECTION]
        )
        answered: list[Step] = []
        if reassignment is not None:
            self._refuse(reassignment)
            answered.append(Step((Delete(znode_paths.REASSIGN_PARTITIONS, reassignment.version),)))
        if election is not None:
            if await store.carry_out(self._preferred(election, store.epoch)):
                return False
            answered.append(Step((Delete(znode_paths.PREFERRED_REPLICA_ELECTION, election.version),)))
        return not await store.carry_out(answered)

    def _refuse(self, request: Node) -> None:
        try:
            wanted = znode_data.parse_reassignment(request.data)
        except ValueError as fault:
            logger.warning("%s is not understood and is taken away: %s", znode_paths.REASSIGN_PARTITIONS, fault)
            return
        for reason in pending_changes.reassignment_faults(self._view, wanted):
            logger.warning("reassignment refused: %s", reason)

    def _preferred(self, request: Node, controller_epoch: int) -> list[Step]:
        try:
            wanted = znode_data.parse_partitions(request.data)
        except ValueError as fault:
            logger.warning("%s is not understood and is taken away: %s", znode_paths.PREFERRED_REPLICA_ELECTION, fault)
            return []
        live = pending_changes.live_brokers(self._view)
        due = [pending_changes.preferred_state(self._view, *partition, live, controller_epoch) for partition in wanted]
        logger.info(
            "election of preferred leaders: %d of %d partitions get another one", len(due) - due.count(None), len(due)
        )
        return [state.step for state in due if state is not None]
