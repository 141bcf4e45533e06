"""The last stable offset, and read_committed fetches that wait for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.state.producer import ActiveProducer
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.delayed_operations import DelayedOperation
from kafkalite.replication.partition import Partition
from tests.support.log.delayed_disk import DelayedDisk
from tests.support.manual_clock import ManualClock

NOW_MS = 1_700_000_000_000


class World:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.background = DelayedDisk()
        self.clock = ManualClock(NOW_MS)
        self._sequences: dict[int, int] = {}

    def open(self, **settings: object) -> Partition:
        context = LogContext(self.clock, lambda: self.background)
        log = open_log("t", 0, str(self._directory), TopicConfig(**settings), LoadOptions(clean=True), context)
        return Partition("t", 0, log, 3)

    def send(self, partition: Partition, producer: int, size: int = 1) -> int:
        """A transactional batch of one record; returns its size in bytes."""
        sequence = self._sequences[producer] = self._sequences.get(producer, -1) + 1
        batch = build_batch(
            [NewRecord(b"k", b"v" * size, (), NOW_MS)], producer_id=producer, producer_epoch=0, base_sequence=sequence,
            transactional=True,
        )  # fmt: skip
        guard = partition.producers.begin_verification(producer, 0, sequence)
        partition.append(memoryview(batch), NOW_MS, 9, transactional=True, guard=guard)
        return len(batch)

    def forget_sequences(self, partition: Partition) -> None:
        """The producers go on from what the log knows."""
        known = {one.producer_id: one.last_sequence for one in partition.producers.active()}
        self._sequences = known


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def plain(partition: Partition, size: int = 1) -> None:
    partition.append(memoryview(build_batch([NewRecord(b"k", b"v" * size, (), NOW_MS)])), NOW_MS, 9)


def waiter(partition: Partition, missing_bytes: int) -> tuple[DelayedOperation, list[Callable[[], None]]]:
    soon: list[Callable[[], None]] = []
    made = DelayedOperation(missing_bytes, lambda: None, soon.append, read_committed=True)
    partition.watch(made)
    return made, soon


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins(world: World) -> None:
    partition = world.open()
    plain(partition)
    assert partition.last_stable_offset == 1 and partition.producers.oldest_open is None
    world.send(partition, 1)
    world.send(partition, 2)
    plain(partition)
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
    partition.append_marker(2, 0, 0, True, NOW_MS)
    assert partition.last_stable_offset == 1
    assert partition.producers.oldest_open == ActiveProducer(1, 0, 0, NOW_MS, -1, 1)
    world.send(partition, 2)
    partition.append_marker(1, 0, 0, False, NOW_MS)
    assert partition.last_stable_offset == 5
    partition.append_marker(2, 0, 5, True, NOW_MS + 1)
    assert partition.last_stable_offset == partition.high_watermark == 8
    assert partition.log.transactions.aborted(0, 8) == [AbortedTxn(1, 1, 6, 5)]
    assert partition.producers.active() == [
        ActiveProducer(1, 0, 0, NOW_MS, 0, -1), ActiveProducer(2, 0, 1, NOW_MS + 1, 5, -1)
    ]  # fmt: skip


def test_a_read_committed_fetch_ends_there(world: World) -> None:
    partition = world.open()
    plain(partition)
    size = world.send(partition, 1)
    region = partition.read(0, 1000, True, read_committed=True)
    assert region is not None
    assert partition.read(1, 1000, True, read_committed=True) is None
    whole = partition.read(0, 1000, True)
    assert whole is not None
    assert whole.size == region.size + size
    assert partition.lookup_of_max_timestamp(read_committed=True).begin()


def test_a_marker_counts_when_it_is_committed(world: World) -> None:
    """With flush.messages the marker must be on the disk."""
    partition = world.open(flush_messages=1)
    world.send(partition, 1)
    world.background.waits = True
    partition.append_marker(1, 0, 0, False, NOW_MS)
    _, soon = waiter(partition, 1)
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
    world.background.run()
    assert (partition.last_stable_offset, partition.high_watermark) == (2, 2)
    assert len(soon) == 1


def test_a_marker_that_was_not_committed_is_when_the_partition_is_led_again(world: World) -> None:
    partition = world.open(flush_messages=1)
    world.send(partition, 1)
    world.background.waits = True
    partition.append_marker(1, 0, 0, True, NOW_MS)
    partition.retire()
    world.background.run()
    again = Partition("t", 0, partition.log, 4)
    assert again.last_stable_offset == again.high_watermark == 2


def test_bytes_of_an_open_transaction_wake_nobody_who_reads_committed(world: World) -> None:
    partition = world.open()
    plain(partition)
    _, soon = waiter(partition, 1)
    world.send(partition, 1)
    plain(partition)
    assert soon == []
    partition.append_marker(1, 0, 0, True, NOW_MS)
    assert len(soon) == 1


def test_a_fetch_that_waits_for_many_bytes_is_woken_by_those_that_became_stable(world: World) -> None:
    partition = world.open()
    world.send(partition, 1)
    waiting, soon = waiter(partition, 1 << 20)
    before = waiting.missing_bytes
    sent = world.send(partition, 2, size=1000)
    partition.append_marker(1, 0, 0, True, NOW_MS)
    first = before - waiting.missing_bytes
    assert 0 < first < 1000, "only the first batch is stable"
    partition.append_marker(2, 0, 0, True, NOW_MS)
    whole = partition.read(0, 1 << 20, True)
    assert whole is not None
    assert before - waiting.missing_bytes == whole.size > sent
    plain(partition, 500)
    assert soon == [] and before - waiting.missing_bytes > whole.size + 500
    _, late = waiter(partition, 400)
    plain(partition, 500)
    assert len(late) == 1


def test_a_transaction_over_several_segments_wakes_at_once(world: World) -> None:
    partition = world.open(segment_bytes=200)
    world.send(partition, 1, 100)
    world.send(partition, 1, 100)
    waiting, soon = waiter(partition, 1 << 20)
    partition.append_marker(1, 0, 0, True, NOW_MS)
    assert len(soon) == 1 and waiting.woken


def test_deleted_records_of_an_open_transaction_do_not_come_back(world: World) -> None:
    partition = world.open()
    world.send(partition, 1)
    plain(partition)
    assert partition.delete_records_before(-1) == 2
    assert partition.last_stable_offset == 2
    plain(partition)
    assert partition.last_stable_offset == 2
    partition.append_marker(1, 0, 0, False, NOW_MS)
    assert partition.last_stable_offset == 4
    assert partition.log.transactions.aborted(2, 4) == [AbortedTxn(1, 0, 3, 4)]


def test_markers_of_the_past_are_refused(world: World) -> None:
    partition = world.open()
    partition.append_marker(1, 2, 5, True, NOW_MS)
    for epoch, coordinator_epoch, code in (
        (1, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(KafkaError) as raised:
            partition.append_marker(1, epoch, coordinator_epoch, True, NOW_MS)
        assert raised.value.code == code
    assert partition.log.end_offset == 1


def test_a_late_copy_of_a_marker_does_not_end_the_next_transaction(world: World) -> None:
    """With transaction.version=2 the next transaction has the epoch of the last one's marker (KIP-1228)."""
    partition = world.open()
    world.send(partition, 1)
    partition.append_marker(1, 0, 5, True, NOW_MS, 0)  # of a client that knows nothing of it
    world.send(partition, 1)
    with pytest.raises(KafkaError) as raised:
        partition.append_marker(1, 0, 5, True, NOW_MS, 2)
    assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (partition.log.end_offset, partition.last_stable_offset) == (3, 2)
    partition.append_marker(1, 1, 5, True, NOW_MS, 2)
    partition.append_marker(1, 1, 5, True, NOW_MS, 2)  # tried again, since its answer was lost
    assert (partition.log.end_offset, partition.last_stable_offset) == (5, 5)


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["send", "send", "commit", "abort"]), st.integers(1, 3)),
        st.tuples(st.sampled_from(["plain", "flushed", "truncate", "lead again"]), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(steps=steps, flush_messages=st.sampled_from([1, 3, 1 << 40]))
def test_the_last_stable_offset_is_that_of_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], flush_messages: int
) -> None:
    """And a waiting read_committed fetch is told of every byte below it, once."""
    world = World(tmp_path_factory.mktemp("partition"))
    partition = world.open(flush_messages=flush_messages)
    world.background.waits = True
    entries: list[tuple[str, int]] = []
    waiting, _ = waiter(partition, 1 << 50)
    told_from, is_exact = 0, True

    def stable_offset() -> int:
        opened: dict[int, int] = {}
        for offset, (what, producer) in enumerate(entries):
            if what == "send":
                opened.setdefault(producer, offset)
            elif what in ("commit", "abort") and offset < partition.high_watermark:
                opened.pop(producer, None)
            # a marker that is not committed ends nothing yet, and a transaction behind it is another one above it
        return min([partition.high_watermark, *opened.values()])

    for what, producer in steps:
        if what == "send":
            world.send(partition, producer)
        elif what == "plain":
            plain(partition)
        elif what == "flushed":
            world.background.run()
        elif what == "truncate":
            partition.log.truncate_to(partition.high_watermark)  # type: ignore[attr-defined]
            del entries[partition.log.end_offset :]
            world.forget_sequences(partition)
        elif what == "lead again":
            waiting.withdraw()
            partition = Partition("t", 0, partition.log, partition.leader_epoch)
            waiting, _ = waiter(partition, 1 << 50)
            told_from = partition.last_stable_offset
            is_exact = partition.high_watermark == partition.log.end_offset  # what follows counts as enough bytes
        else:
            partition.append_marker(producer, 0, 0, what == "commit", NOW_MS)
        if what in ("send", "plain", "commit", "abort"):
            entries.append((what, producer))
        assert len(entries) == partition.log.end_offset
        assert partition.last_stable_offset == stable_offset()
        region = partition.log.read(told_from, 1 << 30, partition.last_stable_offset)
        told_bytes, stable_bytes = (1 << 50) - waiting.missing_bytes, 0 if region is None else region.size
        assert told_bytes == stable_bytes or (told_bytes > stable_bytes and not is_exact)
    partition.log.abandon()  # type: ignore[attr-defined]


def test_what_was_appended_under_an_earlier_leader_epoch_and_is_committed_in_parts_wakes(world: World) -> None:
    partition = world.open(flush_messages=1)
    world.background.waits = True
    plain(partition)
    world.send(partition, 1)
    again = Partition("t", 0, partition.log, 4)
    _, soon = waiter(again, 1)
    world.background.run()
    assert (again.high_watermark, again.log.end_offset) == (1, 2) and len(soon) == 1


def test_a_marker_that_was_cut_off_holds_nothing_up(world: World) -> None:
    partition = world.open(flush_messages=1)
    world.send(partition, 1)
    world.background.waits = True
    for _ in range(3):
        plain(partition)
    partition.append_marker(1, 0, 0, True, NOW_MS)
    partition.log.truncate_to(1)  # type: ignore[attr-defined]
    world.background.run()
    partition.append_marker(1, 0, 0, True, NOW_MS)
    world.background.run()
    assert (partition.last_stable_offset, partition.high_watermark) == (2, 2)
