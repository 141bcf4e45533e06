"""Three replicas on one machine: three brokers of kafkalite and three of Apache Kafka, each with a ZooKeeper, by turns.

    python -m bench replication [--pairs 3] [--seconds 4] [--only produce-100B,...]

Both clusters stay up; the brokers of the one that is not measured are stopped by SIGSTOP, and their sessions with
ZooKeeper last long enough for that. Where a broker goes, sessions last 6 s, and no other is stopped. The topics have
three replicas and min.insync.replicas=2, the producers acks=-1.

    produce-100B, produce-1KB     a stock C producer with its defaults, as fast as it can; CPU of all brokers
    single-100B                   one request in flight: microseconds from the send to the answer, p50 and p99
    catch-up                      a follower that was away copies --size-mb of records; see bench/catching_up.py
    failover                      the leader is killed with -9: milliseconds until another one acknowledges a record
    hand-over                     the leader is stopped in order: the longest time between two acknowledgements of a
                                  stock C producer with its defaults that sends a record after the other
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.catching_up import catch_up
from bench.cluster import Node, zookeeper
from bench.librdkafka import Library, Producer
from bench.records import frame_cycle, payload
from bench.reference.kafka import LOG4J, await_ready, command_line, free_port, stop
from bench.replay import blocking_socket, closed_loop
from bench.report import machine
from bench.usage import ProcessTree
from bench.wire import BrokerError

IDS = (0, 1, 2)
_SESSION_MS = 600_000  # a cluster stands still while the other one copies 10 GB
_FAILOVER_SESSION_MS = 6_000
_FLUSH_MS = 60_000
_FAILOVER, _HAND_OVER = "failover", "hand-over"
_SHORT_SESSIONS = (_FAILOVER, _HAND_OVER)
_TOPIC = {"min.insync.replicas": "2", "file.delete.delay.ms": "1000"}
_MOST_BYTES = 1 << 30
_MOST_SAMPLES = 1_000_000


class Cluster:
    """Three brokers; `processes` in the order of their ids, None for one that was killed."""

    name = ""

    def __init__(self) -> None:
        self.bootstraps = [""] * len(IDS)

    @property
    def pids(self) -> list[int]:
        raise NotImplementedError

    @property
    def bootstrap(self) -> str:
        return ",".join(self.bootstraps)

    def signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def kill(self, broker_id: int) -> None:
        raise NotImplementedError

    def stop(self, broker_id: int) -> None:
        """In order; returns when it has ended."""
        raise NotImplementedError

    def restart(self, broker_id: int) -> None:
        raise NotImplementedError

    def cpu_s(self) -> float:
        return sum(ProcessTree(pid).cpu().total_s for pid in self.pids)

    def create(self, topic: str, placed_on: Sequence[int] = ()) -> None:
        """Returns when all replicas are in sync, one on each broker or `placed_on` those, and the leader takes records.
        A cluster that stood still may have lost its connections."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        where: dict[str, Any] = {"replica_assignment": [list(placed_on)]} if placed_on else {"replication_factor": 3}
        deadline = time.monotonic() + 60
        while topic not in admin.list_topics(timeout=60).topics:
            with contextlib.suppress(KafkaException):
                admin.create_topics([NewTopic(topic, 1, config=_TOPIC, **where)])[topic].result(60)
        while self.isr_size(topic) < len(placed_on or IDS):
            if time.monotonic() > deadline:
                raise BrokerError(f"{topic} has not got all of its replicas in sync")
            time.sleep(0.05)
        settings = {"bootstrap.servers": self.bootstrap, "acks": "-1"}
        with contextlib.closing(Producer(Library(), topic, settings, b"", 1)) as producer:
            _send_one(producer)  # asks again where the leader does not know yet that it is one

    def delete(self, topic: str) -> None:
        """Returns when its files are gone: at Apache Kafka up to a minute later, whatever the topic says."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result(60)
        deadline = time.monotonic() + 150
        while any(path for broker_id in IDS for path in self.data_dir(broker_id).glob(f"{topic}-0*")):
            if time.monotonic() > deadline:
                raise BrokerError(f"the files of {topic} are still there")
            time.sleep(0.05)

    def leader(self, topic: str) -> int:
        return int(self._state(topic).leader)

    def isr_size(self, topic: str) -> int:
        state = self._state(topic)
        return 0 if state is None else len(state.isrs)

    def data_dir(self, broker_id: int) -> Path:
        raise NotImplementedError

    def _state(self, topic: str) -> Any:
        """None: a broker does not know the partition yet."""
        known = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(topic, 60).topics[topic]
        return known.partitions.get(0)


class Kafkalite(Cluster):
    name = "kafkalite"

    def __init__(self, home: Path, connect: str, session_ms: int) -> None:
        super().__init__()
        self._home = home
        self._nodes = [Node(broker_id, home, connect, session_ms) for broker_id in IDS]
        for node in self._nodes:
            node.begin()
        for node in self._nodes:
            node.await_ready()
        self.bootstraps = [node.bootstrap for node in self._nodes]

    def data_dir(self, broker_id: int) -> Path:
        return self._home / f"broker{broker_id}"

    @property
    def pids(self) -> list[int]:
        return [pid for node in self._nodes if (pid := node.pid) is not None]

    def kill(self, broker_id: int) -> None:
        self._nodes[broker_id].end(signal.SIGKILL)

    def stop(self, broker_id: int) -> None:
        self._nodes[broker_id].end(signal.SIGTERM)

    def restart(self, broker_id: int) -> None:
        self._nodes[broker_id].begin()
        self._nodes[broker_id].await_ready()

    def close(self) -> None:
        for node in self._nodes:
            node.end(signal.SIGTERM)


class ApacheKafka(Cluster):
    name = "Apache Kafka 3.9.1"

    def __init__(self, home: Path, connect: str, session_ms: int) -> None:
        super().__init__()
        self._home = home
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * len(IDS)
        for broker_id in IDS:
            place = home / f"kafka{broker_id}"
            place.mkdir()
            port = free_port()
            self.bootstraps[broker_id] = f"127.0.0.1:{port}"
            settings = {
                "broker.id": str(broker_id),
                "zookeeper.connect": connect,
                "zookeeper.session.timeout.ms": str(session_ms),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.dirs": str(place / "data"),
            }
            (place / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            (place / "log4j.properties").write_text(LOG4J)
            self._begin(broker_id)
        for broker_id in IDS:
            self._await(broker_id)

    def _begin(self, broker_id: int) -> None:
        place = self._home / f"kafka{broker_id}"
        with (place / "kafka.out").open("ab") as sink:
            self._processes[broker_id] = subprocess.Popen(
                command_line("3.9.1", place, "1g", "kafka.Kafka", str(place / "server.properties")),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=place,
                start_new_session=True,
            )

    def _await(self, broker_id: int) -> None:
        process = self._processes[broker_id]
        assert process is not None
        await_ready(self.bootstraps[broker_id], process, self._home / f"kafka{broker_id}" / "kafka.out")

    def data_dir(self, broker_id: int) -> Path:
        return self._home / f"kafka{broker_id}" / "data"

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process is not None]

    def kill(self, broker_id: int) -> None:
        process, self._processes[broker_id] = self._processes[broker_id], None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self, broker_id: int) -> None:
        process, self._processes[broker_id] = self._processes[broker_id], None
        if process is not None:
            stop(process)

    def restart(self, broker_id: int) -> None:
        self._begin(broker_id)
        self._await(broker_id)

    def close(self) -> None:
        for process in self._processes:
            if process is not None:
                stop(process)


# Work: each returns figures by name.

Figures = dict[str, float]


def produce(cluster: Cluster, topic: str, value_bytes: int, seconds: float) -> Figures:
    cluster.create(topic)
    library, most = Library(), _MOST_BYTES // value_bytes
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "acks": "-1",
        "queue.buffering.max.messages": "500000",
        "message.timeout.ms": str(_FLUSH_MS),
    }
    with contextlib.closing(Producer(library, topic, settings, payload(value_bytes), 1_000)) as producer:
        _send(producer, min(1.0, seconds), most)
        cpu_before, began = cluster.cpu_s(), time.perf_counter()
        sent = _send(producer, seconds, most)
        took_s = time.perf_counter() - began
        cpu_s = cluster.cpu_s() - cpu_before
    return {"records/s": sent / took_s, "MB/s": sent * value_bytes / took_s / 1e6, "CPU us/record": cpu_s / sent * 1e6}


def _send(producer: Producer, seconds: float, most: int) -> int:
    sent, deadline = 0, time.monotonic() + seconds
    while sent < most and time.monotonic() < deadline:
        sent += producer.produce(most - sent)
    producer.flush(_FLUSH_MS)
    return sent


def _send_one(producer: Producer) -> None:
    producer.produce(1)
    producer.flush(_FLUSH_MS)


def single(cluster: Cluster, topic: str, seconds: float) -> Figures:
    cluster.create(topic)
    leader = cluster.bootstraps[cluster.leader(topic)]
    with contextlib.closing(blocking_socket(leader)) as sock:
        cycle = frame_cycle(topic, 1, 100, window=1, acks=-1)
        closed_loop(sock, cycle, min(2.0, seconds), _MOST_SAMPLES)
        samples = sorted(closed_loop(sock, cycle, seconds, _MOST_SAMPLES))
    return {"p50 us": samples[len(samples) // 2] / 1e3, "p99 us": samples[len(samples) * 99 // 100] / 1e3}


def failover(cluster: Cluster, topic: str) -> Figures:
    """Each record waits for its answer; the longest wait is that of the failover."""
    cluster.create(topic)
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "-1", "linger.ms": "0"}
    with contextlib.closing(Producer(Library(), topic, settings, payload(100), 1)) as producer:
        for _ in range(100):
            _send_one(producer)
        leader = cluster.leader(topic)
        began = time.perf_counter()
        cluster.kill(leader)
        _send_one(producer)
        waited_ms = (time.perf_counter() - began) * 1e3
    cluster.restart(leader)
    return {"ms": waited_ms}


def hand_over(cluster: Cluster, topic: str) -> Figures:
    """Each record waits for its answer, from before the leader is stopped until a second after its end."""
    cluster.create(topic)
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "-1"}
    longest_s = 0.0
    with contextlib.closing(Producer(Library(), topic, settings, payload(100), 1)) as producer:
        for _ in range(100):
            _send_one(producer)
        leader = cluster.leader(topic)
        stopping = threading.Thread(target=cluster.stop, args=(leader,))
        stopping.start()
        last = began = time.perf_counter()
        while stopping.is_alive() or last - began < 1.0:
            _send_one(producer)
            before, last = last, time.perf_counter()
            longest_s = max(longest_s, last - before)
        stopping.join()
    cluster.restart(leader)
    return {"ms": longest_s * 1e3}


class Amount(NamedTuple):
    """How much of a work is done."""

    seconds: float
    size_mb: int


WORKS: dict[str, Callable[[Cluster, str, Amount], Figures]] = {
    "produce-100B": lambda cluster, topic, amount: produce(cluster, topic, 100, amount.seconds),
    "produce-1KB": lambda cluster, topic, amount: produce(cluster, topic, 1024, amount.seconds),
    "single-100B": lambda cluster, topic, amount: single(cluster, topic, amount.seconds),
    "catch-up": lambda cluster, topic, amount: catch_up(cluster, topic, amount.size_mb),
    _FAILOVER: lambda cluster, topic, amount: failover(cluster, topic),
    _HAND_OVER: lambda cluster, topic, amount: hand_over(cluster, topic),
}


@contextlib.contextmanager
def clusters(home: Path, session_ms: int) -> Iterator[list[Cluster]]:
    made: list[Cluster] = []
    with contextlib.ExitStack() as stack:
        for kind in (Kafkalite, ApacheKafka):
            place = home / kind.__name__
            place.mkdir()
            connect = stack.enter_context(zookeeper(place / "zookeeper"))
            cluster = kind(place, connect, session_ms)
            stack.callback(cluster.close)
            stack.callback(cluster.signal, signal.SIGCONT)
            made.append(cluster)
            if session_ms == _SESSION_MS:
                cluster.signal(signal.SIGSTOP)
        yield made


def measure(
    names: Sequence[str], session_ms: int, pairs: int, amount: Amount, found: dict[tuple[str, str, str], list[float]]
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="bench-replication-", ignore_cleanup_errors=True) as home,
        clusters(Path(home), session_ms) as sides,
    ):
        for name in names:
            for pair in range(pairs):
                for cluster in sides if pair % 2 == 0 else reversed(sides):
                    cluster.signal(signal.SIGCONT)
                    try:
                        figures = WORKS[name](cluster, f"{name}-{pair}", amount)
                    finally:
                        if name not in _SHORT_SESSIONS:  # a session of a few seconds would end
                            cluster.signal(signal.SIGSTOP)
                    shown = ", ".join(f"{value:,.2f} {unit}" for unit, value in figures.items())
                    print(f"{name} {pair + 1}/{pairs} {cluster.name}: {shown}", flush=True)
                    for unit, value in figures.items():
                        found.setdefault((name, unit, cluster.name), []).append(value)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench replication", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--size-mb", type=int, default=2_000, help="what a follower copies")
    parser.add_argument("--only", default=",".join(WORKS), help=f"some of {', '.join(WORKS)}")
    options = parser.parse_args(arguments)
    wanted = options.only.split(",")
    found: dict[tuple[str, str, str], list[float]] = {}
    for names, session_ms in (
        ([name for name in wanted if name not in _SHORT_SESSIONS], _SESSION_MS),
        ([name for name in wanted if name in _SHORT_SESSIONS], _FAILOVER_SESSION_MS),
    ):
        if names:
            measure(names, session_ms, options.pairs, Amount(options.seconds, options.size_mb), found)
    print(f"\n{', '.join(machine().values())}\n\n| work | unit | kafkalite | Kafka | ratio |")
    print("| --- | --- | ---: | ---: | ---: |")
    for name, unit in dict.fromkeys(key[:2] for key in found):
        ours = statistics.median(found[name, unit, Kafkalite.name])
        theirs = statistics.median(found[name, unit, ApacheKafka.name])
        print(f"| {name} | {unit} | {ours:,.2f} | {theirs:,.2f} | {ours / theirs:.2f} |")
    return 0
