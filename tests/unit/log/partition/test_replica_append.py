"""A follower's log takes the leader's batches as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.log.index.transaction_index import TransactionIndex
from kafkalite.log.segment.segment import NEVER, RELATIVE_OFFSET_MAX, Segment
from kafkalite.log.storage.files import Files
from kafkalite.record import message_set
from tests.support.log.follower_batches import T0, bases, batch, follow
from tests.support.log.transactional_batches import end, send

if TYPE_CHECKING:
    from tests.unit.log.conftest import Disk, Log


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call()
    return raised.value.code


@pytest.fixture
def pair(new_disk: Callable[[], Disk]) -> tuple[Disk, Disk]:
    return new_disk(), new_disk()


def test_offsets_epochs_and_bytes_stay(disk: Disk, log: Log) -> None:
    first, second = batch(0, "a", "b", epoch=3), batch(2, "c", epoch=5)
    assert follow(log, first, second) == 3
    assert disk.file(0).read_bytes() == first + second
    assert log.log.epochs.entries() == [(3, 0), (5, 2)]
    assert [record.offset for record in log.records()] == [0, 1, 2]
    assert log.log.flusher.ack_offset == 3


def test_the_cut_off_batch_at_the_end_of_an_answer_is_ignored(log: Log) -> None:
    whole, cut = batch(0, "a"), batch(1, "b" * 50)
    for upto in range(len(cut)):
        assert follow(log, whole if not upto else b"", cut[:upto]) == 1
    assert follow(log, cut) == 2


def test_offsets_may_be_missing_but_never_come_again(log: Log) -> None:
    follow(log, batch(5, "a", "b"), batch(100, "c"))
    assert (log.log.end_offset, log.log.start_offset) == (101, 0)
    assert [record.offset for record in log.records(0)] == [5, 6, 100]
    assert log.log.record_counts.known() == (3, 0)
    assert code_of(lambda: follow(log, batch(100, "c"))) == ErrorCode.CORRUPT_MESSAGE
    assert code_of(lambda: follow(log, batch(101, "d", "e"), batch(102, "e"))) == ErrorCode.CORRUPT_MESSAGE
    assert log.log.end_offset == 101


@pytest.mark.parametrize("at", [8, 16, 17, 21, 30, 61, -1], ids=str)
def test_nothing_is_appended_if_one_batch_is_corrupt(disk: Disk, log: Log, at: int) -> None:
    broken = bytearray(batch(1, "b", "c"))
    broken[at] ^= 0x81
    assert code_of(lambda: follow(log, batch(0, "a"), bytes(broken), batch(3, "d"))) == ErrorCode.CORRUPT_MESSAGE
    assert log.log.end_offset == 0 and disk.file(0).read_bytes() == b""
    assert follow(log, batch(0, "a"), batch(1, "b", "c")) == 3


def test_no_batch_can_be_of_an_epoch_above_the_leaders(log: Log) -> None:
    assert code_of(lambda: follow(log, batch(0, "a", epoch=4), leader_epoch=3)) == ErrorCode.CORRUPT_MESSAGE
    assert log.log.end_offset == 0 and log.log.epochs.entries() == []


def test_one_answer_may_fill_many_segments(disk: Disk) -> None:
    size = len(batch(0, "a"))
    log = disk.open(segment_bytes=3 * size)
    assert follow(log, *(batch(offset, "a") for offset in range(10))) == 10
    assert bases(log) == [0, 3, 6, 9]
    big = batch(10, "b" * 500)
    follow(log, big, batch(11, "c"))  # the setting was larger when the leader took it
    assert bases(log) == [0, 3, 6, 9, 10, 11]
    assert [record.offset for record in log.records()] == list(range(12))


def test_a_new_segment_after_missing_offsets_goes_on_where_the_last_one_ended(disk: Disk) -> None:
    log = disk.open(segment_bytes=len(batch(0, "a")))
    follow(log, batch(0, "a"), batch(50, "b"))
    assert bases(log) == [0, 1], "between segments a start of a log that is not compacted accepts no gap"
    log = disk.kill(log)
    assert (log.log.end_offset, log.log.lost_bytes) == (51, 0)


def test_more_missing_offsets_than_an_index_can_name(disk: Disk, log: Log) -> None:
    far = 3 * RELATIVE_OFFSET_MAX
    follow(log, batch(far, "a"), batch(far + 1, "b"), batch(3 * far, "c"))
    assert [record.offset for record in log.records(0)] == [far, far + 1, 3 * far]
    assert bases(log) == [0, far, far + 2, 3 * far]
    assert log.log.record_counts.known() == (3, 0)


def test_sequences_are_remembered_and_not_judged(log: Log) -> None:
    producer = {"producer_id": 7, "producer_epoch": 0}
    follow(log, batch(0, "a", base_sequence=5, **producer), batch(1, "b", base_sequence=90, **producer))
    known = log.log.producers.get(7)
    assert known is not None and known.last_sequence == 90
    result = log.write("b", **producer, base_sequence=90)
    assert (result.base_offset, result.duplicate) == (1, True)


def test_markers_end_transactions_but_are_stable_only_when_committed(pair: tuple[Disk, Disk]) -> None:
    leader, follower = pair[0].open(), pair[1].open()
    send(leader, 1, "a", "b")
    end(leader, 1, commit=False)
    follower.log.replicated_offset = 0
    follow(follower, pair[0].file(0).read_bytes())
    assert follower.log.producers.ongoing == {}
    assert [txn[:3] for txn in follower.log.transactions.aborted(0, 3)] == [(1, 0, 2)]
    assert follower.log.producers.first_unstable_offset == 0
    follower.log.producers.acknowledge(2)
    assert follower.log.producers.first_unstable_offset == 0
    follower.log.producers.acknowledge(3)
    assert follower.log.producers.first_unstable_offset == NEVER
    assert follower.log.record_counts.known() == (2, 1)


def test_a_leader_that_waits_for_replicas_keeps_transactions_unstable_as_well(log: Log) -> None:
    log.log.replicated_offset = 0
    send(log, 1, "a")
    end(log, 1, commit=True)
    assert log.log.producers.first_unstable_offset == 0
    log.log.producers.acknowledge(2)
    assert log.log.producers.first_unstable_offset == NEVER


def test_an_abort_that_cannot_be_indexed_is_taken_when_it_comes_again(
    pair: tuple[Disk, Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = pair[0].open(), pair[1].open()
    send(leader, 1, "a", "b")
    send(leader, 2, "c")
    end(leader, 1, commit=False)
    send(leader, 2, "d")
    end(leader, 2, commit=False)
    fetched = pair[0].file(0).read_bytes()
    monkeypatch.setattr(TransactionIndex, "append", _refuse)
    with pytest.raises(StorageError, match="cannot index an abort"):
        follow(follower, fetched)
    assert (follower.log.end_offset, follower.log.failure) == (3, None)
    assert fetched.startswith(pair[1].file(0).read_bytes())
    assert len(follower.log.producers.ongoing) == 2 and follower.log.flusher.ack_offset == 3
    monkeypatch.undo()
    assert follow(follower, fetched[len(pair[1].file(0).read_bytes()) :]) == 6
    assert pair[1].file(0).read_bytes() == fetched
    for log in (follower, pair[1].kill(follower)):
        assert log.log.transactions.aborted(0, 6) == leader.log.transactions.aborted(0, 6)
        assert log.log.producers.ongoing == {} and log.log.record_counts.known() in ((4, 2), None)


def test_an_abort_that_can_neither_be_indexed_nor_removed_stops_the_log(
    pair: tuple[Disk, Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = pair[0].open(), pair[1].open()
    send(leader, 1, "a")
    end(leader, 1, commit=False)
    fetched = pair[0].file(0).read_bytes()
    monkeypatch.setattr(TransactionIndex, "append", _refuse)
    monkeypatch.setattr(type(follower.log.segment_list), "cut", _refuse)
    with pytest.raises(StorageError, match="takes no more records"):
        follow(follower, fetched)
    assert follower.log.end_offset == 2 and follower.log.failure
    with pytest.raises(StorageError):
        follow(follower, batch(2, "b"))
    monkeypatch.undo()
    again = pair[1].kill(follower)
    assert [txn[:3] for txn in again.log.transactions.aborted(0, 3)] == [(1, 0, 1)]


def test_with_flush_messages_the_ack_offset_follows_the_disk(disk: Disk) -> None:
    jobs: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
    disk.services.serial_queue = lambda: lambda job, done: jobs.append((job, done))
    log = disk.open(flush_messages=2)
    follow(log, batch(0, "a"))
    assert (log.log.flusher.ack_offset, len(jobs)) == (1, 0)
    follow(log, batch(1, "b", "c"))
    assert (log.log.end_offset, log.log.flusher.ack_offset, len(jobs)) == (3, 1, 1)
    job, done = jobs.pop()
    job()
    done(None)
    assert log.log.flusher.ack_offset == log.log.flusher.recovery_point == 3


@pytest.mark.parametrize("taken_bytes", [0, 10])
def test_a_failed_write_changes_nothing(disk: Disk, taken_bytes: int) -> None:
    log = disk.open(segment_bytes=2 * len(batch(0, "a")))
    follow(log, batch(0, "a", epoch=1))
    disk.full(taken_bytes)
    with pytest.raises(StorageError):
        follow(log, batch(1, "b", epoch=2), batch(2, "c", epoch=2))
    disk.room()
    assert log.log.end_offset == 1 and log.log.size_bytes == len(batch(0, "a"))
    assert log.log.epochs.entries() == [(1, 0)]
    assert follow(log, batch(1, "b", epoch=2), batch(2, "c", epoch=2)) == 3
    assert log.read_all() == ["a", "b", "c"] and log.log.epochs.entries() == [(1, 0), (2, 1)]


def test_an_epoch_that_could_not_be_withdrawn_begins_with_its_next_batch(
    disk: Disk, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file was written, its batch was not, and then the file could not be written without it."""

    def fill_the_disk(*_: object) -> None:
        monkeypatch.setattr(Files, "write_atomically", _refuse)
        _refuse()

    follow(log, batch(0, "a", epoch=1))
    monkeypatch.setattr(Segment, "append_run", fill_the_disk)
    with pytest.raises(StorageError):
        follow(log, batch(1, "b", epoch=2))
    monkeypatch.undo()
    assert log.log.epochs.entries() == [(1, 0)]
    follow(log, batch(1, "b", epoch=2), batch(2, "c", epoch=2))
    assert log.log.epochs.entries() == [(1, 0), (2, 1)]
    log.log.abandon()
    assert disk.open().log.epochs.entries() == [(1, 0), (2, 1)]


def test_of_a_failed_answer_the_segments_before_stay(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.open(segment_bytes=2 * len(batch(0, "a")))
    follow(log, batch(0, "a"))
    monkeypatch.setattr(type(log.log.segment_list), "roll", _refuse)
    with pytest.raises(StorageError):
        follow(log, *(batch(offset, "a") for offset in range(1, 5)))
    monkeypatch.undo()
    assert log.log.end_offset == 2
    assert follow(log, *(batch(offset, "a") for offset in range(2, 5))) == 5


def _refuse(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_the_epoch_of_an_election_in_which_nothing_was_written_gives_way(log: Log) -> None:
    follow(log, batch(0, "a", epoch=4))
    log.log.assign_epoch(5)
    assert log.log.epochs.entries() == [(4, 0), (5, 1)]
    follow(log, batch(1, "b", epoch=4), batch(2, "c", epoch=6))
    assert log.log.epochs.entries() == [(4, 0), (6, 2)]


def old_messages(*offsets: int, codec: int = 0) -> bytes:
    return message_set.build_set([(offset, T0, None, b"x") for offset in offsets], message_set.V1, codec=codec)


def test_messages_of_old_formats_are_appended_and_clear_the_epochs(disk: Disk, log: Log) -> None:
    follow(log, batch(0, "a", epoch=1))
    plain, wrapped = old_messages(1, 2), old_messages(3, 4, 5, codec=1)
    assert follow(log, plain, wrapped, batch(6, "b", epoch=2)) == 7
    assert log.log.epochs.entries() == [(2, 6)]
    assert disk.file(0).read_bytes() == batch(0, "a", epoch=1) + plain + wrapped + batch(6, "b", epoch=2)
    assert log.log.record_counts.known() is None and log.log.record_counts.current().live_records == 7
    broken = bytearray(old_messages(7))
    broken[-1] ^= 1
    assert code_of(lambda: follow(log, bytes(broken))) == ErrorCode.CORRUPT_MESSAGE
    assert code_of(lambda: follow(log, old_messages(6))) == ErrorCode.CORRUPT_MESSAGE
    assert follow(log, old_messages(7)[:-1]) == 7
    assert disk.kill(log).log.end_offset == 7
