"""A simulated ZooKeeper: one partition's state node, a registration of each broker, the controller; sessions, watches.

Requests and answers of a session keep their order; each takes its time, and a broken connection loses some of them,
before or after they had their effect. Every change is told to every connected broker, each with a delay of its own; a
broker keeps the latest view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.metadata.partition_state import IsrState, WriteOutcome

if TYPE_CHECKING:
    from tests.support.replication.simulated_broker import SimulatedBroker
    from tests.support.replication.simulator import Simulator

SESSION_TIMEOUT_MS = 150.0


class View(NamedTuple):
    """A broker's view. `live`: registered and not stopping, with their registrations; `registered_by`: the transactions
    of these registrations."""

    zxid: int
    state: IsrState
    written_by: int
    live: Mapping[int, int]
    registered_by: Mapping[int, int]
    stopping: frozenset[int]
    intact: frozenset[int]  # these registered with the log that they had
    controller: tuple[int, int] | None  # (broker, session)
    controller_epoch: int


class Lost(Enum):
    """Endings of a request besides its result."""

    CONNECTION = "connection"
    SESSION = "session"


class SimulatedZooKeeper:
    """`registrations` grow by one when a broker starts, before anything else, and when it begins to stop.

    `checks_registrations`, `checks_controller_epoch`: rules that a test may take out.
    """

    def __init__(self, simulator: Simulator, state: IsrState) -> None:
        self.simulator = simulator
        self.brokers: dict[int, SimulatedBroker] = {}
        self.state = state
        self.zxid = 1
        self.written_by = 1
        self.registrations: dict[int, int] = {}
        self.registered_by: dict[int, int] = {}
        self.ephemerals: dict[int, int] = {}  # broker -> session
        self.stopping: frozenset[int] = frozenset()
        self.intact: frozenset[int] = frozenset()
        self.controller: tuple[int, int] | None = None  # (broker, session)
        self.controller_epoch = 0
        self.sessions: set[int] = set()
        self.written: list[IsrState] = [state]
        self.checks_registrations = True
        self.checks_controller_epoch = True
        self.on_isr_write: Callable[[IsrState, IsrState], None] = lambda before, after: None
        self._last_session = 0
        self._busy_until: dict[tuple[int, str], float] = {}

    # --- sessions

    def open_session(self) -> int:
        self._last_session += 1
        self.sessions.add(self._last_session)
        return self._last_session

    def expire(self, session: int) -> None:
        self.sessions.discard(session)
        for broker_id, owner in list(self.ephemerals.items()):
            if owner == session:
                del self.ephemerals[broker_id]
                self.stopping -= {broker_id}
                self.zxid += 1
        if self.controller is not None and self.controller[1] == session:
            self.controller = None
            self.zxid += 1
        self.notify()

    # --- requests: (what ZooKeeper does) -> result

    def request(
        self, broker: SimulatedBroker, action: Callable[[], Any], answer: Callable[[Any], None], held_ms: float = 0.0
    ) -> None:
        session, delay = broker.session, self.simulator.rng.uniform(0.5, 4.0)
        time = self._in_turn(session, "to", delay + held_ms + broker.zk_write_delay)
        self.simulator.at(time, self._serve, broker, session, broker.incarnation, action, answer)

    def _serve(
        self,
        broker: SimulatedBroker,
        session: int,
        incarnation: int,
        action: Callable[[], Any],
        answer: Callable[[Any], None],
    ) -> None:
        rng = self.simulator.rng
        result: Any = Lost.CONNECTION
        if not broker.is_cut_from_zk or broker.incarnation != incarnation:
            result = action() if session in self.sessions else Lost.SESSION
            if broker.loses_zk_answers and rng.random() < broker.loses_zk_answers:
                result = Lost.CONNECTION
        if broker.incarnation == incarnation:
            time = self._in_turn(session, "from", rng.uniform(0.5, 4.0))
            self.simulator.at(time, self._answer, broker, incarnation, answer, result)

    def _answer(self, broker: SimulatedBroker, incarnation: int, answer: Callable[[Any], None], result: Any) -> None:
        broker.turn(incarnation, answer, Lost.CONNECTION if broker.is_cut_from_zk else result)

    def _in_turn(self, session: int, way: str, delay: float) -> float:
        key = session, way
        time = self._busy_until[key] = max(self._busy_until.get(key, 0.0) + 0.001, self.simulator.now + delay)
        return time

    # --- what a request does

    def write_state(
        self, state: IsrState, registrations: Mapping[int, int], controller_epoch: int | None = None
    ) -> WriteOutcome:
        """A transaction: the checks, and the node written if its version is `state.partition_epoch`."""
        if controller_epoch not in (None, self.controller_epoch) and self.checks_controller_epoch:
            return WriteOutcome.REFUSED
        for broker_id, registration in registrations.items():
            is_same = self.registrations.get(broker_id) == registration and broker_id in self.ephemerals
            if not is_same and self.checks_registrations:
                return WriteOutcome.REFUSED
        if state.partition_epoch != self.state.partition_epoch:
            return WriteOutcome.BAD_VERSION
        assert state.isr and not state.isr & state.elr, state
        before, self.state = self.state, state._replace(partition_epoch=state.partition_epoch + 1)
        self.zxid += 1
        self.written_by = self.zxid
        self.written.append(self.state)
        self.on_isr_write(before, self.state)
        self.notify()
        return WriteOutcome.WRITTEN

    def fence(self, broker_id: int, expected: int) -> int | None:
        """A new registration begins: from now on nothing succeeds in the name of the old one. A conditional write, so
        that a request of the broker's former life, which comes late, does not end the present one."""
        if self.registrations.get(broker_id, 0) != expected:
            return None
        self.registrations[broker_id] = expected + 1
        self.zxid += 1
        return expected + 1

    def register(self, broker_id: int, session: int, registration: int, *, is_intact: bool) -> View | None:
        if self.registrations[broker_id] != registration:
            return None
        self.ephemerals[broker_id] = session
        self.intact = self.intact | {broker_id} if is_intact else self.intact - {broker_id}
        self.stopping -= {broker_id}
        self.zxid += 1
        self.registered_by[broker_id] = self.zxid
        self.notify()
        return self.view()

    def begin_stop(self, broker_id: int, registration: int) -> None:
        if self.fence(broker_id, registration) is not None:
            self.stopping |= {broker_id}
            self.notify()

    def become_controller(self, broker_id: int, session: int) -> int | None:
        if self.controller is not None:
            return None
        self.controller, self.controller_epoch = (broker_id, session), self.controller_epoch + 1
        self.zxid += 1
        self.notify()
        return self.controller_epoch

    # --- watches

    def view(self) -> View:
        live = {each: self.registrations[each] for each in self.ephemerals if each not in self.stopping}
        return View(
            self.zxid,
            self.state,
            self.written_by,
            live,
            dict(self.registered_by),
            self.stopping,
            self.intact,
            self.controller,
            self.controller_epoch,
        )

    def notify(self) -> None:
        view = self.view()
        for broker in self.brokers.values():
            self.tell(broker, view)

    def tell(self, broker: SimulatedBroker, view: View) -> None:
        if broker.is_up and not broker.is_cut_from_zk and broker.session in self.sessions:
            delay = self.simulator.rng.uniform(0.5, 8.0) + broker.view_delay
            self.simulator.after(delay, self._deliver, broker, broker.incarnation, view)

    def _deliver(self, broker: SimulatedBroker, incarnation: int, view: View) -> None:
        if not broker.is_cut_from_zk:
            broker.turn(incarnation, broker.on_view, view)
