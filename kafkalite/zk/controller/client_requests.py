"""Requests of clients for the controller, which its task performs: elections and reassignments.

A request waits for the controller's task, so that one task writes. If another controller is elected, or the connection
to ZooKeeper is lost, all waiting requests are refused. A reassignment is answered when it has begun; it ends when all
of its replicas are in sync.
Source: kafka.controller.KafkaController (processReplicaLeaderElection, processApiPartitionReassignment).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.metadata.cluster_metadata import Election, PartitionAdmin, PartitionRecord, Reassignment
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.controller import admin_checks, pending_changes, reassignment
from kafkalite.zk.controller.admin_checks import CHECKED_PER_TURN
from kafkalite.zk.controller.admin_requests import without_entries
from kafkalite.zk.controller.controller_store import ControllerStore, Step
from kafkalite.zk.controller.pending_changes import ElectionContext, StateChange
from kafkalite.zk.controller.reassignment import Move, Target
from kafkalite.zk.znodes import znode_paths

logger = logging.getLogger(__name__)

_ATTEMPTS = 5  # to write a partition that others change at the same time
_SHOWN_MAX = 8  # partitions in a line of the log
CatchUp = Callable[[], Awaitable[None]]
"""Brings the view up to date."""

MakeContext = Callable[[ControllerStore], ElectionContext]
"""The context of elections as the view is now."""

Refusals = Sequence[KafkaError | None]


class _Waiting(NamedTuple):
    perform: Callable[[ControllerStore, CatchUp], Awaitable[Refusals]]
    answer: asyncio.Future[Refusals]


class ClientRequests(PartitionAdmin):
    """`is_controller`: whether this broker is the elected controller; `wake` makes its task call `perform`."""

    def __init__(
        self,
        view: ClusterView,
        make_context: MakeContext,
        is_controller: Callable[[], bool],
        wake: Callable[[], None],
        on_changes: Callable[[Iterable[StateChange], Iterable[Step]], None],
    ) -> None:
        self._view = view
        self._make_context = make_context
        self._is_controller = is_controller
        self._wake = wake
        self._on_changes = on_changes
        self._waiting: list[_Waiting] = []

    async def elect_leaders(self, partitions: Sequence[TopicPartition], election: Election) -> Refusals:
        return await self._performed(lambda store, catch_up: self._elect(partitions, election, store, catch_up))

    async def reassign(self, targets: Sequence[tuple[TopicPartition, Target]]) -> Refusals:
        return await self._performed(lambda store, catch_up: self._reassign(targets, store, catch_up))

    def reassignments(self) -> Mapping[TopicPartition, Reassignment]:
        return reassignment.in_progress(self._view)

    async def _performed(self, perform: Callable[[ControllerStore, CatchUp], Awaitable[Refusals]]) -> Refusals:
        if not self._is_controller():
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
        waiting = _Waiting(perform, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._wake()
        return await waiting.answer

    # For the controller's task

    def refuse(self, code: ErrorCode, message: str) -> None:
        """Answer all waiting requests with this error."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.answer.done():
                one.answer.set_exception(KafkaError(code, message))

    async def perform(self, store: ControllerStore, catch_up: CatchUp) -> None:
        """Perform the waiting requests. A request stays among them while it is performed, for `refuse`."""
        while self._waiting:
            one = self._waiting[0]
            answer = await one.perform(store, catch_up)
            if not one.answer.done():
                one.answer.set_result(answer)
            if self._waiting and self._waiting[0] is one:
                del self._waiting[0]

    async def _elect(
        self, partitions: Sequence[TopicPartition], election: Election, store: ControllerStore, catch_up: CatchUp
    ) -> Refusals:
        outcome: dict[TopicPartition, KafkaError | None] = {}
        open_keys = dict.fromkeys(partitions)
        elected = 0
        for _ in range(_ATTEMPTS):
            changes: dict[TopicPartition, StateChange] = {}
            context = self._make_context(store)
            for at, key in enumerate(open_keys, start=1):
                if at % CHECKED_PER_TURN == 0:
                    await asyncio.sleep(0)
                decided = self._election(key, election, context)
                if isinstance(decided, StateChange):
                    changes[key] = decided
                else:
                    outcome[key] = decided
            refused = set(await store.write([change.step for change in changes.values()]))
            await catch_up()
            open_keys = {key: None for key, change in changes.items() if change.step in refused}
            done = changes.keys() - open_keys.keys()
            outcome |= dict.fromkeys(done)
            elected += len(done)
            self._on_changes(changes.values(), refused)
            if not open_keys:
                break
        outcome |= dict.fromkeys(open_keys, _contended())
        if elected:
            kind = election.name.lower()
            logger.info("%s election: %d of %d partitions get another leader", kind, elected, len(partitions))
        return [outcome[key] for key in partitions]

    def _election(self, key: TopicPartition, election: Election, context: ElectionContext) -> StateChange | KafkaError:
        partition, is_being_deleted = self._partition(key), key[0] in self._view.deletions
        refusal = admin_checks.election_refusal(
            partition, election, context.brokers.live, is_being_deleted=is_being_deleted
        )
        if refusal is not None:
            return refusal
        change = pending_changes.requested_change(self._view, *key, context, election)
        return change or admin_checks.no_candidate(key, election)

    def _partition(self, key: TopicPartition) -> PartitionRecord | None:
        topic = self._view.topics.get(key[0])
        return topic.partitions.get(key[1]) if topic is not None else None

    async def _reassign(
        self, targets: Sequence[tuple[TopicPartition, Target]], store: ControllerStore, catch_up: CatchUp
    ) -> Refusals:
        refusals: list[KafkaError | None] = []
        wanted: dict[TopicPartition, Target] = {}  # of a partition that is named twice, the last target
        context = self._make_context(store)
        for at, (key, target) in enumerate(targets, start=1):
            refusals.append(self._reassignment_refusal(key, target, context))
            if refusals[-1] is None:
                wanted[key] = target
            if at % CHECKED_PER_TURN == 0:
                await asyncio.sleep(0)
        late = await self._begin(wanted, store, catch_up)
        return [
            late.get(key) if refusal is None else refusal for refusal, (key, _) in zip(refusals, targets, strict=True)
        ]

    async def _begin(
        self, wanted: Mapping[TopicPartition, Target], store: ControllerStore, catch_up: CatchUp
    ) -> dict[TopicPartition, KafkaError]:
        """Begin, or cancel. The newest request counts, so it takes its partitions out of one that an old tool made."""
        refused: dict[TopicPartition, KafkaError] = {}
        left = dict(wanted)
        for _ in range(_ATTEMPTS):
            (request,) = await store.read([znode_paths.REASSIGN_PARTITIONS])
            if request is not None and await store.write(without_entries(request, wanted)):
                continue
            moves, faults = self._moves(left, self._make_context(store))
            refused |= faults
            steps = set(await store.write([move.step for move in moves]))
            if moves:
                await catch_up()
            _log_moves([move for move in moves if move.step not in steps])
            open_keys = {(move.topic, number) for move in moves if move.step in steps for number in move.assignments}
            left = {key: target for key, target in left.items() if key in open_keys}
            if not left:
                return refused
        return refused | dict.fromkeys(left, _contended())

    def _moves(
        self, wanted: Mapping[TopicPartition, Target], context: ElectionContext
    ) -> tuple[list[Move], dict[TopicPartition, KafkaError]]:
        by_topic: dict[str, dict[int, Target]] = {}
        moves: list[Move] = []
        refused: dict[TopicPartition, KafkaError] = {}
        for (name, number), target in wanted.items():
            if self._partition((name, number)) is None:
                refused[name, number] = _unknown()
            else:
                by_topic.setdefault(name, {})[number] = target
        for name, of_topic in by_topic.items():
            some, faults = reassignment.beginnings(self._view, name, of_topic, context)
            moves += some
            refused |= {(name, number): fault for number, fault in faults.items()}
        return moves, refused

    def _reassignment_refusal(self, key: TopicPartition, target: Target, context: ElectionContext) -> KafkaError | None:
        partition = self._partition(key) if key[0] not in self._view.deletions else None
        replicas = partition.replicas if partition is not None else None
        is_moving = reassignment.is_moving(self._view, key)
        return admin_checks.reassignment_refusal(replicas, target, context.brokers.live, is_reassigned=is_moving)


def _log_moves(moves: Sequence[Move]) -> None:
    begun = [f"{move.topic}-{number}" for move in moves for number in move.assignments]
    if begun:
        more = f" and {len(begun) - _SHOWN_MAX} more" if len(begun) > _SHOWN_MAX else ""
        logger.info("reassignment of %s%s begins, or is cancelled", ", ".join(begun[:_SHOWN_MAX]), more)


def _unknown() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


def _contended() -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Other writers keep changing the partition at the same time.")
