"""The topic behind the groups: who makes it, how it is read back, and what happens when it cannot be."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode, StorageError
from kafkalite.common.names import GROUP_METADATA_TOPIC, ProducerIdAndEpoch, partition_for_id
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator import internal_topic
from kafkalite.coordinator.group import record_codec
from kafkalite.coordinator.group.group import Identity
from kafkalite.coordinator.group.offset_store import OffsetAndMetadata
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.group_store import GroupLoader
from kafkalite.coordinator.internal_topic import ROLL_BYTES, TURN_BYTES, InternalTopic
from kafkalite.coordinator.internal_topic_settings import consumer_offsets
from kafkalite.coordinator.offset_manager import TransactionalCommit
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.metadata.standalone_metadata import StandaloneMetadata
from kafkalite.protocol.records import GroupMetadataValue
from kafkalite.record.batch import NewRecord, build_batch, iter_batches
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.metadata_applier import MetadataApplier
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.topic_admin import TopicAdmin
from tests.support.consumer_group_world import no_consumer_groups
from tests.support.loop import until
from tests.support.manual_clock import ManualClock

PARTITIONS = 2  # what the broker would make of its own accord


class Answered:
    """Hears the errors of a commit."""

    def __init__(self, errors: list[ErrorCode]) -> None:
        self.errors = errors

    def answer(self, errors: Sequence[ErrorCode]) -> None:
        self.errors += errors


class Life:
    """A broker from its start to its stop, as far as groups are concerned."""

    def __init__(
        self, config: BrokerConfig, clock: ManualClock, topics: ReplicaManager, topic_admin: TopicAdmin
    ) -> None:
        self.topics = topics
        self.topic_admin = topic_admin
        self.offsets_topic = InternalTopic(consumer_offsets(config), GroupLoader, clock, topics, topic_admin)
        self.verifies = True
        self.coordinator = GroupCoordinator(config, clock, self.offsets_topic.append, no_consumer_groups())
        self.store = self.coordinator.store
        self.offsets_topic.attach(self.store)

    def commit(self, group: str, offset: int) -> ErrorCode:
        errors: list[ErrorCode] = []
        offsets = [("orders", 0, offset, -1, "", -1)]
        self.coordinator.offsets.commit(group, Identity("", None, -1), offsets, -1, Answered(errors))
        return errors[0]

    def _verify(self, index: int, request: TransactionalCommit, done: Callable[[ErrorCode, Any], None]) -> None:
        """Every transaction includes the partition."""
        partition = self.topic.partitions[index]
        done(ErrorCode.NONE, partition.producers.begin_verification(*request.producer, -1) if self.verifies else None)

    def commit_in_transaction(self, group: str, offset: int, producer: tuple[int, int] = (7, 0)) -> ErrorCode:
        errors: list[ErrorCode] = []
        offsets = [("orders", 0, offset, -1, "", -1)]
        request = TransactionalCommit(group, Identity("", None, -1), "t", ProducerIdAndEpoch(*producer), offsets)
        self.coordinator.offsets.commit_in_transaction(request, Answered(errors), self._verify)
        return errors[0]

    def end(self, group: str, producer: tuple[int, int] = (7, 0), *, is_committed: bool = True) -> None:
        partition = self.partition_of(group)
        partition.append_marker(*producer, 1, is_committed, 1_000)
        self.coordinator.offsets.on_transaction_end(partition.index, producer[0], is_committed=is_committed)

    def committed(self, group: str) -> int | ErrorCode:
        error, rows = self.coordinator.offsets.fetch(group, None)
        return error or next((each.offset for _, offsets in rows for _, each in offsets), -1)

    @property
    def topic(self) -> Topic:
        return self.topics.by_name[GROUP_METADATA_TOPIC]

    def partition_of(self, group: str) -> Partition:
        return self.topic.partitions[self.store.partition_for(group)]


Story = Callable[[Life], Awaitable[object]]


@asynccontextmanager
async def life(data_dir: Path) -> AsyncIterator[Life]:
    clock = ManualClock()
    config = BrokerConfig.load({"offsets.topic.num.partitions": str(PARTITIONS)})
    logs = LogManager([data_dir], clock, config)
    metadata = StandaloneMetadata(data_dir)
    try:
        await metadata.start()
        topics = ReplicaManager(config, metadata, logs, config.broker_id)
        applier = MetadataApplier(metadata, topics, clock)
        await logs.load(metadata.cluster_id, topics.config_for)
        await applier.load()
        yield Life(config, clock, topics, TopicAdmin(metadata, topics, applier))
    finally:
        await metadata.stop()
        logs.close()


@pytest.fixture
def live(tmp_path: Path) -> Callable[[Story], None]:
    """`live(story)`: one life on the directory, in which the groups are loaded and then the story is told."""

    def live(story: Story) -> None:
        async def one() -> None:
            async with life(tmp_path / "data") as broker:
                await broker.offsets_topic.load()
                await story(broker)

        asyncio.run(one())

    return live


def write(partition: Partition, key: bytes, value: bytes | None) -> None:
    batch = build_batch([NewRecord(key, value, timestamp=1_000)])
    partition.append(memoryview(batch), 1_000, 9, trusted=True)


def test_the_first_who_needs_it_makes_it_and_all_wait_for_the_same(live: Callable[[Story], None]) -> None:
    async def first(broker: Life) -> None:
        assert not broker.offsets_topic.is_ready
        await asyncio.gather(*(broker.offsets_topic.ensure() for _ in range(3)))
        assert broker.offsets_topic.is_ready
        assert len(broker.topic.partitions) == PARTITIONS
        assert broker.topic.config.cleanup_policy == ("compact",)
        assert broker.commit("g", 5) == ErrorCode.NONE

    async def second(broker: Life) -> None:
        assert broker.offsets_topic.is_ready
        assert broker.committed("g") == 5

    live(first)
    live(second)


@pytest.mark.parametrize("partition_count", [1, 7])
def test_a_topic_that_a_client_created_is_taken_as_it_is(
    live: Callable[[Story], None], caplog: pytest.LogCaptureFixture, partition_count: int
) -> None:
    async def first(broker: Life) -> None:
        await broker.topic_admin.create(GROUP_METADATA_TOPIC, partition_count, {"segment.bytes": "1000000"})
        assert not broker.offsets_topic.is_ready  # nobody has told the coordinator
        await broker.offsets_topic.ensure()
        assert broker.offsets_topic.is_ready
        for number in range(20):
            assert broker.commit(f"g{number}", number) == ErrorCode.NONE
        assert sum(partition.log.end_offset for partition in broker.topic.partitions.values()) == 20
        assert broker.topic.overrides == {"segment.bytes": "1000000", "cleanup.policy": "compact"}
        assert "from now on" in caplog.text

    async def second(broker: Life) -> None:
        assert [broker.committed(f"g{number}") for number in range(20)] == list(range(20))
        assert broker.topic.partitions[0].log.config.cleanup_policy == ("compact",)

    live(first)
    live(second)


@pytest.mark.parametrize("partition_count", [1, 7])
def test_ids_are_mapped_to_the_partitions_that_there_are_before_any_is_loaded(
    live: Callable[[Story], None], partition_count: int
) -> None:
    async def story(broker: Life) -> None:
        topic = broker.offsets_topic
        names = [f"g{number}" for number in range(20)]
        assert [topic.partition_for(name) for name in names] == [partition_for_id(name, PARTITIONS) for name in names]
        await broker.topic_admin.create(GROUP_METADATA_TOPIC, partition_count, {})
        assert not topic.is_ready
        expected = [partition_for_id(name, partition_count) for name in names]
        assert [topic.partition_for(name) for name in names] == expected

    live(story)


def test_what_its_creator_said_about_cleaning_up_stands(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        await broker.topic_admin.create(GROUP_METADATA_TOPIC, 1, {"cleanup.policy": "compact,delete"})
        await broker.offsets_topic.ensure()
        assert broker.topic.overrides == {"cleanup.policy": "compact,delete"}

    live(story)


def test_what_was_deleted_does_not_come_back_however_far_behind_its_tombstone_lies(
    live: Callable[[Story], None],
) -> None:
    group_value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader=None)

    async def first(broker: Life) -> None:
        await broker.offsets_topic.ensure()
        partition = broker.partition_of("g")
        key, group_key = record_codec.offset_key("g", "orders", 0), record_codec.group_key("g")
        write(partition, key, record_codec.offset_value(OffsetAndMetadata(500, -1, "", 1_000)))
        write(partition, group_key, record_codec.group_value(group_value))
        kept = record_codec.offset_value(OffsetAndMetadata(7, -1, "x" * 4_000, 1_000))
        before = partition.log.size_bytes
        while partition.log.size_bytes < before + 2 * TURN_BYTES:
            write(partition, record_codec.offset_key("kept", "orders", 0), kept)
        write(partition, key, None)
        write(partition, group_key, None)

    async def second(broker: Life) -> None:
        assert "g" not in broker.store.by_id
        assert broker.committed("g") == -1
        assert list(broker.store.by_id) == ["kept"]

    live(first)
    live(second)


def test_others_are_served_while_it_is_read(live: Callable[[Story], None]) -> None:
    async def first(broker: Life) -> None:
        await broker.offsets_topic.ensure()
        value = record_codec.offset_value(OffsetAndMetadata(7, -1, "x" * 4_000, 1_000))
        for _ in range(3 * TURN_BYTES // 4_000):
            write(broker.partition_of("g"), record_codec.offset_key("g", "orders", 0), value)

    async def second(broker: Life) -> None:
        for index in broker.topic.partitions:
            broker.store.unload(index)
        loading = asyncio.ensure_future(broker.offsets_topic.load())
        await until(lambda: broker.store.loading)
        heard = set()
        while broker.store.loading:
            heard.add(broker.committed("g"))
            await asyncio.sleep(0)
        await loading
        assert heard == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        assert broker.committed("g") == 7

    live(first)
    live(second)


def test_a_load_may_be_cancelled_as_it_ends(live: Callable[[Story], None]) -> None:
    async def first(broker: Life) -> None:
        await broker.offsets_topic.ensure()
        broker.commit("g", 1)

    async def second(broker: Life) -> None:
        for index in broker.topic.partitions:
            broker.store.unload(index)
        loading = asyncio.ensure_future(broker.offsets_topic.load())
        await until(lambda: broker.store.loading)
        await until(lambda: not broker.store.loading)
        loading.cancel()
        (ended,) = await asyncio.gather(loading, return_exceptions=True)
        assert ended is None or isinstance(ended, asyncio.CancelledError)
        assert broker.committed("g") == 1

    live(first)
    live(second)


@pytest.mark.parametrize("fault", [StorageError("the disk refuses"), RuntimeError("us")])
def test_a_partition_that_cannot_be_read_to_its_end_serves_what_could_be_read(
    live: Callable[[Story], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
) -> None:
    async def first(broker: Life) -> None:
        await broker.offsets_topic.ensure()
        for number in range(20):
            broker.commit(f"g{number}", number)

    async def second(broker: Life) -> None:
        log = broker.topic.partitions[0].log
        whole = list(log.batches(0))
        assert len(whole) > 3

        def damaged() -> object:
            yield from whole[:3]
            raise fault

        listed = log.segment_list
        monkeypatch.setattr(type(listed), "pieces", _only_for(listed, damaged, type(listed).pieces))
        await broker.offsets_topic.load()
        monkeypatch.undo()
        assert broker.store.loading == set()
        assert broker.store.owned == {0, 1}
        found = {number for number in range(20) if broker.committed(f"g{number}") == number}
        in_damaged = [number for number in range(20) if broker.store.partition_for(f"g{number}") == 0]
        assert found == set(range(20)) - set(in_damaged[3:])
        assert f"{GROUP_METADATA_TOPIC}-0 cannot be read to its end" in caplog.text
        assert broker.commit("g0", 100) == ErrorCode.NONE

    live(first)
    live(second)


def _only_for(one: object, instead: Callable[[], object], usual: Callable[..., object]) -> Callable[..., object]:
    return lambda listed, *args: instead() if listed is one else usual(listed, *args)


def test_a_large_partition_is_read_as_columns_while_others_are_served(
    live: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def first(broker: Life) -> None:
        await broker.offsets_topic.ensure()
        for offset in range(60):
            assert broker.commit("g", offset) == ErrorCode.NONE
            assert broker.commit("h", 2 * offset) == ErrorCode.NONE

    async def second(broker: Life) -> None:
        for index in broker.topic.partitions:
            broker.store.unload(index)
        read = []
        monkeypatch.setattr(internal_topic, "COLUMNS_FROM_BYTES", 1)
        monkeypatch.setattr(internal_topic, "PIECE_BYTES", 2_000)
        monkeypatch.setattr(GroupLoader, "read", lambda loader, batches: read.append(batches))
        loading = asyncio.ensure_future(broker.offsets_topic.load())
        await until(lambda: broker.store.loading)
        heard = set()
        while broker.store.loading:
            heard |= {broker.committed("g"), broker.committed("h")}
            await asyncio.sleep(0)
        await loading
        assert heard <= {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 59, 118}
        assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in heard
        assert (broker.committed("g"), broker.committed("h")) == (59, 118)
        assert read == []
        assert gc.isenabled()

    live(first)
    live(second)


def test_a_batch_that_is_no_batch_keeps_nobody_waiting(live: Callable[[Story], None], tmp_path: Path) -> None:
    async def first(broker: Life) -> None:
        await broker.offsets_topic.ensure()
        for number in range(20):
            broker.commit(f"g{number}", number)

    async def second(broker: Life) -> None:
        assert broker.offsets_topic.is_ready
        assert broker.store.loading == set()
        for number in range(20):
            whole = broker.store.partition_for(f"g{number}") == 1
            assert broker.committed(f"g{number}") == (number if whole else -1)

    live(first)
    file = tmp_path / "data" / f"{GROUP_METADATA_TOPIC}-0" / "00000000000000000000.log"
    data = bytearray(file.read_bytes())
    data[16] = 9  # the magic of the first batch; the last stop was a clean one, so nobody looks before
    file.write_bytes(data)
    live(second)


def test_a_failure_to_make_it_is_told_and_the_next_tries_again(
    live: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: Life) -> None:
        async def refuse(*_: object) -> Topic:
            raise StorageError("the disk is full")

        monkeypatch.setattr(broker.topic_admin, "ensure", refuse)
        told = await asyncio.gather(*(broker.offsets_topic.ensure() for _ in range(2)), return_exceptions=True)
        assert [type(each) for each in told] == [StorageError, StorageError]
        assert not broker.offsets_topic.is_ready
        monkeypatch.undo()
        await broker.offsets_topic.ensure()
        assert broker.commit("g", 1) == ErrorCode.NONE

    live(story)


def test_commits_in_transactions_are_transactional_batches(live: Callable[[Story], None]) -> None:
    async def first(broker: Life) -> None:
        await broker.offsets_topic.ensure()
        for offset in (1, 2, 3):  # equal sequence numbers: no duplicates of each other
            assert broker.commit_in_transaction("g", offset) == ErrorCode.NONE
        partition = broker.partition_of("g")
        assert (partition.last_stable_offset, partition.log.end_offset) == (0, 3)
        headers = [header for batch in partition.log.batches(0) for header, _ in iter_batches(batch)]
        identity = {(one.producer_id, one.producer_epoch, one.base_sequence, one.is_transactional) for one in headers}
        assert identity == {(7, 0, 0, True)}
        broker.end("g")
        assert partition.last_stable_offset == 4
        assert broker.committed("g") == 3
        assert broker.commit_in_transaction("g", 4) == ErrorCode.NONE

    async def second(broker: Life) -> None:
        assert broker.committed("g") == 3
        broker.end("g", (7, 1))
        assert broker.committed("g") == 4
        assert broker.commit_in_transaction("g", 5) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert broker.commit_in_transaction("g", 5, (7, 1)) == ErrorCode.NONE
        broker.end("g", (7, 1), is_committed=False)

    async def third(broker: Life) -> None:
        assert broker.committed("g") == 4

    for story in (first, second, third):
        live(story)


def test_a_commit_in_a_transaction_that_nobody_has_verified_is_refused(
    live: Callable[[Story], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: Life) -> None:
        await broker.offsets_topic.ensure()
        broker.verifies = False
        assert broker.commit_in_transaction("g", 1) == ErrorCode.INVALID_TXN_STATE
        assert broker.partition_of("g").log.end_offset == 0
        assert not broker.store.by_id["g"].offsets.has_pending

    live(story)
    assert not caplog.records


def test_segments_are_sealed_for_compaction_as_soon_as_that_pays(live: Callable[[Story], None]) -> None:
    """A start must not read every commit since the last roll by segment.bytes. Nothing is compacted here."""

    async def story(broker: Life) -> None:
        await broker.offsets_topic.ensure()
        index = broker.store.partition_for("copiers")
        log = broker.topic.partitions[index].log
        errors: list[ErrorCode] = []
        value = bytes(ROLL_BYTES // 4)
        for _ in range(40):
            broker.offsets_topic.append(index, [(b"key", value)], errors.append)
        assert errors == [ErrorCode.NONE] * 40
        sizes = [segment.size_bytes // len(value) for segment in log.segments]
        assert sizes == [4, 4, 8, 16, 8], "none is sealed before it is as large as all others together"

    live(story)


def test_a_topic_that_is_not_compacted_is_sealed_as_configured(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        await broker.topic_admin.create(GROUP_METADATA_TOPIC, 1, {"cleanup.policy": "delete"})
        await broker.offsets_topic.load()
        log = broker.topic.partitions[0].log
        for _ in range(5):
            broker.offsets_topic.append(0, [(b"key", bytes(ROLL_BYTES // 4))], lambda error: None)
        assert len(log.segments) == 1

    live(story)
