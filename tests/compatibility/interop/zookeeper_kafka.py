"""Apache Kafka as it was before KRaft: one ZooKeeper and one broker, on directories of the caller's choice.

ZooKeeper stays while the broker comes and goes, as in a real installation: what the topics are called, how many
partitions they have and which settings is known there and nowhere in the data directories. All addresses are loopback.
Source: config/zookeeper.properties and config/server.properties of Kafka 3.9.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.reference.jars import ReferenceUnavailable
from bench.reference.kafka import LOG4J, await_ready, command_line, free_port
from tests.compatibility.interop.kafka_process import KafkaProcess
from tests.support.wait import until

VERSION = "3.9.1"
_STARTS_MAX = 4


class ZooKeeperKafka(KafkaProcess):
    """A broker that can be started, stopped in order, and killed, as often as wanted. `bootstrap` never changes."""

    def __init__(
        self, home: Path, data_dirs: Sequence[Path], broker_id: int, zookeeper_port: int, version: str
    ) -> None:
        self.home = home
        self.data_dirs = list(data_dirs)
        self.port = free_port()
        self.version = version
        self.settings = {
            "broker.id": str(broker_id),
            "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
            "zookeeper.session.timeout.ms": "6000",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": ",".join(map(str, data_dirs)),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "log.cleaner.dedupe.buffer.size": "2000000",
        }

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def output(self) -> Path:
        return self.home / "kafka.out"

    def start(self) -> None:
        """Returns when it serves. Raises `ReferenceUnavailable` with what it said when it does not.

        The name of a killed one stays taken until ZooKeeper ends its session: a start that meets it is made again.
        """
        assert self._process is None
        path = self.home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        for attempt in range(_STARTS_MAX):
            said = self.output.stat().st_size if self.output.exists() else 0
            self._process = _run(self.home, self.version, "512m", "kafka.Kafka", path, self.output)
            try:
                await_ready(self.bootstrap, self._process, self.output)
                return
            except ReferenceUnavailable:
                self.kill()
                if "KeeperException" not in self.output.read_text()[said:] or attempt + 1 == _STARTS_MAX:
                    raise


@contextmanager
def zookeeper_kafka(
    home: Path, data_dirs: Sequence[Path], *, broker_id: int = 0, version: str = VERSION
) -> Iterator[ZooKeeperKafka]:
    """A ZooKeeper that runs, and a broker that does not yet. Raises `ReferenceUnavailable` without Java or Maven."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "log4j.properties").write_text(LOG4J)
    port = free_port()
    config = home / "zookeeper.properties"
    settings = {
        "dataDir": home / "zookeeper",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "maxClientCnxns": 0,
        "tickTime": 500,  # a killed broker's session ends soon, and its successor need not wait for that long
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    output = home / "zookeeper.out"
    server = _run(home, version, "128m", "org.apache.zookeeper.server.quorum.QuorumPeerMain", config, output)
    kafka = ZooKeeperKafka(home, data_dirs, broker_id, port, version)
    try:
        until(lambda: _listens(port, server, output), "ZooKeeper to listen")
        yield kafka
    finally:
        kafka.kill()
        server.kill()
        server.wait()


def _listens(port: int, server: subprocess.Popen[bytes], output: Path) -> bool:
    import socket

    if server.poll() is not None:
        raise ReferenceUnavailable(f"ZooKeeper ended with code {server.returncode}: {output.read_text()[-800:]}")
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _run(home: Path, version: str, heap: str, main: str, config: Path, output: Path) -> subprocess.Popen[bytes]:
    with output.open("ab") as sink:
        return subprocess.Popen(
            command_line(version, home, heap, main, str(config)),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=home,
            start_new_session=True,
        )
