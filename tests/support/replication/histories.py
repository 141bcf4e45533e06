"""Random histories of a simulated cluster: clients beside faults of every kind, then healing and the checks.

Limit of the faults: power cuts (of brokers without flush.messages=1) and replaced disks hit fewer brokers at once than
min.insync.replicas; a broker counts until it is in the ISR again. Everything else comes as it likes.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kafkalite.metadata.partition_state import IsrState
from tests.support.replication.simulated_broker import SimulatedBroker
from tests.support.replication.simulated_cluster import SimulatedCluster
from tests.support.replication.simulated_leader import SimulatedLeader


class History:
    """One history. `faults` are drawn from; a test may narrow them."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)
        draw = self.choice.random
        replicas = 5 if draw() < 0.15 else 3
        self.cluster = SimulatedCluster(
            seed,
            replicas=replicas,
            min_insync_replicas=3 if replicas == 5 and draw() < 0.5 else 2,
            flushes=draw() < 0.2,
            unclean=draw() < 0.05,
            truncates_on_fetch=draw() < 0.85,
        )
        self.fault_rate = self.choice.choice([0.2, 0.5, 0.8])
        self.steps = self.choice.randint(15, 50)
        self.plot_rate = self.choice.choice([0.0, 0.1])
        self._damaged: set[int] = set()  # lost something that may have been acknowledged, and are not back in the ISR
        self.cluster.zookeeper.on_isr_write = self._on_isr_write
        self.faults: list[Callable[[SimulatedBroker], None]] = [
            self.kill, self.kill, self.restart, self.restart, self.restart, self.power_cut, self.power_cut,
            self.replace_disk, self.pause, self.resume, self.cut, self.cut_one_way, self.isolate, self.mend_links,
            self.mend_links, self.cut_from_zookeeper, self.reconnect, self.expire, self.lose_answers, self.hold_writes,
            self.slow_view, self.slow_zookeeper, self.calm, self.jump, self.stop, self.prefer, self.delete_records,
            self.leave_alone, self.leave_alone, self.bounce, self.bounce_without_power, self.mute, self.strand,
            self.blind, self.blind,
        ]  # fmt: skip

    def run(self) -> SimulatedCluster:
        """Raises Violation."""
        cluster, choice = self.cluster, self.choice
        cluster.start()
        for _ in range(self.steps):
            self.use()
            if choice.random() < self.plot_rate:
                self.plot()
            if choice.random() < self.fault_rate:
                leader = cluster.leader if choice.random() < 0.3 else None
                choice.choice(self.faults)(leader or cluster.brokers[choice.choice(cluster.replicas)])
            cluster.run_for(choice.choice([0.5, 3.0, 10.0, 10.0, 30.0, 30.0, 100.0, 300.0]))
        cluster.heal()
        cluster.check_healed()
        return cluster

    def _on_isr_write(self, before: IsrState, after: IsrState) -> None:
        joined = after.isr - before.isr
        self._damaged -= {each for each in joined if not self.cluster.brokers[each].has_lost_tail}

    def use(self) -> None:
        cluster, choice = self.cluster, self.choice
        for _ in range(choice.randint(0, 2)):
            to = choice.choice(cluster.replicas) if choice.random() < 0.2 else None
            cluster.produce(choice.randint(1, 3), acks_all=choice.random() < 0.8, to=to)
        if choice.random() < 0.3:
            cluster.ask_latest(choice.choice(cluster.replicas))

    def plot(self) -> None:
        """A follower leaves the ISR and comes back, and then the leader goes: where replicas have lost most, with
        something else going wrong at each turn."""
        cluster, one_of, leader = self.cluster, self.choice.choice, self.cluster.leader
        if leader is None:
            return
        follower = cluster.brokers[one_of([each for each in cluster.replicas if each != leader.id])]
        self.strand(follower)
        self.use()
        cluster.run_for(one_of([50.0, 250.0, 350.0]))
        one_of([self.nothing, self.blind, self.hold_writes, self.slow_zookeeper])(leader)
        cluster.cut_links.clear()
        one_of([self.nothing, self.nothing, self.mute])(leader)
        cluster.run_for(one_of([5.0, 20.0, 60.0, 100.0]))
        changes = [
            self.nothing, self.strand, self.strand, self.bounce, self.bounce_without_power, self.replace_disk,
            self.stop, self.kill,
        ]  # fmt: skip
        one_of(changes)(follower)
        self.restart(one_of([leader, follower]))
        self.use()
        cluster.produce(1)
        cluster.run_for(one_of([5.0, 30.0, 100.0, 250.0]))
        ends = [self.kill, self.bounce, self.cut_from_zookeeper, self.isolate, self.expire]
        if self.choice.random() < 0.5:
            self.leave_alone(follower)
        else:
            one_of(ends)(leader)
        cluster.run_for(one_of([50.0, 200.0]))

    # --- faults

    def nothing(self, broker: SimulatedBroker) -> None:
        pass

    def kill(self, broker: SimulatedBroker) -> None:
        if broker.is_up:
            broker.kill()

    def restart(self, broker: SimulatedBroker) -> None:
        if not broker.is_up:
            broker.start()

    def _may_damage(self, broker: SimulatedBroker) -> bool:
        if len(self._damaged | {broker.id}) >= self.cluster.min_isr:
            return False
        self._damaged.add(broker.id)
        return True

    def power_cut(self, broker: SimulatedBroker) -> None:
        if self.cluster.flushes or self._may_damage(broker):
            broker.lose_power()

    def replace_disk(self, broker: SimulatedBroker) -> None:
        if self._may_damage(broker):
            broker.lose_disk()

    def pause(self, broker: SimulatedBroker) -> None:
        if broker.is_up and not broker.is_paused:
            broker.pause()

    def resume(self, broker: SimulatedBroker) -> None:
        if broker.is_paused:
            broker.resume()

    def cut(self, broker: SimulatedBroker) -> None:
        self.cluster.cut(broker.id, self.choice.choice([each for each in self.cluster.replicas if each != broker.id]))

    def cut_one_way(self, broker: SimulatedBroker) -> None:
        self.cluster.cut_one_way(
            broker.id, self.choice.choice([each for each in self.cluster.replicas if each != broker.id])
        )

    def isolate(self, broker: SimulatedBroker) -> None:
        self.cluster.isolate(broker.id)

    def mend_links(self, broker: SimulatedBroker) -> None:
        self.cluster.cut_links.clear()

    def cut_from_zookeeper(self, broker: SimulatedBroker) -> None:
        if not broker.is_cut_from_zk:
            broker.cut_from_zk(True)

    def reconnect(self, broker: SimulatedBroker) -> None:
        if broker.is_cut_from_zk:
            broker.cut_from_zk(False)

    def expire(self, broker: SimulatedBroker) -> None:
        """ZooKeeper ends the session; the broker hears of it some time later."""
        if broker.is_up and not broker.is_cut_from_zk:
            self.cluster.zookeeper.expire(broker.session)
            broker.later(self.choice.uniform(1.0, 100.0), broker.on_session_lost, broker.session)

    def lose_answers(self, broker: SimulatedBroker) -> None:
        broker.loses_zk_answers = 0.5

    def hold_writes(self, broker: SimulatedBroker) -> None:
        broker.holds_isr_writes_ms = self.choice.uniform(20.0, 200.0)

    def slow_view(self, broker: SimulatedBroker) -> None:
        broker.view_delay = self.choice.uniform(10.0, 300.0)

    def slow_zookeeper(self, broker: SimulatedBroker) -> None:
        broker.zk_write_delay = self.choice.uniform(10.0, 100.0)

    def calm(self, broker: SimulatedBroker) -> None:
        broker.view_delay = broker.zk_write_delay = broker.loses_zk_answers = broker.holds_isr_writes_ms = 0.0

    def jump(self, broker: SimulatedBroker) -> None:
        broker.skew += self.choice.choice([50.0, 500.0, 5_000.0])

    def stop(self, broker: SimulatedBroker) -> None:
        if broker.is_up and not broker.is_stopping and not broker.is_paused:
            broker.begin_stop()

    def prefer(self, broker: SimulatedBroker) -> None:
        """The controller elects the preferred leader."""
        for each in self.cluster.brokers.values():
            if each.is_up and not each.is_paused:
                each.control(prefer=True)

    def delete_records(self, broker: SimulatedBroker) -> None:
        if isinstance(broker.role, SimulatedLeader) and not broker.is_paused:
            broker.role.delete_records()

    # --- faults that go together

    def leave_alone(self, broker: SimulatedBroker) -> None:
        """All others are killed: may this one lead?"""
        for other in self.cluster.brokers.values():
            if other is not broker and other.is_up:
                other.kill()

    def bounce(self, broker: SimulatedBroker) -> None:
        """Back within its session."""
        self.kill(broker)
        self.restart(broker)

    def bounce_without_power(self, broker: SimulatedBroker) -> None:
        self.power_cut(broker)
        self.restart(broker)

    def mute(self, broker: SimulatedBroker) -> None:
        """Requests to it arrive, its answers do not."""
        for other in self.cluster.replicas:
            if other != broker.id:
                self.cluster.cut_one_way(broker.id, other)

    def strand(self, broker: SimulatedBroker) -> None:
        """Cut off from the others, and a record that it misses."""
        self.cluster.isolate(broker.id)
        self.cluster.produce(1, acks_all=False)

    def blind(self, broker: SimulatedBroker) -> None:
        """Its writes to ZooKeeper may succeed, but it learns nothing of it."""
        broker.loses_zk_answers, broker.view_delay = 0.9, 500.0
