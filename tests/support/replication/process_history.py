"""Random histories of a cluster of processes: brokers on machines of their own, a real ZooKeeper, stock clients.

    python -m tests.support.replication.process_history SEED BROKERS [flushed] [steps=N] [operations=FILE] [keep=DIR]

runs one, in a process that may make machines (`machines.run_apart`), and ends with 1 and the reason on stdout if
something was lost or stuck. Brokers are killed with -9, stopped in order, paused, cut off from each other, from
ZooKeeper and from all, in one direction too, slowed down, lose packets, lose the power of their disk, find it full or
failing; their clocks jump; ZooKeeper is paused and killed; replicas are reassigned. FILE gets what the clients did, for
a checker (`porcupine`), DIR what was there when something was wrong: the disks, and what brokers and clients said.

Records come alone and in transactions (`transaction_clients`), and a group of both protocols reads them and commits
(`group_clients`), with acks=-1 and min.insync.replicas=2, so one broker at
a time may lose the end of its logs: until it is in sync again no other does. With `flushed` all topics have
flush.messages=1, and all of them may, at once.
The seed decides what is done; how processes interleave it does not.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from tests.support.replication import group_clients, transaction_clients
from tests.support.replication.group_clients import GroupClients
from tests.support.replication.history_clients import TOPIC, HistoryClients
from tests.support.replication.live_cluster import LOG, compare_files, create_topic, stored_batches
from tests.support.replication.machines import PORT, ZOOKEEPER, Machine, make_bridge
from tests.support.replication.transaction_clients import MOVES, TransactionClients
from tests.support.wait import DEADLINE_S, until
from tests.support.zookeeper import ZooKeeper

REPLICAS = 3
PARTITIONS = 2
STEPS = 56  # a minute
LIMIT_S = 200  # then the history says where it stands
END_LIMIT_S = 230  # then it ends, whatever it waits for; less than test_live_processes gives it
RECORDS_MAX = 3_000
STEP_S_MAX = 1.5
CLOCK_JUMPS_S = (-1_800, -30, -1, 1, 30, 1_800)
REPAIRS = 0.5  # of the steps; else little is written between the first faults and the end
SETTINGS = {
    "zookeeper.session.timeout.ms": "1500",
    "zookeeper.connection.timeout.ms": str(int(DEADLINE_S * 1000)),
    "replica.lag.time.max.ms": "1500",
    "replica.socket.timeout.ms": "3000",
    "leader.imbalance.check.interval.seconds": "2",
    "controlled.shutdown.retry.backoff.ms": "200",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.index.size.max.bytes": "65536",
    "log.segment.bytes": "65536",
}

ALL_PARTITIONS = {
    TOPIC: PARTITIONS,
    MOVES: transaction_clients.PARTITIONS,
    "__transaction_state": 1,
    "__consumer_offsets": 1,
}


class ProcessCluster:
    """The machines, and ZooKeeper's own view of the cluster."""

    def __init__(
        self, home: Path, count: int, zookeeper: ZooKeeper, zk: KazooClient, settings: Mapping[str, str]
    ) -> None:
        self.home = home
        self.zookeeper = zookeeper
        connect = f"{ZOOKEEPER}:{zookeeper.port}"
        self.machines = [Machine(number, home, connect, settings) for number in range(count)]
        self._zk = zk

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{machine.address}:{PORT}" for machine in self.machines)

    def start(self, *numbers: int) -> None:
        """Returns when these brokers serve."""
        for number in numbers:
            self.machines[number].broker.begin()
        for number in numbers:
            self.machines[number].broker.await_ready()

    def at(self, path: str) -> Any:
        """The JSON in a node; None while there is none or ZooKeeper does not answer."""
        try:
            return json.loads(self._zk.get_async(path).get(timeout=1)[0])
        except (KazooException, self._zk.handler.timeout_exception, ValueError):
            return None

    def state(self, partition: int, topic: str = TOPIC) -> dict[str, Any]:
        return self.at(f"/brokers/topics/{topic}/partitions/{partition}/state") or {}

    def replicas(self, partition: int, topic: str = TOPIC) -> list[int]:
        found: list[int] = (self.at(f"/brokers/topics/{topic}") or {}).get("partitions", {}).get(str(partition), [])
        return found

    def is_in_sync(self, number: int) -> bool:
        """Wherever it is a replica."""
        return all(
            number in self.state(partition, topic).get("isr", [])
            or number not in (self.replicas(partition, topic) or [number])
            for topic, count in ALL_PARTITIONS.items()
            for partition in range(count)
        )

    def reassign(self, partition: int, replicas: list[int]) -> None:
        wanted = {"version": 1, "partitions": [{"topic": TOPIC, "partition": partition, "replicas": replicas}]}
        with contextlib.suppress(KazooException, self._zk.handler.timeout_exception):  # one is still under way
            self._zk.create_async("/admin/reassign_partitions", json.dumps(wanted).encode()).get(timeout=1)

    def wait_for_leader(self, topic: str, partition: int) -> int:
        """The leader that ZooKeeper names, with a running process."""

        def leader() -> int | None:
            state = self.at(f"/brokers/topics/{topic}/partitions/{partition}/state") or {}
            found: int = state.get("leader", -1)
            return found if found >= 0 and self.machines[found].is_running else None

        until(lambda: leader() is not None, lambda: f"a leader of {topic}-{partition}: {self.state(partition)}")
        return leader() or 0

    def await_whole(self, name: str, partition: int) -> None:
        """No reassignment is under way, every replica is in sync, and all logs have the same end and the same bytes."""
        node = f"/brokers/topics/{name}"

        def is_in_sync() -> bool:
            replicas, topic = self.replicas(partition, name), self.at(node) or {}
            moving = topic.get("adding_replicas") or topic.get("removing_replicas")
            is_whole = len(replicas) == REPLICAS and set(self.state(partition, name).get("isr", [])) == set(replicas)
            return not moving and is_whole

        until(is_in_sync, lambda: f"all replicas of {name}-{partition}: {self.at(node)}, {self.state(partition, name)}")
        directories = {i: self.machines[i].data_dir / f"{name}-{partition}" for i in self.replicas(partition, name)}

        def ends() -> dict[int, int]:
            """The last batch of each replica."""
            return {i: max(stored_batches(directory), default=-1) for i, directory in directories.items()}

        until(lambda: len(set(ends().values())) == 1, lambda: f"equal ends of {name}-{partition}: {ends()}")
        compare_files(directories)


class ProcessHistory:
    """One history. `trace` tells it, in seconds since its begin."""

    def __init__(
        self,
        seed: int,
        brokers: int,
        *,
        flushed: bool = False,
        steps: int = STEPS,
        operations: Path | None = None,
        keep: Path | None = None,
    ) -> None:
        self.trace: list[str] = []
        self._began = time.monotonic()
        self._rng = Random(f"{seed} {brokers} {flushed}")
        self._count = brokers
        self._flushed = flushed
        self._seed = seed
        self._steps = steps
        self._operations = operations
        self._keep = keep
        self._incomplete: int | None = None  # the broker that may have lost records and is not in sync yet
        self._zookeeper_is: str = "up"

    def run(self, home: Path) -> int:
        """The number of records that were acknowledged. Raises AssertionError, or pytest's failure of a wait."""
        make_bridge()
        with contextlib.ExitStack() as stack:
            zookeeper = stack.enter_context(ZooKeeper(home / "zookeeper", options={"clientPortAddress": "0.0.0.0"}))
            zk = KazooClient(zookeeper.connect, timeout=10.0)
            zk.start(timeout=DEADLINE_S)
            stack.callback(zk.stop)
            settings = (
                SETTINGS | group_clients.SETTINGS | ({"log.flush.interval.messages": "1"} if self._flushed else {})
            )
            cluster = ProcessCluster(home, self._count, zookeeper, zk, settings)
            for machine in cluster.machines:
                stack.enter_context(machine)
            if self._keep is not None:
                stack.push(partial(_keep, home, self._keep))
            cluster.start(*range(self._count))
            create_topic(cluster, TOPIC, PARTITIONS, REPLICAS)
            create_topic(cluster, MOVES, transaction_clients.PARTITIONS, REPLICAS)
            return self._run(cluster)

    def _run(self, cluster: ProcessCluster) -> int:
        clients, transactions = HistoryClients(cluster, PARTITIONS), TransactionClients(cluster, self._seed)
        group = GroupClients(cluster, TOPIC, PARTITIONS, self._seed, 2 * STEP_S_MAX)
        group.start()
        clients.start()
        transactions.start()
        try:
            for _ in range(self._steps):
                clients.pass_time(self._rng, RECORDS_MAX, STEP_S_MAX)
                self._disturb(cluster, len(clients.writer.acknowledged))
            clients.pass_time(self._rng, RECORDS_MAX, STEP_S_MAX)
            self._heal(cluster)
            clients.pass_time(self._rng, RECORDS_MAX, STEP_S_MAX)
            self._none_gave_up(cluster)
        finally:
            clients.finish()
            transactions.finish()
            group.finish()
        self._tell("check")
        clients.flush()
        for partition in range(PARTITIONS):
            cluster.await_whole(TOPIC, partition)
            clients.check(partition)
        if self._operations is not None:
            clients.save_operations(self._operations)
        transactions.check()
        for partition in range(transaction_clients.PARTITIONS):
            cluster.await_whole(MOVES, partition)
        group.check()
        ends = Counter(outcome.value for outcome in transactions.outcomes.values())
        self._tell(f"checked, transactions {dict(ends)}, {len(group.trace)} members came and went")
        return len(clients.writer.acknowledged)

    @staticmethod
    def _none_gave_up(cluster: ProcessCluster) -> None:
        """Nothing ends a broker but its disk and this history."""
        for machine in cluster.machines:
            assert machine.was_full or machine.has_failed or not machine.has_ended, (
                f"{machine.broker.name} ended by itself"
            )

    def _tell(self, what: str) -> None:
        self.trace.append(f"{time.monotonic() - self._began:.1f} {what}")

    # -- disturbances

    def _disturb(self, cluster: ProcessCluster, acknowledged: int) -> None:
        self._none_gave_up(cluster)
        number = self._rng.randrange(self._count)
        if self._rng.random() < 0.4:  # leaders have more to lose
            number = max(cluster.state(self._rng.randrange(PARTITIONS)).get("leader", number), 0)
        repairs = list(self._repairs(cluster)) if self._rng.random() < REPAIRS else []
        faults = [*self._possible(cluster, number), *self._of_all(cluster)]
        name, action = self._rng.choice(repairs or faults or list(self._repairs(cluster)))
        self._tell(f"{name} {number} ({acknowledged})")
        action()

    def _possible(self, cluster: ProcessCluster, number: int) -> Iterator[tuple[str, Callable[[], Any]]]:
        """The faults of this machine."""
        machine = cluster.machines[number]
        other = cluster.machines[(number + self._rng.randrange(1, self._count)) % self._count].address
        if not machine.is_running or machine.has_ended:
            return
        yield "kill", machine.kill
        if not machine.has_failed and self._may_lose(cluster, number):
            yield "cut the power of", lambda: self._lose(number, machine.cut_power)
            yield "fill the disk of", lambda: self._lose(number, machine.fill)
            yield "fail the disk of", lambda: self._lose(number, machine.fail_disk)
        seconds = self._rng.choice(CLOCK_JUMPS_S)
        yield f"turn by {seconds} s the clock of", lambda: machine.turn_clock(seconds)
        # of the links as often as of the disk
        yield from self._rng.sample(list(self._of_links(machine, other)), 2)
        if not machine.is_paused:
            yield "pause", machine.pause
        is_well = not (machine.is_paused or machine.is_disturbed or machine.is_full or machine.has_failed)
        if is_well and self._zookeeper_is == "up":
            yield "restart", lambda: (machine.stop(), self._start(cluster, number))

    def _of_links(self, machine: Machine, other: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        """The faults of the links of a machine, also to that of an `other` address."""
        share, kilobits = self._rng.uniform(0.02, 0.4), self._rng.choice((200, 1_000, 5_000))
        yield "isolate", machine.isolate
        yield "cut from ZooKeeper", lambda: (machine.cut_from(ZOOKEEPER), machine.cut_to(ZOOKEEPER))
        yield "cut answers of ZooKeeper to", lambda: machine.cut_from(ZOOKEEPER)
        yield "cut requests to ZooKeeper of", lambda: machine.cut_to(ZOOKEEPER)
        yield f"cut from {other}", lambda: (machine.cut_from(other), machine.cut_to(other))
        yield f"deafen to {other}", lambda: machine.cut_from(other)
        yield f"lose {share:.2f} of the packets to", lambda: machine.lose_packets(share)
        yield f"slow down to {kilobits} kbit/s", lambda: machine.slow_down(kilobits)

    def _repairs(self, cluster: ProcessCluster) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Of whatever is broken; ZooKeeper first, without which no broker starts."""
        if self._zookeeper_is != "up":
            yield "ZooKeeper returns, beside", lambda: self._zookeeper_returns(cluster)
            return
        for number, machine in enumerate(cluster.machines):
            if not machine.is_running or machine.has_ended or machine.has_failed:
                yield f"start {number}, beside", lambda number=number: self._start(cluster, number)  # type: ignore[misc]
            if machine.is_disturbed:
                yield f"mend {number}, beside", machine.mend
            if machine.is_full and not machine.has_failed:
                yield f"free the disk of {number}, beside", machine.free
            if machine.is_paused:
                yield f"resume {number}, beside", machine.resume

    def _of_all(self, cluster: ProcessCluster) -> Iterator[tuple[str, Callable[[], Any]]]:
        """The faults of the other machines, or of the cluster."""
        if self._zookeeper_is == "up":
            yield "ZooKeeper pauses, beside", lambda: self._zookeeper("paused", cluster.zookeeper.pause)
            yield "ZooKeeper is killed, beside", lambda: self._zookeeper("down", cluster.zookeeper.kill)
            partition, replicas = self._rng.randrange(PARTITIONS), self._rng.sample(range(self._count), REPLICAS)
            yield f"reassign {partition} to {replicas}, beside", lambda: cluster.reassign(partition, replicas)
        if self._flushed:
            yield "cut the power of all, beside", lambda: [machine.cut_power() for machine in cluster.machines]

    def _zookeeper(self, state: str, action: Callable[[], Any]) -> None:
        action()
        self._zookeeper_is = state

    def _zookeeper_returns(self, cluster: ProcessCluster) -> None:
        zookeeper = cluster.zookeeper
        self._zookeeper("up", zookeeper.resume if self._zookeeper_is == "paused" else zookeeper.start)

    def _lose(self, number: int, action: Callable[[], None]) -> None:
        self._incomplete = number
        action()

    def _may_lose(self, cluster: ProcessCluster, number: int) -> bool:
        """Whether the end of its logs may be lost, as far as is promised. A broker whose disk was full or fails vouches
        for nothing either, until it has been started again."""
        if self._flushed or self._incomplete in (None, number):
            return True
        assert self._incomplete is not None
        last = cluster.machines[self._incomplete]
        if last.is_running and not last.was_full and not last.has_failed and cluster.is_in_sync(self._incomplete):
            self._incomplete = None
        return self._incomplete is None

    def _start(self, cluster: ProcessCluster, number: int) -> None:
        """Start it on links that are whole: one that reaches nobody waits to be registered. A disk that failed is
        mounted again after a boot."""
        machine = cluster.machines[number]
        if machine.has_failed:
            machine.cut_power()
        machine.kill()
        machine.mend()
        machine.free()
        cluster.start(number)

    def _heal(self, cluster: ProcessCluster) -> None:
        self._none_gave_up(cluster)
        self._tell("heal")
        if self._zookeeper_is != "up":
            self._zookeeper_returns(cluster)
        for machine in cluster.machines:
            machine.mend()
            machine.resume()
            if not machine.has_failed:
                machine.free()
        for number, machine in enumerate(cluster.machines):
            if machine.has_ended or machine.has_failed or not machine.is_running:
                self._start(cluster, number)


def _keep(home: Path, kept: Path, fault: type[BaseException] | None, *_: object) -> None:
    if fault is not None:
        with contextlib.suppress(OSError):  # of a disk that fails just now
            shutil.copytree(home, kept, ignore=shutil.ignore_patterns("*.image", "ballast", "lost+found"))


def _stands_still(*_: object) -> None:
    faulthandler.dump_traceback()
    raise AssertionError(f"it did not end within {LIMIT_S} s; where each thread stands is on stderr")


def main(arguments: list[str]) -> int:
    seed, brokers, *rest = arguments
    signal.signal(signal.SIGALRM, _stands_still)
    signal.alarm(LIMIT_S)
    faulthandler.dump_traceback_later(END_LIMIT_S, exit=True)
    logging.getLogger("kazoo").setLevel(logging.ERROR)  # its connection breaks whenever ZooKeeper is away
    told = dict(word.partition("=")[::2] for word in rest)
    history = ProcessHistory(
        int(seed),
        int(brokers),
        flushed="flushed" in told,
        steps=int(told.get("steps", STEPS)),
        operations=Path(told["operations"]) if "operations" in told else None,
        keep=Path(told["keep"]) if "keep" in told else None,
    )
    with tempfile.TemporaryDirectory(prefix="machines-", dir="/dev/shm") as home:
        LOG.addHandler(logging.FileHandler(Path(home) / "clients.txt"))
        try:
            count = history.run(Path(home))
        except (Exception, pytest.fail.Exception) as fault:
            for said in sorted(Path(home).glob("*.txt")):
                print(f"--- {said.name}\n{said.read_text()[-6000:]}")
            print("".join(traceback.format_tb(fault.__traceback__)[-4:]))
            print(f"seed {seed}, {brokers} brokers, after {'; '.join(history.trace)}: {fault!r}")
            return 1
    print(f"seed {seed}, {brokers} brokers: {count} records acknowledged; {'; '.join(history.trace)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
