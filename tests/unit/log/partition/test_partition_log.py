"""One partition's log as producers and consumers meet it."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition import segment_list
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import create_log
from kafkalite.log.storage.file_names import FAILED_SYNC
from kafkalite.log.storage.files import Done, Files, Job, SyncFailed
from kafkalite.record.batch import HEADER_BYTES, NewRecord, assemble, build_batch, compute_crc, parse_header
from kafkalite.record.compression import CODECS
from tests.support.descriptors import open_below
from tests.support.log.faulty_files import FaultyFiles
from tests.support.manual_clock import ManualClock

Disk = Any  # of conftest.py
Log = Any

T0 = 1_700_000_000_000


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call()
    return raised.value.code


def bases(disk: Disk) -> list[int]:
    return [int(name[:20]) for name in disk.names() if name.endswith(".log")]


# in and out


def test_records_come_out_as_they_went_in(log: Log) -> None:
    first = log.write("a", "b", "c")
    second = log.write("d")
    assert (first, second) == ((0, 2, -1, False), (3, 3, -1, False))
    assert log.read_all() == ["a", "b", "c", "d"]
    assert [r.offset for r in log.records(1)] == [1, 2, 3]
    assert log.log.size_bytes == sum(p.stat().st_size for p in [disk_file(log)])


def disk_file(log: Log) -> Any:
    from pathlib import Path

    return Path(log.log.segments[0].path)


def test_the_bytes_are_the_producers_but_for_offset_and_epoch(disk: Disk, log: Log) -> None:
    log.write("a", epoch=3)
    sent = build_batch([NewRecord(b"k", b"v" * 100, (("h", b"x"),), T0)], codec=CODECS["lz4"])
    expected = bytearray(sent)
    expected[0:8] = (1).to_bytes(8, "big")
    expected[12:16] = (4).to_bytes(4, "big")
    log.append(sent, epoch=4)
    assert disk.file(0).read_bytes().endswith(expected)
    assert disk.names() == [
        "00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
    ]  # fmt: skip
    assert (disk.directory / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n3 0\n4 1\n"
    assert log.log.epochs.latest == 4
    assert (log.log.epochs.epoch_at(0), log.log.epochs.epoch_at(1)) == (3, 4)
    assert log.log.epochs.end_offset_for(3, log.log.end_offset) == (3, 1)
    assert log.log.epochs.end_offset_for(4, log.log.end_offset) == (4, 2)


def test_a_read_is_bounded_below_and_above(log: Log) -> None:
    for value in "abcdef":
        log.write(value)
    assert log.log.read(6, 1000, 6) is None, "at the end: nothing yet"
    assert log.log.read(4, 1000, 4) is None, "at the limit: nothing yet"
    assert code_of(lambda: log.log.read(7, 1000, 6)) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.log.delete_records_before(2)
    assert code_of(lambda: log.log.read(1, 1000, 6)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [r.offset for r in log.records(limit=4)] == [2, 3]


def test_the_first_batch_comes_whole_or_not_at_all(log: Log) -> None:
    log.write("a" * 100, "b" * 100)
    log.write("c")
    whole = log.log.read(1, 10, 3)
    assert whole is not None
    assert len(whole) == log.log.read(1, 1 << 20, 2).size, "one batch, not two"
    assert log.log.read(1, 10, 3, min_one=False) is None
    assert log.log.read(1, 0, 3, min_one=False) is None
    cut_off = log.log.read(1, len(whole) + 5, 3, min_one=False)
    assert len(cut_off) == len(whole) + 5, "only the last batch may be cut off"


def test_a_region_outlives_its_segment(disk: Disk) -> None:
    log = disk.open(segment_bytes=100, file_delete_delay_ms=0)
    for value in "abc":
        log.write(value)
    region = log.log.read(0, 1000, 3)
    data = region.read()
    log.log.delete_records_before(3)
    disk.clock.advance(1)
    assert bases(disk) == [2]
    assert region.read() == data


# idempotence


def test_a_batch_that_was_sent_twice_is_appended_once(log: Log) -> None:
    def send(sequence: int) -> Any:
        return log.write("a", "b", producer_id=7, producer_epoch=0, base_sequence=sequence)

    log.write("x")
    assert send(0) == (1, 2, -1, False)
    assert send(2) == (3, 4, -1, False)
    assert send(0) == (1, 2, T0, True)
    assert code_of(lambda: send(6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(4).base_offset == 5
    assert len(log.records()) == 7


def test_a_duplicate_is_known_after_a_restart_of_either_kind(disk: Disk, log: Log) -> None:
    for sequence in range(3):
        log.write("a", producer_id=7, producer_epoch=0, base_sequence=sequence)
    for stop in (disk.restart, disk.kill):
        log = stop(log)
        result = log.write("a", producer_id=7, producer_epoch=0, base_sequence=2)
        assert (result.base_offset, result.duplicate) == (2, True)
        assert log.log.end_offset == 3
    assert log.log.producers.expire(T0 + 86_400_000, 86_400_000) == 1


@pytest.mark.parametrize("segment_bytes", [1 << 20, 250])
def test_so_are_all_that_were_on_their_way_to_a_clean_stop(disk: Disk, segment_bytes: int) -> None:
    """A snapshot names the last batch of a producer only. librdkafka gives up if the first is refused, as it is by
    Kafka."""
    log = disk.open(segment_bytes=segment_bytes)
    for sequence in range(9):
        log.write("a", producer_id=7, producer_epoch=sequence > 1, base_sequence=sequence - 2 * (sequence > 1))
        log.write("b", producer_id=8, producer_epoch=0, base_sequence=sequence)
        log.write("c")
    for stop in (disk.restart, disk.kill, disk.restart):
        log = stop(log)
        for sequence in range(2, 7):
            result = log.write("a", producer_id=7, producer_epoch=1, base_sequence=sequence)
            assert (result.base_offset, result.duplicate) == (3 * (sequence + 2), True)
    too_old = code_of(lambda: log.write("a", producer_id=7, producer_epoch=1, base_sequence=1))
    assert too_old == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log = disk.restart(log)
    log.write("a", producer_id=7, producer_epoch=1, base_sequence=7)
    assert log.write("a", producer_id=7, producer_epoch=1, base_sequence=3).base_offset == 15
    assert code_of(lambda: log.write("a", producer_id=8, producer_epoch=0, base_sequence=10)) == too_old


def test_earlier_batches_are_looked_for_near_the_end_alone(
    disk: Disk, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_list, "EARLIER_BYTES", 10_000)
    log.write("a", producer_id=7, producer_epoch=0, base_sequence=0)
    log.write("x" * 20_000)
    for sequence in (1, 2):
        log.write("a", producer_id=7, producer_epoch=0, base_sequence=sequence)
    log = disk.restart(log)
    too_old = code_of(lambda: log.write("a", producer_id=7, producer_epoch=0, base_sequence=0))
    assert too_old == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.write("a", producer_id=7, producer_epoch=0, base_sequence=1).duplicate


# rolling


def test_a_full_segment_is_followed_by_the_next(disk: Disk) -> None:
    log = disk.open(segment_bytes=1000, segment_index_bytes=4096, index_interval_bytes=100)
    values = [f"value {i}" for i in range(60)]
    for value in values:
        log.write(value, timestamp=T0 + int(value[6:]), producer_id=9, producer_epoch=0, base_sequence=int(value[6:]))
    found = bases(disk)
    assert len(found) > 4
    assert all(disk.file(base).stat().st_size <= 1000 for base in found)
    for base, following in pairwise(found):
        assert disk.file(base, ".index").stat().st_size % 8 == 0 < disk.file(base, ".index").stat().st_size < 100
        last = disk.file(base, ".timeindex").read_bytes()[-12:]
        assert int.from_bytes(last[:8], "big") == T0 + following - 1, "sealed with the latest timestamp"
        assert int.from_bytes(last[8:], "big") == following - 1 - base
        assert disk.file(following, ".snapshot").exists()
    assert disk.file(found[-1], ".index").stat().st_size == 4096, "the active one is preallocated"
    assert log.read_all() == values
    assert log.log.flusher.recovery_point == found[-1], "what is sealed was flushed"
    for offset in range(60):
        assert log.records(offset)[0].offset == offset


@pytest.mark.parametrize(("age_ms", "rolled"), [(1000, [0]), (1001, [0, 1])])
def test_a_segment_ends_by_its_records_time(disk: Disk, age_ms: int, rolled: list[int]) -> None:
    log = disk.open(segment_ms=1000)
    log.write("a", timestamp=T0)
    disk.clock.advance(5_000_000)  # the wall clock does not count
    log.write("b", timestamp=T0 + age_ms)
    assert bases(disk) == rolled


def test_without_timestamps_the_wall_clock_counts(disk: Disk) -> None:
    log = disk.open(segment_ms=1000)
    log.write("a", timestamp=-1)
    disk.clock.advance(1000)
    log.write("b", timestamp=-1)
    assert bases(disk) == [0]
    disk.clock.advance(1)
    log.write("c", timestamp=-1)
    assert bases(disk) == [0, 2]


def test_the_age_is_remembered_over_a_restart_and_shortened_by_jitter(disk: Disk) -> None:
    log = disk.open(segment_ms=1000)
    log.write("a", timestamp=T0)
    log = disk.restart(log)
    log.write("b", timestamp=T0 + 1001)
    assert bases(disk) == [0, 1]
    log = disk.restart(log, segment_jitter_ms=900)
    log.write("c", timestamp=T0 + 3000)  # rolled; this one has jitter
    segment = log.log.segments[-1]
    assert T0 + 3000 + 100 < segment.roll_timestamp_ms <= T0 + 3000 + 1000


def test_a_compacted_topic_rolls_by_its_compaction_lag(disk: Disk) -> None:
    log = disk.open(segment_ms=100_000, max_compaction_lag_ms=50, cleanup_policy=("compact",))
    log.write("a", timestamp=T0)
    log.write("b", timestamp=T0 + 51)
    assert bases(disk) == [0, 1]


def test_a_full_index_ends_the_segment(disk: Disk) -> None:
    log = disk.open(segment_index_bytes=36, index_interval_bytes=0)
    for i in range(10):
        log.write("a", timestamp=T0 + i)
    # two entries fit the time index, one slot of its three stays free
    assert bases(disk) == [0, 3, 6, 9]
    assert log.read_all() == ["a"] * 10


def test_new_settings_hold_from_the_next_append(disk: Disk, log: Log) -> None:
    log.write("a")
    disk.settings["segment_bytes"] = 100
    disk.settings["max_message_bytes"] = 90
    log.log.config = disk.config
    log.write("b")
    assert bases(disk) == [0, 1]
    assert code_of(lambda: log.write("c" * 50)) == ErrorCode.MESSAGE_TOO_LARGE


# time


def test_offsets_are_found_by_time_to_the_record(disk: Disk) -> None:
    log = disk.open(segment_bytes=600, index_interval_bytes=100)
    times = [0, 10, 5, 20, 20, 15, 30, 25, 40, 50, 45, 60]
    for i in range(0, 12, 2):
        records = [NewRecord(b"k", b"v" * 50, (), T0 + t) for t in times[i : i + 2]]
        log.append(build_batch(records, codec=CODECS["gzip"] if i % 4 else 0), epoch=2)
    assert len(bases(disk)) > 1
    for stop in (None, disk.restart, disk.kill):
        log = stop(log) if stop else log
        for target in range(-5, 65, 5):
            expected = next((i for i, t in enumerate(times) if t >= target), None)
            found = log.log.lookup_of_timestamp(T0 + target, 12).answer()
            assert (found and found.offset) == expected
            if found:
                assert (found.timestamp, found.leader_epoch) == (T0 + times[found.offset], 2)
    assert log.log.lookup_of_timestamp(T0 + 60, 11).answer() is None, "not committed yet"
    assert log.log.lookup_of_max_timestamp(12).answer() == (T0 + 60, 11, 2)
    assert log.log.lookup_of_max_timestamp(11).answer() is None
    log.log.delete_records_before(5)
    assert log.log.lookup_of_timestamp(T0, 12).answer().offset == 5


def test_of_equal_times_the_first_counts(log: Log) -> None:
    for value in "abc":
        log.write(value, timestamp=T0)
    assert log.log.lookup_of_max_timestamp(3).answer().offset == 0
    assert log.log.lookup_of_timestamp(T0, 3).answer().offset == 0


@pytest.mark.parametrize("why", ["too large", "too many", "garbage"])
def test_a_batch_that_cannot_be_unpacked_is_found_by_its_header(disk: Disk, why: str) -> None:
    log = disk.open(max_message_bytes=4 << 20)
    log.write("a", timestamp=T0)
    if why == "too large":
        bomb = build_batch([NewRecord(b"k", bytes(17 << 20), (), T0 + 10)], codec=CODECS["zstd"])
    elif why == "too many":
        bomb = build_batch([NewRecord(None, None, (), T0 + 10)] * 250_001)
    else:
        bomb = build_batch([NewRecord(b"k", b"v" * 50, (), T0 + 10)], codec=CODECS["zstd"])
        bomb[65:70] = b"\xff" * 5
        bomb[17:21] = compute_crc(bomb).to_bytes(4, "big")
    log.log.append(memoryview(bomb), 0, T0, trusted=True)  # as earlier brokers took it
    end = log.log.end_offset
    log.write("c", timestamp=T0 + 5)
    log.write("d", timestamp=T0 + 11)
    found = {ms: log.log.lookup_of_timestamp(T0 + ms, end + 2).answer() for ms in (0, 1, 10, 11)}
    assert found == {0: (T0, 0, 0), 1: (T0 + 10, 1, 0), 10: (T0 + 10, 1, 0), 11: (T0 + 11, end + 1, 0)}
    log.log.truncate_to(end)
    assert log.log.lookup_of_max_timestamp(end).answer() == (T0 + 10, 1, 0)
    assert log.log.lookup_of_max_timestamp(1).answer() is None, "not committed yet"


def test_an_empty_log_has_no_times(log: Log) -> None:
    assert log.log.lookup_of_max_timestamp(0).answer() is None
    assert log.log.lookup_of_timestamp(0, 0).answer() is None


def test_the_brokers_time_is_told(disk: Disk) -> None:
    log = disk.open(message_timestamp_type="LogAppendTime")
    disk.clock.advance(77)
    assert log.write("a", timestamp=5).log_append_time_ms == T0 + 77
    assert log.records()[0].timestamp == T0 + 77
    assert log.log.lookup_of_timestamp(T0 + 77, 1).answer().offset == 0


def test_the_topics_codec_is_what_stands_on_disk(disk: Disk) -> None:
    log = disk.open(compression_type="zstd")
    log.append(build_batch([NewRecord(b"k", b"v" * 1000, (), T0)], codec=CODECS["gzip"]))
    assert disk.file(0).read_bytes()[22] == CODECS["zstd"]
    assert log.read_all() == ["v" * 1000]


# a disk that fails


@pytest.mark.parametrize("after_bytes", [0, 1, 69])
def test_memory_follows_disk(disk: Disk, log: Log, after_bytes: int) -> None:
    log.write("a", producer_id=7, producer_epoch=0, base_sequence=0)
    before = disk.file(0).read_bytes()
    disk.full(after_bytes)
    with pytest.raises(StorageError, match=r"no space left in .*orders-0"):
        log.write("b", producer_id=7, producer_epoch=0, base_sequence=1)
    assert disk.file(0).read_bytes() == before
    assert (log.log.end_offset, log.read_all()) == (1, ["a"])
    disk.room()
    result = log.write("b", producer_id=7, producer_epoch=0, base_sequence=1)
    assert (result.base_offset, result.duplicate) == (1, False)
    assert disk.kill(log).read_all() == ["a", "b"]


def test_a_roll_that_fails_leaves_the_old_segment_in_use(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.open(segment_bytes=100)
    log.write("a")
    truncate = os.ftruncate

    def refuse(fd: int, size: int) -> None:
        if size > 1000:
            raise OSError(28, "No space left on device")
        truncate(fd, size)

    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(StorageError, match="no space left"):
        log.write("b")
    assert bases(disk) == [0]
    assert log.read_all() == ["a"]
    monkeypatch.undo()
    log.write("b")
    assert bases(disk) == [0, 1]
    assert disk.restart(log).read_all() == ["a", "b"]


def test_nothing_is_appended_beside_a_segment_that_was_not_begun_and_cannot_be_removed(disk: Disk) -> None:
    """A start would take it for the end of the log, and what was appended to the one before it would be lost."""
    log = disk.open(segment_bytes=350)
    log.write("a")

    def refused(*_: object) -> None:
        raise OSError(5, "Input/output error")

    disk.files.open_file = disk.files.unlink = refused  # type: ignore[method-assign, assignment]
    for _ in range(2):
        with pytest.raises(StorageError):
            log.write("long" * 30)
    with pytest.raises(StorageError):
        log.write("b")  # it would fit
    assert (bases(disk), log.log.end_offset) == ([0, 1], 1)
    del disk.files.open_file, disk.files.unlink
    log.write("b")
    assert bases(disk) == [0]
    log.write("long" * 30)
    assert disk.restart(log).read_all() == ["a", "b", "long" * 30]


# cutting


def test_deleted_records_go_with_whole_segments_and_files_go_later(disk: Disk) -> None:
    log = disk.open(segment_bytes=100, file_delete_delay_ms=60_000)
    for value in "abcdef":
        log.write(value)
    log.log.delete_records_before(4)
    assert log.log.start_offset == 4
    assert log.read_all() == ["e", "f"]
    assert bases(disk) == [4, 5]
    assert disk.file(0, ".log.deleted").exists()
    assert disk.file(1, ".snapshot.deleted").exists()
    disk.clock.advance(60_000)
    assert not [name for name in disk.names() if name.endswith(".deleted")]
    log.log.delete_records_before(6)
    assert (log.read_all(), bases(disk)) == ([], [5])
    assert code_of(lambda: log.log.delete_records_before(7)) == ErrorCode.OFFSET_OUT_OF_RANGE
    log.write("g")
    assert disk.restart(log).read_all() == ["g"]


@pytest.mark.parametrize("at", range(7))
def test_a_truncated_log_goes_on_from_there(disk: Disk, at: int) -> None:
    log = disk.open(segment_bytes=180, index_interval_bytes=0)
    for i, value in enumerate("abcdef"):
        log.write(value, epoch=i // 2, timestamp=T0 + i, producer_id=7, producer_epoch=0, base_sequence=i)
    log.log.truncate_to(at)
    assert (log.log.end_offset, log.read_all()) == (at, list("abcdef"[:at]))
    assert log.log.epochs.latest == (at - 1) // 2 if at else -1
    log.write("x", epoch=9, timestamp=T0 + 99, producer_id=7, producer_epoch=0, base_sequence=at)
    for stop in (disk.restart, disk.kill):
        log = stop(log)
        assert log.read_all() == [*"abcdef"[:at], "x"]
        assert log.log.lookup_of_max_timestamp(at + 1).answer().offset == at


def test_a_log_truncated_before_its_begin_starts_anew(disk: Disk) -> None:
    log = disk.open(segment_bytes=100)
    for value in "abcd":
        log.write(value)
    log.log.delete_records_before(3)
    log.log.truncate_to(1)
    assert (log.log.start_offset, log.log.end_offset, bases(disk)) == (1, 1, [1])
    log.write("x")
    assert [r.offset for r in disk.restart(log).records()] == [1]


# holes and damage


def test_a_hole_that_compaction_left_is_stepped_over(disk: Disk) -> None:
    first = build_batch([NewRecord(b"k", b"a")], base_offset=0)
    second = build_batch([NewRecord(b"k", b"b")], base_offset=7)
    third = build_batch([NewRecord(b"k", b"c")], base_offset=20)
    disk.file(0).write_bytes(first + second)
    disk.file(20).write_bytes(third)
    log = disk.open(clean=False, cleanup_policy=("compact",))
    assert [[r.offset for r in log.records(o)] for o in (0, 1, 7, 8, 19, 20)] == [
        [0, 7, 20], [7, 20], [7, 20], [20], [20], [20],
    ]  # fmt: skip
    assert log.log.read(8, 1000, 20) is None, "what lies behind the hole is not committed"
    assert log.log.read(1, 1000, 7) is None


def test_a_lying_index_costs_time_but_no_record(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    log = disk.open(index_interval_bytes=100)
    for i in range(20):
        log.write(f"v{i:02}")
    size = log.log.size_bytes // 20
    log.log.close()
    data = bytearray(disk.file(0, ".index").read_bytes())
    for at in range(4, len(data) - 8, 8):
        wrong = int.from_bytes(data[at : at + 4], "big") + (90 if at % 16 == 4 else 5 * size)
        data[at : at + 4] = wrong.to_bytes(4, "big")
    disk.file(0, ".index").write_bytes(data)
    log = disk.open(clean=True)
    assert [log.records(o)[0].offset for o in range(20)] == list(range(20))
    assert "reading without it" in caplog.text


@pytest.mark.parametrize("wrong", [-1, -(1 << 31), 0x7FFFFFFF, 90])
def test_positions_of_an_index_that_no_batch_has_are_found_by_all_who_use_them(disk: Disk, wrong: int) -> None:
    log = disk.open(index_interval_bytes=100)
    for i in range(20):
        log.write(f"v{i:02}", timestamp=T0 + i)
    log.log.close()
    data = bytearray(disk.file(0, ".index").read_bytes())
    for at in range(4, len(data), 8):
        data[at : at + 4] = wrong.to_bytes(4, "big", signed=True)
    disk.file(0, ".index").write_bytes(data)
    log = disk.open(clean=True)
    assert log.log.end_offset == 20
    assert [log.records(o)[0].offset for o in range(20)] == list(range(20))
    for i in range(20):
        assert log.log.lookup_of_timestamp(T0 + i, 20).answer().offset == i
    log.log.truncate_to(13)
    assert log.log.end_offset == 13
    assert log.log.lookup_of_max_timestamp(13).answer().offset == 12


def test_a_damaged_disk_is_a_storage_error_not_a_crash(disk: Disk, log: Log) -> None:
    for value in "abc":
        log.write(value)
    log = disk.restart(log)
    disk.flip(0, 16)
    with pytest.raises(StorageError):
        log.log.read(1, 100, 3)
    with pytest.raises(StorageError):
        list(log.log.batches(0))


# flushing


def test_every_so_many_records_are_forced_to_disk(disk: Disk) -> None:
    log = disk.open(flush_messages=3)
    log.write("a", "b")
    assert log.log.flusher.recovery_point == 0
    log.write("c")
    assert log.log.flusher.recovery_point == 3
    log.write("d", "e")
    assert log.log.flusher.recovery_point == 3
    log.log.flusher.flush()
    assert log.log.flusher.recovery_point == 5


def test_the_disk_knows_whose_directory_it_is_before_it_knows_the_directory(tmp_path: Path) -> None:
    """Else a power cut might leave a log without a topic id, or the log of an older topic of that name with the new."""
    files = FaultyFiles(str(tmp_path))
    services = LogContext(ManualClock(T0), files=files)
    config = TopicConfig(segment_index_bytes=480)
    log = create_log("orders", 0, f"{tmp_path}/orders-0", uuid.UUID(int=7), config, services)
    log.append(memoryview(build_batch([NewRecord(b"k", b"v", (), T0)])), 0, T0)
    log.flusher.flush()
    synced = [path for what, path in files.log if what == "fsync"]
    assert synced[0] == "orders-0/partition.metadata" and {"", "orders-0"} <= set(synced)
    log.abandon()


def test_a_rolled_segment_is_flushed_by_another_hand(disk: Disk) -> None:
    jobs: list[tuple[Job, Done]] = []
    disk.services = LogContext(disk.clock, lambda: lambda job, done: jobs.append((job, done)))
    log = disk.open(segment_bytes=100)
    for value in "abc":
        log.write(value)
    assert (len(jobs), log.log.flusher.recovery_point) == (2, 0)
    for job, done in jobs:
        job()
        done(None)
    assert log.log.flusher.recovery_point == 2
    log.write("d")
    log.write("e")
    log.log.truncate_to(1)
    for job, done in jobs[2:]:
        job()
        done(None)
    assert log.log.flusher.recovery_point == 1, "what was flushed is not what is there now"


def test_a_failed_flush_is_tried_again_with_the_next(disk: Disk) -> None:
    jobs: list[tuple[Job, Done]] = []
    disk.services = LogContext(disk.clock, lambda: lambda job, done: jobs.append((job, done)))
    log = disk.open(segment_bytes=100)
    log.write("a")
    log.write("b")
    jobs.pop()[1](OSError("the disk is gone"))
    assert log.log.flusher.recovery_point == 0
    log.write("c")
    job, done = jobs.pop()
    job()
    done(None)
    assert log.log.flusher.recovery_point == 2


def broken(fd: int) -> None:
    raise OSError(5, "Input/output error")


def test_after_an_fsync_that_failed_the_log_takes_no_more(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system forgets what it could not write: the next fsync would succeed and mean nothing."""
    log = disk.open(flush_messages=2)
    log.write("a", "b")
    log.write("c", producer_id=7, producer_epoch=0, base_sequence=0)
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(
        StorageError, match=r"cannot flush orders-0 in .*orders-0: Input/output error; it takes no more"
    ):
        log.write("d", producer_id=7, producer_epoch=0, base_sequence=1)
    monkeypatch.undo()
    for attempt in (
        lambda: log.write("e"),
        lambda: log.write("d", producer_id=7, producer_epoch=0, base_sequence=1),
        log.log.flusher.flush,
        log.log.close,
    ):
        assert log.log.flusher.recovery_point == 2
        assert code_of(attempt) == ErrorCode.KAFKA_STORAGE_ERROR
        if attempt != log.log.close:
            assert log.read_all() == ["a", "b", "c", "d"]
    log = disk.kill(log)
    assert log.write("e").base_offset == 4


def test_a_flush_that_could_not_open_a_file_is_made_up_for(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.open(flush_messages=1)
    send: dict[str, int] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}

    def none_left(files: Files, paths: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Files, "sync_all", none_left)
    with pytest.raises(StorageError, match="too many open files"):
        log.write("a", **send)
    assert (log.log.end_offset, log.log.flusher.recovery_point) == (1, 0)
    with pytest.raises(StorageError):
        log.write("a", **send)
    monkeypatch.undo()
    assert log.write("a", **send).duplicate
    assert log.log.flusher.recovery_point == 1


def test_a_flush_asks_whether_another_hand_met_a_broken_disk(disk: Disk) -> None:
    jobs: list[tuple[Job, Done]] = []
    heard: list[Callable[[], None]] = []
    disk.services = LogContext(
        disk.clock,
        lambda: lambda job, done: jobs.append((job, done)),
        run_completions=lambda: [tell() for tell in heard] and None,
    )
    log = disk.open(segment_bytes=100)
    log.write("a")
    log.write("b")
    heard.append(lambda: jobs.pop()[1](SyncFailed(5, "Input/output error")))
    with pytest.raises(StorageError, match="takes no more records"):
        log.log.flusher.flush()
    assert log.log.flusher.recovery_point == 0
    with pytest.raises(StorageError):
        log.write("c")


def test_a_roll_that_learns_of_a_broken_disk_appends_nothing(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.open(segment_bytes=100)
    log.write("a")
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StorageError, match="takes no more records"):
        log.write("b")
    assert (log.log.end_offset, log.read_all()) == (1, ["a"])


def test_few_descriptors_serve_many_segments(disk: Disk) -> None:
    from kafkalite.log.storage.files import DescriptorCache

    disk.services = LogContext(disk.clock, files=Files(DescriptorCache(3)))
    log = disk.open(segment_bytes=100, index_interval_bytes=0)
    for i in range(40):
        log.write(str(i))
    before = len(open_below(disk.directory))
    for _ in range(2):
        assert log.read_all() == [str(i) for i in range(40)]
        log.write("x")
        log.log.truncate_to(40)
    after = len(open_below(disk.directory))
    assert after <= before + 3
    assert sum(segment.file is not None for segment in log.log.segments) <= 3


def test_batches_for_those_who_load_state(disk: Disk) -> None:
    log = disk.open(segment_bytes=200)
    for value in "abcdef":
        log.write(value, value)
    from kafkalite.record.batch import parse_header

    assert [parse_header(b).base_offset for b in log.log.batches(3)] == [2, 4, 6, 8, 10]
    assert list(log.log.batches(12)) == []


# whatever happens

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 4), st.integers(0, 120)),
        st.tuples(st.just("again"), st.integers(1, 5), st.just(0)),
        st.tuples(st.sampled_from(["restart", "kill", "flush", "full"]), st.just(0), st.just(0)),
        st.tuples(st.sampled_from(["delete", "truncate"]), st.integers(0, 100), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, segment_bytes=st.sampled_from([1500, 3000, 100_000]), interval=st.sampled_from([0, 150, 4096]))
def test_the_log_equals_a_list(
    new_disk: Callable[[], Disk], steps: list[tuple[str, int, int]], segment_bytes: int, interval: int
) -> None:
    """Appends, rolls, restarts and kills, deletions and truncations: the log is the list that a reader expects."""
    disk = new_disk()
    log = disk.open(segment_bytes=segment_bytes, index_interval_bytes=interval, file_delete_delay_ms=0)
    model: list[str] = []  # by offset
    start = sequence = 0
    sent: list[tuple[int, int, list[str]]] = []  # first offset, sequence number and values of the last batches
    for i, (step, count, size) in enumerate(steps):
        if step == "write":
            values = [f"{i}.{n}." + "x" * size for n in range(count)]
            result = log.write(
                *values, timestamp=T0 + (i * 7) % 11, producer_id=1, producer_epoch=0, base_sequence=sequence
            )
            assert (result.base_offset, result.duplicate) == (len(model), False)
            sent = [*sent[-4:], (len(model), sequence, values)]
            model += values
            sequence += count
        elif step == "again" and sent:
            base, first, values = sent[-min(count, len(sent))]
            if base < start:  # what is deleted is forgotten, but for the last
                base, first, values = sent[-1]
            result = log.write(*values, producer_id=1, producer_epoch=0, base_sequence=first)
            assert (result.base_offset, result.duplicate) == (base, True)
        elif step == "full":
            disk.full()
            with pytest.raises(StorageError):
                log.write("lost", producer_id=2, producer_epoch=0, base_sequence=0)
            disk.room()
        elif step == "restart":
            log = disk.restart(log)
        elif step == "kill":
            log = disk.kill(log, start_offset=log.log.start_offset)
        elif step == "flush":
            log.log.flusher.flush()
        elif step == "delete":
            start = max(start, min(count, len(model)))
            log.log.delete_records_before(start)
            disk.clock.advance(1)
        elif step == "truncate" and count < len(model) and sent and count == sent[-1][0] and count >= start:
            log.log.truncate_to(count)  # exactly the last batch
            del model[count:]
            sequence = sent.pop()[1]
            # the state is read anew, from the log start on: batches that are deleted are forgotten, the last one, too
            sent = [each for each in sent if each[0] + len(each[2]) > start]
        assert (log.log.start_offset, log.log.end_offset) == (start, len(model))
    assert log.read_all() == model[start:]
    for offset in range(start, len(model)):
        region = log.log.read(offset, 1, len(model))
        data = region.read()
        base = int.from_bytes(data[:8], "big")
        assert base <= offset <= base + int.from_bytes(data[23:27], "big"), "the first batch holds the offset"


def test_an_fsync_that_fails_at_the_end_is_known_to_the_next_start(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would take what the system still shows for what can be flushed by asking once more."""

    def refuse(paths: object) -> None:
        raise SyncFailed(errno.EIO, "Input/output error")

    log = disk.open()
    log.append(build_batch([NewRecord(b"k", b"lost?", (), T0)]))
    with monkeypatch.context() as patched:
        patched.setattr(disk.files, "sync_all", refuse)
        with pytest.raises(StorageError):
            log.log.close()
    assert FAILED_SYNC in disk.names()


@pytest.mark.parametrize("behind", [b"", bytes(300), b"junk" * 30])
def test_times_are_found_in_a_gzip_batch_with_bytes_behind_its_member(disk: Disk, behind: bytes) -> None:
    """As other brokers took it: Java reads what stands before those bytes."""
    log = disk.open()
    rows = [NewRecord(b"k", b"v", (), T0 + ms) for ms in (0, 5, 10)]
    batch = build_batch(rows, codec=CODECS["gzip"])
    log.append(assemble(parse_header(batch), bytes(batch[HEADER_BYTES:]) + behind))
    assert log.log.lookup_of_timestamp(T0 + 5, 3).answer() == (T0 + 5, 1, 0)
    assert log.log.lookup_of_timestamp(T0 + 6, 3).answer() == (T0 + 10, 2, 0)
