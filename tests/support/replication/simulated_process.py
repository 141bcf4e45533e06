"""A simulated broker process: started, killed, paused, cut off from ZooKeeper; its session and its registration.

A broker registers in steps, each of which may be lost, repeated, or overtaken by its next life:

    1. the number of its registration is raised by a conditional write: nothing succeeds in the name of the old one
    2. if the end of its log may be lost, it leaves the ISR and the ELR, or leads no more
    3. it registers, if the number is still its own
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode
from kafkalite.metadata.partition_state import IsrState, leave_with_lost_tail
from tests.support.replication.simulated_log import SimulatedLog
from tests.support.replication.simulated_zookeeper import SESSION_TIMEOUT_MS, Lost, View

if TYPE_CHECKING:
    from tests.support.replication.simulated_cluster import SimulatedCluster

Respond = Callable[[Any], None]


class SimulatedProcess(ABC):
    """`incarnation` counts its lives: an event reaches the one that it was planned for. The log outlives it.

    `view_delay`, `zk_write_delay`, `loses_zk_answers` (a probability) and `holds_isr_writes_ms` are faults.
    """

    def __init__(self, broker_id: int, cluster: SimulatedCluster) -> None:
        self.id = broker_id
        self.cluster = cluster
        self.simulator = cluster.simulator
        self.zookeeper = cluster.zookeeper
        self.log = SimulatedLog(flushes=cluster.flushes)
        self.is_up = self.is_paused = self.is_cut_from_zk = False
        self.has_lost_tail = False
        self.incarnation = self.session = 0
        self.skew = 0.0
        self.view_delay = self.zk_write_delay = self.loses_zk_answers = self.holds_isr_writes_ms = 0.0
        self.requests: set[Respond] = set()  # being served
        self._unreachable = 0  # counts changes of ZooKeeper's reach
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._clear()

    def _clear(self) -> None:
        """A process that begins knows nothing."""
        self.view: View | None = None
        self.is_registered = False
        self.registration = 0
        self.former_epoch = -1  # under which it led before it registered
        self.is_stopping = False
        self._backlog.clear()

    @abstractmethod
    def on_view(self, view: View) -> None:
        """A view of the cluster has come, perhaps an older one than the last."""

    @abstractmethod
    def resign(self) -> None:
        """Neither lead nor follow any more."""

    @property
    def now(self) -> float:
        return self.simulator.now + self.skew

    # --- events

    def turn(self, incarnation: int, action: Callable[..., None], *args: Any) -> None:
        """An event arrives: for the process of that time, when it runs."""
        if incarnation == self.incarnation and self.is_up:
            if self.is_paused:
                self._backlog.append((action, args))
            else:
                action(*args)

    def later(self, delay: float, action: Callable[..., None], *args: Any) -> None:
        self.simulator.after(delay, self.turn, self.incarnation, action, *args)

    # --- the process

    def start(self) -> None:
        self._clear()
        self.incarnation += 1
        self.is_up = True
        self.log.reopen()
        self.session = self.zookeeper.open_session()
        self._reach_changed()
        self._register()

    def kill(self) -> None:
        """The process is gone; what it wrote stays."""
        self.is_up = self.is_paused = False
        self.incarnation += 1
        failed, self.requests = self.requests, set()
        for respond in failed:
            respond(ErrorCode.NETWORK_EXCEPTION)
        self._clear()
        self._reach_changed()

    def lose_power(self) -> None:
        """The process is gone, and what was not synced, or a part of it."""
        if self.is_up:
            self.kill()
        self.log.lose_power(self.simulator.rng)
        self.has_lost_tail = self.has_lost_tail or not self.log.flushes  # else it lost nothing that counted

    def lose_disk(self) -> None:
        self.lose_power()
        self.log.lose_all()
        self.has_lost_tail = True

    def pause(self) -> None:
        self.is_paused = True
        self._reach_changed()

    def resume(self) -> None:
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for action, args in backlog:
            self.later(0.0, action, *args)
        self._reach_changed()

    # --- ZooKeeper

    def cut_from_zk(self, is_cut: bool) -> None:
        self.is_cut_from_zk = is_cut
        self._reach_changed()

    def _reach_changed(self) -> None:
        """ZooKeeper hears the broker, or does not any more."""
        self._unreachable += 1
        if not self.is_up or self.is_paused or self.is_cut_from_zk:
            self.simulator.after(SESSION_TIMEOUT_MS, self._expire, self._unreachable, self.session)
        elif self.session in self.zookeeper.sessions:
            self.zookeeper.tell(self, self.zookeeper.view())
        else:
            self.later(1.0, self.on_session_lost, self.session)

    def _expire(self, change: int, session: int) -> None:
        if change == self._unreachable or session != self.session:
            self.zookeeper.expire(session)

    def on_session_lost(self, session: int) -> None:
        if session == self.session:
            self.is_registered = False
            self.resign()
            self.session = self.zookeeper.open_session()
            self._register()

    def ask(self, action: Callable[[], Any], then: Callable[[Any], None], again: Callable[[], None]) -> None:
        """A request of the current session. `again` follows if the connection broke, a new session if it has ended."""
        session = self.session

        def on_answer(result: Any) -> None:
            if session == self.session:
                if result is Lost.CONNECTION:
                    self.later(10.0, on_pause)
                elif result is Lost.SESSION:
                    self.on_session_lost(session)
                else:
                    then(result)

        def on_pause() -> None:
            if session == self.session:
                again()

        self.zookeeper.request(self, action, on_answer)

    # --- registration

    def _register(self) -> None:
        self.ask(lambda: self.zookeeper.registrations.get(self.id, 0), self._fence, self._register)

    def _fence(self, registration: int) -> None:
        self.ask(lambda: self.zookeeper.fence(self.id, registration), self._on_fenced, self._register)

    def _on_fenced(self, registration: int | None) -> None:
        if registration is None:
            self._register()
            return
        self.registration = registration
        if self.has_lost_tail and self.cluster.leaves_with_lost_tail:
            self._leave()
        else:
            self._enter()

    def _leave(self) -> None:
        self.ask(lambda: self.zookeeper.state, self._on_state_to_leave, self._leave)

    def _on_state_to_leave(self, state: IsrState) -> None:
        left = leave_with_lost_tail(self.id, state, self.cluster.min_isr)
        if left is None:
            self._enter()
        else:  # and read once more: written, or overtaken
            self.ask(lambda: self.zookeeper.write_state(left, {}), lambda outcome: self._leave(), self._leave)

    def _enter(self) -> None:
        zookeeper, session, registration = self.zookeeper, self.session, self.registration
        is_intact = not (self.has_lost_tail and self.cluster.leaves_with_lost_tail)
        self.ask(
            lambda: zookeeper.register(self.id, session, registration, is_intact=is_intact),
            self._on_registered,
            self._register,
        )

    def _on_registered(self, view: View | None) -> None:
        if view is None:
            self._register()
            return
        self.has_lost_tail = False
        self.is_registered = True
        self.former_epoch = view.state.leader_epoch if view.state.leader == self.id else -1
        self.on_view(view)
