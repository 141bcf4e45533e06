"""A simulated broker of one partition: leads, follows, and controls as its view of the cluster says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.partition_state import IsrState, WriteOutcome
from kafkalite.replication.replica.follower_replica import FetchAnswer
from tests.support.replication.simulated_follower import SimulatedFollower
from tests.support.replication.simulated_leader import LAG_TIME_MAX_MS, MAX_WAIT_MS, SimulatedLeader
from tests.support.replication.simulated_process import Respond, SimulatedProcess
from tests.support.replication.simulated_zookeeper import View

if TYPE_CHECKING:
    from tests.support.replication.simulated_cluster import SimulatedCluster

SHUTDOWN_MS = 100.0


class SimulatedBroker(SimulatedProcess):
    def __init__(self, broker_id: int, cluster: SimulatedCluster) -> None:
        self.role: SimulatedLeader | SimulatedFollower | None = None
        self._shutdown_ends = 0.0
        super().__init__(broker_id, cluster)

    def _clear(self) -> None:
        super()._clear()
        self.role = None
        self._is_deciding = self._is_claiming = False
        self._early: list[tuple[int, Callable[[], None]]] = []  # requests with a newer epoch than the view

    @property
    def leads(self) -> bool:
        return isinstance(self.role, SimulatedLeader)

    def start(self) -> None:
        super().start()
        self.later(LAG_TIME_MAX_MS / 2, self._tick)

    def _tick(self) -> None:
        if isinstance(self.role, SimulatedLeader):
            self.role.shrink()
        self.control()
        self.later(LAG_TIME_MAX_MS / 2, self._tick)

    def begin_stop(self) -> None:
        """A controlled shutdown: leadership goes first, for as long as the broker waits."""
        self.is_stopping = True
        self._shutdown_ends = self.simulator.now + SHUTDOWN_MS
        zookeeper, registration = self.zookeeper, self.registration
        zookeeper.request(self, lambda: zookeeper.begin_stop(self.id, registration), lambda result: None)
        self.later(20.0, self._stop_if_free)

    def _stop_if_free(self) -> None:
        if self.leads and self.simulator.now < self._shutdown_ends:
            self.later(20.0, self._stop_if_free)
            return
        self.log.sync()
        self.log.checkpointed = self.log.high_watermark
        session = self.session
        self.kill()
        if not self.is_cut_from_zk:
            self.simulator.after(2.0, self.zookeeper.expire, session)

    # --- the view

    def on_view(self, view: View) -> None:
        if self.view is None or view.zxid >= self.view.zxid:
            self.view = view
        view = self.view
        if not self.is_registered:
            return
        self._take_role(view)
        early, self._early = self._early, []
        for epoch, answer in early:
            if epoch > view.state.leader_epoch:
                self._early.append((epoch, answer))
            else:
                answer()
        self.control()

    def _take_role(self, view: View) -> None:
        """A broker leads under an epoch that is newer than its registration. Its former life may have had other records
        under the older one, and ZooKeeper may yet carry out a write of its that this life does not know. A leader that
        returns as one therefore takes the next epoch."""
        state, role = view.state, self.role
        if state.leader == self.id and state.leader_epoch > self.former_epoch:
            if isinstance(role, SimulatedLeader) and role.replica.leader_epoch == state.leader_epoch:
                role.on_view(view)
            else:
                self.resign()
                self.role = SimulatedLeader(self, view)
                self.role.begin()
        elif state.leader == self.id:
            self.resign()
            self._claim(state)
        elif state.leader in (self.id, NO_LEADER):
            self.resign()
        elif not isinstance(role, SimulatedFollower) or role.replica.leader_epoch != state.leader_epoch:
            self.resign()
            self.role = SimulatedFollower(self, view)
            self.role.begin()

    def _claim(self, state: IsrState) -> None:
        if not self._is_claiming and not self.is_stopping:
            self._is_claiming = True
            claimed = state._replace(leader_epoch=state.leader_epoch + 1)
            self.ask(lambda: self.zookeeper.write_state(claimed, {}), self._on_claimed, self._on_claimed)

    def _on_claimed(self, outcome: WriteOutcome | None = None) -> None:
        """Written, overtaken, or lost: the view says what is to be done, and may have said so already."""
        self._is_claiming = False
        self.later(5.0, self._look_again)

    def _look_again(self) -> None:
        if self.view is not None and self.is_registered:
            self._take_role(self.view)

    def resign(self) -> None:
        role, self.role = self.role, None
        if isinstance(role, SimulatedLeader):
            role.retire()

    def on_session_lost(self, session: int) -> None:
        if session == self.session:
            self._is_deciding = self._is_claiming = False
        super().on_session_lost(session)

    # --- the controller

    def control(self, *, prefer: bool = False) -> None:
        view = self.view
        if view is None or not self.is_registered or self._is_deciding or self.is_stopping:
            return
        if view.controller is None:
            session = self.session
            self._decide(lambda: self.zookeeper.become_controller(self.id, session))
        elif view.controller == (self.id, self.session):
            state = self.cluster.next_state(view, prefer=prefer)
            if state is not None:
                self._decide(lambda: self.zookeeper.write_state(state, {}, view.controller_epoch))

    def _decide(self, action: Callable[[], Any]) -> None:
        self._is_deciding = True
        self.ask(action, self._on_decided, self._on_undecided)

    def _on_decided(self, result: Any) -> None:
        self._is_deciding = False
        self.later(0.0 if result is WriteOutcome.WRITTEN else 5.0, self.control)

    def _on_undecided(self) -> None:
        self._is_deciding = False
        self.control()

    # --- the log

    def after_append(self) -> None:
        """With flush.messages=1 a sync follows; else one comes now and then."""
        rng = self.simulator.rng
        if self.log.flushes:
            self.later(rng.uniform(0.2, 3.0), self._sync, self.log.end_offset)
        elif rng.random() < 0.1:
            self.log.sync()

    def _sync(self, end_offset: int) -> None:
        self.log.synced_offset = max(self.log.synced_offset, min(end_offset, self.log.end_offset))
        if isinstance(self.role, SimulatedLeader):
            self.role.on_log()
        elif self.role is not None:
            self.role.poll()

    def set_high_watermark(self, offset: int) -> None:
        before, self.log.high_watermark = self.log.high_watermark, offset
        self.cluster.checker.on_high_watermark(self, before, offset)
        if self.simulator.rng.random() < 0.2:
            self.log.checkpointed = offset

    # --- requests

    def produce(self, values: list[int], acks_all: bool, respond: Respond) -> None:
        if isinstance(self.role, SimulatedLeader):
            self.role.produce(values, acks_all, respond)
        else:
            respond(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def tell_latest(self) -> None:
        if isinstance(self.role, SimulatedLeader):
            replica = self.role.replica
            self.cluster.checker.on_latest(replica.leader_epoch, replica.latest_offset())

    def on_request(self, request: Any, sender: int, registration: int, respond: Respond) -> None:
        """A request of a follower. One with a newer leader epoch than the view has waits for the view."""
        epoch, view = request.leader_epoch, self.view
        if view is not None and epoch > view.state.leader_epoch:
            waiting = epoch, lambda: self.on_request(request, sender, registration, respond)
            self._early.append(waiting)
            self.later(MAX_WAIT_MS, self._end_wait, waiting, respond)
        elif isinstance(self.role, SimulatedLeader):
            self.role.serve(request, sender, registration, respond)
        else:
            respond(FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _end_wait(self, waiting: tuple[int, Callable[[], None]], respond: Respond) -> None:
        if waiting in self._early:
            self._early.remove(waiting)
            respond(FetchAnswer(ErrorCode.UNKNOWN_LEADER_EPOCH))
