"""Exact numbers: what a log says of itself against a plain recount, whatever happened to it and to what was noted."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from random import Random

import pytest

from kafkalite.common.errors import Malformed, StorageError
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.segment.record_count_file import Identity, decode_entries, encode_entry, identity_of
from kafkalite.log.segment.record_counting import Tally, count
from kafkalite.record.batch import NewRecord, build_batch, parse_header
from kafkalite.record.compression import GZIP, NONE
from kafkalite.record.message_set import V0, V1, build_set, entry_header
from tests.support.log.record_count_disk import Disk, marker, records, recount
from tests.unit.log.conftest import START_MS


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.fixture
def hopped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes were gone through each time."""
    from kafkalite.log.segment import record_counts

    seen: list[int] = []

    def watched(fd: int, position: int, end: int, *rest: object, **more: object) -> Tally:
        seen.append(end - position)
        return count(fd, position, end, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(record_counts, "count", watched)
    return seen


def test_an_append_moves_the_numbers_at_once(disk: Disk, hopped: list[int]) -> None:
    assert disk.log.record_counts.current().live_records == 0
    disk.write(3)
    disk.append(marker())
    disk.write(2, codec=GZIP)
    counts = disk.check()
    assert (counts.live_records, counts.control_records) == (5, 1)
    disk.fill(5)
    disk.check()
    assert not hopped


def test_a_batch_that_was_refused_by_the_disk_does_not_count(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.write(2)

    def full(fd: int, data: object, position: int) -> int:
        raise OSError(28, "No space left on device")

    segment = disk.log.segments[-1]
    kept, segment._pwrite = segment._pwrite, full
    with pytest.raises(Exception, match="no space"):
        disk.write(5)
    segment._pwrite = kept
    disk.write(1)
    assert disk.check().live_records == 3


def test_after_a_clean_stop_nothing_is_read_again(disk: Disk, hopped: list[int]) -> None:
    disk.fill(6)
    disk.write(1)
    for _ in range(3):
        disk.restart()
        disk.check()
        disk.write(2)
        disk.check()
    assert not hopped


def test_numbers_that_nobody_asked_for_are_handed_on_from_stop_to_stop(disk: Disk, hopped: list[int]) -> None:
    """Also those of the last segment, which grows, is sealed by a roll, and is never asked about."""
    disk.fill(3)
    for _ in range(6):
        disk.restart()
        disk.write(3)
        disk.append(marker())
    assert len(disk.log.segments) > 4
    disk.restart()
    disk.check()
    assert not hopped


def test_after_a_kill_what_was_recovered_is_known(disk: Disk, hopped: list[int]) -> None:
    disk.fill(5)
    disk.kill()
    disk.check()
    assert not hopped, "recovery has seen every batch"
    disk.restart()
    disk.check()
    assert not hopped


def test_below_the_recovery_point_the_notes_are_believed(disk: Disk, hopped: list[int]) -> None:
    disk.fill(5)
    disk.log.flusher.flush()
    disk.write(1)
    disk.kill()
    disk.check()
    assert not hopped


def test_what_a_torn_end_loses_does_not_count(disk: Disk) -> None:
    disk.write(3)
    disk.write(4)
    path = Path(disk.log.segments[-1].path)
    disk.log.abandon()
    os.truncate(path, path.stat().st_size - 5)
    disk.options = LoadOptions(clean=False)
    disk.log = disk._open()
    assert disk.check().live_records == 3


def test_a_marker_that_makes_no_sense_is_cut_off_and_does_not_count(disk: Disk) -> None:
    """Its checksum is right, so it is indexed before the producers refuse it."""
    disk.write(3)
    disk.append(build_batch([NewRecord(b"?", b"")], producer_id=7, producer_epoch=0, transactional=True, control=True))
    disk.kill()
    disk.check()


def test_delete_records_counts_from_inside_a_segment_and_inside_a_batch(disk: Disk) -> None:
    disk.write(5)
    disk.append(marker())
    disk.write(5, codec=GZIP)
    for start, live, control in ((2, 8, 1), (5, 5, 1), (6, 5, 0), (7, 4, 0), (11, 0, 0)):
        disk.log.delete_records_before(start)
        counts = disk.check()
        assert (counts.live_records, counts.control_records) == (live, control)
    disk.write(2)
    assert disk.check().live_records == 2


def test_a_start_that_moves_on_removes_segments_and_their_numbers(disk: Disk) -> None:
    disk.fill(6)
    disk.log.delete_records_before(disk.log.segments[3].base_offset + 1)
    assert len(disk.check().segments) == 3
    disk.restart()
    disk.check()


def test_the_start_of_a_compacted_batch_is_found_in_it(disk: Disk) -> None:
    """Its header tells how many records are left, and not which."""
    disk.stop()
    holes = build_batch(records(3), offset_deltas=[1, 4, 8], last_offset_delta=9)
    empty = build_batch([], base_offset=10, last_offset_delta=4, producer_id=3, producer_epoch=0, base_sequence=0)
    Path(disk.log.segments[-1].path).write_bytes(bytes(holes + empty))
    disk.log = disk._open()
    assert disk.check().live_records == 3
    for start, live in ((1, 3), (2, 2), (5, 1), (8, 1), (9, 0), (12, 0)):
        disk.log.delete_records_before(start)
        assert disk.check().live_records == live


def test_truncation_counts_the_segment_that_was_cut_again(disk: Disk, hopped: list[int]) -> None:
    disk.fill(5)
    at = disk.log.segments[3].base_offset + 4
    disk.log.truncate_to(at)
    disk.check()
    assert len(hopped) == 1
    disk.write(4)
    disk.check()
    disk.log.truncate_to(0)
    assert disk.check().live_records == 0
    assert len(hopped) == 1


def test_a_truncation_that_fails_half_way_counts_nothing_for_the_wrong_segment(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment that was written last is gone then, and what was appended to it is no other one's."""
    disk.fill(3)
    log = disk.log
    disk.write(2)
    log.record_counts.current()
    disk.write(3)  # these nobody has asked for yet
    first = log.segments[-1].base_offset

    def broken(path: str, size_bytes: int) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(disk.files, "truncate_path", broken)
    with pytest.raises(StorageError):
        log.truncate_to(first - 1)
    assert log.segments[-1].base_offset < first
    known = [(count.live_records, count.size_bytes) for count in log.record_counts.current().segments]
    monkeypatch.undo()
    assert known == [(live, size) for _, size, live, _ in recount(disk.directory, 0)]


def test_of_a_segment_that_is_indexed_up_to_a_damage_no_part_is_told(disk: Disk) -> None:
    disk.fill(3)
    log = disk.log
    base, path = log.segments[0].base_offset, Path(log.segments[0].path)
    assert len(log.segments) > 1 and base == 0
    recovery_point = log.segments[-1].base_offset
    log.flusher.flush()
    log.abandon()
    data = bytearray(path.read_bytes())
    second = 12 + struct.unpack_from(">i", data, 8)[0]
    assert second < len(data)
    data[second + 16] = 9  # the magic of its second batch
    path.write_bytes(data)
    os.unlink(path.with_suffix(".timeindex"))
    disk.options = LoadOptions(clean=False, recovery_point=recovery_point)
    disk.log = disk._open()
    counts = disk.log.record_counts.current()
    assert counts.segments[0].size_bytes == len(data)
    assert counts.segments[0].live_records is None, "the batches before the damage are not all"


def test_segments_that_are_removed_before_they_are_counted_hold_up_no_others(tmp_path: Path) -> None:
    disk = Disk(tmp_path, later=True)
    disk.fill(3)
    disk.stop()
    disk.noted.unlink()
    disk.log = disk._open()
    assert disk.log.record_counts.current().is_counting
    first, second = disk.log.segments[:2]
    disk.log.delete_records_before(second.base_offset)
    disk.log.delete_old_segments(disk.clock.wall_ms(), 1)
    assert disk.log.segments[0] is second and not Path(first.path).exists()
    assert disk.check().live_records


def test_a_start_that_comes_back_after_a_truncation_is_counted_anew(disk: Disk) -> None:
    disk.write(5)
    disk.log.delete_records_before(3)
    disk.check()
    disk.log.truncate_to(0)
    for _ in range(5):
        disk.append(marker())
    disk.log.delete_records_before(3)
    counts = disk.check()
    assert (counts.live_records, counts.control_records) == (0, 2)


@pytest.mark.parametrize("magic", [V0, V1])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_messages_of_old_formats_count(disk: Disk, magic: int, codec: int) -> None:
    disk.stop()
    old = build_set([(i, START_MS, b"k", b"v%d" % i) for i in range(5)], magic, codec=codec)
    new = build_batch(records(3), base_offset=5)
    Path(disk.log.segments[-1].path).write_bytes(bytes(old) + bytes(new))
    for clean in (True, False):
        disk.options = LoadOptions(clean)
        disk.log = disk._open()
        assert disk.check().live_records == 8
        disk.log.abandon()
    disk.log = disk._open()
    for start in range(1, 9):
        disk.log.delete_records_before(start)
        assert disk.check().live_records == 8 - start


def test_a_v0_message_alone_at_the_end_of_the_file_counts(disk: Disk) -> None:
    """It is shorter than the header of a batch."""
    disk.stop()
    data = build_set([(0, -1, None, b"")], V0)
    assert entry_header(data).size_bytes < 61
    Path(disk.log.segments[-1].path).write_bytes(data)
    disk.log = disk._open()
    assert disk.check().live_records == 1


# by another hand


def test_until_it_is_known_the_answer_is_none(tmp_path: Path) -> None:
    disk = Disk(tmp_path, later=True)
    disk.fill(3)
    disk.stop()
    disk.noted.unlink()
    disk.log = disk._open()
    counts = disk.log.record_counts.current()
    assert counts.is_counting
    assert {segment.live_records for segment in counts.segments} == {None}
    assert counts.live_records is None and counts.control_records is None
    assert counts.size_bytes == disk.log.size_bytes
    disk.write(2)
    assert disk.log.record_counts.current().live_records is None
    disk.check()


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_under_way_when_the_log_was_cut_counts_for_nothing(tmp_path: Path, when: str) -> None:
    disk = Disk(tmp_path, later=True)
    disk.write(5)
    disk.stop()
    disk.noted.unlink()
    disk.log = disk._open()
    disk.log.record_counts.current()
    if when == "before":
        disk.pending.popleft()()
    disk.log.truncate_to(0)
    for _ in range(3):
        disk.append(marker())
    counts = disk.check()
    assert (counts.live_records, counts.control_records) == (0, 3)


def test_a_start_that_was_under_way_when_the_log_was_cut_counts_for_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path, later=True)
    disk.write(5)
    disk.log.delete_records_before(3)
    disk.log.record_counts.current()
    while disk.pending:
        disk.pending.popleft()()
    disk.log.truncate_to(0)
    for _ in range(5):
        disk.append(marker())
    disk.log.delete_records_before(3)
    counts = disk.check()
    assert (counts.live_records, counts.control_records) == (0, 2)


def test_a_roll_while_it_is_counted_counts_nothing_twice(tmp_path: Path) -> None:
    disk = Disk(tmp_path, later=True)
    disk.write(5)
    disk.restart()
    disk.write(1)
    disk.log.record_counts.current()
    disk.fill(3)  # the roll looks up what the job is looking for, too
    disk.check()


def test_a_count_ends_when_the_log_is_closed(tmp_path: Path, hopped: list[int]) -> None:
    disk = Disk(tmp_path, later=True)
    disk.write(5)
    disk.stop()
    disk.noted.unlink()
    disk.log = disk._open()
    disk.log.record_counts.current()
    disk.log.abandon()
    disk.work()
    assert disk.log.record_counts.current().live_records is None


def test_a_log_that_cannot_be_counted_says_so_once(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.fill(3)
    disk.stop()
    first = Path(disk.log.segments[0].path)
    data = bytearray(first.read_bytes())
    data[16] = 77  # no magic that ever was
    first.write_bytes(data)
    disk.log = disk._open()
    counts = disk.log.record_counts.current()
    assert counts.segments[0].live_records is None and counts.live_records is None
    assert counts.segments[1].live_records is not None
    assert not counts.is_counting
    disk.log.record_counts.current()
    assert caplog.text.count("cannot count the records") == 1


# what is noted


def test_a_file_that_was_replaced_is_not_believed(disk: Disk) -> None:
    """As Apache Kafka's cleaner does it: a new file with the times of the old one, here even of its size."""
    disk.fill(4)
    disk.stop()
    path = Path(disk.log.segments[1].path)
    before = path.stat()
    data = path.read_bytes()
    header = parse_header(data)
    holes = build_batch([], last_offset_delta=header.last_offset_delta, base_offset=header.base_offset, producer_id=3)
    filler = build_batch([NewRecord(None, b"")], base_offset=header.last_offset + 1)
    missing = len(data) - len(holes) - len(filler)
    filler = build_batch([NewRecord(None, b"x" * (missing - 1))], base_offset=header.last_offset + 1)
    while len(holes) + len(filler) > len(data):
        missing -= 1
        filler = build_batch([NewRecord(None, b"x" * missing)], base_offset=header.last_offset + 1)
    swap = path.with_suffix(".swap")
    swap.write_bytes(bytes(holes + filler))
    os.utime(swap, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert swap.stat().st_size == before.st_size
    swap.replace(path)
    disk.log = disk._open()
    assert disk.check().segments[1].live_records == 1


def test_a_last_file_that_was_replaced_is_not_believed_when_it_grows(disk: Disk) -> None:
    """No reader asks before it is noted again."""
    disk.write(5)
    disk.stop()
    path = Path(disk.log.segments[-1].path)
    path.write_bytes(bytes(build_batch(records(2), last_offset_delta=4, offset_deltas=[1, 3])))
    disk.log = disk._open()
    disk.write(1)
    disk.restart()
    assert disk.check().live_records == 3


def test_a_file_that_was_changed_in_place_is_not_believed(disk: Disk) -> None:
    disk.fill(3)
    disk.stop()
    path = Path(disk.log.segments[0].path)
    before = path.stat()
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 57, 1)  # as if there were one record in the first batch
    while True:  # until the clock of the file system has moved on
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        if path.stat().st_ctime_ns != before.st_ctime_ns:
            break
    disk.log = disk._open()
    assert disk.log.record_counts.current().segments[0].live_records == recount_headers(path)


def recount_headers(path: Path) -> int:
    with path.open("rb") as file:
        return count(file.fileno(), 0, path.stat().st_size).records


def test_a_copied_directory_is_counted_once(tmp_path: Path, hopped: list[int]) -> None:
    import shutil

    disk = Disk(tmp_path / "here")
    disk.fill(4)
    disk.stop()
    shutil.copytree(disk.directory, tmp_path / "there" / "orders-0")
    disk.directory = tmp_path / "there" / "orders-0"
    disk.log = disk._open()
    disk.check()
    assert len(hopped) == 4
    disk.restart()
    disk.check()
    assert len(hopped) == 4


def damages(data: bytes) -> list[bytes]:
    """The file in every state that makes no sense, and some that nearly do."""
    found = [b"", b"\0" * len(data), data[::-1], data + data[:17], data[1:], data * 2, b"\xff" * 4096]
    found += [data[:cut] for cut in range(0, len(data), 7)]
    for at in range(len(data)):
        for bit in (0, 7):
            found.append(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
    return found


def test_no_damage_to_the_notes_makes_a_number_wrong(disk: Disk) -> None:
    disk.fill(3)
    disk.log.delete_records_before(2)
    disk.stop()
    data = disk.noted.read_bytes()
    assert len(data) == 3 * 64
    for damaged in damages(data):
        disk.noted.write_bytes(damaged)
        disk.log = disk._open()
        disk.check()
        disk.write(1)
        disk.check()
        disk.log.truncate_to(disk.log.end_offset - 1)
        disk.log.abandon()


def test_notes_of_another_partition_are_not_believed(tmp_path: Path) -> None:
    mine, other = Disk(tmp_path / "a"), Disk(tmp_path / "b")
    mine.fill(3)
    while len(other.log.segments) < 3:
        other.append(marker())
    mine.stop()
    other.stop()
    mine.noted.write_bytes(other.noted.read_bytes())
    mine.log = mine._open()
    mine.check()


def test_a_note_that_cannot_be_read_or_written_costs_a_count(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.noted.mkdir()
    disk.fill(3)
    disk.restart()
    disk.check()
    disk.write(1)
    disk.restart()
    disk.check()
    assert "cannot note the record counts" in caplog.text


def test_a_torn_note_is_written_over(disk: Disk, hopped: list[int]) -> None:
    disk.fill(3)
    disk.stop()
    data = disk.noted.read_bytes()
    disk.noted.write_bytes(data + data[:40])
    disk.log = disk._open()
    disk.fill(4)
    disk.stop()
    assert disk.noted.stat().st_size % 64 == 0
    disk.log = disk._open()
    disk.check()
    assert not hopped


def test_notes_of_segments_that_are_gone_are_thrown_away(disk: Disk, hopped: list[int]) -> None:
    for _ in range(300):
        disk.fill(len(disk.log.segments) + 1)
        disk.log.delete_records_before(disk.log.segments[-2].base_offset)
    assert disk.noted.stat().st_size < 100 * 64
    disk.restart()
    disk.check()
    assert not hopped


def test_an_entry_says_what_was_put_in() -> None:
    identity = Identity(1 << 40, 2, -3, (1 << 63) - 1)
    entry = encode_entry(42, identity, Tally(5, 6))
    assert len(entry) == 64
    newer = encode_entry(42, identity, Tally(7, 8))
    assert decode_entries(entry + newer + entry[:63]) == {42: (identity, Tally(7, 8))}


def test_a_partition_without_records_has_no_file_of_ours(disk: Disk) -> None:
    disk.stop()
    assert not disk.noted.exists()


def test_an_inode_of_64_bits_fits_in_a_note(tmp_path: Path) -> None:
    stat = os.stat_result((0, (1 << 64) - 1, *range(8)), {"st_mtime_ns": 1, "st_ctime_ns": 2})
    assert decode_entries(encode_entry(0, identity_of(stat), Tally(0, 0)))[0][0].inode == (1 << 63) - 1


@pytest.mark.parametrize("value_bytes", [0, 50, 1800, 2000, 2100, 70_000])
def test_any_size_of_batch_is_counted(tmp_path: Path, value_bytes: int) -> None:
    random = Random(value_bytes)
    data = bytearray()
    offset = 0
    ends = set()
    for i in range(40):
        size = value_bytes if i % 5 else random.choice((0, 66_000))
        batch = build_batch([NewRecord(None, b"v" * size)] * random.randint(1, 3), base_offset=offset)
        offset = parse_header(batch).last_offset + 1
        data += batch
        ends.add(len(data))
    path = tmp_path / "log"
    path.write_bytes(data)
    with path.open("rb") as file:
        assert count(file.fileno(), 0, len(data)) == (offset, 0)
        for before in range(offset + 1):
            assert count(file.fileno(), 0, len(data), before) == (before, 0)
        for cut in {*range(1, 90)} - {len(data) - end for end in ends}:
            with pytest.raises(Malformed):
                count(file.fileno(), 0, len(data) - cut)
        with pytest.raises(Malformed):
            count(file.fileno(), 0, len(data) + 61)
