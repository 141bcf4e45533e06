"""The broker that writes down who leads what: elects itself, acts on every change of the cluster, resigns.

Each broker runs one. It stands for election when the broker registers, and whenever /controller goes; who wins looks at
everything once, and then at whatever changes. There is one hand that writes, a task that is woken: what changes while
it writes is put together (`_dirty`) and looked at in one go afterwards, so that 3,333 partitions of a dead broker are a
handful of transactions. It decides from a view that has seen its own last write (`duties`), and writes with
`controller_store`; what is refused, since others wrote meanwhile, is looked at again after a pause.

    woken -> in office? (claim) -> view up to date -> topic ids -> states -> deletions -> notices, requests of old tools

Nothing ends the task but `stop`: an error is logged and all is looked at again after a pause. The office is lost with
the session, or when somebody else's epoch is found; then nothing is written any more.

Kafka's controller remembers states of partitions and replicas and sends them to the brokers, and has to be told by them
what came of it. Here ZooKeeper is the memory and every broker reads it, so there are no messages, no states in between
(NewReplica, ReplicaDeletionStarted...), and nothing to be lost with a controller.
Source: kafka.controller.KafkaController (startup, elect, maybeResign, onControllerFailover, process*), KIP-143, KIP-497
for what it left to ZooKeeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalite.common.clock import Clock, Timer
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.controller import pending_changes
from kafkalite.controller.admin_requests import AdminRequests
from kafkalite.controller.controller_store import ControllerMoved, ControllerStore, Step, claim, removals
from kafkalite.metadata.cluster_metadata import NO_LEADER, Change, Listener
from kafkalite.metadata.registration_state import RegistrationState
from kafkalite.zk.client.operations import Unavailable
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

logger = logging.getLogger(__name__)

_ROUND_MS = 30_000  # all is looked at again, whatever was or was not told; old notices are swept
_PAUSE_MS, _PAUSE_MAX_MS = 50, 5_000  # before something is tried again; doubled as long as it fails
_LOOKED_AT_AT_ONCE = 500  # partitions in one turn of the loop: about 2 ms
_WRITTEN_AT_ONCE = 500  # partitions whose states are made ready in one turn: about 10 ms
_UNCLEAN = "unclean.leader.election.enable"


class Cluster(Protocol):
    """What is asked of the registry. `listen_paths` tells which paths the view has taken in, `catch_up` returns when it
    has all that happened in ZooKeeper before the last answer from there."""

    @property
    def broker_id(self) -> int: ...
    @property
    def session(self) -> ZooKeeperSession: ...
    @property
    def view(self) -> ClusterView: ...
    @property
    def registration_state(self) -> RegistrationState: ...
    def listen(self, listener: Listener) -> Callable[[], None]: ...
    def listen_paths(self, listener: Callable[[Iterable[str]], None]) -> Callable[[], None]: ...
    async def catch_up(self) -> None: ...


class Controller:
    """A candidate, and in turn the controller. `config` may be replaced when settings change."""

    def __init__(self, registry: Cluster, clock: Clock, config: BrokerConfig) -> None:
        self.config = config
        self._registry = registry
        self._view = registry.view
        self._clock = clock
        self._store: ControllerStore | None = None  # while in office
        self._certain = False  # nothing was heard since the office was last looked at in ZooKeeper
        self._woken = asyncio.Event()
        self._dirty: dict[str, None] = {}  # topics to look at, in the order in which they changed
        self._all_dirty = True
        self._sweep = True  # look at what stands outside of topics: notices, requests of old tools
        self._housekeeping = AdminRequests(registry.view, clock)
        self._nameless: dict[str, float] = {}  # topics without an id, and since when
        self._waiting: list[str] = []  # topics that cannot be deleted yet
        self._pause_ms = 0.0
        self._again: Timer | None = None
        self._round: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._unlisten: list[Callable[[], None]] = []

    @property
    def epoch(self) -> int | None:
        """The epoch in which this broker is the controller, as far as it knows; None if it is not."""
        return None if self._store is None else self._store.epoch

    def start(self) -> None:
        """Stand for election from now on."""
        self._unlisten = [self._registry.listen(self._on_change), self._registry.listen_paths(self._on_paths)]
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kafkalite-controller")
        self._on_round()

    async def stop(self) -> None:
        """Leave the office, if held, to another one at once. Waits for ZooKeeper no longer than for one answer."""
        unlisten, self._unlisten = self._unlisten, []
        for each in unlisten:
            each()
        for timer in (self._again, self._round):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        store, self._store = self._store, None
        if store is not None and self._registry.registration_state is RegistrationState.MEMBER:
            with contextlib.suppress(Unavailable):
                await store.resign()

    # What is heard

    def _on_change(self, change: Change, name: str) -> None:
        if change is Change.REGISTRATION:
            self._certain = False
            self._all_dirty = self._sweep = True
            self._woken.set()

    def _on_paths(self, changed: Iterable[str]) -> None:
        for path in changed:
            if path == znode_paths.CONTROLLER or path == znode_paths.CONTROLLER_EPOCH:
                self._certain = False
            elif self._store is None:
                continue  # whoever is elected looks at everything
            elif znode_paths.broker_of(path) is not None:
                self._all_dirty = True
            elif path == znode_paths.REASSIGN_PARTITIONS or path == znode_paths.PREFERRED_REPLICA_ELECTION:
                self._sweep = True
            elif (name := znode_paths.topic_of(path)) is not None:
                self._dirty[name] = None
            elif (entity := znode_paths.config_of(path)) is not None and entity[0] == znode_paths.CONFIG_TOPICS:
                self._dirty[entity[1]] = None
            elif znode_paths.deleted_topic_of(path) is None:
                continue
            self._woken.set()

    def _on_round(self) -> None:
        self._certain = False
        self._all_dirty = self._sweep = True
        self._woken.set()
        self._round = self._clock.call_later(_ROUND_MS, self._on_round)

    def _try_again(self) -> None:
        self._pause_ms = min(max(_PAUSE_MS, 2 * self._pause_ms), _PAUSE_MAX_MS)
        if self._again is not None:
            self._again.cancel()
        self._again = self._clock.call_later(self._pause_ms, self._woken.set)

    # The hand that writes

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                store = await self._office()
                if store is None or await self._work(store):
                    self._pause_ms = 0
                else:
                    self._try_again()
            except ControllerMoved as moved:
                self._leave(str(moved))
                self._certain = False
                self._try_again()
            except Unavailable as unavailable:
                logger.info("the controller waits for ZooKeeper: %s", unavailable)
                self._certain, self._all_dirty, self._sweep = False, True, True
                self._try_again()
            except Exception:
                logger.exception("the controller failed; it looks at everything again")
                self._certain, self._all_dirty, self._sweep = False, True, True
                self._try_again()

    async def _office(self) -> ControllerStore | None:
        """What to write with, if this broker is the controller; ZooKeeper is asked if something was heard that may
        have changed it."""
        state = self._registry.registration_state
        if state is RegistrationState.DISCONNECTED:
            return None  # nothing can be written now, and the office may still be ours
        if state is not RegistrationState.MEMBER:
            held = self._store
            self._leave("this broker is no member of the cluster any more")
            if held is not None:
                await held.resign()  # it went with the session, unless somebody took away the registration alone
            return None
        if self._certain:
            return self._store
        self._certain = True  # until something is heard, be it while ZooKeeper is asked
        me = self._registry.broker_id
        store = await claim(self._registry.session, me, znode_data.controller_json(me, self._clock.wall_ms()))
        if store is None:
            self._leave("another broker is the controller")
            return None
        if self._store is None or self._store.epoch != store.epoch:
            logger.info("broker %d is the controller, epoch %d", me, store.epoch)
            self._all_dirty = self._sweep = True
            self._housekeeping = AdminRequests(self._view, self._clock)
        self._store = store
        return store

    def _leave(self, reason: str) -> None:
        if self._store is not None:
            logger.warning("no longer the controller of epoch %d: %s", self._store.epoch, reason)
        self._store = None

    async def _work(self, store: ControllerStore) -> bool:
        """Look at what has changed, and write what follows from it. False if something was refused."""
        await self._registry.catch_up()
        names = self._take_dirty()
        refused = await store.carry_out(list(self._ids_due(names)))
        refused += await self._write_states(store, names)
        refused += await self._delete_topics(store)
        self._dirty |= dict.fromkeys(reversed(_topics_of(refused)))  # first what was not even tried
        if self._sweep:
            self._sweep = False
            await self._registry.catch_up()
            await self._housekeeping.sweep(store)
            self._sweep |= not await self._housekeeping.answer(store)
        return not refused and not self._sweep

    def _ids_due(self, names: Iterable[str]) -> Iterator[Step]:
        now_ms, live = self._clock.monotonic_ms(), pending_changes.live_brokers(self._view)
        self._nameless = {name: self._nameless.get(name, now_ms) for name in self._view.without_id}
        for name in names:
            overdue = now_ms - self._nameless.get(name, now_ms) >= _ROUND_MS
            if (step := pending_changes.topic_id_step(self._view, name, live, overdue)) is not None:
                yield step

    def _take_dirty(self) -> list[str]:
        if self._all_dirty:
            names = list(self._view.assignments)
        else:
            names = [name for name in self._dirty if name in self._view.assignments]
        self._all_dirty, self._dirty = False, {}
        if self.config.delete_topic_enable:
            names = [name for name in names if name not in self._view.deletions]
        return names

    async def _write_states(self, store: ControllerStore, names: Sequence[str]) -> list[Step]:
        """First states and new leaders for these topics, some hundred at a time. Comes back with what was refused."""
        live = pending_changes.live_brokers(self._view)
        first: list[pending_changes.FirstState] = []
        elected: list[pending_changes.NextState] = []
        refused: list[Step] = []
        looked_at = made = led = offline = 0

        async def write() -> None:
            refused.extend(await store.carry_out([due.step for due in elected]))
            states = {
                (due.topic, due.partition): pending_changes.state_json(due.leadership, store.epoch) for due in first
            }
            refused.extend(await store.carry_out(await store.creations(states)))
            first.clear()
            elected.clear()
            nonlocal live  # when all are started side by side, the others come while the first of them writes
            live = pending_changes.live_brokers(self._view)

        for name in names:
            for due in pending_changes.states_due(self._view, name, live, self._unclean(name), store.epoch):
                looked_at += 1
                if isinstance(due, pending_changes.FirstState):
                    first.append(due)
                    made += 1
                elif due is not None:
                    elected.append(due)
                    led += due.leadership.leader != NO_LEADER
                    offline += due.leadership.leader == NO_LEADER
                if len(first) + len(elected) == _WRITTEN_AT_ONCE:
                    await write()
                elif looked_at % _LOOKED_AT_AT_ONCE == 0:
                    await asyncio.sleep(0)  # let others have the loop
        await write()
        if made or led or offline:
            logger.info(
                "live brokers %s: %d new partitions, %d with another leader, %d that nobody can lead now",
                sorted(live),
                made,
                led,
                offline,
            )
        return refused

    async def _delete_topics(self, store: ControllerStore) -> list[Step]:
        wanted = sorted(self._view.deletions)
        if not wanted:
            return []
        if not self.config.delete_topic_enable:
            logger.warning("delete.topic.enable is false: %s stay", ", ".join(wanted))
            return await store.carry_out(removals(znode_paths.delete_topic(name) for name in wanted))
        live = pending_changes.live_brokers(self._view)
        ready = [name for name in wanted if pending_changes.is_deletable(self._view, name, live)]
        waiting = sorted(set(wanted) - set(ready))
        if waiting and waiting != self._waiting:
            logger.info("%s to be deleted as soon as all their brokers are back", ", ".join(waiting))
        self._waiting = waiting
        if not ready:
            return []
        logger.info("deleting %s", ", ".join(ready))
        return await store.carry_out(await store.deletions(ready))

    def _unclean(self, name: str) -> bool:
        topic = self._view.topics.get(name)
        own = topic.config.get(_UNCLEAN) if topic is not None else None
        return self.config.unclean_leader_election_enable if own is None else own.strip().lower() == "true"


def _topics_of(steps: Iterable[Step]) -> list[str]:
    """The topics that steps are about, in their order."""
    named = (znode_paths.topic_of(operation.path) for step in steps for operation in step.operations)
    return [name for name in named if name is not None]
