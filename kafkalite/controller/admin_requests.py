"""The controller's work besides topics: /feature, notifications that are out of date, and requests of old tools.

Tools of before 2.4 write a request below /admin and wait until the node is gone. An election of preferred leaders is
performed where the first replica lives and is in sync. A reassignment is refused, with a line in the log: brokers do
not copy records, so replicas cannot move.

Notifications of changed in-sync replicas and of failed log directories have no reader here: every broker watches the
states, and the leader of a partition on a failed disk says so to clients. Kafka's controller reads them before it
removes them. Notifications of changed settings stay for a quarter of an hour, as in Kafka, where each broker removes
them by the time at which they were created; here the controller does, by how long it has known them, which needs no
clock that is right.
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
    """For one controller epoch."""

    def __init__(self, view: ClusterView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._known_since_ms: dict[str, int] = {}  # each notification of a changed setting, on the monotonic clock

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
        changes = await store.children(znode_paths.CONFIG_CHANGES)
        self._known_since_ms = {path: self._known_since_ms.get(path, now_ms) for path in changes}
        steps += removals(path for path, since in self._known_since_ms.items() if now_ms - since > _CONFIG_CHANGE_MS)
        await store.write(steps)

    async def process(self, store: ControllerStore) -> bool:
        """Perform or refuse the requests of old tools, and remove them. False if that has to be tried again."""
        reassignment, election = await store.read(
            [znode_paths.REASSIGN_PARTITIONS, znode_paths.PREFERRED_REPLICA_ELECTION]
        )
        done: list[Step] = []
        if reassignment is not None:
            self._refuse(reassignment)
            done.append(Step((Delete(znode_paths.REASSIGN_PARTITIONS, reassignment.version),)))
        if election is not None:
            if await store.write(self._elect_preferred(election, store.epoch)):
                return False
            done.append(Step((Delete(znode_paths.PREFERRED_REPLICA_ELECTION, election.version),)))
        return not await store.write(done)

    def _refuse(self, request: Node) -> None:
        try:
            wanted = znode_data.parse_reassignment(request.data)
        except ValueError as fault:
            logger.warning("%s is not understood and is removed: %s", znode_paths.REASSIGN_PARTITIONS, fault)
            return
        for reason in pending_changes.reassignment_refusals(self._view, wanted):
            logger.warning("reassignment refused: %s", reason)

    def _elect_preferred(self, request: Node, controller_epoch: int) -> list[Step]:
        try:
            wanted = znode_data.parse_partitions(request.data)
        except ValueError as fault:
            logger.warning("%s is not understood and is removed: %s", znode_paths.PREFERRED_REPLICA_ELECTION, fault)
            return []
        live = pending_changes.live_brokers(self._view)
        found = [pending_changes.preferred_change(self._view, *each, live, controller_epoch) for each in wanted]
        steps = [change.step for change in found if change is not None]
        logger.info("election of preferred leaders: %d of %d partitions get another one", len(steps), len(wanted))
        return steps
