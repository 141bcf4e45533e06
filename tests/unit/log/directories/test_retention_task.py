"""Old segments go by time, by size and by the log's start; what is not to be told apart from Apache Kafka's choice."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.retention_task import LOGS_PER_TURN, RetentionTask
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.partition.retention_policy import SEGMENTS_PER_TURN, Reason, SegmentFacts, deletable
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.storage.files import Job, SyncFailed
from kafkalite.log.storage.io_executor import SerialExecutor
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.descriptors import open_below
from tests.support.log.history import LogHistory, Step, run, tell
from tests.support.manual_clock import ManualClock
from tests.unit.log.conftest import START_MS, Disk, Log

HOUR_MS = 3_600_000
ALL = 1 << 30
START, BYTES, TIME = Reason.LOG_START, Reason.BYTES, Reason.TIME


def decide(
    *segments: tuple[int, int, int], start: int = 0, high_watermark: int = ALL, now: int = 1000, most: int = ALL,
    policy: tuple[str, ...] = ("delete",), retention_ms: int = -1, retention_bytes: int = -1,
) -> list[Reason]:  # fmt: skip
    """Of segments given as (end offset, bytes, largest timestamp)."""
    config = TopicConfig(cleanup_policy=policy, retention_ms=retention_ms, retention_bytes=retention_bytes)
    facts = [SegmentFacts(end, size, lambda at=at: at) for end, size, at in segments]
    size_bytes = sum(size for _, size, _ in segments)
    return deletable(facts, len(facts), size_bytes, start, high_watermark, config, now, most)


# the decision


def test_time_counts_from_the_latest_record_and_a_millisecond_more_than_the_limit_is_too_old() -> None:
    old, young = (10, 100, 899), (20, 100, 900)
    assert decide(old, young, (30, 0, 0), retention_ms=100) == [TIME]
    assert decide(young, old, (30, 0, 0), retention_ms=100) == []  # the first that stays keeps those behind it
    assert decide(old, young, (30, 0, 0), retention_ms=-1) == []


def test_a_time_in_the_future_keeps_a_segment_and_all_behind_it() -> None:
    assert decide((10, 1, 5), (20, 1, 1 << 60), (30, 1, 5), retention_ms=0) == [TIME]


def test_zero_keeps_nothing_but_what_came_this_millisecond() -> None:
    assert decide((10, 1, 999), (20, 1, 1000), retention_ms=0) == [TIME]
    assert decide((10, 1, 999), (20, 1, 999), retention_ms=0) == [TIME, TIME]


def test_size_removes_a_segment_only_if_enough_is_left_without_it() -> None:
    segments = (10, 100, 0), (20, 100, 0), (30, 50, 0)
    assert decide(*segments, retention_bytes=151) == []
    assert decide(*segments, retention_bytes=150) == [BYTES]
    assert decide(*segments, retention_bytes=50) == [BYTES, BYTES]
    assert decide(*segments, retention_bytes=0) == [BYTES, BYTES, BYTES]
    assert decide(*segments, retention_bytes=1000) == decide(*segments, retention_bytes=-1) == []


def test_the_start_of_the_log_removes_what_lies_before_it_but_never_the_last_segment() -> None:
    segments = (10, 100, 0), (20, 100, 0), (30, 50, 0)
    assert decide(*segments, start=9) == []
    assert decide(*segments, start=10) == [START]
    assert decide(*segments, start=30) == [START, START]


def test_each_rule_goes_on_where_the_one_before_it_stopped() -> None:
    segments = (10, 100, 5), (20, 100, 5), (30, 100, 5), (40, 100, 1000)
    assert decide(*segments, start=10, retention_bytes=200, retention_ms=10) == [START, BYTES, TIME]
    assert decide(*segments, start=10, retention_bytes=300, retention_ms=10) == [START, TIME, TIME]


def test_a_compacted_topic_loses_only_what_lies_before_its_start() -> None:
    segments = (10, 100, 5), (20, 100, 5), (30, 100, 5)
    limits = {"retention_ms": 0, "retention_bytes": 0}
    assert decide(*segments, policy=("compact",), **limits) == []
    assert decide(*segments, policy=("compact",), start=15, **limits) == [START]
    assert decide(*segments, policy=("compact", "delete"), **limits) == [BYTES] * 3


def test_nothing_that_is_not_committed_goes() -> None:
    segments = (10, 100, 5), (20, 100, 5), (30, 100, 5)
    assert decide(*segments, high_watermark=19, retention_ms=0, retention_bytes=0) == [BYTES]
    assert decide(*segments, high_watermark=29, retention_ms=0) == [TIME, TIME]
    assert decide(*segments, high_watermark=30, retention_ms=0) == [TIME, TIME, TIME]


def test_an_empty_last_segment_stays() -> None:
    assert decide((0, 0, 5), retention_ms=0, retention_bytes=0) == []
    assert decide((10, 9, 5), (10, 0, 5), retention_ms=0) == [TIME]


def test_some_at_a_time_are_the_same_as_all_at_once() -> None:
    random = Random(3)
    for _ in range(2000):
        ends = sorted(random.sample(range(1, 60), random.randint(1, 8)))
        segments = [(end, random.choice((0, 10, 10, 40)), random.choice((5, 950, 995, 2000))) for end in ends]
        rules = {
            "high_watermark": random.choice((ALL, random.randint(0, 60))),
            "retention_ms": random.choice((-1, 0, 10, 60)),
            "retention_bytes": random.choice((-1, 0, 20, 50)),
        }
        start = random.choice((0, 0, random.randint(0, 60)))
        at_once = decide(*segments, start=start, **rules)
        steps: list[Reason] = []
        while some := decide(*segments[len(steps) :], start=start, most=2, **rules):
            steps += some
        assert steps == at_once == as_three_passes(segments, start, **rules)


def as_three_passes(
    segments: list[tuple[int, int, int]], start: int, high_watermark: int, retention_ms: int, retention_bytes: int
) -> list[Reason]:
    """The same in the plainest form: a pass for each rule over what the one before it left."""
    left = list(segments)
    gone: list[Reason] = []

    def one_pass(reason: Reason, goes: Callable[[tuple[int, int, int], bool], bool]) -> None:
        while left:
            is_last = len(left) == 1
            end, size, _ = left[0]
            if end > high_watermark or (is_last and size == 0) or not goes(left[0], is_last):
                return
            gone.append(reason)
            del left[0]

    one_pass(START, lambda segment, is_last: not is_last and segment[0] <= start)
    too_many = sum(size for _, size, _ in left) - retention_bytes

    def is_too_much(segment: tuple[int, int, int], is_last: bool) -> bool:
        nonlocal too_many
        if too_many - segment[1] < 0:
            return False
        too_many -= segment[1]
        return True

    if retention_bytes >= 0 and too_many >= 0:
        one_pass(BYTES, is_too_much)
    if retention_ms >= 0:
        one_pass(TIME, lambda segment, is_last: 1000 - segment[2] > retention_ms)
    return gone


# the log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.log.segments]


def look(log: Log, most: int = ALL) -> list[Reason]:
    return log.log.delete_old_segments(log.clock.wall_ms(), most)


def hourly(disk: Disk, count: int, **settings: object) -> Log:
    """A log with a segment an hour, three records in each."""
    log = disk.open(segment_ms=1, **settings)
    for hour in range(count):
        log.write(f"{hour}a", f"{hour}b", f"{hour}c")
        disk.clock.advance(HOUR_MS)
    return log


def test_what_is_too_old_is_not_there_any_more_and_its_files_go_a_little_later(disk: Disk) -> None:
    log = hourly(disk, 5, retention_ms=2 * HOUR_MS, file_delete_delay_ms=60_000)
    before = {name for name in disk.names() if name.startswith(f"{0:020d}")}
    assert look(log) == [TIME] * 3
    assert (log.log.start_offset, bases(log)) == (9, [9, 12])
    assert look(log) == []
    assert log.read_all() == ["3a", "3b", "3c", "4a", "4b", "4c"]
    with pytest.raises(KafkaError) as caught:
        log.log.read(8, 1000, 15)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert {f"{name}.deleted" for name in before} <= set(disk.names()) and not before & set(disk.names())
    disk.clock.advance(59_999)
    assert any(name.endswith(".deleted") for name in disk.names())
    disk.clock.advance(1)
    assert not any(name.endswith(".deleted") for name in disk.names())


def test_a_restart_and_a_kill_find_the_log_as_retention_left_it(disk: Disk) -> None:
    log = hourly(disk, 5, retention_ms=2 * HOUR_MS)
    look(log)
    log = disk.kill(log)
    assert (log.log.start_offset, log.log.end_offset, bases(log)) == (9, 15, [9, 12])
    assert not any(name.endswith(".deleted") for name in disk.names())
    log = disk.restart(log)
    assert (log.log.start_offset, log.log.end_offset) == (9, 15)


def test_snapshots_and_epochs_of_what_is_gone_go_with_it(disk: Disk) -> None:
    log = disk.open(segment_ms=1, retention_ms=2 * HOUR_MS)
    for hour in range(4):
        log.write("x", epoch=hour, producer_id=7, producer_epoch=0, base_sequence=hour)
        disk.clock.advance(HOUR_MS)
    assert disk.file(1, ".snapshot").exists()
    assert look(log) == [TIME] * 2
    assert log.log.epochs.entries() == [(2, 2), (3, 3)]
    assert not disk.file(1, ".snapshot").exists() and disk.file(2, ".snapshot").exists()
    assert log.log.producers.get(7) is not None  # a producer is forgotten by its own time
    assert log.write("x", epoch=3, producer_id=7, producer_epoch=0, base_sequence=3).duplicate


def test_when_everything_is_too_old_the_log_goes_on_where_it_was(disk: Disk) -> None:
    log = hourly(disk, 3, retention_ms=60_000)
    log.write("x", producer_id=1, producer_epoch=0, base_sequence=0)
    disk.clock.advance(HOUR_MS)
    assert look(log) == [TIME] * 4
    assert (log.log.start_offset, log.log.end_offset, bases(log)) == (10, 10, [10])
    assert disk.file(10).exists() and disk.file(10, ".snapshot").exists()
    assert look(log) == []
    assert log.write("new").base_offset == 10
    assert log.read_all() == ["new"]
    log = disk.kill(log)
    assert (log.log.start_offset, log.read_all()) == (10, ["new"])


def test_a_log_that_was_only_read_since_its_start_may_begin_a_new_segment_too(disk: Disk) -> None:
    log = disk.restart(hourly(disk, 2, retention_ms=60_000))
    assert look(log) == [TIME] * 2
    assert (log.log.start_offset, bases(log)) == (6, [6])
    assert log.write("new").base_offset == 6


def test_records_without_a_time_count_from_when_their_file_was_written(disk: Disk) -> None:
    log = disk.open(segment_bytes=100, retention_ms=HOUR_MS)
    log.write("a", timestamp=-1)
    log.write("b", timestamp=-1)
    for base in (0, 1):
        os.utime(disk.file(base), (START_MS / 1000 - base * 7200, START_MS / 1000 - base * 7200))
    assert look(log) == []  # the first is of this hour
    os.utime(disk.file(0), (START_MS / 1000 - 7200, START_MS / 1000 - 7200))
    assert look(log) == [TIME] * 2


def test_size_counts_every_byte_of_the_log(disk: Disk) -> None:
    log = disk.open(segment_bytes=200, retention_ms=-1)
    for number in range(12):
        log.write("x" * 50, timestamp=START_MS + number)
    sizes = [segment.size_bytes for segment in log.log.segments]
    assert len(sizes) > 3
    log.log.config = TopicConfig(segment_bytes=200, retention_bytes=sum(sizes) - sizes[0] + 1)
    assert look(log) == []
    log.log.config = TopicConfig(segment_bytes=200, retention_bytes=sum(sizes) - sizes[0])
    assert look(log) == [BYTES]
    assert log.log.size_bytes == sum(sizes[1:])


def test_a_walk_that_is_under_way_is_not_disturbed(disk: Disk) -> None:
    log = hourly(disk, 5, retention_ms=60_000)
    seen = log.log.segments
    region = log.log.read(0, 1000, 15)
    assert region is not None
    assert look(log) == [TIME] * 5
    assert [segment.base_offset for segment in seen] == [0, 3, 6, 9, 12]
    disk.clock.advance(60_000)  # unlinked
    assert len(region.read()) == region.size  # and who has the file still reads it


def test_a_full_disk_lets_old_segments_go(disk: Disk) -> None:
    log = hourly(disk, 4, retention_ms=60_000)
    log.write("x", producer_id=1, producer_epoch=0, base_sequence=0)
    disk.clock.advance(HOUR_MS)
    disk.full()  # not even the snapshot for a new segment finds room
    with pytest.raises(StorageError, match="no space left"):
        look(log)
    assert (log.log.start_offset, bases(log)) == (12, [12])
    with pytest.raises(StorageError, match="no space left"):
        log.write("refused")
    disk.room()
    assert look(log) == [TIME]
    assert log.write("taken").base_offset == 13


def test_a_segment_that_cannot_be_renamed_stays_with_all_behind_it(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = hourly(disk, 4, retention_ms=60_000)
    stuck = str(disk.file(3))

    def rename(source: str, target: str) -> None:
        if source == stuck:
            raise OSError(errno.EPERM, "Operation not permitted")
        os.rename(source, target)

    monkeypatch.setattr(disk.files, "rename", rename)
    with pytest.raises(StorageError, match="cannot delete from orders-0"):
        look(log)
    assert (log.log.start_offset, bases(log)[0]) == (3, 3)
    assert log.read_all()[0] == "1a"
    monkeypatch.undo()
    look(log)
    assert log.read_all() == []


def test_files_that_somebody_else_removed_are_no_reason_to_stop(disk: Disk) -> None:
    log = hourly(disk, 4, retention_ms=60_000)
    disk.file(0).unlink()
    assert look(log, 2) == [TIME] * 2
    assert bases(log)[0] == 6


def test_a_log_that_failed_keeps_its_last_segment_and_what_is_not_on_the_disk(disk: Disk) -> None:
    log = hourly(disk, 4, retention_ms=60_000)
    log.log.flusher._fail(SyncFailed(errno.EIO, "Input/output error"))
    assert look(log) == [TIME] * 3
    assert (log.log.start_offset, bases(log)) == (9, [9])
    assert look(log) == []


# the disk comes first


class SlowDisk:
    """A log whose background work waits until it is told to go on."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.jobs: list[Job] = []
        self.work = SerialExecutor(self.jobs.append)
        self.clock = ManualClock(START_MS)
        (root / "orders-0").mkdir()
        services = LogContext(self.clock, self.work.serial_queue, run_completions=self.work.run_completions)
        config = TopicConfig(**settings)
        self.log = open_log("orders", 0, str(root / "orders-0"), config, LoadOptions(True), services)

    def go_on(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()
            self.work.run_completions()


def test_old_segments_wait_until_the_new_one_is_on_the_disk(tmp_path: Path) -> None:
    """Else a power cut might leave the log without any, and it would begin at offset 0 again."""
    slow = SlowDisk(tmp_path, retention_ms=60_000)
    log = slow.log
    check = RetentionTask(cast("Any", SimpleNamespace(logs={("orders", 0): log}, being_cleaned=set())), slow.clock)
    log.append(memoryview(build_batch([NewRecord(None, b"x", (), START_MS)] * 3)), 0, START_MS)
    slow.clock.advance(HOUR_MS)
    check.start()
    slow.clock.advance(0)
    assert (len(log.segments), log.start_offset, log.segment_list.waits_for_disk) == (2, 0, True)
    slow.clock.advance(10_000)
    assert log.start_offset == 0
    slow.go_on()
    slow.clock.advance(60_000)  # it looks again by itself
    assert (len(log.segments), log.start_offset, log.segment_list.waits_for_disk) == (1, 3, False)
    log.abandon()


# the look at all logs


class World:
    """Many logs on one clock, and how many were looked at in each turn."""

    def __init__(self, root: Path, count: int, **settings: object) -> None:
        self.clock = ManualClock(START_MS)
        services = LogContext(self.clock)
        config = TopicConfig(segment_ms=1, **settings)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        for number in range(count):
            directory = root / f"orders-{number}"
            directory.mkdir()
            key = ("orders", number)
            self.logs[key] = open_log(*key, str(directory), config, LoadOptions(True), services)
        self.being_cleaned: set[tuple[str, int]] = set()
        self.check = RetentionTask(cast("Any", self), self.clock)

    def fill(self, number: int, segments: int) -> None:
        log = self.logs["orders", number]
        for _ in range(segments):
            now_ms = self.clock.wall_ms()
            log.append(memoryview(build_batch([NewRecord(None, b"x", (), now_ms)])), 0, now_ms)
            self.clock.advance(2)

    def turn(self) -> None:
        """The next turn of the look that is under way."""
        timer = self.check._timer
        assert timer is not None
        timer.callback()  # type: ignore[attr-defined]
        timer.cancel()

    def close(self) -> None:
        for log in self.logs.values():
            log.abandon()


def test_a_look_at_many_logs_takes_a_few_in_each_turn(tmp_path: Path) -> None:
    world = World(tmp_path, 3 * LOGS_PER_TURN, retention_ms=0)
    for number in range(3 * LOGS_PER_TURN):
        world.fill(number, 1)
    world.clock.advance(1)
    world.check.start()
    left = []
    while world.check._timer is not None:
        world.turn()
        left.append(sum(log.size_bytes > 0 for log in world.logs.values()))
        assert len(left) < 100
    assert left[-1] == 0
    steps = [before - after for before, after in zip([3 * LOGS_PER_TURN, *left], left, strict=False)]
    assert max(steps) <= min(LOGS_PER_TURN, SEGMENTS_PER_TURN)
    world.close()


def test_many_segments_of_one_log_go_over_many_turns_and_nobody_else_is_kept_waiting(tmp_path: Path) -> None:
    world = World(tmp_path, 2, retention_ms=0)
    world.fill(0, 5 * SEGMENTS_PER_TURN)
    world.clock.advance(1)
    world.check.start()
    count = len(world.logs["orders", 0].segments)
    while world.check._timer is not None:
        world.turn()
        now = len(world.logs["orders", 0].segments)
        assert count - now <= SEGMENTS_PER_TURN
        count = now
    assert world.logs["orders", 0].start_offset == 5 * SEGMENTS_PER_TURN
    world.close()


def test_a_log_that_goes_during_the_look_is_passed_over_and_one_that_fails_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, 5, retention_ms=0)
    for number in range(5):
        world.fill(number, 3)
    world.clock.advance(1)

    def fails(log: PartitionLog, now_ms: int, most: int) -> list[Reason]:
        if log.partition < 2:
            raise StorageError(f"cannot delete from orders-{log.partition}")
        if log.partition == 2:
            raise ValueError("nobody has thought of this")
        return original(log, now_ms, most)

    original = PartitionLog.delete_old_segments
    monkeypatch.setattr(PartitionLog, "delete_old_segments", fails)
    world.check.start()
    world.logs.pop(("orders", 3)).abandon()
    world.clock.advance(0)
    assert [len(log.segments) for log in world.logs.values()] == [3, 3, 3, 1]
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == [
        "retention of orders-2 failed; the next check tries again",
        "cannot delete from orders-0 (and 1 more logs); the next check tries again",
    ]
    world.close()


def test_a_look_that_takes_longer_than_the_time_between_two_comes_to_its_end(tmp_path: Path) -> None:
    world = World(tmp_path, 2 * LOGS_PER_TURN, retention_ms=0)
    world.fill(2 * LOGS_PER_TURN - 1, 1)
    world.clock.advance(1)
    world.check.start()
    while world.check._timer is not None:
        world.turn()
        world.check.start() if world.check._waiting else None
    assert world.logs["orders", 2 * LOGS_PER_TURN - 1].start_offset == 1
    world.close()


def test_stopping_leaves_no_timer(tmp_path: Path) -> None:
    world = World(tmp_path, 2, retention_ms=0)
    world.fill(0, 1)
    world.check.start()
    world.check.stop()
    world.clock.advance(HOUR_MS)
    assert world.logs["orders", 0].start_offset == 0
    world.close()


def test_a_time_index_is_looked_into_once_and_let_go_of(disk: Disk) -> None:
    log = disk.restart(hourly(disk, 5, retention_ms=2 * HOUR_MS))
    opened: list[str] = []
    original = disk.files.open

    def watched(path: str, flags: int) -> int:
        opened.append(os.path.basename(path))
        return original(path, flags)

    disk.files.open = watched  # type: ignore[method-assign]
    descriptors = open_below(Path(log.log.directory).parent)
    log.log.config = TopicConfig(retention_ms=1000 * HOUR_MS)
    for _ in range(10):
        assert look(log) == []
    assert opened == [f"{0:020d}.timeindex"]
    assert open_below(Path(log.log.directory).parent) == descriptors


# whatever happens


class KeptHistory(LogHistory):
    """Random histories in which retention comes by too. The disk keeps the order of names, as a journal does: else old
    segments may come back after a power cut with some between them missing, as in Apache Kafka."""

    def __init__(self, directory: str, seed: int) -> None:
        super().__init__(directory, seed)
        self.files.ordered = True

    @staticmethod
    def plan(seed: int) -> list[Step]:
        random = Random(seed)
        steps = LogHistory.plan(seed)
        for _ in range(random.randint(1, 8)):
            steps.insert(random.randrange(len(steps)), ("retain", random.randrange(1 << 30)))
        return steps

    def _config(self, random: Random) -> TopicConfig:
        limits = {"retention_ms": random.choice((-1, 0, 500)), "retention_bytes": random.choice((-1, 0, 1000))}
        return TopicConfig(**{**super()._config(random).values(), **limits})

    def retain(self, random: Random) -> None:
        log = self.log
        end, committed = log.end_offset, max(log.flusher.ack_offset, log.start_offset)
        self.ledger.start_asked = max(self.ledger.start_asked, committed)
        with contextlib.suppress(StorageError):
            log.delete_old_segments(self.clock.wall_ms() + random.choice((0, 600, 1 << 33)), random.choice((1, 3, 100)))
        assert log.end_offset == end and log.start_offset <= committed
        self._heed()


def tell_histories(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        steps = KeptHistory.plan(seed)
        try:
            run(KeptHistory, str(tmp_path), seed, steps)
        except Exception:
            pytest.fail(tell(KeptHistory, str(tmp_path), seed, steps))


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.mark.thorough
def test_no_history_with_retention_loses_what_it_should_keep(tmp_path: Path, no_fsync: None) -> None:
    tell_histories(tmp_path, range(60))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_no_history_of_thousands_does(tmp_path: Path, no_fsync: None) -> None:
    tell_histories(tmp_path, range(1000, 6000))


def test_a_log_that_is_being_compacted_is_looked_at_when_that_is_over(tmp_path: Path) -> None:
    world = World(tmp_path, 2, retention_ms=0)
    world.being_cleaned.add(("orders", 0))
    for number in range(2):
        world.fill(number, 3)
    world.check.start()
    world.clock.advance(0)
    assert [log.start_offset for log in world.logs.values()] == [0, 3]
    world.being_cleaned.clear()
    world.check.check_soon(("orders", 0))
    world.clock.advance(0)
    assert [log.start_offset for log in world.logs.values()] == [3, 3]
    world.close()


def test_nor_does_that_keep_a_look_from_beginning(tmp_path: Path) -> None:
    world = World(tmp_path, 3, retention_ms=0)
    for number in range(3):
        world.fill(number, 3)
    world.check.check_soon(("orders", 0))
    world.check.check_soon(("orders", 1))
    world.check.start()
    world.clock.advance(0)
    assert [log.start_offset for log in world.logs.values()] == [3, 3, 3]
    world.close()
