"""Apache Kafka without ZooKeeper: one node, broker and controller, on directories of the caller's choice.

The names and settings of the topics are in the first directory too, in its metadata log (`__cluster_metadata-0`). The
node can be started, stopped in order and killed as often as wanted.
Source: config/kraft/server.properties of Kafka 3.9.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.reference.kafka import await_ready, command_line, free_port, prepare, server_properties
from tests.compatibility.interop.kafka_process import KafkaProcess

VERSION = "3.9.1"


class KRaftKafka(KafkaProcess):
    """`bootstrap` never changes."""

    def __init__(self, home: Path, data_dirs: Sequence[Path], node_id: int, version: str) -> None:
        self.home = home
        self.version = version
        self.port = free_port()
        controller_port = free_port()
        own = {
            "node.id": str(node_id),
            "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller_port}",
            "log.dirs": ",".join(map(str, data_dirs)),
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "3",
            "auto.create.topics.enable": "false",
            "log.cleaner.dedupe.buffer.size": "2000000",
        }
        self.settings = server_properties(home, self.port, controller_port, 0, own)
        self._path: Path | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def output(self) -> Path:
        return self.home / "kafka.out"

    def start(self) -> None:
        """Returns when it serves; the first time it formats the directories. Raises `ReferenceUnavailable` with what it
        said when it does not."""
        assert self._process is None
        if self._path is None:
            self._path = prepare(self.home, self.version, self.settings)
        else:  # they may have been changed since
            self._path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        with self.output.open("ab") as sink:
            self._process = subprocess.Popen(
                command_line(self.version, self.home, "512m", "kafka.Kafka", str(self._path)),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                start_new_session=True,
            )
        await_ready(self.bootstrap, self._process, self.output)


@contextmanager
def kraft_kafka(
    home: Path, data_dirs: Sequence[Path], *, node_id: int = 0, version: str = VERSION
) -> Iterator[KRaftKafka]:
    """One that does not run yet. Raises `ReferenceUnavailable` without Java or Maven."""
    home.mkdir(parents=True, exist_ok=True)
    kafka = KRaftKafka(home, data_dirs, node_id, version)
    try:
        yield kafka
    finally:
        kafka.kill()
