"""Metadata in a journal: acknowledged changes are there after any stop, and nothing else is."""

import asyncio
import os
import resource
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ConfigError, KafkaError, StorageError
from kafkalite.metadata import standalone_metadata
from kafkalite.metadata.cluster_metadata import Change, PartitionRecord, TopicRecord
from kafkalite.metadata.metadata_journal import JOURNAL_NAME, decode, encode
from kafkalite.metadata.standalone_metadata import StandaloneMetadata
from tests.support.loop import idle


def topic(name: str, count: int = 1, **config: str) -> TopicRecord:
    return TopicRecord(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), {i: state() for i in range(count)}, config)


def state(epoch: int = 0) -> PartitionRecord:
    return PartitionRecord(replicas=(0,), leader=0, leader_epoch=epoch, isr=(0,), partition_epoch=0)


def memory_of(metadata: StandaloneMetadata) -> tuple[object, ...]:
    configs = {broker: dict(config) for broker, config in metadata.broker_configs.items()}
    return dict(metadata.topics), configs, metadata._next_producer_id


def size_of(directory: Path) -> int:
    return (directory / JOURNAL_NAME).stat().st_size


class Opened:
    """`async with Opened(directory) as metadata`"""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.metadata = StandaloneMetadata(directory, **options)

    async def __aenter__(self) -> StandaloneMetadata:
        await self.metadata.start()
        return self.metadata

    async def __aexit__(self, *_: object) -> None:
        await self.metadata.stop()


async def reopened(directory: Path) -> tuple[object, ...]:
    async with Opened(directory) as metadata:
        return memory_of(metadata)


def test_what_is_refused_leaves_no_trace_in_the_file(tmp_path):
    async def story():
        async with Opened(tmp_path) as metadata:
            await metadata.writes.create_topic(topic("ünïcode\n", 2))
            size = size_of(tmp_path)
            for write in (
                metadata.writes.create_topic(topic("ünïcode\n")),
                metadata.writes.delete_topic("u"),
                metadata.writes.add_partitions("ünïcode\n", {3: state()}),
                metadata.writes.set_leader_epoch("ünïcode\n", 0, 0),
            ):
                with pytest.raises(KafkaError):
                    await write
            assert size_of(tmp_path) == size
            before = memory_of(metadata)
        with pytest.raises(StorageError):
            await metadata.writes.create_topic(topic("late"))
        assert [each.name for each in tmp_path.iterdir()] == [JOURNAL_NAME]
        assert await reopened(tmp_path) == before

    asyncio.run(story())


def test_a_broker_whose_id_has_changed_is_the_only_replica_of_its_topics(tmp_path):
    async def story():
        async with Opened(tmp_path, broker_id=3) as metadata:
            await metadata.writes.create_topic(
                topic("t")._replace(partitions={0: PartitionRecord((3,), 3, 4, (3,), 5)})
            )
        async with Opened(tmp_path, broker_id=7) as metadata:
            assert metadata.topics["t"].partitions == {0: PartitionRecord((7,), 7, 4, (7,), 5)}
            assert list(metadata.brokers) == [7] and metadata.controller_id == 7

    asyncio.run(story())


def test_a_cancelled_writer_is_not_forgotten(tmp_path):
    async def story():
        async with Opened(tmp_path) as metadata:
            await metadata.writes.create_topic(topic("same"))
            told = []
            metadata.listen(lambda change, name: told.append((change, name, name in metadata.topics)))
            writer = asyncio.ensure_future(metadata.writes.delete_topic("same"))
            await idle()
            writer.cancel()
            await metadata.writes.set_broker_config("0", {})  # takes its turn after the cancelled one
            assert told[0] == (Change.TOPIC_DELETED, "same", False) and "same" not in metadata.topics
            before = memory_of(metadata)
        assert await reopened(tmp_path) == before

    asyncio.run(story())


NAMES = st.sampled_from(["a", "b", "c"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.integers(1, 3)),
        st.tuples(st.just("delete"), NAMES, st.none()),
        st.tuples(st.just("grow"), NAMES, st.integers(1, 2)),
        st.tuples(st.just("configure"), NAMES, st.text(max_size=5)),
        st.tuples(st.just("elect"), NAMES, st.integers(0, 3)),
        st.tuples(st.just("broker"), NAMES, st.text(max_size=5)),
        st.tuples(st.just("ids"), NAMES, st.none()),
    ),
    max_size=12,
)


async def perform(metadata: StandaloneMetadata, operation: tuple[str, str, object]) -> None:
    kind, name, value = operation
    if kind == "create":
        await metadata.writes.create_topic(topic(name, value))
    elif kind == "delete":
        await metadata.writes.delete_topic(name)
    elif kind == "grow":
        first = len(metadata.topics[name].partitions) if name in metadata.topics else 0
        await metadata.writes.add_partitions(name, {first + i: state() for i in range(value)})
    elif kind == "configure":
        await metadata.writes.set_topic_config(name, {"k": value})
    elif kind == "elect":
        await metadata.writes.set_leader_epoch(name, 0, value)
    elif kind == "broker":
        await metadata.writes.set_broker_config(name, {"k": value} if value else {})
    else:
        await metadata.writes.next_producer_id_block()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS, cut=st.floats(0, 1), slack=st.sampled_from([0, 64 * 1024]))
def test_a_cut_at_any_byte_leaves_a_prefix_of_the_operations(tmp_path_factory, operations, cut, slack):
    directory = tmp_path_factory.mktemp("metadata")
    path = directory / JOURNAL_NAME

    async def story():
        states = {}  # what memory was, by the size of the file that held it
        metadata = StandaloneMetadata(directory)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(standalone_metadata, "_SLACK_BYTES", slack)  # none: rewritten again and again
            await metadata.start()
            states[size_of(directory)] = memory_of(metadata)
            inode = path.stat().st_ino
            for operation in operations:
                with suppress(KafkaError):
                    await perform(metadata, operation)
                if path.stat().st_ino != inode:
                    inode = path.stat().st_ino
                    states.clear()  # it was rewritten: from here on the file begins with everything so far
                states[size_of(directory)] = memory_of(metadata)
            await metadata.stop()
            first = min(states)
            position = round(cut * (size_of(directory) - first)) + first
            os.truncate(path, position)
            expected = states[max(size for size in states if size <= position)]
            assert await reopened(directory) == expected
            assert await reopened(directory) == expected, "and it stays so"

    asyncio.run(story())


def test_a_damaged_last_entry_is_lost_and_not_shown(tmp_path, caplog):
    """It may hold the password of a listener, or a user's credential."""

    async def story():
        async with Opened(tmp_path) as metadata:
            await metadata.writes.change_entity_config("users/alice", lambda _: {"SCRAM-SHA-256": "salt=c2FsdA=="})
        path = tmp_path / JOURNAL_NAME
        data = bytearray(path.read_bytes())
        data[data.index(b"users/alice") + 1] ^= 1
        path.write_bytes(data)
        async with Opened(tmp_path) as metadata:
            assert not metadata.entity_configs

    asyncio.run(story())
    assert "the last entry is damaged and lost" in caplog.text and "c2FsdA" not in caplog.text


def test_a_damaged_entry_before_others_is_named_and_nothing_is_touched(tmp_path):
    async def story():
        async with Opened(tmp_path) as metadata:
            await metadata.writes.create_topic(topic("one"))
            await metadata.writes.create_topic(topic("two"))
        path = tmp_path / JOURNAL_NAME
        data = bytearray(path.read_bytes())
        data[data.index(b'"one"') + 1] ^= 1
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=rf"{JOURNAL_NAME}: entry 2 \(at byte \d+\) is damaged"):
            await StandaloneMetadata(tmp_path).start()
        assert path.read_bytes() == data
        for lines in (
            [{"op": "topic"}],
            [{"op": "cluster", "version": 2, "id": "x"}],
            [{"op": "cluster", "version": 1, "id": "x"}, {"op": "unheard of"}],
            [{"op": "cluster", "version": 1, "id": "x"}, {"op": "delete", "name": "none"}],
            [{"op": "cluster", "version": 1, "id": "x"}, {"op": "topic", "name": "n", "id": 5, "partitions": 5}],
        ):
            path.write_bytes(b"".join(map(encode, lines)))
            with pytest.raises(ConfigError, match="is whole but not understood"):
                await StandaloneMetadata(tmp_path).start()

    asyncio.run(story())


@given(st.binary(max_size=200), st.integers(0, 2))
def test_any_bytes_are_entries_or_a_plain_fault(data, whole):
    data = encode({"op": "x"}) * whole + data
    try:
        entries, end = decode(data, "path")
    except ConfigError:
        return
    assert len(entries) >= whole and end <= len(data)
    assert decode(data[:end], "path") == (entries, end)


def test_the_file_stays_small_however_much_changes(tmp_path, monkeypatch):
    async def story():
        async with Opened(tmp_path) as metadata:
            await metadata.writes.create_topic(topic("t", 50))
            for i in range(200):
                await metadata.writes.set_topic_config("t", {"k": str(i) * 20})
            assert size_of(tmp_path) > 15_000, "not worth rewriting yet"
            before = memory_of(metadata)
        monkeypatch.setattr(standalone_metadata, "_SLACK_BYTES", 0)
        assert await reopened(tmp_path) == before
        assert size_of(tmp_path) < 2_500, "rewritten at start"
        async with Opened(tmp_path) as metadata:
            largest = 0
            for i in range(200):
                await metadata.writes.set_topic_config("t", {"k": str(i) * 20})
                largest = max(largest, size_of(tmp_path))
            before = memory_of(metadata)
        assert largest < 5_000, "rewritten while running"
        assert await reopened(tmp_path) == before

    asyncio.run(story())


def test_a_full_disk_refuses_the_write_and_the_next_one_works(tmp_path):
    async def story():
        async with Opened(tmp_path) as metadata:
            await metadata.writes.create_topic(topic("kept"))
            size = size_of(tmp_path)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))  # the disk takes 20 bytes more, then EFBIG
            try:
                with pytest.raises(StorageError, match=JOURNAL_NAME):
                    await metadata.writes.create_topic(topic("lost"))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert "lost" not in metadata.topics and size_of(tmp_path) == size
            await metadata.writes.create_topic(topic("next"))
            before = memory_of(metadata)
        assert await reopened(tmp_path) == before

    asyncio.run(story())


def test_a_place_that_cannot_be_written_is_one_line_at_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot keep the cluster metadata in .*: \w+"):
        asyncio.run(StandaloneMetadata(tmp_path / "file").start())
    with pytest.raises(ConfigError, match=r"cannot keep the cluster metadata in .*: \w+"):
        asyncio.run(StandaloneMetadata("/proc/nowhere").start())


def test_a_directory_of_another_cluster_lends_its_id(tmp_path):
    async def story():
        async with Opened(tmp_path, cluster_id="MkU3OEVBNTcwNTJENDM2Qg") as metadata:
            assert metadata.cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"
        async with Opened(tmp_path, cluster_id="another") as metadata:
            assert metadata.cluster_id == "MkU3OEVBNTcwNTJENDM2Qg", "only a directory without a journal takes one"

    asyncio.run(story())


def test_the_journal_is_for_its_owner_alone(tmp_path: Path) -> None:
    async def story() -> None:
        for mode in (None, 0o644):
            if mode is not None:
                (tmp_path / JOURNAL_NAME).chmod(mode)  # as an older version left it
            async with Opened(tmp_path) as metadata:
                await metadata.writes.create_topic(topic("orders" if mode is None else "bills"))
                assert (tmp_path / JOURNAL_NAME).stat().st_mode & 0o777 == 0o600

    asyncio.run(story())
