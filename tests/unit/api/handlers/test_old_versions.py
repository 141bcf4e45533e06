"""Produce 0-2 and Fetch 0-3 over the wire: rules that the stories beside Apache Kafka cannot show.

Stored bytes are compared by tests/compatibility/differential/cases_old_versions.py; here are control batches, old
files, and limits.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.api.request import down_conversion
from kafkalite.api.request.down_conversion import DownConversion
from kafkalite.common.errors import ErrorCode
from kafkalite.common.region import FileRegion
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch, parse_header, stamp
from kafkalite.record.compression import GZIP, compress
from kafkalite.record.message_set import build_message, build_set, entry_header, read_messages
from kafkalite.record.record import Record, read_records
from tests.support import places
from tests.support.loop import until
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S
from tests.unit.api.conftest import Crowd

GOLDEN = places.GOLDEN / "log" / "legacy"
NOW_MS = 1_700_000_000_000


def produce(*records: bytes | bytearray) -> ProduceRequest:
    data = [PartitionProduceData(index=i, records=memoryview(one)) for i, one in enumerate(records)]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])


def fetch(offset: int = 0, size: int = 1 << 20, *partitions: int, **more: int) -> FetchRequest:
    wanted = [FetchPartition(partition=i, fetch_offset=offset, partition_max_bytes=size) for i in partitions or (0,)]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1} | more, topics=[FetchTopic(topic="t", partitions=wanted)])


def records_of(data: bytes | memoryview) -> list[Record]:
    """Of whole messages of any format."""
    found: list[Record] = []
    view = memoryview(data)
    while len(view) >= 17:
        size = int.from_bytes(view[8:12], "big") + 12
        if size > len(view):
            break
        found += read_records(view[:size]) if view[16] == 2 else read_messages(view[:size])
        view = view[size:]
    return found


async def records_in(asker: Any, version: int, offset: int = 0) -> list[Record]:
    """Everything from `offset` on, as a reader of that version gets it."""
    found: list[Record] = []
    while True:
        (data,) = (await asker.ask(fetch(offset), version)).responses[0].partitions
        assert data.error_code == 0
        more = [record for record in records_of(data.records) if record.offset >= offset]
        if not more:
            return found
        found += more
        offset = found[-1].offset + 1


async def a_topic(asker: Any) -> None:
    await asker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 1)


def test_control_batches_are_passed_over(tell: Callable[..., None]) -> None:
    """Readers of old get what stands behind a transaction's marker, and are not called when there is nothing else."""

    async def story(asker: Any, broker: Any) -> None:
        await a_topic(asker)
        log = broker._running.replica_manager.by_name["t"].partitions[0].log
        partition = broker._running.replica_manager.by_name["t"].partitions[0]

        def append(batch: bytearray) -> None:
            partition.append(memoryview(batch), NOW_MS, 9, trusted=True)

        append(build_batch([NewRecord(None, b"a")]))
        commit = [NewRecord(b"\0\0\0\1", b"\0\0\0\0\0\0")]
        for producer_id in range(3):
            marked = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True, "control": True}
            append(build_batch(commit, **marked))
        assert log.end_offset == 4
        for version in range(4):
            (data,) = (await asker.ask(fetch(1), version)).responses[0].partitions
            assert (data.error_code, data.high_watermark, len(data.records)) == (0, 4, 0)
        append(build_batch([NewRecord(None, b"b" * 500)]))
        for version in range(4):
            assert [(r.offset, r.value[:1]) for r in await records_in(asker, version)] == [(0, b"a"), (4, b"b")]
            (data,) = (await asker.ask(fetch(1), version)).responses[0].partitions
            assert [r.offset for r in records_of(data.records)] == [4]

    tell(story)


@pytest.mark.parametrize("kind", ["v0", "v1", "v1-stamped", "raised", "rolled"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_directory_of_old_is_served_to_everyone(
    kind: str, clean: bool, tmp_path: Path, tell: Callable[..., None]
) -> None:
    """The files of a Kafka 2.7 with topics of formats v0 and v1, also after a crash; and the log goes on in v2."""

    async def make(asker: Any, broker: Any) -> None:
        await a_topic(asker)

    async def story(asker: Any, broker: Any) -> None:
        stored = [r for path in sorted((GOLDEN / f"{kind}-0").glob("*.log")) for r in records_of(path.read_bytes())]
        log = broker._running.replica_manager.by_name["t"].partitions[0].log
        assert (log.end_offset, log.lost_bytes) == (len(stored), 0)
        for version in (11, 4, 3, 2):
            assert await records_in(asker, version) == stored
        for version in (1, 0):
            assert await records_in(asker, version) == [record._replace(timestamp=-1) for record in stored]
        for offset in range(0, len(stored), 5):
            assert await records_in(asker, 3, offset) == stored[offset:]
        answer = await asker.ask(produce(build_set([(0, NOW_MS, None, b"new")], 1)), 2)
        assert answer.responses[0].partition_responses[0].base_offset == len(stored)
        assert (await records_in(asker, 0))[-1][2:4] == (None, b"new")

    tell(make, auto_create_topics_enable=True)
    directory = tmp_path / "data" / "t-0"
    for path in directory.iterdir():
        if path.name not in ("partition.metadata",):
            path.unlink()
    for path in (GOLDEN / f"{kind}-0").iterdir():
        shutil.copy(path, directory)
    if not clean:
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
        for path in directory.glob("*index"):
            path.unlink()
    tell(story)


def test_an_answer_has_a_limit_whatever_it_unpacks_to(tell: Callable[..., None]) -> None:
    """Batches that unpack to 20 MB each: the reader gets the first one, not all that it has asked for."""

    async def story(asker: Any, broker: Any) -> None:
        await a_topic(asker)
        records = [NewRecord(None, bytes(10_000)) for _ in range(2000)]
        for _ in range(3):
            answer = await asker.ask(produce(build_batch(records, codec=GZIP)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        (data,) = (await asker.ask(fetch(0, 1 << 20), 3)).responses[0].partitions
        assert data.error_code == 0 and 0 < len(data.records) < 1 << 20
        assert entry_header(data.records).last_offset == 1999

    tell(story)


def test_what_unpacks_to_too_much_is_refused_and_the_rest_is_served(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await a_topic(asker)
        partition = broker._running.replica_manager.by_name["t"].partitions[0]
        bomb = build_batch([NewRecord(None, bytes(40 << 20))], codec=GZIP)
        partition.append(memoryview(bomb), NOW_MS, 9, trusted=True)
        partition.append(memoryview(build_batch([NewRecord(None, b"x")])), NOW_MS, 9, trusted=True)
        (data,) = (await asker.ask(fetch(0), 2)).responses[0].partitions
        assert data.error_code == ErrorCode.UNSUPPORTED_VERSION
        (data,) = (await asker.ask(fetch(1), 2)).responses[0].partitions
        assert [record.value for record in records_of(data.records)] == [b"x"]
        packed = compress(GZIP, build_message(0, None, bytes(40 << 20), magic=1))
        wrapper = build_message(0, None, packed, magic=1, attributes=GZIP)
        answer = await asker.ask(produce(wrapper), 2)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD

    tell(story)


def test_work_has_an_end(tell: Callable[..., None]) -> None:
    """When the time for an answer is up, it goes out with what there is; one batch at least."""

    async def story(asker: Any, broker: Any) -> None:
        await a_topic(asker)
        for _ in range(3):
            await asker.ask(produce(build_batch([NewRecord(None, b"x" * 100)])), 9)
        partition = broker._running.replica_manager.by_name["t"].partitions[0]
        clock = ManualClock()
        region = partition.read(0, 1 << 20, True)
        readers = broker._running._readers
        hurried = DownConversion(3, 1 << 20, clock, readers)
        clock.advance(10_000)
        assert [r.offset for r in records_of(await hurried.convert(partition, region, 0, 1 << 20))] == [0]
        assert await hurried.convert(partition, region, 0, 1 << 20) == b""
        at_leisure = DownConversion(3, 1 << 20, clock, readers)
        assert [r.offset for r in records_of(await at_leisure.convert(partition, region, 0, 1 << 20))] == [0, 1, 2]
        narrow = DownConversion(3, 200, clock, readers)
        assert await narrow.convert(partition, region, 0, 1 << 20)
        assert await narrow.convert(partition, region, 0, 1 << 20) == b""

    tell(story)


def test_a_producer_of_old_wakes_a_reader_of_today(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await a_topic(asker)
        crowd = Crowd(broker)
        waiting = crowd.begin(fetch(0, max_wait_ms=10_000), 11)
        await until(lambda: broker._running.replica_manager.partition("t", 0).delayed_operations)
        answer = await asker.ask(produce(build_set([(0, NOW_MS, b"k", b"v")], 0)), 0)
        assert answer.responses[0].partition_responses[0].base_offset == 0
        (data,) = (await waiting).responses[0].partitions
        assert [(r.key, r.value, r.timestamp) for r in records_of(data.records)] == [(b"k", b"v", -1)]
        assert parse_header(data.records).magic == 2
        crowd.leave()

    tell(story)


class Gate:
    """Before each batch that is converted: who comes there. A thread may be made to wait, the loop never is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[threading.Thread] = []
        self._open = threading.Event()
        self._open.set()
        convert = down_conversion.to_old_format

        def gated(*how: Any) -> Any:
            thread = threading.current_thread()
            self.threads.append(thread)
            assert thread is threading.main_thread() or self._open.wait(DEADLINE_S)
            return convert(*how)

        monkeypatch.setattr(down_conversion, "to_old_format", gated)

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def was_passed_by(self) -> set[str]:
        names = {"loop" if one is threading.main_thread() else one.name.rpartition("_")[0] for one in self.threads}
        self.threads.clear()
        return names


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


LARGE = build_batch([NewRecord(None, bytes(200_000))])
MANY = build_batch([NewRecord(None, b"")] * 1500)


def test_what_takes_its_time_is_converted_by_a_thread(
    tell: Callable[..., None], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [NewRecord(None, b"v", timestamp=NOW_MS)]

    async def story(asker: Any, broker: Any) -> None:
        await a_topic(asker)
        for offset, batch, who in (
            (0, build_batch(small), "loop"),
            (1, LARGE, "kafkalite-lookup"),
            (2, build_batch(small, codec=GZIP), "kafkalite-lookup"),
            (3, MANY, "kafkalite-lookup"),
            (1503, build_batch(small), "loop"),
        ):
            answer = await asker.ask(produce(batch), 9)
            assert answer.responses[0].partition_responses[0].base_offset == offset
            for version in range(4):
                (data,) = (await asker.ask(fetch(offset), version)).responses[0].partitions
                assert data.error_code == 0 and records_of(data.records)[-1].offset >= offset
                assert gate.was_passed_by() == {who}
        monkeypatch.setattr(FileRegion, "read_at_once", lambda region: None)  # a disk would have to be waited for
        assert records_of((await asker.ask(fetch(1503), 3)).responses[0].partitions[0].records)
        assert gate.was_passed_by() == {"kafkalite-lookup"}

    tell(story)


def test_only_the_reader_of_old_waits_for_its_conversion(tell: Callable[..., None], gate: Gate) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await a_topic(asker)
        await asker.ask(produce(LARGE), 9)
        crowd = Crowd(broker)
        gate.close()
        parked = [crowd.begin(fetch(), 3), crowd.begin(fetch(), 0)]
        await until(lambda: len(gate.threads) == 2)  # there are no more threads for it
        others = Crowd(broker)
        others.begin(fetch(), 2).add_done_callback(lambda done: done.exception())
        running = broker._running
        await until(running._readers._work_queue.qsize)
        others.leave()
        await until(lambda: running.server.connection_count == 3)
        (data,) = (await asker.ask(fetch(), 11)).responses[0].partitions
        assert len(data.records) == len(LARGE)
        assert not any(one.done() for one in parked)
        gate.open()
        for one in parked:
            (data,) = (await one).responses[0].partitions
            assert [len(record.value) for record in records_of(data.records)] == [200_000]
        assert len(gate.threads) == 2, "nobody converts for who has left"
        crowd.leave()

    tell(story)


def test_a_reader_of_old_is_woken_too(tell: Callable[..., None], gate: Gate) -> None:
    """The stored bytes count, and nothing is converted before there are enough."""

    async def story(asker: Any, broker: Any) -> None:
        await a_topic(asker)
        partition = broker._running.replica_manager.partition("t", 0)
        crowd = Crowd(broker)
        waiting = crowd.begin(fetch(max_wait_ms=60_000), 1)
        await until(lambda: partition.delayed_operations)
        await asker.ask(produce(LARGE), 9)
        (data,) = (await waiting).responses[0].partitions
        assert [record.offset for record in records_of(data.records)] == [0]
        gate.threads.clear()
        waiting = crowd.begin(fetch(max_wait_ms=60_000, min_bytes=300_000), 3)
        await until(lambda: partition.delayed_operations)
        assert not gate.threads
        await asker.ask(produce(LARGE), 9)
        (data,) = (await waiting).responses[0].partitions
        assert [record.offset for record in records_of(data.records)] == [0, 1]
        assert not partition.delayed_operations
        crowd.leave()

    tell(story)


def test_nothing_is_appended_for_nothing(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await a_topic(asker)
        whole = build_set([(0, NOW_MS, b"k", b"v")], 1)
        for data in (b"", whole[:-1]):
            (answer,) = (await asker.ask(produce(data), 2)).responses[0].partition_responses
            assert (answer.error_code, answer.base_offset) == (0, -1)
        assert broker._running.replica_manager.by_name["t"].partitions[0].log.end_offset == 0
        stamped = bytearray(build_batch([NewRecord(b"k", b"v")]))
        stamp(stamped, 5, 0)  # a base offset that is not 0
        (answer,) = (await asker.ask(produce(stamped), 2)).responses[0].partition_responses
        assert answer.error_code == ErrorCode.INVALID_RECORD

    tell(story)
