"""A cluster with many partitions: the time of a start, and of a failover to another controller.

    python -m bench.cluster [--topics 2000] [--partitions 5] [--replicas 1] [--brokers 3] [--rounds 3]
                            [--session-timeout-ms 6000]

Everything runs on this machine: a ZooKeeper of our own, the brokers as processes of their own, and this one, which
watches ZooKeeper and asks the brokers for Metadata all the time. Times are printed and not judged.

    start      from the start of the process to its ready line; to every partition being led, as every broker says
    in sync    with replicas: from that to every replica being in its ISR, as every broker says
    failover   the controller is killed with -9: from the end of its node in /brokers/ids to another one's in
               /controller, and to every survivor saying that none of its partitions is led by it; with replicas, that
               each is led by another
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kazoo.client import KazooClient

from bench.usage import ProcessTree
from bench.wire import CREATE_TOPICS, METADATA, BrokerError, Connection, string
from kafkalite.cli.local_cluster.zookeeper_process import ZooKeeperProcess

_READY = re.compile(r"kafkalite is ready on (\S+?),? ")
_LIMIT_S = 300.0
_TOPICS_PER_REQUEST = 100
_NO_LEADER = -1
_PAUSE_S = 0.02
_SETTLED_S, _IDLE_S = 5, 10


def partitions_of(bootstrap: str) -> list[tuple[int, int]]:
    """The leader of every partition of every topic, and the size of its ISR, as this broker says."""
    with Connection(bootstrap) as connection:
        cursor = connection.request(METADATA, 1, (-1).to_bytes(4, "big", signed=True))
    for _ in range(cursor.int32()):
        cursor.int32(), cursor.string(), cursor.int32(), cursor.string()
    cursor.int32()
    found = []
    for _ in range(cursor.int32()):
        cursor.int16(), cursor.string(), cursor.int8()
        for _ in range(cursor.int32()):
            cursor.int16(), cursor.int32()
            leader = cursor.int32()
            sizes = []
            for _ in range(2):  # replicas, ISR
                sizes.append(cursor.int32())
                for _ in range(sizes[-1]):
                    cursor.int32()
            found.append((leader, sizes[-1]))
    return found


class Node:
    """One broker."""

    def __init__(self, broker_id: int, home: Path, connect: str, session_timeout_ms: int) -> None:
        self.broker_id = broker_id
        self.bootstrap = "127.0.0.1:0"
        self._errors = home / f"broker{broker_id}.txt"
        self._home = home
        self._settings = {
            "broker.id": str(broker_id),
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": str(session_timeout_ms),
        }
        self._process: subprocess.Popen[str] | None = None
        self.began = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def begin(self) -> None:
        port = self.bootstrap.rpartition(":")[2]
        overrides = [part for name, text in self._settings.items() for part in ("--override", f"{name}={text}")]
        place = ["--port", port, "--data-dir", str(self._home / f"broker{self.broker_id}")]
        self.began = time.perf_counter()
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kafkalite", "serve", *place, *overrides],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def await_ready(self) -> float:
        """Seconds since it was begun."""
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        found = _READY.match(line)
        if found is None:
            raise BrokerError(f"broker {self.broker_id} did not start: {self._errors.read_text()[-2000:]}")
        self.bootstrap = found[1]
        return time.perf_counter() - self.began

    def cpu_s(self) -> float:
        """CPU seconds of the process so far."""
        return ProcessTree(self._process.pid).cpu().total_s if self._process is not None else 0.0

    def end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def leaders(self) -> list[int]:
        """Of every partition of every topic, as this broker says."""
        return [leader for leader, _ in self.partitions()]

    def partitions(self) -> list[tuple[int, int]]:
        return partitions_of(self.bootstrap)

    def create(self, names: Sequence[str], partitions: int, replicas: int) -> None:
        """Topics, wherever the cluster puts them."""
        shape = partitions.to_bytes(4, "big") + replicas.to_bytes(2, "big")
        wanted = b"".join(string(name) + shape + bytes(8) for name in names)  # no assignments, no settings
        body = len(names).to_bytes(4, "big") + wanted + (120_000).to_bytes(4, "big") + b"\0"
        with Connection(self.bootstrap, timeout_s=_LIMIT_S) as connection:
            cursor = connection.request(CREATE_TOPICS, 4, body)
        cursor.int32()
        for _ in range(cursor.int32()):
            name, code, message = cursor.string(), cursor.int16(), cursor.string()
            if code:
                raise BrokerError(f"topic {name} was not created: error {code}, {message}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.cluster", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--partitions", type=int, default=5)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--session-timeout-ms", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="bench-cluster-", ignore_cleanup_errors=True) as home,
        zookeeper(Path(home) / "zookeeper") as connect,
    ):
        nodes = [Node(i, Path(home), connect, options.session_timeout_ms) for i in range(options.brokers)]
        client = KazooClient(hosts=connect, timeout=30.0)
        client.start(timeout=30)
        try:
            measure(nodes, client, options.topics, options.partitions, options.replicas, options.rounds)
        finally:
            for node in nodes:
                node.end(signal.SIGKILL)
            client.stop()
            client.close()
    return 0


@contextlib.contextmanager
def zookeeper(directory: Path) -> Iterator[str]:
    """Its address, for as long as the block lasts."""
    with asyncio.Runner() as runner:
        server = ZooKeeperProcess(directory)
        runner.run(server.start())
        try:
            yield server.connect
        finally:
            runner.run(server.stop())


def measure(nodes: list[Node], client: KazooClient, topics: int, partitions: int, replicas: int, rounds: int) -> None:
    told("first start, nothing there", start(nodes, 0))
    began = time.perf_counter()
    names = [f"bench-{number:05d}" for number in range(topics)]
    for at in range(0, topics, _TOPICS_PER_REQUEST):
        nodes[0].create(names[at : at + _TOPICS_PER_REQUEST], partitions, replicas)
    count = topics * partitions
    await_led(nodes, count)
    seconds = time.perf_counter() - began
    told(f"{topics} topics x {partitions} x {replicas} created, {_TOPICS_PER_REQUEST} in a request", f"{seconds:.1f} s")
    told(f"idle for {_IDLE_S} s, CPU of each", ", ".join(f"{share:.1%}" for share in idle(nodes)))
    for _ in range(rounds):
        began = time.perf_counter()
        for node in nodes:
            node.end(signal.SIGTERM)
        told("all stopped in order, one after another", f"{time.perf_counter() - began:.2f} s")
        told("all started side by side", start(nodes, count) + in_sync(nodes, replicas))
        nodes[-1].end(signal.SIGTERM)
        told("one stopped and started beside the others", start(nodes[-1:], count, nodes) + in_sync(nodes, replicas))
        told("the controller killed", fail_over(nodes, client, replicas))
        gone = [node for node in nodes if not node.is_running]
        told("it is started again", start(gone, count, nodes) + in_sync(nodes, replicas))


def idle(nodes: list[Node]) -> list[float]:
    """The share of a core that each broker uses without clients."""
    time.sleep(_SETTLED_S)
    before = [node.cpu_s() for node in nodes]
    time.sleep(_IDLE_S)
    return [(node.cpu_s() - began) / _IDLE_S for node, began in zip(nodes, before, strict=True)]


def start(beginning: list[Node], count: int, everyone: list[Node] | None = None) -> str:
    since = time.perf_counter()
    for node in beginning:
        node.begin()
    ready = [node.await_ready() for node in beginning]
    await_led(everyone or beginning, count)
    whole = time.perf_counter() - since
    cpu = [node.cpu_s() for node in beginning]
    return (
        f"ready after {', '.join(f'{seconds:.2f}' for seconds in ready)} s, every partition led after {whole:.2f} s; "
        f"CPU of each {', '.join(f'{seconds:.2f}' for seconds in cpu)} s"
    )


def in_sync(nodes: list[Node], replicas: int) -> str:
    """Nothing for one replica, which always is."""
    if replicas == 1:
        return ""
    began = time.perf_counter()
    for node in nodes:
        await_true(lambda node=node: all(size == replicas for _, size in node.partitions()), "all replicas in sync")  # type: ignore[misc]
    return f", all replicas in sync {time.perf_counter() - began:.2f} s after that"


def fail_over(nodes: list[Node], client: KazooClient, replicas: int) -> str:
    controller = int(re.search(rb'"brokerid":\s*(\d+)', client.get("/controller")[0])[1])  # type: ignore[index]
    victim = next(node for node in nodes if node.broker_id == controller)
    survivors = [node for node in nodes if node is not victim]
    total = len(survivors[0].leaders())
    killed = time.perf_counter()
    victim.end(signal.SIGKILL)
    await_true(lambda: client.exists(f"/brokers/ids/{controller}") is None, "its node to go")
    gone = time.perf_counter()
    await_true(lambda: client.exists("/controller") is not None, "another controller")
    elected = time.perf_counter()
    for node in survivors:
        await_true(lambda node=node: controller not in node.leaders(), "its partitions to be led by nobody")  # type: ignore[misc]
    done = time.perf_counter()
    found = (
        f"its node went after {gone - killed:.2f} s, another controller {elected - gone:.2f} s after that, all told "
    )
    if replicas > 1:
        await_led(survivors, total)
        return found + f"that all {total} partitions are led by others {time.perf_counter() - gone:.2f} s after it"
    offline = survivors[0].leaders().count(_NO_LEADER)
    return found + f"that its {offline} of {total} partitions are led by nobody {done - gone:.2f} s after it"


def await_led(nodes: Sequence[Node], count: int) -> None:
    for node in nodes:
        await_true(
            lambda node=node: len(told := node.leaders()) >= count and _NO_LEADER not in told,  # type: ignore[misc]
            f"broker {node.broker_id} to say that {count} partitions are led",
        )


def await_true(probe: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not probe():
        if time.monotonic() > deadline:
            raise BrokerError(f"waited {_LIMIT_S:g} s for {what}")
        time.sleep(_PAUSE_S)


def told(what: str, how: str) -> None:
    print(f"{what}: {how}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
