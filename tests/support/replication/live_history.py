"""Random histories of a whole cluster: stock clients write and read while brokers are killed, stopped, paused, cut off
from ZooKeeper and expired, and answers of ZooKeeper are late or lost. Then all is healed and compared.

What is done comes from a seed; how threads interleave does not, so a seed does not repeat a history exactly.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import confluent_kafka

from kafkalite.testing.cluster import Cluster
from tests.support.replication.live_cluster import (
    Writer,
    await_equal_logs,
    create_topic,
    new_consumer,
    read_all,
)
from tests.support.wait import DEADLINE_S

TOPIC = "t"
STEP_S_MAX = 0.25
IN_FLIGHT_MAX = 200
SEVERAL = {"replica_lag_time_max_ms": 500, "leader_imbalance_check_interval_seconds": 1}
SETTINGS = {
    "zookeeper_session_timeout_ms": 600,
    "zookeeper_connection_timeout_ms": int(DEADLINE_S * 1000),
}


class LiveHistory:
    """One history of `steps` disturbances. `trace` has them as text, for the message of a failure.

    With `loses_disks` a broker may lose its directory, one at a time: until it is in sync again no other does.
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
    ) -> None:
        self.trace: list[str] = []
        self._seed = seed
        self._rng = Random(seed)
        self._count = brokers
        self._replicas = replicas
        self._min_insync = min_insync
        self._partitions = partitions
        self._loses_disks = loses_disks
        self._incomplete: int | None = None  # the broker that lost its directory and is not in sync yet
        self._steps = steps
        self._done = threading.Event()
        self._faults: list[str] = []
        self._consumed: dict[int, dict[int, bytes]] = {partition: {} for partition in range(partitions)}

    def run(self) -> None:
        """Raises AssertionError, which names the seed and what was done."""
        try:
            several = SEVERAL if self._replicas > 1 else {}
            with Cluster(self._count, **SETTINGS, **several) as cluster:
                self._run(cluster)
        except (AssertionError, TimeoutError) as fault:
            raise AssertionError(f"seed {self._seed}, after {', '.join(self.trace)}: {fault}") from fault

    def _run(self, cluster: Cluster) -> None:
        create_topic(cluster, TOPIC, self._partitions, self._replicas, min_insync_replicas=self._min_insync)
        writer = Writer(cluster)
        tasks = (self._write, self._read)
        work = [threading.Thread(target=self._guarded, args=(task, cluster, writer)) for task in tasks]
        for thread in work:
            thread.start()
        try:
            for _ in range(self._steps):
                self._disturb(cluster)
                self._pass_time(writer)
            self._heal(cluster)
            self._pass_time(writer)
        finally:
            self._done.set()
            for thread in work:
                thread.join(2 * DEADLINE_S)
        self._check(cluster, writer)

    # -- disturbances

    def _disturb(self, cluster: Cluster) -> None:
        number = self._rng.randrange(self._count)
        if self._rng.random() < 0.4:  # leaders have more to lose
            leader = cluster.leader_of(TOPIC, self._rng.randrange(self._partitions))
            number = number if leader is None else leader
        name, action = self._rng.choice(list(self._possible(cluster, number)))
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
        if self._incomplete is not None and all(
            self._incomplete in cluster.isr(TOPIC, partition) for partition in range(self._partitions)
        ):
            self._incomplete = None
        return self._incomplete is None

    def _start(self, cluster: Cluster, number: int) -> None:
        line = cluster.brokers[number].line
        line.lose_answers(0)  # a start that cannot register is refused
        line.lose_requests(0)
        cluster.mend(number)
        cluster.start(number)

    def _pass_time(self, writer: Writer) -> None:
        """Some records are acknowledged, or some time passes."""
        wanted = len(writer.acknowledged) + self._rng.randrange(60)
        deadline = time.monotonic() + self._rng.uniform(0.01, STEP_S_MAX)
        pause = threading.Event()
        while len(writer.acknowledged) < wanted and time.monotonic() < deadline:
            pause.wait(0.002)

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

    # -- clients

    def _guarded(self, work: Callable[[Cluster, Writer], None], cluster: Cluster, writer: Writer) -> None:
        try:
            work(cluster, writer)
        except Exception as fault:
            self._faults.append(repr(fault))

    def _write(self, cluster: Cluster, writer: Writer) -> None:
        for number in itertools.count():
            if self._done.is_set():
                return
            while len(writer.client) > IN_FLIGHT_MAX and not self._done.is_set():
                writer.client.poll(0.01)
            writer.write(TOPIC, [b"%d" % number], number % self._partitions)
            writer.client.poll(0.001)

    def _read(self, cluster: Cluster, _: Writer) -> None:
        consumer = new_consumer(cluster, fetch_wait_max_ms=50)
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, 0) for p in range(self._partitions)])
        try:
            while not self._done.is_set():
                message = consumer.poll(0.05)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    self._note(message)
                elif error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                    self._faults.append(f"a consumer was sent back: {error}")
        finally:
            consumer.close()

    def _note(self, message: confluent_kafka.Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and isinstance(value, bytes)
        known = self._consumed[partition].setdefault(offset, value)
        if known != value:
            self._faults.append(f"{TOPIC}-{partition} has {known!r} at {offset}, and then {value!r}")

    # -- the end

    def _check(self, cluster: Cluster, writer: Writer) -> None:
        for partition in range(self._partitions):
            cluster.wait_for_leader(TOPIC, partition)
        writer.flush()
        assert not writer.failures, f"failed produces: {writer.failures[:3]}"
        assert not self._faults, self._faults[:3]
        for partition in range(self._partitions):
            if self._replicas == self._count:
                cluster.wait_for_isr(TOPIC, partition, range(self._count), timeout_s=DEADLINE_S)
                await_equal_logs(cluster, TOPIC, partition, range(self._count))
            content = read_all(cluster, TOPIC, partition)
            told = {offset: value for where, offset, value in writer.acknowledged if where == partition}
            lost = {offset: value for offset, value in told.items() if content.get(offset) != value}
            assert not lost, f"{TOPIC}-{partition}: acknowledged, and not there: {_some(lost)}"
            read = self._consumed[partition]
            gone = {offset: value for offset, value in read.items() if content.get(offset) != value}
            assert not gone, f"{TOPIC}-{partition}: read once, and not there: {_some(gone)}"
            numbers = [int(value) for _, value in sorted(content.items())]
            assert numbers == sorted(set(numbers)), f"{TOPIC}-{partition}: duplicates, or another order"


def _some(records: dict[int, bytes]) -> list[tuple[int, bytes]]:
    return sorted(records.items())[:5]
