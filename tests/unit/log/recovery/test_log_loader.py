"""Loading a log after a clean or an unclean stop."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from kafkalite.common.errors import StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.segment.segment import NEVER, Segment
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch

Disk = Any  # of conftest.py
Log = Any


def filled(disk: Disk, **settings: object) -> Log:
    log = disk.open(segment_bytes=250, index_interval_bytes=0, **settings)
    for i, value in enumerate("abcdefgh"):
        log.write(value, producer_id=7, producer_epoch=0, base_sequence=i, epoch=i // 3)
    return log


def test_a_torn_batch_is_cut_at_restart(disk: Disk, log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.write("a", "b", "c")
    log.write("d")
    size = disk.file(0).stat().st_size
    disk.cut(0, 7)  # seven bytes lost with the power
    log = disk.kill(log)
    assert log.read_all() == ["a", "b", "c"]
    lost = size - 7 - disk.file(0).stat().st_size
    assert log.log.lost_bytes == lost > 0
    assert f"cut off the last {lost} of {size - 7} bytes" in caplog.text
    log.write("e")
    assert disk.kill(log).read_all() == ["a", "b", "c", "e"]


@pytest.mark.parametrize("position", [8, 16, 17, 23, 62])
def test_damage_ends_the_log_and_later_segments_go(disk: Disk, position: int) -> None:
    log = filled(disk)
    bases = [segment.base_offset for segment in log.log.segments]
    assert bases == [0, 3, 6]
    disk.flip(3, position + 70 if position > 60 else position)
    log.log.abandon()
    log = disk.open(clean=False, recovery_point=3)
    survivors = 3 if position < 60 else 4
    assert log.read_all() == list("abcdefgh"[:survivors])
    assert not disk.file(6).exists()
    assert log.log.epochs.latest == (survivors - 1) // 3
    assert log.log.end_offset == survivors
    assert log.write("x", producer_id=7, producer_epoch=0, base_sequence=survivors).base_offset == survivors
    assert log.write("x", producer_id=7, producer_epoch=0, base_sequence=survivors).duplicate


@pytest.mark.parametrize("flush_messages", [1, NEVER])
def test_what_a_killed_broker_left_is_on_the_disk_before_it_is_read(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, flush_messages: int
) -> None:
    log = filled(disk)
    log.log.abandon()
    synced: list[str] = []
    sync = Files.sync
    monkeypatch.setattr(Files, "sync", lambda files, path: (synced.append(path), sync(files, path)))
    disk.open(clean=False, recovery_point=4, flush_messages=flush_messages)
    tail = {str(disk.file(3)), str(disk.file(6)), str(disk.file(6).parent)}
    assert (tail <= set(synced) and str(disk.file(0)) not in synced) is (flush_messages == 1)


def test_below_the_recovery_point_nothing_is_read(disk: Disk) -> None:
    log = filled(disk)
    log.log.abandon()
    disk.flip(0, 70)  # rots unseen
    log = disk.open(clean=False, recovery_point=3)
    assert log.log.lost_bytes == 0
    assert [r.offset for r in log.records(3)] == [3, 4, 5, 6, 7]
    log.log.abandon()
    assert disk.open(clean=False, recovery_point=2).log.lost_bytes > 0


def test_a_roll_that_was_cut_short_at_the_recovery_point_costs_no_time(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = disk.open(segment_bytes=250)
    for i in range(3):
        log.write("a", timestamp=1000 + i)
    log.log.flusher.flush()

    def killed(segment: Segment) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Segment, "seal", killed)
    with pytest.raises(KeyboardInterrupt):
        log.write("b", timestamp=2000)
    monkeypatch.undo()
    assert disk.file(3).exists() and log.log.flusher.recovery_point == 3
    log = disk.kill(log)
    assert [segment.base_offset for segment in log.log.segments] == [0, 3]
    assert log.log.lookup_of_timestamp(1002, 3).answer() == (1002, 2, 0)
    assert log.log.lookup_of_max_timestamp(3).answer() == (1002, 2, 0)


def test_what_aborted_transactions_left_survives_an_index_made_again(disk: Disk) -> None:
    log = filled(disk)
    log.log.segments[0].txn_index.append(AbortedTxn(7, 0, 2, 3))
    log.log.abandon()
    segment = disk.open(clean=False, recovery_point=3).log.segments[0]
    assert segment.txn_index.all() == [AbortedTxn(7, 0, 2, 3)]


@pytest.mark.parametrize("last_offset", [8, (1 << 63) - 1])
def test_aborted_transactions_that_end_past_the_log_are_dropped(disk: Disk, last_offset: int) -> None:
    log = filled(disk)
    kept = AbortedTxn(7, 6, 7, 8)
    log.log.segments[-1].txn_index.append(kept)
    log.log.segments[-1].txn_index.append(AbortedTxn(7, 0, last_offset, 9))
    log.log.close()
    assert disk.open(clean=True).log.segments[-1].txn_index.all() == [kept]


def test_indexes_are_made_again_as_they_were(disk: Disk) -> None:
    log = filled(disk)
    log.log.close()
    kinds = (".index", ".timeindex")
    before = {(base, kind): disk.file(base, kind).read_bytes() for base in (0, 3, 6) for kind in kinds}
    assert before[0, ".index"] == struct.pack(">iiii", 1, 70, 2, 140)
    for base in (0, 3, 6):
        disk.file(base, ".index").write_bytes(b"rubbish!" * 3)
        disk.file(base, ".timeindex").unlink()
    disk.open(clean=False).log.close()
    assert {key: disk.file(*key).read_bytes() for key in before} == before


def test_a_missing_index_is_made_again_even_after_a_clean_stop(disk: Disk) -> None:
    log = filled(disk)
    log.log.close()
    before = disk.file(3, ".index").read_bytes()
    disk.file(3, ".index").unlink()
    disk.file(99, ".index").write_bytes(before)  # and one without a segment goes
    log = disk.open(clean=True)
    assert log.read_all() == list("abcdefgh")
    assert disk.file(3, ".index").read_bytes() == before
    assert not disk.file(99, ".index").exists()


def test_a_clean_stop_that_was_none_is_noticed(disk: Disk, log: Log) -> None:
    log.write("a")
    log.write("b")
    log.log.close()
    disk.cut(0, 3)
    log = disk.open(clean=True)
    assert log.read_all() == ["a"]
    assert log.log.lost_bytes > 0


def test_producers_come_from_the_snapshot_and_what_lies_behind(disk: Disk) -> None:
    log = filled(disk)
    log.log.close()
    assert disk.file(8, ".snapshot").exists()
    for name in (3, 8):
        disk.file(name, ".snapshot").unlink()
    disk.flip(6, 8, ".snapshot")
    log = disk.open(clean=False, recovery_point=8)
    assert log.write("h", producer_id=7, producer_epoch=0, base_sequence=7).duplicate


def test_the_tail_of_a_preallocated_segment_is_no_record(disk: Disk) -> None:
    log = disk.open(preallocate=True, segment_bytes=4096)
    log.write("a")
    disk.file(0).write_bytes(disk.file(0).read_bytes().ljust(4096, b"\0"))
    log = disk.kill(log)
    assert log.read_all() == ["a"]
    log.write("b")
    log.log.close()
    assert disk.open().read_all() == ["a", "b"]


def test_a_log_that_ends_before_its_start_begins_anew(disk: Disk) -> None:
    log = filled(disk)
    log.log.close()
    log = disk.open(start_offset=100)
    assert (log.log.start_offset, log.log.end_offset, log.read_all()) == (100, 100, [])
    assert log.write("x").base_offset == 100
    assert [name for name in disk.names() if name.endswith(".log")] == [disk.file(100).name]


def test_old_formats_are_not_cut_as_if_they_were_torn(disk: Disk) -> None:
    body = struct.pack(">bbiii", 0, 0, -1, 1, 0)[:-4] + b"v"
    message = struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body
    disk.file(0).write_bytes(message)
    assert disk.open(clean=False).log.end_offset == 1
    assert disk.file(0).read_bytes() == message


class TestInterruptedCleanUp:
    """The cleaner was replacing segments 0 and 3 by a new 0 when the broker died."""

    @pytest.fixture
    def new(self, disk: Disk) -> bytes:
        filled(disk).log.close()
        return bytes(
            build_batch([NewRecord(b"k", b"compacted")], base_offset=1)
            + build_batch([NewRecord(b"k", b"too")], base_offset=5)
        )

    def test_while_writing(self, disk: Disk, new: bytes) -> None:
        disk.file(0, ".log.cleaned").write_bytes(new)
        disk.file(0, ".index.cleaned").write_bytes(b"")
        assert disk.open().read_all() == list("abcdefgh")
        assert not [name for name in disk.names() if name.endswith(".cleaned")]

    def test_while_renaming_to_swap(self, disk: Disk, new: bytes) -> None:
        disk.file(0, ".log.cleaned").write_bytes(new)
        disk.file(3, ".log.swap").write_bytes(new)
        assert disk.open().read_all() == list("abcdefgh")
        assert not [name for name in disk.names() if name.endswith((".cleaned", ".swap"))]

    def test_while_switching(self, disk: Disk, new: bytes) -> None:
        disk.file(0, ".log.swap").write_bytes(new)
        disk.file(3).rename(disk.file(3, ".log.deleted"))
        log = disk.open()
        assert log.read_all() == ["compacted", "too", "g", "h"]
        assert [r.offset for r in log.records()] == [1, 5, 6, 7]
        assert not [name for name in disk.names() if name.endswith((".swap", ".deleted"))]
        assert disk.kill(log).read_all() == ["compacted", "too", "g", "h"]

    def test_with_nothing_left_of_the_first_one(self, disk: Disk, new: bytes) -> None:
        """The entries behind it point behind its last batch: they stay, as in Apache Kafka."""
        disk.file(0, ".log.swap").write_bytes(b"")
        disk.file(0, ".txnindex").write_bytes(bytes(34))
        log = disk.open()
        assert log.read_all() == list("defgh") and log.log.end_offset == 8
        assert [r.offset for r in log.records(1)] == [3, 4, 5, 6, 7]
        assert not disk.file(0, ".txnindex").exists(), "it was the old one's"
        assert disk.kill(log).read_all() == list("defgh")

    def test_what_lies_behind_its_last_batch_stays(self, disk: Disk, new: bytes) -> None:
        disk.file(0, ".log.swap").write_bytes(build_batch([NewRecord(b"k", b"B")], base_offset=1))
        log = disk.open()
        assert [r.offset for r in log.records()] == [1, 3, 4, 5, 6, 7]
        assert disk.kill(log).read_all() == list("Bdefgh")

    def test_the_producers_at_its_begin_are_known_and_those_inside_are_not(self, disk: Disk, new: bytes) -> None:
        at_begin = disk.file(3, ".snapshot").read_bytes()
        later = build_batch([NewRecord(b"k", b"too")], base_offset=7)
        disk.file(3, ".log.swap").write_bytes(later)
        log = disk.open()
        assert disk.file(3, ".snapshot").read_bytes() == at_begin and not disk.file(6, ".snapshot").exists()
        assert [r.offset for r in log.records()] == [0, 1, 2, 7]

    def test_a_swap_that_is_damaged_is_left_for_people(self, disk: Disk, new: bytes) -> None:
        disk.file(0, ".log.swap").write_bytes(new[:-1])
        with pytest.raises(StorageError, match="should be complete"):
            disk.open()
        assert disk.file(0).exists() and disk.file(3).exists()


class TestGapsBetweenSegments:
    """Kafka keeps everything, whatever left them: compaction before the policy changed, or a power cut."""

    @pytest.fixture
    def gaps(self, disk: Disk) -> list[int]:
        """The offsets that are left: of the second segment the last batch is missing, of the third one all."""
        log = filled(disk)
        log.log.close()
        assert [segment.base_offset for segment in log.log.segments] == [0, 3, 6]
        data = disk.file(3).read_bytes()
        disk.file(3).write_bytes(data[: len(data) // 3 * 2])
        return [0, 1, 2, 3, 4, 6, 7]

    @pytest.mark.parametrize("recovery_point", [0, 3, 5, 6, 8])
    def test_they_are_no_damage(self, disk: Disk, gaps: list[int], recovery_point: int) -> None:
        before = {path.name: path.read_bytes() for path in disk.directory.glob("*.log")}
        log = disk.open(clean=False, recovery_point=recovery_point)
        assert [record.offset for record in log.records()] == gaps
        assert (log.log.lost_bytes, log.log.end_offset) == (0, 8)
        assert {path.name: path.read_bytes() for path in disk.directory.glob("*.log")} == before
        assert [record.offset for record in disk.kill(log).records()] == gaps

    @pytest.mark.parametrize(
        ("recovery_point", "gaps_below", "policy", "gap_offset"),
        [
            (0, 0, "delete", 5),
            (5, 0, "delete", 5),
            (6, 0, "delete", NEVER),  # below the recovery point all was on the disk
            (0, 6, "delete", NEVER),  # the cleaner has been there
            (0, 5, "delete", 5),
            (0, NEVER, "delete", NEVER),  # another broker's log
            (0, 0, "compact", NEVER),
        ],
    )
    def test_the_log_remembers_where_it_may_have_lost_records(
        self, disk: Disk, gaps: list[int], recovery_point: int, gaps_below: int, policy: str, gap_offset: int
    ) -> None:
        options = LoadOptions(False, recovery_point, gaps_below=gaps_below)
        config = TopicConfig(cleanup_policy=(policy,))
        log = open_log("orders", 0, str(disk.directory), config, options, disk.services)
        assert log.gap_offset == gap_offset
        if gap_offset < NEVER:
            log.truncate_to(gap_offset)
            assert (log.end_offset, log.gap_offset) == (5, NEVER)
        log.abandon()

    def test_records_deleted_before_its_end_end_the_doubt(self, disk: Disk, gaps: list[int]) -> None:
        log = disk.open(clean=False)
        assert log.log.gap_offset == 5
        log.log.delete_records_before(6)
        assert log.log.gap_offset == NEVER
