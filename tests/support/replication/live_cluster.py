"""Work of stock clients for tests of a whole cluster: topics, records in, records out."""

from __future__ import annotations

import itertools
import json
import logging
import re
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalite.testing.cluster import Cluster
from tests.support.wait import DEADLINE_S, until

LOG = logging.getLogger("librdkafka")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False

EVERY = (0, 1, 2)  # the brokers of a cluster
SETTINGS: dict[str, Any] = {  # a cluster that notices what happens to a broker soon
    "replica_lag_time_max_ms": 500,
    "zookeeper_session_timeout_ms": 1_000,
    "default_replication_factor": 3,
    "min_insync_replicas": 2,
    "auto_leader_rebalance_enable": False,
}

_OF_BROKERS = ("state", "stateage", "outbuf_cnt", "waitresp_cnt", "req_timeouts")  # of librdkafka's statistics
_OF_PARTITIONS = ("broker", "leader_epoch", "msgq_cnt", "xmit_msgq_cnt", "msgs_inflight", "next_ack_seq", "acked_msgid")

QUICK = {  # a client that notices a change of leaders at once
    "socket.timeout.ms": 5_000,  # a broker that stands still is asked no longer
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 20,
}


class Reachable(Protocol):
    """A cluster as clients see it, wherever its brokers run."""

    @property
    def bootstrap_servers(self) -> str: ...

    def wait_for_leader(self, topic: str, partition: int) -> int: ...


def create_topic(
    cluster: Reachable,
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    placed_on: Sequence[Sequence[int]] | None = None,
    **config: object,
) -> None:
    """A topic that all brokers know and that is led. `placed_on`: the replicas of each partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}, logger=LOG)
    settings = {key.replace("_", "."): str(value).lower() for key, value in config.items()}
    wanted = (
        NewTopic(name, partitions, replicas, config=settings)
        if placed_on is None
        else NewTopic(name, len(placed_on), replica_assignment=[list(each) for each in placed_on], config=settings)
    )
    until(lambda: _is_created(admin, wanted), f"brokers for the replicas of {name}")
    for index in range(partitions if placed_on is None else len(placed_on)):
        cluster.wait_for_leader(name, index)


def _is_created(admin: AdminClient, wanted: NewTopic) -> bool:
    """False while the broker that is asked knows too few others: one that has just begun is ready before all see it."""
    try:
        admin.create_topics([wanted], request_timeout=DEADLINE_S)[wanted.topic].result(DEADLINE_S)
    except KafkaException as refusal:
        if refusal.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
            raise
        return False
    return True


class Writer:
    """A producer, idempotent with acks=all unless `options` say otherwise. `acknowledged`: (partition, offset, value)
    of each record that was, in the order of the answers; `unplaced`: those of which the client knows that they are
    there, but not where, since the broker knows no more of a batch that came again; `failures` the others."""

    def __init__(self, cluster: Reachable, **options: Any) -> None:
        named = {key.replace("_", "."): value for key, value in options.items()}
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.unplaced: list[tuple[int, bytes]] = []
        self.failures: list[confluent_kafka.KafkaError] = []
        self._statistics: dict[str, Any] = {}
        self.client = confluent_kafka.Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "error_cb": self._failed,
                "statistics.interval.ms": 1_000,
                "stats_cb": self._note_statistics,
                **QUICK,
                **named,
            },
            logger=LOG,
        )

    def write(self, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
        """Give them to the client, and return at once."""
        for value in values:
            self.client.produce(topic, value, partition=partition, on_delivery=self._delivered)
            self.client.poll(0)

    def flush(self) -> None:
        # a flush of this client returns early now and then; after its message.timeout.ms it gives every record up
        until(
            lambda: self.client.flush(1) == 0,
            lambda: f"the answers to all records; {len(self.client)} are left; {self.failures[:3]}; {self._standing()}",
            1.4 * DEADLINE_S,
        )

    def _note_statistics(self, statistics: str) -> None:
        self._statistics = json.loads(statistics)

    def _standing(self) -> str:
        """The state of the client: its producer id, its brokers, and what waits where."""
        said = self._statistics
        brokers = {name: _some(one, _OF_BROKERS) for name, one in said.get("brokers", {}).items()}
        partitions = {
            f"{name}-{index}": _some(one, _OF_PARTITIONS)
            for name, topic in said.get("topics", {}).items()
            for index, one in topic["partitions"].items()
        }
        return f"{said.get('eos')}; brokers {brokers}; partitions {partitions}"

    def _failed(self, error: confluent_kafka.KafkaError) -> None:
        if error.fatal():
            self.failures.append(error)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and isinstance(value, bytes)
            if offset is None:
                self.unplaced.append((partition, value))
            else:
                self.acknowledged.append((partition, offset, value))


def _some(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in names}


@contextmanager
def load(cluster: Reachable, topic: str, partitions: int = 1, *, pause_s: float = 0.001) -> Iterator[Writer]:
    """Records come in all the time, one after the other to each partition, until the block ends; then all of them have
    their answer. `pause_s`: between two of them."""
    writer, done = Writer(cluster), threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            if len(writer.client) < 100:
                writer.write(topic, [b"%d" % number], number % partitions)
                number += 1
            writer.client.poll(pause_s)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield writer
    finally:
        done.set()
        thread.join()
    writer.flush()


def progress(writer: Writer, count: int = 50) -> None:
    before = len(writer.acknowledged)
    until(lambda: len(writer.acknowledged) >= before + count, "progress")


_BATCH_HEADER = struct.Struct(">qi")  # base offset, and the length of what follows


def stored_batches(directory: Path) -> dict[int, bytes]:
    """The batches in the segment files of a partition's directory, by their base offsets. A batch that is being written
    is left out."""
    found: dict[int, bytes] = {}
    for path in sorted(directory.glob("*.log")):
        if re.fullmatch(r"\d{20}\.log", path.name):
            data, position = path.read_bytes(), 0
            while position + _BATCH_HEADER.size <= len(data):
                base_offset, length = _BATCH_HEADER.unpack_from(data, position)
                end = position + _BATCH_HEADER.size + length
                if not length or end > len(data):
                    break
                found[base_offset] = data[position:end]
                position = end
    return found


def end_offsets(cluster: Cluster, topic: str, partition: int, replicas: Iterable[int]) -> dict[int, int]:
    """Of the logs of these replicas, as far as they have one."""
    logs = {number: cluster.brokers[number].server.logs.get(topic, partition) for number in replicas}
    return {number: log.end_offset for number, log in logs.items() if log is not None}


def await_equal_logs(cluster: Cluster, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """Wait until these replicas have all records, and compare their files byte by byte from the highest start on."""

    def ends() -> dict[int, int]:
        return end_offsets(cluster, topic, partition, replicas)

    def equal() -> bool:
        found = ends()
        return len(found) == len(replicas) and len(set(found.values())) == 1

    name = f"{topic}-{partition}"
    cluster.wait_until(equal, lambda: f"equal ends of {name}: {ends()}", DEADLINE_S)
    compare_files({number: cluster.brokers[number].data_dir / name for number in replicas})


def compare_files(directories: Mapping[int, Path]) -> None:
    """Raises AssertionError if replicas, by their brokers, differ in a byte from the highest start on."""
    contents = {number: stored_batches(directory) for number, directory in directories.items()}
    first = max((min(batches) for batches in contents.values() if batches), default=0)
    one, wanted = next(iter(contents.items()))
    wanted = {base: data for base, data in wanted.items() if base >= first}
    for number, batches in contents.items():
        found = {base: data for base, data in batches.items() if base >= first}
        differing = [base for base in sorted(wanted | found) if wanted.get(base) != found.get(base)]
        assert not differing, f"{directories[number]} differs from that of broker {one} at {differing[:5]}"


def new_consumer(cluster: Reachable, **options: Any) -> confluent_kafka.Consumer:
    """A consumer that commits nothing by itself; `options` are named as the client's, with underscores."""
    named = {key.replace("_", "."): value for key, value in options.items()}
    settings = {"group.id": "nobody", "enable.auto.commit": False, "auto.offset.reset": "error", **QUICK, **named}
    return confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings}, logger=LOG)


def _first_offset(consumer: confluent_kafka.Consumer, topic: str, partition: int) -> int:
    found: list[int] = []

    def is_told() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)[0])
        except confluent_kafka.KafkaException as error:  # the consumer may ask who led it a moment ago
            if error.args[0].code() != confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
        return bool(found)

    until(is_told, f"the first offset of {topic}-{partition}")
    return found[0]


def read_messages(
    cluster: Reachable, topic: str, partition: int = 0, **options: Any
) -> Iterator[confluent_kafka.Message]:
    """The records below the end of a partition."""
    consumer = new_consumer(cluster, enable_partition_eof=True, **options)
    try:
        consumer.assign([TopicPartition(topic, partition, _first_offset(consumer, topic, partition))])
        for count in itertools.count():
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"{topic}-{partition} gives nothing after {count} records"
            error = message.error()
            if error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return
            if error is not None and not error.retriable():
                raise confluent_kafka.KafkaException(error)
            if error is None:
                yield message
    finally:
        consumer.close()


def read_all(cluster: Reachable, topic: str, partition: int = 0, **options: Any) -> dict[int, bytes]:
    """The values below the end of a partition, by their offsets."""
    found: dict[int, bytes] = {}
    for message in read_messages(cluster, topic, partition, **options):
        offset, value = message.offset(), message.value()
        assert offset is not None and isinstance(value, bytes)
        found[offset] = value
    return found
