"""Three places for brokers on one ZooKeeper, which Apache Kafka and kafkalite fill in turn.

Each place has a server.properties and a data directory, so the brokers of both kinds have the same numbers, addresses
and logs. ZooKeeper stays all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from bench.reference.kafka import LOG4J
from tests.compatibility.interop.swap_scene import SECONDS, Kafkalite
from tests.compatibility.interop.zookeeper_kafka import VERSION, ZooKeeperKafka, zookeeper_kafka
from tests.support.wait import until

IDS = (0, 1, 2)
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "log.cleaner.enable": "false",  # what is compacted is for the tests of the cleaner; here, files are compared
}


class WholeCluster:
    """`theirs` and `ours` are brokers of the same places, by their numbers."""

    def __init__(self, home: Path, zookeeper_port: int) -> None:
        self.theirs: list[ZooKeeperKafka] = []
        self.ours: list[Kafkalite] = []
        for number in IDS:
            place = home / f"broker-{number}"
            (place / "data").mkdir(parents=True)
            (place / "log4j.properties").write_text(LOG4J)
            kafka = ZooKeeperKafka(place, [place / "data"], number, zookeeper_port, VERSION)
            kafka.settings |= SETTINGS
            self.theirs.append(kafka)
            self.ours.append(Kafkalite(place, [place / "data"]))

    @property
    def bootstrap(self) -> str:
        return ",".join(kafka.bootstrap for kafka in self.theirs)

    def data_dir(self, number: int) -> Path:
        return self.theirs[number].data_dirs[0]

    def start_theirs(self) -> None:
        _side_by_side([kafka.start for kafka in self.theirs])

    def start_ours(self, *numbers: int) -> None:
        """The brokers of these numbers, all at once; without numbers, every one."""

        def starter(number: int) -> Callable[[], None]:
            return lambda: self.ours[number].start(str(self.theirs[number].home / "server.properties"))

        _side_by_side([starter(number) for number in numbers or IDS])

    def stop(self, brokers: Sequence[ZooKeeperKafka] | Sequence[Kafkalite]) -> None:
        """One after the other, as an operator does it."""
        for broker in brokers:
            broker.stop()

    def isrs(self) -> dict[tuple[str, int], tuple[int, list[int], list[int]]]:
        """Leader, replicas and ISR of every partition."""
        topics = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=SECONDS).topics
        return {
            (name, index): (one.leader, list(one.replicas), sorted(one.isrs))
            for name, topic in topics.items()
            for index, one in topic.partitions.items()
        }

    def await_whole(self) -> None:
        """Until each partition has a leader, and all of its replicas in its ISR."""

        def lacking() -> dict[tuple[str, int], tuple[int, list[int], list[int]]]:
            found = self.isrs()
            return {
                key: state for key, state in found.items() if state[0] not in state[2] or sorted(state[1]) != state[2]
            } or ({} if found else {("", 0): (-1, [], [])})

        until(lambda: not lacking(), lambda: f"whole ISRs: {lacking()}")

    def close(self) -> None:
        for broker in (*self.theirs, *self.ours):
            broker.kill()


def _side_by_side(deeds: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(deeds)) as pool:
        for done in [pool.submit(deed) for deed in deeds]:
            done.result()


@contextmanager
def whole_cluster(home: Path) -> Iterator[WholeCluster]:
    """Nothing runs so far but ZooKeeper. Raises `ReferenceUnavailable` without Java or Maven."""
    with zookeeper_kafka(home, []) as only_zookeeper:
        cluster = WholeCluster(home, int(only_zookeeper.settings["zookeeper.connect"].rpartition(":")[2]))
        try:
            yield cluster
        finally:
            cluster.close()
