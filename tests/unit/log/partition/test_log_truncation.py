"""The log of a follower is cut, begun anew, and held at what is committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from kafkalite.common.errors import StorageError
from kafkalite.log.partition.retention_policy import Reason
from kafkalite.log.partition.segment_list import SegmentList
from kafkalite.log.segment.segment import NEVER
from kafkalite.record import message_set
from tests.support.log.follower_batches import T0, bases, batch, follow
from tests.support.log.transactional_batches import end, send

if TYPE_CHECKING:
    from tests.unit.log.conftest import Disk, Log

SIZE = len(batch(0, "a"))


def six_segments(disk: Disk, **settings: object) -> Log:
    """Offsets 0 to 11, two in each segment; a new epoch at 0, 5 and 9."""
    log = disk.open(segment_bytes=2 * SIZE, **settings)
    epochs = {0: 1, 5: 4, 9: 7}
    epoch = 0
    for offset in range(12):
        epoch = epochs.get(offset, epoch)
        follow(log, batch(offset, "a", epoch=epoch, producer_id=3, producer_epoch=0, base_sequence=offset))
    return log


def refuse(disk: Disk, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk.files, call, fail, raising=False)


class TestTruncateTo:
    def test_within_a_batch_at_the_start_of_the_log_what_comes_later_survives_a_kill(self, disk: Disk) -> None:
        log = disk.open()
        follow(log, batch(0, "a", "b"))
        log.log.delete_records_before(1)
        log.log.truncate_to(1)
        follow(log, batch(1, "c"))
        assert (bases(log), log.log.end_offset) == ([0, 1], 2)
        log.log.abandon()
        log = disk.open(clean=False, start_offset=1)
        assert log.read_all() == ["c"] and (log.log.start_offset, log.log.end_offset) == (1, 2)

    def test_drops_records_epochs_and_producers_state(self, disk: Disk) -> None:
        log = six_segments(disk)
        log.log.truncate_to(7)
        assert (log.log.start_offset, log.log.end_offset, bases(log)) == (0, 7, [0, 2, 4, 6])
        assert log.log.epochs.entries() == [(1, 0), (4, 5)]
        producer = log.log.producers.get(3)
        assert producer is not None and producer.last_sequence == 6
        log = disk.kill(log)
        assert log.log.end_offset == 7 and log.log.epochs.entries() == [(1, 0), (4, 5)]

    def test_at_or_past_the_end_drops_the_epoch_of_an_election(self, disk: Disk) -> None:
        log = six_segments(disk)
        for offset in (12, 500):
            log.log.assign_epoch(9)
            assert (disk.directory / "leader-epoch-checkpoint").read_text().endswith("9 12\n")
            log.log.truncate_to(offset)
            assert log.log.epochs.entries() == [(1, 0), (4, 5), (7, 9)]
        assert log.log.end_offset == 12
        assert log.log.epochs.end_offset_for(9, 12) == (-1, -1)

    def test_before_the_first_segment_begins_the_log_there(self, disk: Disk) -> None:
        log = six_segments(disk)
        log.log.delete_records_before(6)
        log.log.truncate_to(3)
        assert (log.log.start_offset, log.log.end_offset, bases(log)) == (3, 3, [3])
        assert log.log.epochs.entries() == []

    def test_lowers_what_is_replicated_and_the_start(self, disk: Disk) -> None:
        log = six_segments(disk)
        log.log.truncate_to(11)
        assert log.log.replicated_offset == NEVER and log.log.committed_offset == 11
        log.log.replicated_offset = 9
        log.log.truncate_to(10)
        assert log.log.replicated_offset == log.log.committed_offset == 9
        log.log.delete_records_before(9)
        log.log.truncate_to(8)
        assert (log.log.start_offset, log.log.replicated_offset, log.log.end_offset) == (8, 8, 8)

    def test_a_marker_above_the_committed_offset_stays_unstable(self, disk: Disk) -> None:
        log = disk.open()
        log.log.replicated_offset = 0
        send(log, 1, "a")
        end(log, 1, commit=True)
        send(log, 2, "b")
        end(log, 2, commit=True)
        log.write("c")
        log.log.truncate_to(4)
        assert list(log.log.producers.unacknowledged) == [(1, 0), (3, 2)]
        log.log.producers.acknowledge(2)
        assert log.log.producers.first_unstable_offset == 2
        log.log.replicated_offset = 2
        log.log.truncate_to(3)
        assert (log.log.producers.ongoing, log.log.producers.first_unstable_offset) == ({2: 2}, 2)

    def test_the_aborted_transactions_before_it_are_still_known(self, disk: Disk) -> None:
        log = disk.open()
        for producer_id in (1, 2):  # in two segments, of which the second stays, without its abort
            log.log.roll(0)
            log.write("x")
            send(log, producer_id, "a")
            end(log, producer_id, commit=False)
        aborted = log.log.transactions.aborted(0, 6)
        assert [one.producer_id for one in aborted] == [1, 2]
        log.log.truncate_to(4)
        assert bases(log) == [0, 3]
        assert log.log.transactions.aborted(0, 6) == aborted[:1]

    @pytest.mark.parametrize("value", [b"short", b"long enough for a header of format v2" * 9], ids=["short", "long"])
    def test_messages_of_old_formats_have_no_producers(self, log: Log, value: bytes) -> None:
        follow(log, *(message_set.build_message(offset, b"k", value, T0, magic=1) for offset in range(4)))
        log.log.truncate_to(3)
        assert (log.log.end_offset, len(log.log.producers)) == (3, 0)

    def test_without_producers_nothing_is_read(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        def read(*_: object) -> None:
            raise AssertionError("a segment may be large, and the loop waits")

        for value in "abc":
            log.write(value)
        monkeypatch.setattr(SegmentList, "batches", read)
        log.log.truncate_to(2)
        assert log.log.end_offset == 2

    def test_a_damaged_file_stops_the_log(self, disk: Disk) -> None:
        log = disk.open()
        log.write("a")
        log.write("b")
        disk.flip(0, 16)
        with pytest.raises(StorageError, match="orders-0 is damaged"):
            log.log.truncate_to(1)
        assert log.log.failure

    def test_a_refusal_in_between_stops_the_log(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        log = six_segments(disk)
        refuse(disk, monkeypatch, "truncate_path")
        with pytest.raises(StorageError, match="takes no more records"):
            log.log.truncate_to(5)
        monkeypatch.undo()
        assert log.log.failure
        with pytest.raises(StorageError):
            follow(log, batch(12, "b"))  # behind a hole
        log = disk.kill(log)
        assert log.log.end_offset == 6
        log.log.truncate_to(5)
        assert follow(log, batch(5, "b", epoch=8)) == 6


class TestRestartAt:
    @pytest.mark.parametrize("offset", [0, 3, 6, 7, 12, 1000])
    def test_leaves_an_empty_log(self, disk: Disk, offset: int) -> None:
        log = six_segments(disk)
        log.log.delete_records_before(6)
        log.log.replicated_offset = 8
        starts: list[int] = []
        log.log.on_new_start = lambda: starts.append(log.log.start_offset)
        log.log.restart_at(offset)
        found = log.log
        assert (found.start_offset, found.end_offset, found.replicated_offset) == (offset, offset, offset)
        assert (found.flusher.ack_offset, found.flusher.recovery_point) == (offset, offset)
        assert (bases(log), found.size_bytes, found.epochs.entries(), len(found.producers)) == ([offset], 0, [], 0)
        assert found.record_counts.known() == (0, 0) and starts == [offset]
        assert found.read(offset, 1000, offset) is None
        assert follow(log, batch(offset, "a", "b", epoch=3)) == offset + 2
        assert log.read_all() == ["a", "b"] and found.record_counts.known() == (2, 0)
        log = disk.kill(log)
        assert (log.log.start_offset, log.log.end_offset, log.log.epochs.entries()) == (
            offset,
            offset + 2,
            [(3, offset)],
        )
        assert len(log.log.producers) == 0
        disk.clock.advance(60_000)

    def test_a_refusal_in_between_stops_the_log(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        for call in ("rename", "create_empty"):
            log = six_segments(disk)
            refuse(disk, monkeypatch, call)
            with pytest.raises(StorageError, match="takes no more records"):
                log.log.restart_at(50)
            monkeypatch.undo()
            assert log.log.failure and log.log.segments
            with pytest.raises(StorageError):
                follow(log, batch(50, "b"))
            log = disk.kill(log)
            log.log.restart_at(0)
            log.log.close()


class TestCommitted:
    def test_is_the_lower_of_replicas_and_disk(self, disk: Disk) -> None:
        log = disk.open(flush_messages=3)
        disk.services.files.fsync = lambda fd: None  # type: ignore[method-assign]
        for offset in range(2):
            follow(log, batch(offset, "a"))
        assert log.log.committed_offset == 2
        log.log.replicated_offset = 1
        assert log.log.committed_offset == 1

    def test_retention_deletes_nothing_above_it(self, disk: Disk) -> None:
        log = six_segments(disk, retention_ms=0)
        disk.clock.advance(10)
        log.log.replicated_offset = 5
        assert log.log.delete_old_segments(disk.clock.wall_ms(), most=10) == [Reason.TIME] * 2
        assert log.log.start_offset == 4
        log.log.replicated_offset = 12
        assert len(log.log.delete_old_segments(disk.clock.wall_ms(), most=10)) == 4

    def test_rises_with_the_start(self, disk: Disk) -> None:
        log = six_segments(disk)
        log.log.replicated_offset = 3
        log.log.delete_records_before(7)
        assert (log.log.start_offset, log.log.replicated_offset, bases(log)) == (7, 7, [6, 8, 10])
        assert log.log.epochs.entries() == [(4, 7), (7, 9)]


class TestCheckpointed:
    @pytest.mark.parametrize(("checkpointed", "found"), [(0, 4), (7, 7), (500, 12)])
    @pytest.mark.parametrize("clean", [True, False])
    def test_a_replica_begins_at_its_high_watermark(
        self, disk: Disk, checkpointed: int, found: int, clean: bool
    ) -> None:
        log = six_segments(disk)
        log.log.delete_records_before(4)
        log.log.close()
        log = disk.open(clean=clean, start_offset=4, high_watermark=checkpointed)
        assert log.log.replicated_offset == log.log.committed_offset == found

    def test_markers_above_it_are_unstable(self, disk: Disk) -> None:
        log = disk.open()
        for producer in (1, 2):
            send(log, producer, "a")
            end(log, producer, commit=True)
        log.log.abandon()
        log = disk.open(clean=False, high_watermark=2)
        assert list(log.log.producers.unacknowledged) == [(3, 2)]
        assert log.log.producers.first_unstable_offset == 2
        log.log.producers.acknowledge(4)
        assert log.log.producers.first_unstable_offset == NEVER

    def test_a_log_of_one_replica_has_none(self, log: Log) -> None:
        log.write("a")
        assert (log.log.replicated_offset, log.log.committed_offset) == (NEVER, 1)


class TestCallback:
    def test_checkpoints_are_lowered_before_anything_changes(self, disk: Disk) -> None:
        log = six_segments(disk)
        seen: list[tuple[object, ...]] = []
        disk.services.before_truncation = lambda *told: seen.append((*told, log.log.size_bytes))
        log.log.truncate_to(20)
        log.log.truncate_to(11)
        log.log.restart_at(30)
        assert seen == [(("orders", 0), 0, 11, False, 12 * SIZE), (("orders", 0), 30, 30, True, 11 * SIZE)]

    def test_if_they_cannot_be_the_log_stays_as_it_is(self, disk: Disk) -> None:
        log = six_segments(disk)

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        disk.services.before_truncation = refuse
        calls: list[Callable[[], None]] = [lambda: log.log.truncate_to(3), lambda: log.log.restart_at(30)]
        for call in calls:
            with pytest.raises(StorageError):
                call()
        assert (log.log.end_offset, log.log.failure) == (12, None)
        assert follow(log, batch(12, "b", epoch=7)) == 13
