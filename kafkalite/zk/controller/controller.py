"""The controller: the elected broker that chooses the leaders of partitions, and writes them to ZooKeeper.

Each broker runs one. It takes part in an election when the broker registers, and whenever /controller is deleted. After
its election it checks everything once, then only what changes. A single task writes: changes that come while it writes
are collected (`_changed_topics`) and checked in one go afterwards, so that 3,333 partitions of a dead broker are a
handful of transactions. It decides from a view that has seen its own last write (`pending_changes`), and writes with
`controller_store`; a change that is refused, because others wrote meanwhile, is checked again after a pause.

    woken -> elected? -> view up to date -> topic ids -> states -> reassignments that end -> deletions
          -> requests of clients, of old tools -> leaders back to the preferred replicas

Only `stop` ends the task: an error is logged, and everything is checked again after a pause. A controller resigns when
its session is gone, or when it finds another controller's epoch; after that it writes nothing.

Kafka's controller keeps the states of partitions and replicas in memory, sends them to the brokers, and waits for their
responses. Here the states are in ZooKeeper only and every broker reads them. So no messages and no intermediate states
(NewReplica, ReplicaDeletionStarted...) are needed, and nothing is lost with a controller.
Source: kafka.controller.KafkaController (startup, elect, maybeResign, onControllerFailover, process*), KIP-143, KIP-497
for what it left to ZooKeeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import NO_LEADER
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import Change, PartitionAdmin, RegistrationState
from kafkalite.zk.client.operations import Unavailable
from kafkalite.zk.controller import pending_changes, reassignment
from kafkalite.zk.controller.admin_requests import AdminRequests
from kafkalite.zk.controller.client_requests import ClientRequests
from kafkalite.zk.controller.controller_store import ControllerMoved, ControllerStore, Step, elect, removals
from kafkalite.zk.controller.pending_changes import (
    ControllerStats,
    ElectionContext,
    NewState,
    PendingDeletions,
    StateChange,
    state_json,
)
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.cluster.zookeeper_metadata import ZooKeeperMetadata

logger = logging.getLogger(__name__)

_CHECK_INTERVAL_MS = 30_000  # everything is checked again, in case a change was missed; notifications are removed
_PAUSE_MS, _PAUSE_MAX_MS = 50, 5_000  # before a retry; doubled as long as it fails
_CHECKED_PER_TURN = 500  # partitions in one turn of the loop: about 1 ms if they stay as they are
_DECIDED_PER_TURN = 100  # partitions that change: about 3 ms
_WRITTEN_PER_TURN = 500  # partitions whose states are prepared in one turn: about 10 ms
_ARRIVALS_MS = 5_000  # after the election of the controller: brokers that start at the same time register meanwhile


class Controller:
    """Takes part in elections from `start` to `stop`."""

    def __init__(self, metadata: ZooKeeperMetadata, clock: Clock, config: BrokerConfig) -> None:
        self.stats = ControllerStats()
        self._config = config
        self._metadata = metadata
        self._view = metadata.view
        self._clock = clock
        self._store: ControllerStore | None = None  # while elected
        self._is_election_known = False  # no change of /controller was seen since it was read or written last
        self._woken = asyncio.Event()
        self._changed_topics: dict[str, None] = {}  # to be checked, in the order in which they changed
        self._all_changed = True
        self._admin_is_due = True  # check nodes outside of topics: notifications, requests of old tools
        self._admin_requests = AdminRequests(metadata.view, clock, self.stats)
        self._client_requests = ClientRequests(
            metadata.view,
            self._context,
            lambda: self._store is not None and self._task is not None,
            self._woken.set,
            self.stats.count,
        )
        self._without_id_since_ms: dict[str, float] = {}  # by topic
        self._ineligible: list[str] = []  # topics that cannot be deleted yet
        self._first_epochs: dict[int, int] = {}  # of each broker that was seen
        self._awaits_brokers = False  # elected a moment ago
        self._pause_ms = 0.0
        self._retry: Timer | None = None
        self._next_check: Timer | None = None
        self._balance_is_due = False
        self._next_balance: Timer | None = None  # while elected
        self._task: asyncio.Task[None] | None = None
        self._unlisten: list[Callable[[], None]] = []

    @property
    def epoch(self) -> int | None:
        """The controller epoch of this broker as known here; None if it is not the controller."""
        return None if self._store is None else self._store.epoch

    @property
    def partition_admin(self) -> PartitionAdmin:
        """Handles clients' requests to the controller; refuses them while this broker is not the controller."""
        return self._client_requests

    def reconfigure(self, config: BrokerConfig) -> None:
        """Settings of the broker have changed, and with them perhaps the leaders that may be elected."""
        self._config = config
        self._check_everything()
        self._woken.set()

    def start(self) -> None:
        self._unlisten = [self._metadata.listen(self._on_change), self._metadata.listen_paths(self._on_paths)]
        self._remember_brokers()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kafkalite-controller")
        self._check_periodically()

    async def stop(self) -> None:
        """Resign, if elected, so that another broker is elected at once. Waits for one answer of ZooKeeper at most."""
        unlisten, self._unlisten = self._unlisten, []
        for each in unlisten:
            each()
        for timer in (self._retry, self._next_check):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        store = self._store
        self._on_resignation("this broker stops", logging.INFO)
        if store is not None and self._metadata.registration_state is RegistrationState.MEMBER:
            with contextlib.suppress(Unavailable):
                await store.resign()

    # Events

    def _on_change(self, change: Change, name: str) -> None:
        if change is Change.REGISTRATION:
            self._check_everything()
            self._woken.set()
        elif change is Change.BROKERS:
            self._remember_brokers()

    def _remember_brokers(self) -> None:
        for broker in self._view.brokers.values():
            self._first_epochs.setdefault(broker.broker_id, broker.epoch)

    def _on_paths(self, changed: Iterable[str]) -> None:
        for path in changed:
            if path == znode_paths.CONTROLLER or path == znode_paths.CONTROLLER_EPOCH:
                self._is_election_known = False
            elif self._store is None:
                continue  # a controller that is elected checks everything
            elif znode_paths.broker_of(path) is not None or znode_paths.registration_of(path) is not None:
                self._all_changed = True
            elif path == znode_paths.REASSIGN_PARTITIONS or path == znode_paths.PREFERRED_REPLICA_ELECTION:
                self._admin_is_due = True
            elif (name := znode_paths.topic_of(path)) is not None:
                self._changed_topics[name] = None
            elif (entity := znode_paths.config_of(path)) is not None and entity[0] == znode_paths.CONFIG_TOPICS:
                self._changed_topics[entity[1]] = None
            elif (name := znode_paths.deleted_topic_of(path)) is not None:
                self._changed_topics[name] = None  # if the order is withdrawn, what changed meanwhile is due
            else:
                continue
            self._woken.set()

    def _check_periodically(self) -> None:
        self._check_everything()
        self._woken.set()
        self._next_check = self._clock.call_later(_CHECK_INTERVAL_MS, self._check_periodically)

    def _check_everything(self) -> None:
        self._is_election_known = False
        self._all_changed = self._admin_is_due = True

    def _retry_later(self) -> None:
        self._pause_ms = min(max(_PAUSE_MS, 2 * self._pause_ms), _PAUSE_MAX_MS)
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._clock.call_later(self._pause_ms, self._woken.set)

    # The task that writes

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                store = await self._elect()
                if store is None:
                    self._client_requests.refuse(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
                if store is None or await self._process(store):
                    self._pause_ms = 0
                    continue
            except ControllerMoved as moved:
                self._on_resignation(str(moved))
                self._is_election_known = False
            except Unavailable as unavailable:
                logger.info("the controller waits for ZooKeeper: %s", unavailable)
                self._client_requests.refuse(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper is unavailable: {unavailable}")
                self._check_everything()
            except Exception:
                logger.exception("the controller failed; it checks everything again")
                self._client_requests.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller failed; its log says how.")
                self._check_everything()
            self._retry_later()

    async def _elect(self) -> ControllerStore | None:
        """The store to write with if this broker is the controller, or is elected now. Reads ZooKeeper only if
        /controller may have changed."""
        state = self._metadata.registration_state
        if state is RegistrationState.DISCONNECTED:
            return None  # nothing can be written now, and this broker may still be the controller
        if state is not RegistrationState.MEMBER:
            former = self._store
            self._on_resignation("this broker is no member of the cluster any more")
            if former is not None:
                await former.resign()  # the node went with the session, unless only the registration was taken away
            return None
        if self._is_election_known:
            return self._store
        self._is_election_known = True  # until a change of /controller is seen, possibly during this read
        me = self._metadata.broker_id
        store = await elect(self._metadata.session, me, znode_data.controller_json(me, self._clock.wall_ms()))
        if store is None:
            self._on_resignation("another broker is the controller")
            return None
        if self._store is None or self._store.epoch != store.epoch:
            logger.info("broker %d is the controller, epoch %d", me, store.epoch)
            self._all_changed = self._admin_is_due = True
            self._admin_requests = AdminRequests(self._view, self._clock, self.stats)
            self._awaits_brokers = True
            self._balance_after(_ARRIVALS_MS)
        self._store = store
        return store

    def _on_resignation(self, reason: str, level: int = logging.WARNING) -> None:
        if self._store is not None:
            logger.log(level, "no longer the controller of epoch %d: %s", self._store.epoch, reason)
        self._store = None
        self.stats.deletions = PendingDeletions()
        self._balance_is_due = False
        if self._next_balance is not None:
            self._next_balance.cancel()
        self._client_requests.refuse(ErrorCode.NOT_CONTROLLER, "This broker is not the controller any more.")

    async def _process(self, store: ControllerStore) -> bool:
        """Check the changed topics and write their pending changes. False if a step was refused."""
        await self._metadata.catch_up()
        names = self._take_changed_topics()
        refused = await store.write(list(self._topic_id_steps(names)))
        refused += await self._write_states(store, names)
        refused += await self._end_reassignments(store, names)
        refused += await self._delete_topics(store)
        self._changed_topics |= dict.fromkeys(reversed(_topics_of(refused)))  # first the ones that were not even tried
        await self._client_requests.perform(store, self._metadata.catch_up)
        if self._admin_is_due:
            self._admin_is_due = False
            await self._metadata.catch_up()
            await self._admin_requests.clean_up(store)
            self._admin_is_due |= not await self._admin_requests.process(store, self._context(store))
        if self._balance_is_due:
            self._balance_is_due = False
            await self._balance_leaders(store)
        return not refused and not self._admin_is_due

    def _take_changed_topics(self) -> list[str]:
        if self._all_changed:
            names = list(self._view.assignments)
        else:
            names = [name for name in self._changed_topics if name in self._view.assignments]
        self._all_changed, self._changed_topics = False, {}
        if self._config.delete_topic_enable:
            names = [name for name in names if name not in self._view.deletions]
        return names

    def _topic_id_steps(self, names: Iterable[str]) -> Iterator[Step]:
        now_ms, live = self._clock.monotonic_ms(), self._view.brokers.keys()
        since_ms = {name: self._without_id_since_ms.get(name, now_ms) for name in self._view.without_id}
        self._without_id_since_ms = since_ms
        for name in names:
            is_overdue = now_ms - since_ms.get(name, now_ms) >= _CHECK_INTERVAL_MS
            if (step := pending_changes.topic_id_step(self._view, name, live, is_overdue)) is not None:
                yield step

    async def _write_states(self, store: ControllerStore, names: Sequence[str]) -> list[Step]:
        """First states and new leaders for these topics, some hundred at a time. Returns the refused steps."""
        began_ms = self._clock.monotonic_ms()
        context = self._context(store)
        pending: list[NewState | StateChange] = []
        refused: list[Step] = []
        checked = created = led = offline = shrunk = 0

        async def write() -> None:
            nonlocal context, created, led, offline, shrunk
            changes = [each for each in pending if isinstance(each, StateChange)]
            new = [each for each in pending if isinstance(each, NewState)]
            pending.clear()
            created += len(new)
            shrunk += sum(not change.elects for change in changes)
            offline += sum(change.elects and change.state.leader == NO_LEADER for change in changes)
            led += sum(change.elects and change.state.leader != NO_LEADER for change in changes)
            refused_changes = await store.write([change.step for change in changes])
            refused.extend(refused_changes)
            self.stats.count(changes, refused_changes)
            states = {(each.topic, each.partition): state_json(each.state, store.epoch) for each in new}
            refused.extend(await store.write(await store.creations(states)))
            # when all brokers start side by side, the others come while the first of them writes
            context = self._context(store)

        for name in names:
            for change in pending_changes.state_changes(self._view, name, context):
                checked += 1
                if change is not None:
                    pending.append(change)
                if len(pending) == _WRITTEN_PER_TURN:
                    await write()
                elif checked % _CHECKED_PER_TURN == 0 or (change is not None and len(pending) % _DECIDED_PER_TURN == 0):
                    await asyncio.sleep(0)  # let others have the loop
        await write()
        if led or offline:
            self.stats.election_rounds.add(self._clock.monotonic_ms() - began_ms)
        if created or led or offline or shrunk:
            only_isr = f", {shrunk} with a smaller ISR" if shrunk else ""
            logger.info(
                "live brokers %s: %d new partitions, %d with another leader, %d without a possible leader%s",
                *(sorted(context.brokers.live), created, led, offline, only_isr),
            )
        return refused

    async def _end_reassignments(self, store: ControllerStore, names: Sequence[str]) -> list[Step]:
        """Returns the refused steps."""
        assignments = self._view.assignments
        moving = [name for name in names if (known := assignments.get(name)) and known.value.is_being_reassigned]
        if not moving:
            return []
        await self._metadata.catch_up()
        context = self._context(store)
        moves = [move for name in moving for move in reassignment.endings(self._view, name, context)]
        refused = await store.write([move.step for move in moves])
        not_ended = set(refused)
        ended = sum(len(move.assignments) for move in moves if move.step not in not_ended)
        if ended:
            logger.info("reassignment of %d partitions has ended", ended)
            self._admin_is_due |= self._admin_requests.is_reassigning
        return refused

    async def _balance_leaders(self, store: ControllerStore) -> None:
        """Return leadership to preferred replicas. A refused change is left for the next time."""
        interval_ms = 1_000 * self._config.leader_imbalance_check_interval_seconds
        self._balance_after(interval_ms)
        if not self._config.auto_leader_rebalance_enable:
            return
        began_ms = self._clock.monotonic_ms()
        await self._metadata.catch_up()
        changes = await pending_changes.balancing_changes(self._view, self._context(store))
        refused = await store.write([change.step for change in changes])
        self.stats.balances.add(self._clock.monotonic_ms() - began_ms)
        if changes:
            self.stats.count(changes, refused)
            count = len(changes) - len(refused)
            logger.info("leader imbalance: %d partitions are led by their preferred replicas again", count)

    def _balance_after(self, delay_ms: float) -> None:
        def wake() -> None:
            self._balance_is_due = True
            self._all_changed |= self._awaits_brokers
            self._awaits_brokers = False
            self._woken.set()

        if self._next_balance is not None:
            self._next_balance.cancel()
        self._next_balance = self._clock.call_later(delay_ms, wake)

    def _context(self, store: ControllerStore) -> ElectionContext:
        brokers = pending_changes.brokers_of(self._view)
        first_epochs = dict(self._first_epochs)  # as the brokers are now: more may come while states are written
        return ElectionContext(brokers, self._config, store.epoch, first_epochs, self._awaits_brokers)

    async def _delete_topics(self, store: ControllerStore) -> list[Step]:
        wanted = sorted(self._view.deletions)
        live = self._view.brokers.keys()
        self.stats.deletions = pending_changes.pending_deletions(self._view, wanted, live)
        if not wanted:
            return []
        if not self._config.delete_topic_enable:
            logger.warning("delete.topic.enable is false: %s stay", ", ".join(wanted))
            return await store.write(removals(znode_paths.delete_topic(name) for name in wanted))
        ready = [name for name in wanted if pending_changes.is_deletable(self._view, name, live)]
        ineligible = sorted(set(wanted) - set(ready))
        if ineligible and ineligible != self._ineligible:
            logger.info("%s to be deleted as soon as all their brokers are back", ", ".join(ineligible))
        self._ineligible = ineligible
        if not ready:
            return []
        logger.info("deleting %s", ", ".join(ready))
        refused = await store.write(await store.deletions(ready))
        if not refused:
            self.stats.deletions = pending_changes.pending_deletions(self._view, ineligible, live)
        return refused


def _topics_of(steps: Iterable[Step]) -> list[str]:
    """The topics that steps are about, in their order."""
    named = (znode_paths.topic_of(operation.path) for step in steps for operation in step.operations)
    return [name for name in named if name is not None]
