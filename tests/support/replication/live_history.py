"""Random histories of a whole cluster: stock clients write and read while brokers are killed, stopped, paused, cut off
from ZooKeeper and expired, and answers of ZooKeeper are late or lost. Then all is healed and compared.

What is done comes from a seed; how threads interleave does not, so a seed does not repeat a history exactly.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.common.names import GROUP_METADATA_TOPIC
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.testing.cluster import Cluster
from tests.support.replication import group_clients, share_clients, transaction_clients
from tests.support.replication.group_clients import GroupClients
from tests.support.replication.history_clients import TOPIC, HistoryClients
from tests.support.replication.live_cluster import await_equal_logs, create_topic
from tests.support.replication.share_clients import ShareClients
from tests.support.replication.transaction_clients import MOVES, TransactionClients
from tests.support.wait import DEADLINE_S

if TYPE_CHECKING:
    from kafkalite.server.broker_server import BrokerServer

STEP_S_MAX = 0.25
RECORDS_MAX = 60
SEVERAL = {"replica_lag_time_max_ms": 500, "leader_imbalance_check_interval_seconds": 1}
SETTINGS = {
    "zookeeper_session_timeout_ms": 600,
    "zookeeper_connection_timeout_ms": int(DEADLINE_S * 1000),
}
OFFSETS_PARTITIONS = 3
GROUP_SETTINGS = {
    "offsets_topic_num_partitions": OFFSETS_PARTITIONS,
    **{name.replace(".", "_"): int(value) for name, value in group_clients.SETTINGS.items()},
}
SHARE_SETTINGS = {name.replace(".", "_"): int(value) for name, value in share_clients.SETTINGS.items()}


class LiveHistory:
    """One history of `steps` disturbances. `trace` has them as text, for the message of a failure.

    With `has_transactions` a producer has some beside other records. With `has_group` a consumer group with members of
    both protocols reads the topic and commits, with `has_share_group` a share group accepts its records. With
    `loses_disks` a broker may lose its directory, one at a time: until it is in sync again no other does. With `only`
    nothing else is done to a broker that runs.
    """

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        replicas: int = 3,
        min_insync: int = 2,
        partitions: int = 2,
        steps: int = 12,
        loses_disks: bool = False,
        has_transactions: bool = False,
        has_group: bool = False,
        has_share_group: bool = False,
        only: Collection[str] | None = None,
    ) -> None:
        self.trace: list[str] = []
        self._seed = seed
        self._rng = Random(seed)
        self._count = brokers
        self._replicas = replicas
        self._min_insync = min_insync
        self._partitions = partitions
        self._loses_disks = loses_disks
        self._has_transactions = has_transactions
        self._has_group = has_group
        self._has_share_group = has_share_group
        self._only = only
        self._incomplete: int | None = None  # the broker that lost its directory and is not in sync yet
        self._steps = steps

    def run(self) -> None:
        """Raises AssertionError, which names the seed and what was done."""
        try:
            several = SEVERAL if self._replicas > 1 else {}
            settings = SETTINGS | several | (GROUP_SETTINGS if self._has_group else {})
            settings |= SHARE_SETTINGS if self._has_share_group else {}
            with Cluster(self._count, min_insync_replicas=self._min_insync, **settings) as cluster:
                self._run(cluster)
        except (AssertionError, TimeoutError, pytest.fail.Exception) as fault:
            raise AssertionError(f"seed {self._seed}, after {', '.join(self.trace)}: {fault}") from fault

    def _run(self, cluster: Cluster) -> None:
        create_topic(cluster, TOPIC, self._partitions, self._replicas, min_insync_replicas=self._min_insync)
        clients = HistoryClients(cluster, self._partitions)
        transactions = TransactionClients(cluster, self._seed) if self._has_transactions else None
        if transactions is not None:
            create_topic(cluster, MOVES, transaction_clients.PARTITIONS, self._replicas)
            transactions.start()
        group = GroupClients(cluster, TOPIC, self._partitions, self._seed) if self._has_group else None
        if group is not None:
            group.start()
        shares = ShareClients(cluster, TOPIC, self._partitions, self._seed) if self._has_share_group else None
        if shares is not None:
            shares.start()
        clients.start()
        try:
            for _ in range(self._steps):
                self._disturb(cluster)
                clients.pass_time(self._rng, RECORDS_MAX, STEP_S_MAX)
            self._heal(cluster)
            clients.pass_time(self._rng, RECORDS_MAX, STEP_S_MAX)
        finally:
            clients.finish()
            if transactions is not None:
                transactions.finish()
            for members in (group, shares):
                if members is not None:
                    members.finish()
        self._check(cluster, clients)
        if transactions is not None:
            transactions.check()
        for members in (group, shares):
            if members is not None:
                self._guarded(cluster, members.check)

    # -- disturbances

    def _disturb(self, cluster: Cluster) -> None:
        number = self._rng.randrange(self._count)
        if self._rng.random() < 0.4:  # leaders have more to lose
            leader = cluster.leader_of(TOPIC, self._rng.randrange(self._partitions))
            number = number if leader is None else leader
        possible = list(self._possible(cluster, number))
        if self._only is not None and cluster.brokers[number].is_running:
            possible = [each for each in possible if each[0] in self._only]
        name, action = self._rng.choice(possible)
        self.trace.append(f"{name} {number}")
        action()

    def _possible(self, cluster: Cluster, number: int) -> Iterator[tuple[str, Callable[[], Any]]]:
        broker = cluster.brokers[number]
        line = broker.line
        if not broker.is_running:
            yield "start", lambda: self._start(cluster, number)
            return
        yield "kill", lambda: cluster.kill(number)
        yield "kill and keep the session of", lambda: cluster.kill(number, session_ends=False)
        if self._loses_disks and self._all_are_complete(cluster):
            yield "kill and empty", lambda: self._empty(cluster, number)
        yield "expire", lambda: cluster.lose_session(number)
        yield "lose an answer of", lambda: line.lose_answers(1)
        yield "lose a request of", lambda: line.lose_requests(1)
        yield "slow down", lambda: setattr(line, "delay_ms", (1.0, 40.0))
        yield "speed up", lambda: setattr(line, "delay_ms", (0.0, 0.0))
        if broker.is_paused:
            yield "resume", lambda: cluster.resume(number)
            return
        yield "pause", lambda: cluster.pause(number)
        if line.is_open:
            yield "stop", lambda: cluster.stop(number)
            yield "cut off", lambda: cluster.cut_off(number)
        else:
            yield "mend", lambda: cluster.mend(number)

    def _empty(self, cluster: Cluster, number: int) -> None:
        self._incomplete = number
        cluster.kill(number)
        shutil.rmtree(cluster.brokers[number].data_dir)

    def _all_are_complete(self, cluster: Cluster) -> bool:
        """Whether the last broker that lost its directory has everything again."""
        counts = {TOPIC: self._partitions}
        if self._has_group:
            counts[GROUP_METADATA_TOPIC] = OFFSETS_PARTITIONS
        if self._incomplete is not None and all(
            self._incomplete in cluster.isr(topic, partition)
            for topic, count in counts.items()
            for partition in range(count)
        ):
            self._incomplete = None
        return self._incomplete is None

    def _start(self, cluster: Cluster, number: int) -> None:
        line = cluster.brokers[number].line
        line.lose_answers(0)  # a start that cannot register is refused
        line.lose_requests(0)
        cluster.mend(number)
        cluster.start(number)

    def _heal(self, cluster: Cluster) -> None:
        self.trace.append("heal")
        for number, broker in enumerate(cluster.brokers):
            broker.line.delay_ms = (0.0, 0.0)
            broker.line.lose_answers(0)
            broker.line.lose_requests(0)
            cluster.resume(number)
            cluster.mend(number)
        for number, broker in enumerate(cluster.brokers):
            if not broker.is_running:
                cluster.start(number)

    # -- the end

    def _check(self, cluster: Cluster, clients: HistoryClients) -> None:
        for partition in range(self._partitions):
            cluster.wait_for_leader(TOPIC, partition)
        self._guarded(cluster, clients.flush)
        for partition in range(self._partitions):
            if self._replicas == self._count:
                cluster.wait_for_isr(TOPIC, partition, range(self._count), timeout_s=DEADLINE_S)
                await_equal_logs(cluster, TOPIC, partition, range(self._count))
            clients.check(partition)

    def _guarded(self, cluster: Cluster, check: Callable[[], object]) -> None:
        """A failure says how each partition stands."""
        try:
            check()
        except (AssertionError, pytest.fail.Exception) as fault:
            counts = {TOPIC: self._partitions} | ({GROUP_METADATA_TOPIC: OFFSETS_PARTITIONS} if self._has_group else {})
            standing = [
                line
                for topic, count in counts.items()
                for partition in range(count)
                for line in _standing(cluster, topic, partition)
            ]
            raise AssertionError(f"{fault}; {'; '.join(standing)}") from fault


def _standing(cluster: Cluster, topic: str, partition: int) -> Iterator[str]:
    """The leader according to ZooKeeper, and in the view of each broker."""
    yield f"{topic}-{partition}: {cluster.state(topic, partition)}"
    for number in cluster.running:
        server = cluster.brokers[number].server
        log, state = server.logs.get(topic, partition), server.metadata.registration_state.value
        reached = None if log is None else (log.replicated_offset, log.end_offset)
        yield f"on {number}, {state}, {reached}: {_role(server, topic, partition)}"


def _role(server: BrokerServer, name: str, partition: int) -> str:
    topic = server.replica_manager.by_name.get(name)
    leader = None if topic is None else topic.partitions.get(partition)
    follower = None if topic is None else topic.followers.get(partition)
    if isinstance(leader, LeaderPartition):
        in_sync, live = leader.replica.in_sync, leader.replica.live
        fetched = {one: (state.log_end_offset, state.registration) for one, state in leader.replica.followers.items()}
        return f"leads, {in_sync.committed}, pending {in_sync.pending}, live {live}, followers {fetched}"
    if follower is not None:
        ack_offset, retry_ms = follower.log.flusher.ack_offset, follower.retry_at_ms
        return (
            f"follows {follower.leader_id}, epoch {follower.leader_epoch}, {follower.replica.phase}, has written up to "
            f"{ack_offset}, fetches again at {retry_ms:.0f}"
        )
    return "has no role"
