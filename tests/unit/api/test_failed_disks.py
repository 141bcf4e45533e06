"""A broker on two disks, one of which fails or fills up: what clients are told of the partitions on each."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafkalite.common.errors import ConfigError, ErrorCode
from kafkalite.common.names import partition_for_id
from kafkalite.log.storage.files import Files
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.protocol.messages.log_dirs import DescribeLogDirsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from kafkalite.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.server.broker import Broker
from tests.support.wait import DEADLINE_S
from tests.unit.api.conftest import scene

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
Story = Callable[[Any, Any], Awaitable[None]]


@pytest.fixture
def live(tmp_path: Path) -> Callable[..., None]:
    """One life of a broker on the directories `a` and `b`; topic t lives in both, partition 0 in the first."""

    def live(story: Story, directories: str = "ab", **settings: Any) -> None:
        paths = ",".join(str(tmp_path / name) for name in directories)
        uvloop.run(scene(Broker(log_dirs=paths, port=0, **settings), story))

    return live


async def create(asker: Any, name: str = "t", partitions: int = 2) -> int:
    wanted = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
    answer = await asker.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 5)
    return int(answer.topics[0].error_code)


async def produce(asker: Any, partition: int, value: bytes = b"x") -> int:
    data = [PartitionProduceData(index=partition, records=memoryview(build_batch([NewRecord(None, value)])))]
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    answer = await asker.ask(request, 8)
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch_of(partition: int, offset: int = 0, **how: int) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(topics=[FetchTopic(topic="t", partitions=[wanted])], **{"max_wait_ms": 0, "min_bytes": 1} | how)


async def fetch(asker: Any, partition: int, offset: int = 0, **how: int) -> tuple[int, bool]:
    (data,) = (await asker.ask(fetch_of(partition, offset, **how), 11)).responses[0].partitions
    return data.error_code, bool(data.records)


async def asked(asker: Any, partition: int) -> list[int]:
    """The error codes of everything that can be asked of a partition."""
    codes = [await produce(asker, partition), (await fetch(asker, partition))[0]]
    for version, timestamp in ((1, -1), (1, -2), (7, -3), (1, 5)):
        wanted = ListOffsetsTopic(
            name="t", partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
        )
        answer = await asker.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), version)
        codes.append(answer.topics[0].partitions[0].error_code)
    cut = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=partition, offset=0)])
    answer = await asker.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=1000), 2)
    return [*codes, answer.topics[0].partitions[0].error_code]


async def leaders(asker: Any) -> dict[int, tuple[int, int, list[int]]]:
    answer = await asker.ask(MetadataRequest(topics=None), 9)
    return {
        one.partition_index: (one.error_code, one.leader_id, one.offline_replicas)
        for topic in answer.topics
        if topic.name == "t"
        for one in topic.partitions
    }


async def directories(asker: Any) -> list[tuple[str, int, int]]:
    """(name, error, number of partitions) of each."""
    results = (await asker.ask(DescribeLogDirsRequest(topics=None), 4)).results
    return [
        (os.path.basename(one.log_dir), one.error_code, sum(len(topic.partitions) for topic in one.topics))
        for one in results
    ]


async def lose(broker: Any, tmp_path: Path, name: str) -> None:
    """The disk is gone from under the broker, which soon writes its checkpoints, and finds out."""
    found_out = asyncio.Event()
    logs = broker._running.logs
    logs.on_offline.subscribe(lambda keys, why: found_out.set())
    (tmp_path / name).rename(tmp_path / f"{name}-unplugged")
    logs.checkpoint()
    async with asyncio.timeout(DEADLINE_S):
        await found_out.wait()


def test_its_partitions_are_offline_and_the_others_are_served(live: Callable[..., None], tmp_path: Path) -> None:
    async def fails(asker: Any, broker: Any) -> None:
        assert await create(asker) == 0
        assert await asked(asker, 0) == await asked(asker, 1) == [0] * 7
        await lose(broker, tmp_path, "b")
        assert await leaders(asker) == {0: (0, 0, []), 1: (ErrorCode.LEADER_NOT_AVAILABLE, -1, [0])}
        assert await asked(asker, 0) == [0] * 7
        assert await asked(asker, 1) == [STORAGE] * 7
        assert await directories(asker) == [("a", 0, 1), ("b", STORAGE, 0)]
        assert await create(asker, "new", 2) == 0
        assert await directories(asker) == [("a", 0, 3), ("b", STORAGE, 0)]

    async def is_missing(asker: Any, broker: Any) -> None:
        assert await leaders(asker) == {0: (0, 0, []), 1: (ErrorCode.LEADER_NOT_AVAILABLE, -1, [0])}
        assert await asked(asker, 1) == [STORAGE] * 7
        assert await produce(asker, 0) == 0

    async def is_back(asker: Any, broker: Any) -> None:
        assert await asked(asker, 1) == [0] * 7
        assert await fetch(asker, 1) == (0, True)
        assert await directories(asker) == [("a", 0, 3), ("b", 0, 1)]

    live(fails)
    (tmp_path / "b").write_text("no directory")
    live(is_missing)
    (tmp_path / "b").unlink()
    (tmp_path / "b-unplugged").rename(tmp_path / "b")
    live(is_back)


def test_transactions_on_it_are_told(live: Callable[..., None], tmp_path: Path) -> None:
    async def fails(asker: Any, broker: Any) -> None:
        assert await create(asker) == 0
        await lose(broker, tmp_path, "b")
        batch = build_batch(
            [NewRecord(None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        data = [PartitionProduceData(index=1, records=memoryview(batch))]
        topics = [TopicProduceData(name="t", partition_data=data)]
        for version in (11, 12):
            request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=5000, topic_data=topics)
            answer = await asker.ask(request, version)
            assert answer.responses[0].partition_responses[0].error_code == STORAGE
        named = DescribeProducersTopicRequest(name="t", partition_indexes=[1])
        answer = await asker.ask(DescribeProducersRequest(topics=[named]), 0)
        assert answer.topics[0].partitions[0].error_code == STORAGE
        written = WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[1])],
            coordinator_epoch=0,
        )
        answer = await asker.ask(WriteTxnMarkersRequest(markers=[written]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == STORAGE
        assert await fetch(asker, 1, isolation_level=1) == (STORAGE, False)

    live(fails)


def test_who_waits_for_it_is_told(live: Callable[..., None], tmp_path: Path) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker)
        assert await fetch(asker, 1) == (0, False)
        waiting = [asyncio.ensure_future(fetch(asker, 1, max_wait_ms=60_000))]
        await asyncio.sleep(0)
        partition = broker._running.replica_manager.partition("t", 1)
        for _ in range(10_000):
            if partition.delayed_operations:
                break
            await asyncio.sleep(0)
        await lose(broker, tmp_path, "b")
        assert await waiting[0] == (STORAGE, False)

    live(story)


def test_a_topic_on_it_can_be_deleted_and_made_again(live: Callable[..., None], tmp_path: Path) -> None:
    async def fails(asker: Any, broker: Any) -> None:
        await create(asker)
        assert await produce(asker, 1, b"old") == 0
        await lose(broker, tmp_path, "b")
        answer = await asker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert answer.responses[0].error_code == 0
        assert await create(asker) == 0
        assert await asked(asker, 1) == [0] * 7

    async def is_back(asker: Any, broker: Any) -> None:
        assert await leaders(asker) == {0: (0, 0, []), 1: (0, 0, [])}
        assert broker._running.replica_manager.partition("t", 1).high_watermark == 1
        assert await directories(asker) == [("a", 0, 2), ("b", 0, 0)]
        assert any(name.endswith("-stray") for name in os.listdir(tmp_path / "b")), "what the old one had is kept"

    live(fails)
    shutil.rmtree(tmp_path / "b", ignore_errors=True)
    (tmp_path / "b-unplugged").rename(tmp_path / "b")
    live(is_back)


def test_a_disk_that_fails_while_a_topic_is_made_on_it(
    live: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(asker: Any, broker: Any) -> None:
        logs = broker._running.logs
        make = logs.create

        def fails_on_the_way(topic: str, partition: int, *rest: Any) -> Any:
            if partition == 20:
                logs._on_io_error(str(tmp_path / "b"), OSError(errno.EIO, "Input/output error"))
            return make(topic, partition, *rest)

        monkeypatch.setattr(logs, "create", fails_on_the_way)
        assert await create(asker, partitions=70) == 0
        told = await leaders(asker)
        lost = [partition for partition, (error, _, _) in told.items() if error]
        assert lost == list(range(1, 20, 2))
        assert await produce(asker, 1) == STORAGE
        assert [await produce(asker, partition) for partition in (0, 20, 69)] == [0, 0, 0]

    live(story)


def test_partitions_that_begin_empty_at_a_start_are_told(
    live: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def begin(asker: Any, broker: Any) -> None:
        assert await create(asker) == 0
        assert await produce(asker, 1) == 0

    async def without(asker: Any, broker: Any) -> None:
        assert "1 partitions have no log in any directory of log.dirs, and begin empty: t-1." in caplog.text

    async def again(asker: Any, broker: Any) -> None:
        assert await fetch(asker, 1) == (0, True), "and what they held is found when it is given back"

    live(begin)
    assert "begin empty" not in caplog.text
    live(without, "a")
    live(again)


def test_the_registry_is_found_wherever_it_is(live: Callable[..., None], tmp_path: Path) -> None:
    async def begin(asker: Any, broker: Any) -> None:
        assert await create(asker) == 0

    async def go_on(asker: Any, broker: Any) -> None:
        assert await leaders(asker) == {0: (0, 0, []), 1: (0, 0, [])}

    live(begin)
    live(go_on, "ba")
    assert not (tmp_path / "b" / "kafkalite-registry.journal").exists()
    (tmp_path / "a").rename(tmp_path / "gone")
    (tmp_path / "a").write_text("no directory")
    with pytest.raises(ConfigError, match=r"so it must be in \S+/a, but cannot use .*Not a directory|File exists"):
        live(go_on)
    (tmp_path / "a").unlink()
    shutil.copytree(tmp_path / "gone", tmp_path / "a")
    shutil.copy(tmp_path / "a" / "kafkalite-registry.journal", tmp_path / "b")
    with pytest.raises(ConfigError, match=r"/a and \S+/b both hold cluster metadata"):
        live(go_on)


def test_without_any_disk_the_broker_stops(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        broker = Broker(data_dir=tmp_path / "a", port=0)
        await broker.start()
        port = broker.port
        failing = asyncio.ensure_future(broker.failure())
        await asyncio.sleep(0)
        await lose(broker, tmp_path, "a")
        assert f"the disk below {tmp_path}/a has failed" in await failing
        await broker.stop()
        with pytest.raises(OSError, match=r"refused|Connect"):
            await asyncio.open_connection("127.0.0.1", port)

    uvloop.run(scene())
    assert "no data directory is left (log.dirs), so the broker stops" in caplog.text


def test_a_full_disk_refuses_what_is_new_and_heals_by_itself(
    live: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(asker: Any, broker: Any) -> None:
        assert await create(asker) == 0
        for _ in range(3):
            assert [await produce(asker, partition, bytes(300)) for partition in (0, 1)] == [0, 0]
        with monkeypatch.context() as patch:
            pwrite, open_file = os.pwrite, Files.open

            def full(fd: int, data: Any, position: int) -> int:
                if os.readlink(f"/proc/self/fd/{fd}").startswith(str(tmp_path / "b")):
                    raise OSError(errno.ENOSPC, "No space left on device")
                return pwrite(fd, data, position)

            def no_room(files: Files, path: str, flags: int) -> int:
                if flags & os.O_CREAT and path.startswith(str(tmp_path / "b")):
                    raise OSError(errno.ENOSPC, "No space left on device")
                return open_file(files, path, flags)

            patch.setattr(Files, "pwrite", staticmethod(full))
            patch.setattr(Files, "open", no_room)
            for segment in broker._running.logs.logs["t", 1].segments:
                segment._pwrite = full
            for _ in range(3):
                assert [await produce(asker, partition) for partition in (0, 1)] == [0, STORAGE]
            assert await fetch(asker, 1) == (0, True)
            cut = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=1, offset=2)])
            answer = await asker.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=1000), 2)
            (cut_partition,) = answer.topics[0].partitions
            assert (cut_partition.error_code, cut_partition.low_watermark) == (0, 2), "deletion makes room"
            assert await directories(asker) == [("a", 0, 1), ("b", 0, 1)]
            assert await create(asker, "new", 2) == 0, "the other disk takes what is new"
        for segment in broker._running.logs.logs["t", 1].segments:
            segment._pwrite = os.pwrite
        assert [await produce(asker, partition) for partition in (0, 1)] == [0, 0], "and without a restart"

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to name descriptors")
    live(story, log_segment_bytes=400)


def test_groups_on_it_are_not_told_that_they_have_no_offsets(live: Callable[..., None], tmp_path: Path) -> None:
    """A consumer without offsets begins anew, and reads everything again or nothing."""
    groups = next((a, b) for a in "abc" for b in "def" if partition_for_id(a, 2) == 0 and partition_for_id(b, 2) == 1)

    async def offsets(asker: Any, group: str) -> tuple[int, list[int]]:
        wanted = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        answer = await asker.ask(OffsetFetchRequest(group_id=group, topics=wanted), 5)
        return answer.error_code, [one.committed_offset for topic in answer.topics for one in topic.partitions]

    async def commit(asker: Any, broker: Any) -> None:
        await create(asker)
        await broker._running.coordinators.offsets_topic.ensure()
        for group in groups:
            place = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
            wanted = [OffsetCommitRequestTopic(name="t", partitions=[place])]
            answer = await asker.ask(OffsetCommitRequest(group_id=group, topics=wanted), 5)
            assert answer.topics[0].partitions[0].error_code == 0
            assert await offsets(asker, group) == (0, [7])

    async def without(asker: Any, broker: Any) -> None:
        told = [await offsets(asker, group) for group in groups]
        assert told[0] == (0, [7])
        assert told[1][0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def is_back(asker: Any, broker: Any) -> None:
        assert [await offsets(asker, group) for group in groups] == [(0, [7])] * 2

    live(commit, offsets_topic_num_partitions=2)
    (tmp_path / "b").rename(tmp_path / "unplugged")
    (tmp_path / "b").write_text("no directory")
    live(without)
    (tmp_path / "b").unlink()
    (tmp_path / "unplugged").rename(tmp_path / "b")
    live(is_back)
