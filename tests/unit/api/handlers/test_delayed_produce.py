"""Acknowledgements wait for the disk where flush.messages asks for it, and nobody else does.

The disk is a `Gate`: the fsyncs of one log wait until it is opened, and fail when it is told so.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafkalite.api.fast_path.produce_fast_path import ProduceFastPath
from kafkalite.common.errors import ErrorCode
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.storage.files import Files
from kafkalite.network.client_connection import ClientConnection, MutedPending, Pending
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.server import broker_server
from kafkalite.server.broker import Broker
from tests.support.loop import until
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S
from tests.unit.api.conftest import Crowd

VERSIONS = range(3, APIS[0].max_version + 1)
BATCH = bytes(build_batch([NewRecord(None, b"value", timestamp=1)]))


class Gate:
    """Before the fsyncs of the logs in directories of a name. Flush threads wait here, the loop never does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.where = "t-0"
        self.fault: OSError | None = None
        self.synced_bytes: list[int] = []
        self._open = threading.Event()
        self._open.set()
        fsync, open_file = Files.fsync, Files.open

        def gated(files: Files, fd: int) -> None:
            path = os.readlink(f"/proc/self/fd/{fd}")
            size = os.fstat(fd).st_size
            of_log = path.endswith(".log") and self.where in path
            if of_log and threading.current_thread().name.startswith("kafkalite-flush"):
                assert self._open.wait(DEADLINE_S)
                if self.fault is not None:
                    raise self.fault
                self.synced_bytes.append(size)
            fsync(files, fd)

        def opened(files: Files, path: str, flags: int) -> int:
            fault = self.fault
            if fault is not None and fault.errno == errno.EMFILE and path.endswith(self.where):
                self.fault = None
                raise fault
            return open_file(files, path, flags)

        monkeypatch.setattr(Files, "fsync", gated)
        monkeypatch.setattr(Files, "open", opened)

    def close(self, where: str = "t-0") -> None:
        self.where = where
        self._open.clear()

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


async def topics(broker: Broker) -> Any:
    """t is flushed record by record, u is not; the partition t-0."""
    running: Any = broker._running
    await running.topic_admin.create("t", 2, {"flush.messages": "1"})
    await running.topic_admin.create("u", 1, {})
    return running.replica_manager.partition("t", 0)


def produce(
    topic: str = "t", partition: int = 0, *, acks: int = 1, timeout_ms: int = 60_000, records: bytes = BATCH
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(records))
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch(topic: str = "t", max_wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])])


def outcome(answer: Any) -> tuple[int, int]:
    """(error code, base offset) of a produce of one partition."""
    partition = answer.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


@pytest.fixture
def beside(tell: Callable[..., None]) -> Callable[..., None]:
    """Run a story with a crowd and the partition t-0."""

    def run(story: Callable[[Crowd, Broker, Any], Awaitable[None]], **settings: Any) -> None:
        async def whole(asker: Any, broker: Broker) -> None:
            crowd = Crowd(broker)
            try:
                await story(crowd, broker, await topics(broker))
            finally:
                crowd.leave()

        tell(whole, **settings)

    return run


def test_one_producer_waits_for_the_disk_and_nobody_else_does(beside: Callable[..., None], gate: Gate) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        waiting_fetch = crowd.begin(fetch(max_wait_ms=60_000), 11)
        await until(lambda: partition.delayed_operations)
        gate.close()
        parked = crowd.begin(produce())
        await until(lambda: partition.log.end_offset == 1)
        for topic, index in (("t", 1), ("u", 0), ("u", 0)):
            assert outcome(await crowd.ask(produce(topic, index)))[0] == 0
        assert (await crowd.ask(fetch("u"), 11)).responses[0].partitions[0].high_watermark == 2
        unseen = (await crowd.ask(fetch(), 11)).responses[0].partitions[0]
        assert (unseen.high_watermark, unseen.error_code, unseen.records or b"") == (0, 0, b"")
        latest = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        assert (await crowd.ask(ListOffsetsRequest(topics=[latest]), 5)).topics[0].partitions[0].offset == 0
        assert not parked.done() and not waiting_fetch.done()
        gate.open()
        assert outcome(await parked) == (0, 0)
        seen = (await waiting_fetch).responses[0].partitions[0]
        assert (seen.high_watermark, len(seen.records)) == (1, len(BATCH))

    beside(story)


def test_producers_that_wait_together_share_a_flush(beside: Callable[..., None], gate: Gate) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.close()
        parked = [crowd.begin(produce())]
        await until(lambda: partition.log.end_offset == 1)
        parked += [crowd.begin(produce(acks=-1)) for _ in range(30)]
        await until(lambda: partition.log.end_offset == 31)
        gate.open()
        answers = [outcome(await one) for one in parked]
        assert sorted(answers) == [(0, offset) for offset in range(31)]
        assert len(gate.synced_bytes) == 2 and gate.synced_bytes[1] == 31 * len(BATCH)

    beside(story)


def test_no_acknowledgement_comes_before_the_disk_has_the_batch(beside: Callable[..., None], gate: Gate) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        async def produce_much() -> None:
            asker = await crowd.join()
            for _ in range(20):
                code, offset = outcome(await asker.ask(produce(), 9))
                assert code == 0 and (offset + 1) * len(BATCH) <= max(gate.synced_bytes)

        await asyncio.gather(*(produce_much() for _ in range(25)))
        assert partition.high_watermark == 500
        assert len(gate.synced_bytes) < 250

    beside(story)


async def all_are_refused(gate: Gate, fault: OSError, crowd: Crowd, partition: Any) -> None:
    """Produces that wait for a disk that fails, and later ones when it works again."""
    gate.close()
    gate.fault = fault
    parked = [crowd.begin(produce()) for _ in range(3)]
    await until(lambda: partition.log.end_offset == 3)
    gate.open()
    refused = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert [outcome(await one) for one in parked] == [refused] * 3
    gate.fault = None
    assert outcome(await crowd.ask(produce())) == refused


def test_an_fsync_that_fails_ends_that_log_until_the_next_start(
    beside: Callable[..., None], gate: Gate, tmp_path: Path
) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        await all_are_refused(gate, OSError(errno.ENOSPC, "no room for what was promised"), crowd, partition)
        assert outcome(await crowd.ask(produce("u"))) == (0, 0)
        assert outcome(await crowd.ask(produce("t", 1))) == (0, 0)
        assert (await crowd.ask(fetch(), 11)).responses[0].partitions[0].high_watermark == 0

    async def after_a_restart() -> None:
        async with Broker(data_dir=tmp_path / "data", port=0) as broker:
            running: Any = broker._running
            assert running.replica_manager.partition("t", 0).append(memoryview(bytearray(BATCH)), 1, 9).base_offset == 3

    beside(story)
    uvloop.run(after_a_restart())


def test_a_disk_that_fails_takes_those_who_wait_for_it_along(gate: Gate, tmp_path: Path) -> None:
    async def scene() -> None:
        async with Broker(log_dirs=f"{tmp_path}/a,{tmp_path}/b", port=0) as broker:
            partition = await topics(broker)
            failed = os.path.dirname(partition.log.directory)
            other = next(
                index
                for name, index in (("t", 1), ("u", 0))
                if not broker._running.replica_manager.partition(name, index).log.directory.startswith(failed)  # type: ignore[union-attr]
            )
            crowd = Crowd(broker)
            await all_are_refused(gate, OSError(errno.EIO, "the disk is broken"), crowd, partition)
            assert outcome(await crowd.ask(produce("t" if other else "u", other))) == (0, 0)
            crowd.leave()

    uvloop.run(scene())


def test_too_many_open_files_is_an_error_that_the_next_flush_heals(beside: Callable[..., None], gate: Gate) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.fault = OSError(errno.EMFILE, "too many open files")
        assert outcome(await crowd.ask(produce())) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert outcome(await crowd.ask(produce())) == (0, 1)
        assert partition.high_watermark == 2

    beside(story)


@pytest.mark.parametrize(("timeout_ms", "told_after_ms"), [(0, 30_000), (-1, 30_000), (1000, 30_000), (45_000, 45_000)])
def test_a_disk_that_takes_too_long_is_a_timeout(
    beside: Callable[..., None], gate: Gate, timeout_ms: int, told_after_ms: int
) -> None:
    clock = ManualClock()

    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.close()
        asker = await crowd.join()
        parked = asyncio.ensure_future(asker.ask(produce(timeout_ms=timeout_ms), 9))
        await until(lambda: partition.log.end_offset == 1)
        clock.advance(told_after_ms - 1)
        await crowd.ask(produce("u"))
        assert not parked.done()
        clock.advance(1)
        assert outcome(await parked) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        gate.open()
        assert outcome(await asker.ask(produce(), 9)) == (0, 1)  # and nothing comes twice

    beside(story, clock=clock)


def test_a_producer_that_leaves_is_forgotten_and_its_batch_is_not(beside: Callable[..., None], gate: Gate) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.close()
        for _ in range(3):
            crowd.begin(produce()).add_done_callback(lambda done: done.exception())
        await until(lambda: partition.log.end_offset == 3)
        crowd.leave()
        server: Any = broker._running.server  # type: ignore[union-attr]
        await until(lambda: server.connection_count == 1)
        gate.open()
        await until(lambda: partition.high_watermark == 3)
        assert not partition._delayed_acks

    beside(story)


def test_a_topic_that_goes_away_is_no_longer_waited_for(beside: Callable[..., None], gate: Gate) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.close()
        parked = crowd.begin(produce())
        await until(lambda: partition.log.end_offset == 1)
        running: Any = broker._running
        await running.topic_admin.delete("t")
        assert outcome(await parked) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        again = await topics_again(running)
        assert outcome(await crowd.ask(produce("t", 1))) == (0, 0)
        gate.open()
        assert outcome(await crowd.ask(produce())) == (0, 0) and again.high_watermark == 1

    async def topics_again(running: Any) -> Any:
        await running.topic_admin.create("t", 2, {"flush.messages": "1"})
        return running.replica_manager.partition("t", 0)

    beside(story)


def test_a_batch_that_is_cut_off_while_it_waits_is_never_acknowledged(beside: Callable[..., None], gate: Gate) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.close()
        first = crowd.begin(produce())
        await until(lambda: partition.log.end_offset == 1)
        partition.log.truncate_to(0)
        assert outcome(await first) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        second = crowd.begin(produce())
        await until(lambda: partition.log.end_offset == 1)
        gate.open()
        assert outcome(await second) == (0, 0)

    beside(story)


def test_a_batch_that_comes_again_while_it_waits_is_answered_once_more(beside: Callable[..., None], gate: Gate) -> None:
    known = bytes(
        build_batch([NewRecord(None, b"value", timestamp=1)], producer_id=7, producer_epoch=0, base_sequence=0)
    )

    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.close()
        first, again = crowd.begin(produce(records=known)), crowd.begin(produce(records=known))
        await until(lambda: len(partition._delayed_acks) == 2)
        assert partition.log.end_offset == 1
        gate.open()
        assert outcome(await first) == outcome(await again) == (0, 0)
        assert outcome(await crowd.ask(produce(records=known))) == (0, 0)
        assert len(gate.synced_bytes) == 1

    beside(story)


def test_who_asks_for_no_acknowledgement_does_not_wait(beside: Callable[..., None], gate: Gate) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.close()
        asker = await crowd.join()
        await asker.send(request_frame(produce(acks=0), 9, 1, "asker") * 3)
        assert outcome(await asker.ask(produce("u"), 9)) == (0, 0)
        assert partition.log.end_offset == 3
        gate.open()
        await until(lambda: partition.high_watermark == 3)

    beside(story)


def test_a_request_waits_for_the_partitions_that_wait(beside: Callable[..., None], gate: Gate) -> None:
    def of_three() -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=memoryview(BATCH)) for index in (0, 1, 9)]
        other = [PartitionProduceData(index=0, records=memoryview(BATCH))]
        named = [TopicProduceData(name="t", partition_data=data), TopicProduceData(name="u", partition_data=other)]
        return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=named)

    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.close()
        gate.fault = OSError(errno.ENOSPC, "no room for what was promised")
        parked = crowd.begin(of_three())
        await until(lambda: partition.log.end_offset == 1)
        await until(lambda: broker._running.replica_manager.partition("t", 1).high_watermark == 1)  # type: ignore[union-attr]
        assert not parked.done()
        gate.open()
        answer = await parked
        found = [[(one.error_code, one.base_offset) for one in named.partition_responses] for named in answer.responses]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found == [[(ErrorCode.KAFKA_STORAGE_ERROR, -1), (0, 0), (unknown, -1)], [(0, 0)]]

    beside(story)


def test_a_committed_offset_waits_too(beside: Callable[..., None], gate: Gate) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        running: Any = broker._running
        await running.coordinators.offsets_topic.ensure()
        one = OffsetCommitRequestTopic(
            name="u", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
        )
        gate.close("__consumer_offsets-0")
        parked = crowd.begin(OffsetCommitRequest(group_id="g", topics=[one]), 7)
        log = running.replica_manager.partition("__consumer_offsets", 0).log
        await until(lambda: log.end_offset == 1)
        assert outcome(await crowd.ask(produce("u"))) == (0, 0)
        assert not parked.done()
        gate.open()
        assert (await parked).topics[0].partitions[0].error_code == 0

    beside(story, log_flush_interval_messages=1, offsets_topic_num_partitions=1)


def test_a_stop_waits_for_the_disk_as_its_producers_do(beside: Callable[..., None], gate: Gate) -> None:
    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.close()
        asker = await crowd.join()
        parked = asyncio.ensure_future(asker.ask(produce(), 9))
        waiting = crowd.begin(fetch("u", max_wait_ms=60_000), 11)
        u: Any = broker._running.replica_manager.partition("u", 0)  # type: ignore[union-attr]
        await until(lambda: partition.log.end_offset == 1 and u.delayed_operations)
        stopping = asyncio.ensure_future(broker.stop())
        assert (await waiting).responses[0].partitions[0].error_code == 0  # has nothing to wait for any more
        assert not parked.done() and not stopping.done()
        gate.open()
        assert outcome(await parked) == (0, 0)
        assert await asker.is_closed()
        await stopping

    beside(story)


def test_a_stop_that_cannot_wait_longer_acknowledges_nothing(
    beside: Callable[..., None], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_server, "_STOP_GRACE_MS", 1)
    close = LogManager.close

    def opened_first(logs: LogManager) -> None:
        gate.open()
        close(logs)

    monkeypatch.setattr(LogManager, "close", opened_first)

    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        gate.close()
        asker = await crowd.join()
        await asker.send(request_frame(produce(), 9, 1, "asker"))
        await until(lambda: partition.log.end_offset == 1)
        await broker.stop()
        assert await asker.is_closed()

    beside(story)


def test_flush_ms_is_looked_at_by_the_scheduler(beside: Callable[..., None], gate: Gate) -> None:
    clock = ManualClock()

    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        log = broker._running.replica_manager.partition("u", 0).log  # type: ignore[union-attr]
        assert outcome(await crowd.ask(produce("u"))) == (0, 0)
        clock.advance(999)
        assert log.flusher.recovery_point == 0
        clock.advance(100)
        await until(lambda: log.flusher.recovery_point == 1)

    beside(story, clock=clock, log_flush_interval_ms=1000, log_flush_scheduler_interval_ms=50)


class Client:
    """One connection, without the network."""

    def __init__(self, broker: Any) -> None:
        self.dispatch = broker._running.server._handler
        self.topics = broker._running.replica_manager.by_name
        self.connection = ClientConnection("PLAINTEXT", "127.0.0.1", 1, "127.0.0.1", 2)
        self.answers: list[bytes] = []

    def ask(self, request: ProduceRequest, version: int) -> Pending:
        for wanted in request.topic_data:
            wanted.topic_id = self.topics[wanted.name].topic_id
        answer = self.dispatch(self.connection, memoryview(bytearray(request_frame(request, version, 7, "client")[4:])))
        assert isinstance(answer, Pending)
        answer.on_done(lambda parts: self.answers.append(b"".join(bytes(part) for part in parts)))  # type: ignore[arg-type]
        return answer


@pytest.mark.parametrize("version", VERSIONS)
def test_the_fast_path_waits_as_the_long_way_does(beside: Callable[..., None], gate: Gate, version: int) -> None:
    clock = ManualClock()

    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        veteran = Client(broker)
        veteran.ask(produce(), version)
        await until(lambda: veteran.answers)
        if version >= 5:
            assert isinstance(veteran.connection.fast_paths[0], ProduceFastPath)
            assert veteran.connection.fast_paths[0]._known  # learnt, though its answer had to wait

        async def both(request: Callable[[], ProduceRequest], release: Callable[[], object]) -> Any:
            """(error code, base offset minus the expected one) of both ways, and that nothing else differs."""
            gate.close()
            found, offset = [], partition.log.end_offset
            clients = [veteran, Client(broker)]
            for client in clients:
                client.answers.clear()
                client.ask(request(), version)
            release()
            gate.open()
            for number, client in enumerate(clients):
                await until(lambda client=client: client.answers)
                _, response = decode_response(ProduceRequest, version, memoryview(client.answers[0])[4:])
                one = response.responses[0].partition_responses[0]
                found.append((one.error_code, one.base_offset - offset - number if one.base_offset >= 0 else -1))
                one.base_offset = 0
                found.append((len(client.answers[0]), repr(response)))
            assert found[0] == found[2] and found[1] == found[3]
            return found[0]

        assert await both(produce, lambda: None) == (0, 0)
        for timeout_ms in (40_000, 1000):
            late = lambda: clock.advance(40_000)  # noqa: E731
            told = await both(lambda timeout_ms=timeout_ms: produce(timeout_ms=timeout_ms), late)
            assert told == (ErrorCode.REQUEST_TIMED_OUT, -1)
            await until(lambda: partition.high_watermark == partition.log.end_offset)
        gate.fault = OSError(errno.ENOSPC, "no room for what was promised")
        assert await both(produce, lambda: None) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)

    beside(story, clock=clock)


def responses() -> dict[int, Pending]:
    """By id. A Rest would be of another broker in this process: nobody is throttled here."""
    found = (one for one in gc.get_objects() if isinstance(one, Pending) and type(one) is not MutedPending)
    return {id(one): one for one in found}


def test_nothing_of_those_who_waited_is_left_to_the_collector(beside: Callable[..., None], gate: Gate) -> None:
    clock = ManualClock()

    async def story(crowd: Crowd, broker: Broker, partition: Any) -> None:
        client = Client(broker)
        gc.collect()
        gc.disable()
        others = responses()  # those of other brokers in this process
        try:
            client.ask(produce(), 9)
            await until(lambda: client.answers)
            gate.close()
            for version in (3, 9, 9):
                client.ask(produce(), version)
            client.ask(produce(), 9).cancel()
            clock.advance(60_000)
            assert len(client.answers) == 4
            gate.open()
            await until(lambda: partition.high_watermark == 5)
            # an acknowledgement may hold its response for a turn
            await until(lambda: responses().keys() <= others.keys())
        finally:
            gc.enable()

    beside(story, clock=clock)
