"""ListOffsets by time: what has to be read for it is read by a thread, and only who asked waits.

Which record is found is the log's business: tests/unit/log/partition/test_partition_log.py.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.log.segment import timestamp_lookup
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.server import broker_server
from kafkalite.server.broker import Broker
from tests.support.loop import until
from tests.support.wait import DEADLINE_S
from tests.unit.api.conftest import Asker, Crowd

LATEST, MAX_TIMESTAMP = -1, -3
BATCHES = 50


class Gate:
    """Before each batch that is looked at for a time. The loop never waits here, or the test does for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        self._pass = threading.Semaphore(0)
        self._open = True
        iter_batches = timestamp_lookup.iter_batches

        def gated(fd: int, position: int, end: int) -> Iterator[Any]:
            for batch in iter_batches(fd, position, end):
                self.threads.append(threading.current_thread().name)
                assert self._open or self._pass.acquire(timeout=DEADLINE_S)
                yield batch

        monkeypatch.setattr(timestamp_lookup, "iter_batches", gated)

    def close(self) -> None:
        self._open = False

    def open(self) -> None:
        self._open = True
        self._pass.release(1000)

    def let_through(self, count: int) -> None:
        self._pass.release(count)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


async def topic(broker: Broker, partitions: int = 1) -> Any:
    """The topic t. The latest time is in the first batch, which is deleted: nobody can tell from an index that what is
    left has none as late."""
    running: Any = broker._running
    await running.topic_admin.create("t", partitions, {"index.interval.bytes": "0"})
    partition = running.replica_manager.partition("t", 0)
    for time in [1000, *range(BATCHES)]:
        partition.append(memoryview(build_batch([NewRecord(None, b"v" * 100, timestamp=time)])), 1, 9)
    partition.delete_records_before(1)
    return partition


def wanted(timestamp: int, *indexes: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes or (0,)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])


def offsets(answer: Any) -> list[tuple[int, int]]:
    """(error code, offset) of each partition."""
    return [(one.error_code, one.offset) for one in answer.topics[0].partitions]


def test_only_who_asks_waits_for_a_long_look(tell: Callable[..., None], gate: Gate) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        await topic(broker)
        crowd = Crowd(broker)
        gate.close()
        parked = asyncio.ensure_future(asker.ask(wanted(900), 5))
        await until(lambda: gate.threads)
        assert offsets(await crowd.ask(wanted(LATEST), 5)) == [(0, BATCHES + 1)]
        assert not parked.done()
        gate.open()
        assert offsets(await parked) == [(0, -1)]
        assert len(gate.threads) == BATCHES
        assert {name.rpartition("_")[0] for name in gate.threads} == {"kafkalite-lookup"}
        assert offsets(await asker.ask(wanted(30), 5)) == [(0, 31)]
        assert offsets(await asker.ask(wanted(MAX_TIMESTAMP), 7)) == [(0, -1)], "it is in what was deleted"
        crowd.leave()

    tell(story)


def test_who_leaves_is_looked_for_no_longer(tell: Callable[..., None], gate: Gate) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        await topic(broker)
        crowd = Crowd(broker)
        gate.close()
        crowd.begin(wanted(900), 5).add_done_callback(lambda done: done.exception())
        await until(lambda: gate.threads)
        crowd.leave()
        server: Any = broker._running.server  # type: ignore[union-attr]
        await until(lambda: server.connection_count == 1)
        gate.let_through(1)
        assert offsets(await asker.ask(wanted(LATEST), 5)) == [(0, BATCHES + 1)]
        gate.open()
        assert offsets(await asker.ask(wanted(30), 5)) == [(0, 31)]
        assert len(gate.threads) <= 2 + 31  # of the first look two batches at most

    tell(story)


def test_a_stop_does_not_wait_for_a_long_look(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    shutdown = ThreadPoolExecutor.shutdown

    def shut_down(executor: ThreadPoolExecutor, wait: bool = True, cancel_futures: bool = False) -> None:
        shutdown(executor, False, cancel_futures=cancel_futures)
        gate.open()
        shutdown(executor, wait)

    async def scene() -> None:
        async with Broker(data_dir=tmp_path / "data", port=0) as broker:
            await topic(broker)
            gate.close()
            Crowd(broker).begin(wanted(900), 5).add_done_callback(lambda done: done.exception())
            await until(lambda: gate.threads)
        assert len(gate.threads) < BATCHES

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shut_down)
    monkeypatch.setattr(broker_server, "_STOP_GRACE_MS", 200)  # the request is not answered within 5 s either
    asyncio.run(scene())


@pytest.mark.parametrize("partitions", [3, 50])
def test_each_partition_is_answered_by_itself(tell: Callable[..., None], gate: Gate, partitions: int) -> None:
    """Also if they are more than are looked for at a time."""

    async def story(asker: Asker, broker: Broker) -> None:
        await topic(broker, partitions)
        running: Any = broker._running
        for index in range(1, partitions):
            partition = running.replica_manager.partition("t", index)
            for time in range(4):
                partition.append(memoryview(build_batch([NewRecord(None, b"v", timestamp=time)])), 1, 9)
        os.truncate(running.replica_manager.partition("t", 2).log.segments[0].path, 10)
        answer = await asker.ask(wanted(3, *range(partitions), 99), 5)
        found = offsets(answer)
        assert found[0] == (0, 4)
        assert found[2] == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert found[-1] == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert set(found[1:2] + found[3:-1]) == {(0, 3)}
        assert [one.timestamp for one in answer.topics[0].partitions[:2]] == [3, 3]

    tell(story)


def test_a_later_segment_is_looked_through_too(tell: Callable[..., None], gate: Gate) -> None:
    async def story(asker: Asker, broker: Broker) -> None:
        partition = await topic(broker)
        log = partition.log
        log.roll(1)
        partition.append(memoryview(build_batch([NewRecord(None, b"v", timestamp=950)])), 1, 9)
        assert len(log.segments) == 2
        assert offsets(await asker.ask(wanted(900), 5)) == [(0, BATCHES + 1)]
        assert len(gate.threads) == BATCHES + 1

    tell(story)
