"""Requests of clients for the controller: elections, which its task performs, and reassignments.

A request waits until the controller's task comes to it, so that one task writes. Whatever keeps the task from it
(another controller, no connection to ZooKeeper) refuses all requests that wait.
Source: kafka.controller.KafkaController (processReplicaLeaderElection, processApiPartitionReassignment).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.controller import admin_checks, pending_changes
from kafkalite.controller.admin_checks import CHECKED_PER_TURN
from kafkalite.controller.controller_store import ControllerStore
from kafkalite.controller.pending_changes import StateChange
from kafkalite.metadata.cluster_metadata import PartitionRecord
from kafkalite.metadata.partition_admin import Election, PartitionAdmin, Reassignment
from kafkalite.zk.cluster.cluster_view import ClusterView

logger = logging.getLogger(__name__)

_ATTEMPTS = 5  # to write an election whose partition others change at the same time
CatchUp = Callable[[], Awaitable[None]]
"""Brings the view up to date."""


class _Waiting(NamedTuple):
    partitions: Sequence[TopicPartition]
    election: Election
    answer: asyncio.Future[Sequence[KafkaError | None]]


class ClientRequests(PartitionAdmin):
    """`is_controller` says whether this broker is the elected controller; `wake` has its task call `perform`."""

    def __init__(self, view: ClusterView, is_controller: Callable[[], bool], wake: Callable[[], None]) -> None:
        self._view = view
        self._is_controller = is_controller
        self._wake = wake
        self._waiting: list[_Waiting] = []

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election
    ) -> Sequence[KafkaError | None]:
        self._check_is_controller()
        waiting = _Waiting(partitions, election, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._wake()
        return await waiting.answer

    async def reassign(
        self, targets: Sequence[tuple[TopicPartition, Sequence[int] | None]]
    ) -> Sequence[KafkaError | None]:
        self._check_is_controller()
        refusals = []
        for at, (key, target) in enumerate(targets, start=1):
            refusals.append(self._reassignment_refusal(key, target))
            if at % CHECKED_PER_TURN == 0:
                await asyncio.sleep(0)
        return refusals

    def reassignments(self) -> Mapping[TopicPartition, Reassignment]:
        return pending_changes.reassignments(self._view)

    # For the controller's task

    def refuse(self, code: ErrorCode, message: str) -> None:
        """Answer all requests that wait."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.answer.done():
                one.answer.set_exception(KafkaError(code, message))

    async def perform(self, store: ControllerStore, catch_up: CatchUp) -> None:
        """Perform the requests that wait. A request stays with them while it is performed, for `refuse`."""
        while self._waiting:
            one = self._waiting[0]
            answer = await self._elect(one, store, catch_up)
            if not one.answer.done():
                one.answer.set_result(answer)
            if self._waiting and self._waiting[0] is one:
                del self._waiting[0]

    async def _elect(self, one: _Waiting, store: ControllerStore, catch_up: CatchUp) -> Sequence[KafkaError | None]:
        outcome: dict[TopicPartition, KafkaError | None] = {}
        open_keys = dict.fromkeys(one.partitions)
        elected = 0
        for _ in range(_ATTEMPTS):
            changes: dict[TopicPartition, StateChange] = {}
            for at, key in enumerate(open_keys, start=1):
                if at % CHECKED_PER_TURN == 0:
                    await asyncio.sleep(0)
                decided = self._election(key, one.election, store.epoch)
                if isinstance(decided, StateChange):
                    changes[key] = decided
                else:
                    outcome[key] = decided
            refused = await store.write([change.step for change in changes.values()])
            await catch_up()
            open_keys = {key: None for key, change in changes.items() if change.step in refused}
            outcome |= dict.fromkeys(changes.keys() - open_keys.keys())
            elected += len(changes) - len(open_keys)
            if not open_keys:
                break
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Others keep changing the partition at the same time.")
        outcome |= dict.fromkeys(open_keys, late)
        if elected:
            kind = one.election.name.lower()
            logger.info("%s election: %d of %d partitions get another leader", kind, elected, len(one.partitions))
        return [outcome[key] for key in one.partitions]

    def _election(self, key: TopicPartition, election: Election, controller_epoch: int) -> StateChange | KafkaError:
        live = pending_changes.live_brokers(self._view)
        partition, is_being_deleted = self._partition(key), key[0] in self._view.deletions
        refusal = admin_checks.election_refusal(partition, election, live, is_being_deleted=is_being_deleted)
        if refusal is not None:
            return refusal
        decide = pending_changes.preferred_change if election is Election.PREFERRED else pending_changes.unclean_change
        return decide(self._view, *key, live, controller_epoch) or admin_checks.no_candidate(key, election)

    def _partition(self, key: TopicPartition) -> PartitionRecord | None:
        topic = self._view.topics.get(key[0])
        return topic.partitions.get(key[1]) if topic is not None else None

    def _reassignment_refusal(self, key: TopicPartition, target: Sequence[int] | None) -> KafkaError | None:
        partition = self._partition(key) if key[0] not in self._view.deletions else None
        replicas = partition.replicas if partition is not None else None
        is_reassigned = pending_changes.is_reassigned(self._view, key)
        live = self._view.brokers
        refusal = admin_checks.reassignment_refusal(replicas, target, live, is_reassigned=is_reassigned)
        if refusal is None and replicas is not None and (is_reassigned or tuple(target or ()) != replicas):
            refusal = admin_checks.needs_copying(replicas)
        return refusal

    def _check_is_controller(self) -> None:
        if not self._is_controller():
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
