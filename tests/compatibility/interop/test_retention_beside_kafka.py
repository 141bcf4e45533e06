"""The same records with the same times in kafkalite and in Apache Kafka: retention leaves the same of them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.reference import ReferenceUnavailable, reference_kafka
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.record.batch import NewRecord, build_batch
from tests.compatibility.differential import asking
from tests.compatibility.interop.conftest import BrokerProcess
from tests.support.wait import DEADLINE_S, until

ECOSYSTEM = "Apache Kafka"
VERSION = "3.9.1"
BROKER_SETTINGS = {"log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "1000"}
FOR_KAFKA = BROKER_SETTINGS | {
    "log.initial.task.delay.ms": "500",  # kafkalite, as Kafka without this, looks after 30 s for the first time
    "log.cleaner.backoff.ms": "500",  # Kafka's cleaner looks after the compacted topics
    "log.cleaner.dedupe.buffer.size": "2097152",
}
HOUR_MS = 3_600_000
Left = dict[str, tuple[int, int, list[str]]]
NO_TIME = -1
EARLIEST, LATEST = -2, -1


class Tale(NamedTuple):
    """A topic's settings, and its batches: (age in hours, bytes of the value). The records of a topic before its limits
    take effect: where DeleteRecords cuts, and the settings that come last."""

    settings: dict[str, str]
    batches: list[tuple[float, int]]
    delete_before: int = 0
    settings_then: Mapping[str, str] = MappingProxyType({})
    producer_id: int = -1


SMALL = {"segment.bytes": "300", "retention.ms": "-1"}  # two batches of 100 bytes
HOURS = [(9.0, 50), (8, 50), (7, 50), (6, 50), (5, 50), (4, 50), (3, 50), (2, 50)]
TALES = {
    "by-time": Tale(SMALL, HOURS, settings_then={"retention.ms": str(9 * HOUR_MS // 2)}),
    "by-time-to-the-end": Tale(SMALL, HOURS, settings_then={"retention.ms": str(HOUR_MS)}),
    "young-before-old": Tale(SMALL, [(1, 50), (1, 50), *HOURS], settings_then={"retention.ms": str(3 * HOUR_MS)}),
    "old-before-future": Tale(
        SMALL, [*HOURS[:4], (-100, 50), *HOURS[4:]], settings_then={"retention.ms": str(HOUR_MS)}
    ),
    "nothing-is-kept": Tale(SMALL, HOURS, settings_then={"retention.ms": "0"}),
    "without-times": Tale(SMALL, [(9, 50), (9, 50), (NO_TIME, 50), (NO_TIME, 50), (9, 50)],
                          settings_then={"retention.ms": str(HOUR_MS)}),
    "by-size": Tale(SMALL, [(0, 10), (0, 150), (0, 20), (0, 90), (0, 200), (0, 10), (0, 50), (0, 50)],
                    settings_then={"retention.bytes": "500"}),
    "by-size-exactly": Tale(SMALL, [(0, 50)] * 8, settings_then={"retention.bytes": "472"}),
    "no-bytes": Tale(SMALL, [(0, 50)] * 7, settings_then={"retention.bytes": "0"}),
    "by-both": Tale(SMALL, HOURS, settings_then={"retention.bytes": "700", "retention.ms": str(5 * HOUR_MS)}),
    "cut-inside": Tale(SMALL, HOURS, delete_before=5),
    "cut-where-a-segment-begins": Tale(SMALL, HOURS, delete_before=4),
    "all-cut": Tale(SMALL, HOURS, delete_before=8),
    "cut-and-too-large": Tale(SMALL, HOURS, delete_before=3, settings_then={"retention.bytes": "300"}),
    "cut-and-compacted": Tale(
        SMALL | {"min.cleanable.dirty.ratio": "1.0"}, HOURS, delete_before=5,
        settings_then={"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "1"},
    ),
    "compacted-and-deleted": Tale(
        SMALL | {"min.cleanable.dirty.ratio": "1.0"}, HOURS,
        settings_then={"cleanup.policy": "compact,delete", "retention.ms": str(9 * HOUR_MS // 2)},
    ),
    "by-a-producer": Tale(SMALL, HOURS, settings_then={"retention.ms": str(9 * HOUR_MS // 2)}, producer_id=4000),
    "all-by-a-producer": Tale(SMALL, HOURS, settings_then={"retention.ms": "0"}, producer_id=4001),
}  # fmt: skip


class Line:
    """A connection that asks for one thing after another."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        self._stream = self._socket.makefile("rb")

    def ask(self, request: Message, version: int) -> Any:
        self._socket.sendall(request_frame(request, version, 1, "retention"))
        frame = self._stream.read(int.from_bytes(self._stream.read(4), "big"))
        return decode_response(type(request), version, memoryview(frame))[1]

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def create(self, topic: str, settings: dict[str, str]) -> None:
        (told,) = self.ask(asking.create(asking.new_topic(topic, configs=settings)), 5).topics
        assert told.error_code == 0, told.error_message

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        changes = [(name, asking.SET, value) for name, value in settings.items()]
        (told,) = self.ask(asking.change(asking.TOPIC, topic, *changes), 1).responses
        assert told.error_code == 0, told.error_message

    def produce(self, topic: str, batch: bytes) -> ErrorCode:
        told = self.ask(asking.produce(topic, batch), 9)
        return ErrorCode(told.responses[0].partition_responses[0].error_code)

    def delete_before(self, topic: str, offset: int) -> None:
        (told,) = self.ask(asking.delete_before(topic, offset), 2).topics[0].partitions
        assert (told.error_code, told.low_watermark) == (0, offset)

    def offset(self, topic: str, which: int) -> int:
        return int(self.ask(asking.list_offsets(topic, which), 5).topics[0].partitions[0].offset)


def batches_of(tale: Tale, now_ms: int) -> list[bytes]:
    """Unique keys: compaction has nothing to do."""
    made = []
    for number, (age, size) in enumerate(tale.batches):
        time_ms = NO_TIME if age == NO_TIME else now_ms - int(age * HOUR_MS)
        how = {}
        if tale.producer_id >= 0:
            how = {"producer_id": tale.producer_id, "producer_epoch": 0, "base_sequence": number}
        made.append(bytes(build_batch([NewRecord(b"%04d" % number, b"v" * size, (), time_ms)], **how)))
    return made


def fill(line: Line, now_ms: int) -> None:
    for topic, tale in TALES.items():
        line.create(topic, tale.settings)
    for topic, tale in TALES.items():
        for batch in batches_of(tale, now_ms):
            # right after its creation a topic may have no leader yet
            until(lambda topic=topic, batch=batch: line.produce(topic, batch) is ErrorCode.NONE, f"{topic} to take it")
    for topic, tale in TALES.items():
        if tale.delete_before:
            line.delete_before(topic, tale.delete_before)
        if tale.settings_then:
            line.alter(topic, tale.settings_then)


def left_in(line: Line, data_dir: Path) -> Left:
    """Of each topic its first and its end offset and the files of its segments."""
    return {
        topic: (line.offset(topic, EARLIEST), line.offset(topic, LATEST), files_now_in(data_dir / f"{topic}-0"))
        for topic in TALES
    }


def files_now_in(directory: Path) -> list[str]:
    """As `files_of`; read again if the broker deletes one meanwhile."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return files_of(directory)


def files_of(directory: Path) -> list[str]:
    """Names, and of the logs themselves the sizes. Kafka makes the indexes of a new segment when it needs them."""
    suffixes = (".log", ".index", ".timeindex", ".snapshot", ".deleted")
    paths = [path for path in directory.iterdir() if path.suffix in suffixes]
    empty = {path.stem for path in paths if path.suffix == ".log" and not path.stat().st_size}
    return sorted(
        f"{path.name} {path.stat().st_size}" if path.suffix == ".log" else path.name
        for path in paths
        if not (path.suffix in (".index", ".timeindex") and path.stem in empty)
    )


def logs_of(left: Left) -> Left:
    """Without the files that a start makes anew."""
    return {topic: (start, end, [n for n in names if ".log " in n]) for topic, (start, end, names) in left.items()}


def settled(look: Callable[[], Left]) -> Left:
    """The content when four retention checks of the broker have changed nothing."""
    last, since = look(), time.monotonic()
    while time.monotonic() < since + 5 or any(".deleted" in name for _, _, names in last.values() for name in names):
        found = look()
        if found != last:
            last, since = found, time.monotonic()
    return last


@pytest.fixture(scope="module")
def kafka() -> Iterator[tuple[str, Path]]:
    running = reference_kafka(heap="512m", properties=FOR_KAFKA)
    try:
        reference = running.__enter__()
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    yield reference.bootstrap, reference.data_dir
    running.__exit__(None, None, None)


def read_all(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes, bytes]]:
    """By a consumer that begins at offset 0, whether there is such a one or not."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"reads-{topic}", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, bytes]] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.5):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_same_is_left(broker: BrokerProcess, kafka: tuple[str, Path], proved: Callable[..., None]) -> None:
    proved(
        "Kafka's retention", VERSION,
        "by time, size, log start, all three; times in the future and none; compacted topics; everything too old: "
        "the same log starts and segment files as beside it",
    )  # fmt: skip
    bootstrap, kafka_dir = kafka
    now_ms = int(time.time() * 1000)
    theirs, ours = Line(bootstrap), Line(broker.bootstrap)
    fill(ours, now_ms)
    fill(theirs, now_ms)
    expected = settled(lambda: left_in(theirs, kafka_dir))
    deadline = time.monotonic() + 60
    until(lambda: left_in(ours, broker.data_dir) == expected or time.monotonic() > deadline, "kafkalite's looks", 90)
    found = left_in(ours, broker.data_dir)
    assert found == expected
    starts = {topic: start for topic, (start, _, _) in found.items()}
    assert starts["by-time-to-the-end"] == starts["nothing-is-kept"] == starts["no-bytes"] + 1 == 8
    assert starts["old-before-future"] == 4 and starts["young-before-old"] == 0 and starts["cut-inside"] == 5
    for topic, (start, end, _) in found.items():
        assert read_all(broker.bootstrap, topic, end - start) == read_all(bootstrap, topic, end - start)
    broker.kill()
    broker.start()
    again = Line(broker.bootstrap)
    assert logs_of(left_in(again, broker.data_dir)) == logs_of(expected), "a kill brings nothing back"
    for line in (theirs, ours, again):
        line.close()
