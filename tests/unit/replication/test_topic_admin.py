"""Topics in the metadata and on the disk at a start after an unclean stop."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.metadata.standalone_metadata import StandaloneMetadata
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.hosted_replicas import HostedReplicas
from kafkalite.server.broker import Broker
from kafkalite.server.broker_server import BrokerServer


def batch(value: bytes) -> memoryview:
    return memoryview(build_batch([NewRecord(None, value, timestamp=1_000)]))


def run(data_dir: Path, story: Callable[[BrokerServer], Awaitable[object]]) -> None:
    """One life of a broker on `data_dir`, with a story for its topics."""

    async def life() -> None:
        async with Broker(data_dir=data_dir, port=0) as broker:
            assert broker._running is not None
            await story(broker._running)

    asyncio.run(life())


def copy_of(data_dir: Path, name: str) -> Path:
    """The directory as a kill would leave it: a copy made while the broker runs."""
    copy = data_dir.with_name(name)
    shutil.copytree(data_dir, copy)
    return copy


async def write(broker: BrokerServer, *values: bytes) -> None:
    topic = await broker.topic_admin.ensure("t", 1, {})
    for value in values:
        topic.partitions[0].append(batch(value), 1_000, 9)


def leave_a_torn_log(tmp_path: Path) -> None:
    """A broker's directory `killed`, whose topic t lost the end of its second record."""

    async def before(broker: BrokerServer) -> None:
        await write(broker, b"whole", b"torn")
        copy_of(tmp_path / "data", "killed")

    run(tmp_path / "data", before)
    log = tmp_path / "killed" / "t-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-3])


def test_a_deleted_topic_does_not_come_back_from_what_the_disk_still_has(tmp_path: Path) -> None:
    async def before(broker: BrokerServer) -> None:
        await write(broker, b"old")
        copy_of(tmp_path / "data", "killed")

    run(tmp_path / "data", before)
    log_directory = tmp_path / "killed" / "t-0"

    async def delete_and_be_killed(broker: BrokerServer) -> None:
        shutil.copytree(log_directory, tmp_path / "saved")
        await broker.topic_admin.delete("t")
        copy_of(tmp_path / "killed", "again")

    run(tmp_path / "killed", delete_and_be_killed)
    shutil.copytree(tmp_path / "saved", tmp_path / "again" / "t-0")  # killed between registry and disk

    async def after(broker: BrokerServer) -> None:
        assert "t" not in broker.replica_manager.by_name
        topic = await broker.topic_admin.ensure("t", 1, {})
        assert topic.partitions[0].log.end_offset == 0

    run(tmp_path / "again", after)


def test_a_new_topic_does_not_take_over_a_deleted_one_of_its_name(tmp_path: Path) -> None:
    async def before(broker: BrokerServer) -> None:
        await write(broker, b"old")
        shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "old-t-0")
        await broker.topic_admin.delete("t")
        await write(broker)
        copy_of(tmp_path / "data", "killed")

    run(tmp_path / "data", before)
    shutil.rmtree(tmp_path / "killed" / "t-0")
    shutil.copytree(tmp_path / "old-t-0", tmp_path / "killed" / "t-0")

    async def after(broker: BrokerServer) -> None:
        assert broker.replica_manager.by_name["t"].partitions[0].log.end_offset == 0

    run(tmp_path / "killed", after)


def test_a_topic_that_was_promised_exists_after_a_kill(tmp_path: Path) -> None:
    async def before(broker: BrokerServer) -> None:
        await write(broker)
        copy_of(tmp_path / "data", "killed")

    run(tmp_path / "data", before)
    shutil.rmtree(tmp_path / "killed" / "t-0")

    async def after(broker: BrokerServer) -> None:
        assert list(broker.replica_manager.by_name["t"].partitions) == [0]

    run(tmp_path / "killed", after)


def test_a_cut_log_gets_a_new_leader_epoch_that_outlives_the_next_stop(tmp_path: Path) -> None:
    leave_a_torn_log(tmp_path)

    async def after(broker: BrokerServer) -> None:
        partition = broker.replica_manager.by_name["t"].partitions[0]
        assert (partition.log.end_offset, partition.leader_epoch) == (1, 1)

    run(tmp_path / "killed", after)
    run(tmp_path / "killed", after)


def test_a_directory_that_another_broker_filled_is_taken_over(tmp_path: Path) -> None:
    ids = {}

    async def before(broker: BrokerServer) -> None:
        await write(broker, b"theirs")
        ids["t"] = broker.replica_manager.by_name["t"].topic_id

    run(tmp_path / "data", before)
    (tmp_path / "data" / "kafkalite-registry.journal").unlink()  # Apache Kafka has none
    shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "data" / "__cluster_metadata-0")  # but this, with KRaft

    async def after(broker: BrokerServer) -> None:
        assert list(broker.replica_manager.by_name) == ["t"]
        assert broker.replica_manager.by_name["t"].topic_id == ids["t"]
        assert broker.replica_manager.by_name["t"].partitions[0].log.end_offset == 1

    run(tmp_path / "data", after)
    assert (tmp_path / "data" / "__cluster_metadata-0").exists()


def test_a_taken_over_log_keeps_its_epoch_and_its_producers(tmp_path: Path) -> None:
    async def before(broker: BrokerServer) -> None:
        topic = await broker.topic_admin.ensure("t", 1, {})
        topic.partitions[0].leader_epoch = 7
        # of now: a producer that was silent for a day is forgotten
        record = NewRecord(None, b"x", timestamp=time.time_ns() // 1_000_000)
        written = build_batch([record], producer_id=4711, producer_epoch=0, base_sequence=0)
        topic.partitions[0].append(memoryview(written), 1_000, 9)

    run(tmp_path / "data", before)
    (tmp_path / "data" / "kafkalite-registry.journal").unlink()

    async def after(broker: BrokerServer) -> None:
        partition = broker.replica_manager.by_name["t"].partitions[0]
        assert partition.leader_epoch == 7
        partition.delete_records_before(-1)
        assert (await broker.metadata.writes.next_producer_id_block()).start > 4711

    run(tmp_path / "data", after)

    async def later(broker: BrokerServer) -> None:
        assert broker.replica_manager.by_name["t"].partitions[0].leader_epoch == 7

    run(tmp_path / "data", later)


def test_a_topic_deleted_while_it_grows_leaves_no_log_for_the_next_of_its_name(tmp_path: Path) -> None:
    async def story(broker: BrokerServer) -> None:
        await broker.topic_admin.ensure("t", 1, {})
        await asyncio.gather(broker.topic_admin.add_partitions("t", 100), broker.topic_admin.delete("t"))
        assert broker.logs.logs == {}
        topic = await broker.topic_admin.ensure("t", 100, {})
        assert {partition.log.metadata.topic_id for partition in topic.partitions.values()} == {topic.topic_id}

    run(tmp_path / "data", story)


def test_changes_of_one_topic_at_once_are_all_kept(tmp_path: Path) -> None:
    async def story(broker: BrokerServer) -> None:
        await broker.topic_admin.ensure("t", 1, {})
        names = ["retention.ms", "segment.ms", "flush.ms", "retention.bytes"]
        await asyncio.gather(
            *(broker.topic_admin.change_overrides("t", lambda old, name=name: {**old, name: "1000"}) for name in names)
        )
        assert broker.replica_manager.by_name["t"].overrides == dict.fromkeys(names, "1000")

    run(tmp_path / "data", story)


def test_partitions_that_there_was_no_room_for_are_made_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: BrokerServer) -> None:
        await broker.topic_admin.ensure("t", 1, {})
        with monkeypatch.context() as full:

            def no_room(*_: object) -> None:
                raise StorageError("No space left on device")

            full.setattr(broker.logs, "create", no_room)
            with pytest.raises(StorageError):
                await broker.topic_admin.add_partitions("t", 3)
            with pytest.raises(StorageError):
                await broker.topic_admin.ensure("u", 3, {})
        await broker.topic_admin.add_partitions("t", 3)
        assert sorted(broker.replica_manager.by_name["t"].partitions) == [0, 1, 2]
        await broker.topic_admin.ensure("u", 3, {})

    run(tmp_path / "data", story)


def test_a_start_that_fails_leaves_the_repair_to_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_a_torn_log(tmp_path)

    async def no_room(*_: object) -> None:
        raise StorageError("No space left on device")

    async def never(broker: BrokerServer) -> None:
        raise AssertionError("it must not start")

    with monkeypatch.context() as full:
        full.setattr(StandaloneMetadata, "set_leader_epoch", no_room)
        with pytest.raises(StorageError):
            run(tmp_path / "killed", never)
    assert not (tmp_path / "killed" / ".kafka_cleanshutdown").exists()


def test_a_topic_that_could_not_even_be_taken_back_can_be_created_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: BrokerServer) -> None:
        async def no_room_for_a_line(*_: object) -> None:
            raise StorageError("No space left on device")

        def no_room(*_: object) -> None:
            raise StorageError("No space left on device")

        with monkeypatch.context() as full:
            full.setattr(broker.logs, "create", no_room)
            full.setattr(StandaloneMetadata, "delete_topic", no_room_for_a_line)
            with pytest.raises(StorageError):
                await broker.topic_admin.ensure("t", 3, {})
        topic = await broker.topic_admin.ensure("t", 2, {})
        assert sorted(topic.partitions) == [0, 1]

    run(tmp_path / "data", story)


def test_the_registry_alone_decides_which_partitions_are_served(tmp_path: Path) -> None:
    run(tmp_path / "data", lambda broker: write(broker, b"x"))

    async def after(broker: BrokerServer) -> None:
        await broker.topic_admin.add_partitions("t", 3)
        assert sorted(broker.replica_manager.by_name["t"].partitions) == [0, 1, 2]
        assert isinstance(broker.logs, LogManager) and len(broker.logs.logs) == 3

    run(tmp_path / "data", after)


def test_a_topic_is_found_by_the_id_that_it_had_before_a_restart_and_by_no_other(tmp_path: Path) -> None:
    ids = []

    async def before(broker: BrokerServer) -> None:
        for name in ("t", "other", "t"):
            if name in broker.replica_manager.by_name:
                deleted = await broker.topic_admin.delete(ids[0])
                assert deleted.name == name
            ids.append((await broker.topic_admin.ensure(name, 1, {})).topic_id)
        assert set(broker.replica_manager.by_id) == set(ids[1:])
        with pytest.raises(KafkaError) as caught:
            await broker.topic_admin.delete(ids[0])
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_ID

    run(tmp_path / "data", before)

    async def after(broker: BrokerServer) -> None:
        assert {topic_id: topic.name for topic_id, topic in broker.replica_manager.by_id.items()} == {
            ids[1]: "other",
            ids[2]: "t",
        }

    run(tmp_path / "data", after)


def test_a_topic_that_could_not_be_made_has_no_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(broker: BrokerServer) -> None:
        with monkeypatch.context() as full:
            full.setattr(HostedReplicas, "_log", lambda *_: (_ for _ in ()).throw(StorageError("no room")))
            with pytest.raises(StorageError):
                await broker.topic_admin.create("t", 1, {})
        assert not broker.replica_manager.by_name and not broker.replica_manager.by_id

    run(tmp_path / "data", story)
