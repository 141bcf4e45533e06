"""Brokers of Apache Kafka on one ZooKeeper, for stories that are told to kafkalite as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.reference.kafka import LOG4J
from tests.compatibility.interop.zookeeper_kafka import VERSION, ZooKeeperKafka, zookeeper_kafka
from tests.support.zk.znode_story import SETTINGS

CHROOT = "/theirs"


class KafkaStage:
    """`port` is ZooKeeper's; `zookeeper` ends in a chroot, so that others can use the rest of it."""

    def __init__(self, home: Path, port: int, version: str = VERSION) -> None:
        self.zookeeper = f"127.0.0.1:{port}{CHROOT}"
        self._home = home
        self._port = port
        self._version = version
        self._brokers: dict[int, ZooKeeperKafka] = {}

    def start(self, broker_id: int) -> None:
        if broker_id not in self._brokers:
            home = self._home / f"broker-{broker_id}"
            home.mkdir(parents=True)
            (home / "log4j.properties").write_text(LOG4J)
            kafka = ZooKeeperKafka(home, [home / "data"], broker_id, self._port, self._version)
            kafka.settings |= SETTINGS | {"zookeeper.connect": self.zookeeper}
            self._brokers[broker_id] = kafka
        self._brokers[broker_id].start()

    def stop(self, broker_id: int) -> None:
        self._brokers[broker_id].stop()

    def address(self, broker_id: int) -> str:
        return self._brokers[broker_id].bootstrap

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.kill()


@contextmanager
def kafka_stage(home: Path) -> Iterator[KafkaStage]:
    """Nothing runs on it so far but ZooKeeper. Raises `ReferenceUnavailable` without Java or Maven."""
    with zookeeper_kafka(home, []) as only_zookeeper:
        stage = KafkaStage(home, int(only_zookeeper.settings["zookeeper.connect"].rpartition(":")[2]))
        try:
            yield stage
        finally:
            stage.close()
