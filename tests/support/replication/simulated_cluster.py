"""A simulated cluster of one partition: brokers, ZooKeeper, the links between them, clients, and a checker.

    cluster = SimulatedCluster(seed)
    cluster.start()
    cluster.produce(1)          # values are unique; acknowledged ones are remembered
    cluster.run_for(50)
    cluster.heal()
    cluster.check_healed()

The rules that stand outside of the replicas can be taken out: `leaves_with_lost_tail`, and those of
`SimulatedZooKeeper`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.metadata.cluster_metadata import Election
from kafkalite.metadata.partition_state import IsrState, effective_min_isr, in_order
from kafkalite.zk.controller.election import Brokers, LeaderAndIsr, elect
from tests.support.replication.simulated_broker import SimulatedBroker
from tests.support.replication.simulated_follower import SimulatedFollower
from tests.support.replication.simulated_leader import SimulatedLeader
from tests.support.replication.simulated_log import Record
from tests.support.replication.simulated_zookeeper import SimulatedZooKeeper, View
from tests.support.replication.simulator import Simulator

LOST_REQUEST_MS = 40.0  # until a request on a broken connection is given up
HEALING_MS = 3_000.0


class Violation(AssertionError):
    """A promise was broken."""


class Checker:
    """Checks all that was promised: by acknowledgements, and by showing records below a high watermark."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.committed: dict[int, Record] = {}
        self.acknowledged: dict[int, int] = {}  # value -> offset
        self.latest: tuple[int, int] = (-1, -1)  # (leader epoch, offset)
        self.is_strict = True  # False: unclean elections are allowed

    def on_high_watermark(self, broker: SimulatedBroker, before: int, after: int) -> None:
        log = broker.log
        for offset in range(max(before, log.start_offset), after):
            record = log.records[offset - log.base_offset]
            known = self.committed.setdefault(offset, record)
            if known != record and self.is_strict:
                self._fail(f"{offset} shown as {record} by {broker.id}, was {known}")

    def on_acknowledged(self, values: list[int], last_offset: int) -> None:
        for value, offset in zip(values, range(last_offset - len(values) + 1, last_offset + 1), strict=True):
            self.acknowledged[value] = offset

    def on_latest(self, leader_epoch: int, offset: int | ErrorCode) -> None:
        if isinstance(offset, ErrorCode):
            return
        known_epoch, known = self.latest
        if leader_epoch >= known_epoch:
            if offset < known and self.is_strict:
                self._fail(f"the latest offset went back from {known} to {offset}")
            self.latest = leader_epoch, offset

    def check_logs(self) -> None:
        """All replicas are equal, and hold what was promised."""
        brokers = list(self._cluster.brokers.values())
        logs = [broker.log for broker in brokers]
        start = max(log.start_offset for log in logs)
        contents = [log.records[start - log.base_offset :] for log in logs]
        for broker, content in zip(brokers, contents, strict=True):
            if content != contents[0]:
                self._fail(f"{broker.id} and {brokers[0].id} differ from {start} on: {content} {contents[0]}")
        if not self.is_strict:
            return
        for offset, record in self.committed.items():
            if offset >= start and (offset - start >= len(contents[0]) or contents[0][offset - start] != record):
                self._fail(f"{offset} was committed as {record}; there is {contents[0][offset - start :][:1]}")
        for value, offset in self.acknowledged.items():
            known = self.committed.get(offset)
            if known is None or known.value != value:
                self._fail(f"{value} was acknowledged at {offset}; there is {known}")

    def _fail(self, what: str) -> None:
        raise Violation(f"{what} (at {self._cluster.simulator.now:.1f} ms)")


class SimulatedCluster:
    def __init__(
        self,
        seed: int,
        *,
        replicas: int = 3,
        min_insync_replicas: int = 2,
        flushes: bool = False,
        unclean: bool = False,
        truncates_on_fetch: bool = True,
    ) -> None:
        self.simulator = Simulator(seed)
        self.rng = self.simulator.rng
        self.replicas = list(range(replicas))
        self.min_insync_replicas = min_insync_replicas
        self.min_isr = effective_min_isr(min_insync_replicas, replicas)
        self.flushes = flushes
        self.unclean = unclean
        self.truncates_on_fetch = truncates_on_fetch
        self.leaves_with_lost_tail = True
        self.zookeeper = SimulatedZooKeeper(self.simulator, IsrState(0, 0, frozenset(self.replicas), frozenset(), 0))
        self.brokers = {each: SimulatedBroker(each, self) for each in self.replicas}
        self.zookeeper.brokers = self.brokers
        self.checker = Checker(self)
        self.checker.is_strict = not unclean
        self.cut_links: set[tuple[int, int]] = set()
        self.last_value = 0

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        if not self.run_until(self.is_whole, 1_000):
            raise Violation("the cluster does not start")

    def run_for(self, duration: float) -> None:
        self.simulator.run_for(duration)

    def run_until(self, is_reached: Callable[[], bool], limit: float = HEALING_MS) -> bool:
        return self.simulator.run_until(is_reached, limit)

    # --- links

    def call(
        self,
        sender: SimulatedBroker,
        target: SimulatedBroker,
        serve: Callable[[Callable[[Any], None]], None],
        reply: Callable[[Any], None],
    ) -> None:
        """A request to another broker; `reply` gets its answer, or NETWORK_EXCEPTION."""
        simulator, links = self.simulator, self.cut_links
        incarnation = sender.incarnation

        answers: list[Any] = []

        def respond(result: Any) -> None:
            answers.append(result)
            assert len(answers) == 1, "two answers to one request"
            target.requests.discard(respond)
            is_cut = (target.id, sender.id) in links
            delay = LOST_REQUEST_MS if is_cut else simulator.rng.uniform(0.2, 4.0)
            answer = ErrorCode.NETWORK_EXCEPTION if is_cut else result
            simulator.after(delay, sender.turn, incarnation, reply, answer)

        def arrive() -> None:
            if target.is_up:
                target.requests.add(respond)
                target.turn(target.incarnation, serve, respond)
            else:
                respond(ErrorCode.NETWORK_EXCEPTION)

        if (sender.id, target.id) in links:
            simulator.after(LOST_REQUEST_MS, sender.turn, incarnation, reply, ErrorCode.NETWORK_EXCEPTION)
        else:
            simulator.after(simulator.rng.uniform(0.2, 4.0), arrive)

    def cut(self, one: int, other: int) -> None:
        self.cut_links |= {(one, other), (other, one)}

    def cut_one_way(self, sender: int, target: int) -> None:
        self.cut_links.add((sender, target))

    def isolate(self, broker_id: int) -> None:
        for other in self.replicas:
            if other != broker_id:
                self.cut(broker_id, other)

    # --- elections

    def next_state(self, view: View, *, prefer: bool) -> IsrState | None:
        registered = {each: view.registered_by[each] for each in view.live.keys() | view.stopping}
        known, brokers = view.state, Brokers(registered, view.stopping, view.intact)
        before = LeaderAndIsr(
            known.leader, known.leader_epoch, in_order(known.isr, self.replicas), elr=in_order(known.elr, self.replicas)
        )
        elections = [Election.PREFERRED] * prefer + [Election.UNCLEAN if self.unclean else None]
        for election in elections:
            after = elect(self.replicas, before, view.written_by, brokers, self.min_isr, election)
            if after is not None:
                isr, elr = frozenset(after.isr), frozenset(after.elr)
                return known._replace(leader=after.leader, leader_epoch=after.leader_epoch, isr=isr, elr=elr)
        return None

    @property
    def state(self) -> IsrState:
        return self.zookeeper.state

    @property
    def leader(self) -> SimulatedBroker | None:
        broker = self.brokers.get(self.state.leader)
        return broker if broker is not None and broker.leads else None

    # --- clients

    def produce(self, count: int = 1, *, acks_all: bool = True, to: int | None = None) -> list[int]:
        """Send a batch of new values; those acknowledged with acks=-1 are remembered. Returns the values."""
        values = list(range(self.last_value + 1, self.last_value + count + 1))
        self.last_value += count
        broker = self.brokers.get(self.state.leader if to is None else to)
        if broker is not None and broker.is_up:

            def on_answer(result: Any) -> None:
                if acks_all and type(result) is int:
                    self.checker.on_acknowledged(values, result)

            broker.turn(broker.incarnation, broker.produce, values, acks_all, on_answer)
        return values

    def ask_latest(self, of: int) -> None:
        broker = self.brokers[of]
        broker.turn(broker.incarnation, broker.tell_latest)

    def is_acknowledged(self, values: list[int]) -> bool:
        return all(value in self.checker.acknowledged for value in values)

    # --- the end

    def is_whole(self) -> bool:
        """Everybody is in sync, knows the leader, and has all records below the same high watermark."""
        leader, state = self.leader, self.state
        if leader is None or len(state.isr) < len(self.replicas):
            return False
        role = leader.role
        return (
            isinstance(role, SimulatedLeader)
            and role.replica.leader_epoch == state.leader_epoch
            and all(
                broker.log.end_offset == broker.log.high_watermark == leader.log.end_offset
                and broker.log.start_offset >= leader.log.start_offset
                for broker in self.brokers.values()
            )
        )

    def heal(self) -> None:
        self.cut_links.clear()
        for broker in self.brokers.values():
            broker.view_delay = broker.zk_write_delay = broker.loses_zk_answers = broker.holds_isr_writes_ms = 0.0
            if broker.is_cut_from_zk:
                broker.cut_from_zk(False)
            if broker.is_paused:
                broker.resume()
            if not broker.is_up:
                broker.start()
            self.zookeeper.tell(broker, self.zookeeper.view())

    def check_healed(self) -> None:
        """Checks that no broker is stuck, nothing is lost, and all logs are equal."""
        for broker in self.brokers.values():  # a controlled shutdown that was on its way
            self.simulator.after(400.0, lambda broker=broker: None if broker.is_up else broker.start())
        self.run_for(500.0)
        if not self.run_until(self.is_whole):
            raise Violation(f"stuck: {self.describe()}")
        values = self.produce(2)
        if not self.run_until(lambda: self.is_acknowledged(values) and self.is_whole()):
            raise Violation(f"stuck with {values}: {self.describe()}")
        self.checker.check_logs()

    def describe(self) -> str:
        lines = [str(self.state), f"live {self.zookeeper.view().live} controller {self.zookeeper.controller}"]
        for broker in self.brokers.values():
            log, role = broker.log, broker.role
            kind = type(role).__name__
            phase = role.replica.phase.name if isinstance(role, SimulatedFollower) else ""
            lines.append(
                f"{broker.id}: up {broker.is_up} {kind} {phase} log {log.start_offset} {log.high_watermark} "
                f"{log.synced_offset} {log.end_offset} {log.epochs.entries()}"
            )
        return "\n".join(lines)
