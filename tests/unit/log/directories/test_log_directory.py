"""One log directory: its names, what counts as a failure of its disk, and logs that Apache Kafka left."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.common.clock import TimerGroup
from kafkalite.common.errors import StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.log_directory import ENTERED_FROM, DirectoryState, LogDirectory
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.partition.segment_list import SegmentList
from kafkalite.log.storage.checkpoint_file import encode_topic_id
from kafkalite.log.storage.file_names import DELETE_DIRECTORY, FAILED_SYNC, STRAY_DIRECTORY
from kafkalite.log.storage.files import Files, run_inline
from tests.support.log.three_disks import CLUSTER, CONFIG, KAFKAS_MARK, TOPIC_ID, Machine, create, write
from tests.support.manual_clock import ManualClock

Deed = Callable[[PartitionLog], object]


class TestADiskThatFails:
    def test_takes_its_own_logs_offline(self, machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
        manager = machine.start()
        logs = create(manager, "orders", 6)
        for log in logs:
            write(log, "x")
        machine.disks.broken[machine.paths[1]] = errno.EIO
        write(logs[0], "y")
        with pytest.raises(StorageError, match="orders-1"):
            write(logs[1], "y")
        assert machine.offline == [], "the log may be at work: it goes in a turn of its own"
        machine.clock.advance(0)
        assert machine.offline == [("orders", 1), ("orders", 4)]
        assert "its 2 logs are offline until the next start" in caplog.text
        assert sorted(index for _, index in manager.logs) == [0, 2, 3, 5]
        with pytest.raises(StorageError):
            write(logs[4], "y")
        write(logs[2], "y")
        machine.disks.broken.clear()
        manager.close()
        assert [machine.file(i, ".kafka_cleanshutdown").exists() for i in range(3)] == [True, False, True]
        assert [log.end_offset for _, log in sorted(machine.start().logs.items())] == [2, 1, 2, 1, 1, 1]

    @pytest.mark.parametrize("deed", ["flush", "checkpoint", "delete", "create", "roll"])
    def test_whoever_meets_it_first(self, machine: Machine, deed: str) -> None:
        manager = machine.start(machine.paths[0], machine.paths[1])
        log, other = create(manager, "orders", 2)
        write(log, "x")
        machine.disks.broken[machine.paths[0]] = errno.EROFS if deed == "create" else errno.EIO
        if deed == "flush":
            with pytest.raises(StorageError):
                log.flusher.flush()
        elif deed == "checkpoint":
            manager.checkpoint()
        elif deed == "delete":
            with pytest.raises(StorageError):
                manager.delete("orders", 0)
        elif deed == "create":
            assert manager.create("new", 0, TOPIC_ID, CONFIG).directory.startswith(machine.paths[1])
        elif deed == "roll":
            log.config = TopicConfig(segment_bytes=70)
            with pytest.raises(StorageError):
                write(log, "y")
        machine.clock.advance(0)
        assert [each.path for each in manager.offline] == machine.paths[:1]
        write(other, "still here")

    def test_so_does_an_fsync_that_fails_behind_the_scenes(self, machine: Machine) -> None:
        machine.jobs = []
        manager = machine.start()
        log = manager.create("orders", 0, TOPIC_ID, TopicConfig(segment_bytes=70))
        write(log, "x", "y")  # the first segment is on its way to the disk
        machine.disks.broken[machine.paths[0]] = errno.EIO
        while machine.jobs:
            machine.jobs.pop(0)()
        manager.run_completions()
        machine.clock.advance(0)
        assert machine.offline == [("orders", 0)]

    def test_the_last_one_leaves_nothing(self, machine: Machine) -> None:
        manager = machine.start(machine.paths[0])
        (log,) = create(manager, "orders")
        machine.disks.broken[machine.paths[0]] = errno.EIO
        with pytest.raises(StorageError):
            write(log, "x")
        machine.clock.advance(0)
        assert manager.online == [] and manager.logs == {}
        with pytest.raises(StorageError, match="every data directory is offline"):
            create(manager, "new")

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
    def test_a_full_disk_is_no_such_disk(self, machine: Machine, number: int) -> None:
        manager = machine.start(machine.paths[0])
        (log,) = create(manager, "orders")
        write(log, "a")
        machine.disks.broken[machine.paths[0] + "/orders-0/"] = number
        for _ in range(2):
            with pytest.raises(StorageError):
                write(log, "b")
        machine.clock.advance(0)
        assert manager.offline == []
        region = log.read(0, 1000, log.end_offset)
        assert region is not None and region.size == 69
        machine.disks.broken.clear()
        write(log, "c")
        assert log.end_offset == 2

    def test_nor_is_one_on_which_a_file_is_missing(self, machine: Machine) -> None:
        manager = machine.start()
        (log,) = create(manager, "orders")
        machine.disks.broken[machine.paths[0] + "/orders-0/"] = errno.ENOENT
        with pytest.raises(StorageError):
            write(log, "b")
        machine.clock.advance(0)
        assert manager.offline == []

    def test_but_one_that_is_gone_altogether_is(self, machine: Machine) -> None:
        manager = machine.start()
        (log,) = create(manager, "orders")
        machine.file(0, "").rename(machine.file(0, "").with_name("unmounted"))
        with pytest.raises(StorageError):
            write(log, "b")
        machine.clock.advance(0)
        assert [each.path for each in manager.offline] == machine.paths[:1]

    def test_its_checkpoints_stay_as_they_are(self, machine: Machine) -> None:
        """Waiting requests are answered: there is nothing to wait for any more."""
        manager = machine.start(*machine.paths[:2])
        write(create(manager, "orders", 2)[1], "x")
        manager.checkpoint()
        path = machine.file(1, "replication-offset-checkpoint")
        before, told = path.read_text(), []
        directory = manager.directory_of(("orders", 1))
        manager._on_io_error(directory.path, OSError(errno.EIO, "Input/output error"))
        machine.clock.advance(0)
        manager.write_recovery_points([("orders", 1)], lambda: told.append(""))
        assert told == [""] and path.read_text() == before


class TestWhatApacheKafkaLeft:
    @pytest.mark.parametrize("how", ["kill", "close"])
    def test_is_taken_over_again_unless_that_came_to_its_end(self, machine: Machine, how: str) -> None:
        manager = machine.start(load=False)
        asyncio.run(manager.load(CLUSTER, lambda topic: CONFIG, takes_over=True))
        getattr(machine, how)()
        manager = machine.start(load=False)
        assert manager.directories.was_used_by_another
        asyncio.run(manager.load(CLUSTER, lambda topic: CONFIG, takes_over=True))
        manager.complete_start()
        getattr(machine, how)()
        assert not machine.start(load=False).directories.was_used_by_another

    def test_its_stop_is_told_from_ours(self, machine: Machine) -> None:
        manager = machine.start()
        assert not manager.directories.was_used_by_another, "nobody's"
        manager.close()
        assert not machine.start().directories.was_used_by_another
        machine.close()
        machine.file(1, ".kafka_cleanshutdown").write_text(KAFKAS_MARK)
        assert machine.start().directories.was_used_by_another
        machine.close()
        machine.file(2, ".kafka_cleanshutdown").unlink()  # it took our mark away, and was killed
        assert machine.start().directories.was_used_by_another
        machine.kill()
        assert not machine.start().directories.was_used_by_another, "a kill of ours is ours"

    @pytest.mark.parametrize("mark", [KAFKAS_MARK, ""])
    def test_both_forms_of_its_mark_are_an_orderly_stop(self, machine: Machine, mark: str) -> None:
        write(create(machine.start(), "orders")[0], "x")
        machine.kill()
        for which in range(3):
            machine.file(which, ".kafka_cleanshutdown").write_text(mark)
        assert machine.start().was_clean

    def test_the_cleaners_checkpoint_stays_but_for_logs_that_go(self, machine: Machine) -> None:
        for log in create(machine.start(machine.paths[0]), "orders", 2):
            for _ in range(7):
                write(log, "x")
        machine.close()
        path = machine.file(0, "cleaner-offset-checkpoint")
        path.write_text("0\n2\norders 1 7\norders 0 5\n")
        manager = machine.start(machine.paths[0])
        manager.checkpoint()
        assert path.read_text() == "0\n2\norders 1 7\norders 0 5\n"
        manager.delete("orders", 0)
        machine.clock.advance(0)
        assert path.read_text() == "0\n1\norders 1 7\n"
        manager.delete("orders", 1)
        create(manager, "orders", 2)
        assert path.read_text() == "0\n0\n", "a new log of the name is not taken for a compacted one"

    def test_unfinished_moves_are_begun_anew_and_strays_stay(
        self, machine: Machine, caplog: pytest.LogCaptureFixture
    ) -> None:
        create(machine.start(), "orders")
        machine.close()
        future = machine.file(1, f"orders-0.{'0' * 32}-future")
        future.mkdir()
        of_nobody = machine.file(1, f"clicks-0.{'0' * 32}-future")
        of_nobody.mkdir()
        machine.file(2, f"clicks-3.{'1' * 32}-stray").mkdir()
        machine.file(2, f"clicks-4.{'1' * 32}-stray").mkdir()
        manager = machine.start()
        assert list(manager.logs) == [("orders", 0)]
        assert "holds 2 partitions that no topic knew" in caplog.text
        assert "unfinished copies (-future) of clicks-0, orders-0" in caplog.text and not future.exists()
        machine.clock.advance(60_000)
        assert machine.names(0) == [] and machine.names(1) == [of_nobody.name, "orders-0"]
        manager.delete("orders", 0)
        machine.clock.advance(60_000)
        assert machine.names(1) == [of_nobody.name]
        assert len(machine.names(2)) == 2


def test_an_offline_directory_stays_so_until_the_next_start(tmp_path: Path) -> None:
    directory = LogDirectory(str(tmp_path), Files(), run_inline, TimerGroup(ManualClock()))
    directory.open()
    directory.fail_with(OSError(errno.EIO, "Input/output error"))
    directory.close()
    assert not directory.is_online and directory.failure is not None
    with pytest.raises(AssertionError):
        directory.open()
    assert set(ENTERED_FROM) == set(DirectoryState)


def test_a_closed_directory_can_be_locked_by_the_next_broker(tmp_path: Path) -> None:
    first, second = (LogDirectory(str(tmp_path), Files(), run_inline, TimerGroup(ManualClock())) for _ in range(2))
    first.open()
    first.close()
    second.open()
    assert second.state is DirectoryState.ONLINE and second.last_shutdown.clean
    second.close()


class TestATailInDoubt:
    """Logs may lack records that they have acknowledged."""

    @pytest.fixture
    def manager(self, machine: Machine) -> LogManager:
        manager = machine.start()
        for log in create(manager, "orders", 3):
            write(log, "x", "y")
        manager.checkpoint()
        return manager

    @pytest.fixture
    def fails_to_sync(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(fd: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(machine.disks, "fsync", fail)

    @pytest.mark.parametrize("deed", [lambda log: log.flusher.flush(), lambda log: log.truncate_to(1)])
    def test_after_a_failed_fsync(self, machine: Machine, manager: LogManager, fails_to_sync: None, deed: Deed) -> None:
        log = manager.logs["orders", 1]
        log.replicated_offset = 1
        with pytest.raises(StorageError, match="no space left"):
            deed(log)
        assert log.failure and machine.doubts == 1 and not machine.offline
        assert machine.file(1, f"orders-1/{FAILED_SYNC}").exists(), "the next start writes all of it again"

    def test_after_a_failed_fsync_of_the_stop(self, machine: Machine, manager: LogManager, fails_to_sync: None) -> None:
        manager.close()
        assert machine.doubts == 3

    def test_after_a_disk_failed_while_it_was_used(self, machine: Machine, manager: LogManager) -> None:
        machine.disks.broken[machine.paths[1]] = errno.EIO
        with pytest.raises(StorageError):
            write(manager.logs["orders", 1], "y")
        machine.clock.advance(0)
        assert machine.doubts == 1

    def test_after_a_disk_failed_while_its_logs_were_loaded(self, machine: Machine, manager: LogManager) -> None:
        machine.kill()
        machine.disks.broken[machine.paths[1] + "/orders-1"] = errno.EIO
        machine.start()
        assert machine.doubts == 1

    def test_if_a_log_ends_below_its_high_watermark(self, machine: Machine, manager: LogManager) -> None:
        machine.kill()
        machine.start()
        assert not machine.lost_tails
        machine.kill()
        (log,) = machine.file(1, "orders-1").glob("*.log")
        os.truncate(log, log.stat().st_size - 1)
        machine.start()
        assert machine.lost_tails == 1
        assert not machine.doubts, "it may be caught up again while this process runs"


class TestATruncation:
    """The checkpoints never name what the log has no more."""

    def offsets(self, machine: Machine, name: str) -> str:
        return machine.file(0, f"{name}-checkpoint").read_text().splitlines()[-1]

    def begin(self, machine: Machine) -> tuple[LogManager, PartitionLog]:
        """Offsets 0 to 5, all flushed and checkpointed."""
        manager = machine.start(machine.paths[0])
        (log,) = create(manager, "orders", 1)
        for value in "abcdef":
            write(log, value)
        log.flusher.flush()
        log.replicated_offset = 5
        manager.checkpoint()
        manager.directories.online[0].write_cleaner_offset(("orders", 0), 4, lambda error: None)
        return manager, log

    def test_is_in_the_checkpoints_first(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        _, log = self.begin(machine)

        def look(segments: SegmentList, offset: int) -> None:
            assert self.offsets(machine, "recovery-point-offset") == "orders 0 3"
            assert self.offsets(machine, "replication-offset") == "orders 0 3"
            assert self.offsets(machine, "cleaner-offset") == "orders 0 3"
            raise OSError(errno.ENOSPC, "No space left on device")

        assert self.offsets(machine, "recovery-point-offset") == "orders 0 5"  # within the last segment: one less
        monkeypatch.setattr(SegmentList, "cut", look)
        with pytest.raises(StorageError):
            log.truncate_to(3)

    def test_below_the_start_is_there_as_well(self, machine: Machine) -> None:
        manager, log = self.begin(machine)
        log.delete_records_before(4)
        manager.checkpoint()
        assert self.offsets(machine, "log-start-offset") == "orders 0 4"
        log.truncate_to(2)
        write(log, "x")
        machine.kill()
        log = machine.start(machine.paths[0]).logs["orders", 0]
        assert (log.start_offset, log.end_offset) == (2, 3)

    def test_at_the_start_keeps_what_is_recovered(self, machine: Machine) -> None:
        _, log = self.begin(machine)
        log.delete_records_before(3)
        log.truncate_to(3)
        assert (log.start_offset, log.end_offset) == (3, 3)
        assert self.offsets(machine, "recovery-point-offset") == "orders 0 3"

    def test_above_all_that_is_written_writes_nothing(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        _, log = self.begin(machine)
        for value in "ghi":
            write(log, value)
        before = machine.file(0, "recovery-point-offset-checkpoint").stat().st_ino
        log.truncate_to(7)
        assert machine.file(0, "recovery-point-offset-checkpoint").stat().st_ino == before
        assert log.end_offset == 7

    @pytest.mark.parametrize("offset", [2, 50])
    def test_a_restart_that_is_cut_short_is_done_or_not(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch, offset: int
    ) -> None:
        for call in range(1, 40):
            _, log = self.begin(machine)
            calls = 0

            def die(*args: object, call: int = call) -> None:
                nonlocal calls
                calls += 1
                if calls == call:
                    raise KeyboardInterrupt

            for name in ("rename", "fsync", "unlink"):
                one = getattr(machine.disks, name)
                monkeypatch.setattr(machine.disks, name, lambda *args, one=one: (die(), one(*args))[1], raising=False)
            with contextlib.suppress(KeyboardInterrupt):
                log.restart_at(offset)
            monkeypatch.undo()
            machine.kill()
            manager = machine.start(machine.paths[0])
            log = manager.logs["orders", 0]
            is_over = calls < call
            span = log.start_offset, log.end_offset
            assert span == (offset, offset) or (not is_over and span in ((0, 6), (2, 6))), f"{span} after {call}"
            manager.delete("orders", 0)
            manager.close()
            machine.managers.clear()
            if is_over:
                assert call > 5
                return
        raise AssertionError("it never ends")


HEX = "0123456789abcdef" * 2


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory(str(tmp_path), Files(), run_inline, TimerGroup(ManualClock()))


def test_each_directory_is_told_by_its_name(directory: LogDirectory, tmp_path: Path) -> None:
    names = ["orders-0", f"orders-1.{HEX}-delete", f"orders-2.{HEX}-stray", f"orders-3.{HEX}-future"]
    for name in [*names, "__cluster_metadata-0", "lost+found", "clicks-01"]:
        (tmp_path / name).mkdir()
    (tmp_path / "clicks-0").touch()
    contents = directory.partitions.listing()
    assert contents.logs == [("orders", 0)]
    assert (contents.deleted, contents.strays) == (names[1:2], names[2:3])
    assert contents.futures == {("orders", 3): names[3:]}


def test_a_stray_gets_its_name_again(directory: LogDirectory, tmp_path: Path) -> None:
    topic_id = uuid.uuid4()
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "partition.metadata").write_bytes(encode_topic_id(topic_id))
    renamed = Path(directory.partitions.rename(("orders", 0), STRAY_DIRECTORY))
    assert directory.partitions.listing().logs == [] and directory.partitions.listing().strays == [renamed.name]
    assert directory.partitions.topic_id_in(renamed.name) == topic_id
    directory.partitions.restore(renamed.name, ("orders", 0))
    assert directory.partitions.topic_id_of(("orders", 0)) == topic_id


def test_unfinished_copies_of_a_deleted_log_are_marked_once(directory: LogDirectory, tmp_path: Path) -> None:
    (tmp_path / f"orders-0.{HEX}-future").mkdir()
    directory.partitions.listing()
    (path,) = directory.partitions.rename_futures(("orders", 0))
    assert path.endswith(DELETE_DIRECTORY) and Path(path).is_dir()
    assert directory.partitions.rename_futures(("orders", 0)) == []


def test_a_log_has_records_if_it_was_ever_rolled(directory: LogDirectory, tmp_path: Path) -> None:
    log = tmp_path / "orders-0"
    log.mkdir()
    first = log / f"{0:020d}.log"
    first.touch()
    assert not directory.partitions.has_records(("orders", 0))
    first.write_bytes(b"x")
    assert directory.partitions.has_records(("orders", 0))
    first.unlink()
    (log / f"{7:020d}.log").touch()
    assert directory.partitions.has_records(("orders", 0))


@pytest.mark.parametrize(
    ("number", "there", "gone"),
    [
        (errno.EIO, True, True),
        (errno.EROFS, True, True),
        (errno.ENOSPC, False, False),
        (errno.EMFILE, False, False),
        (errno.ENOENT, False, True),
        (errno.EACCES, False, True),
    ],
)
def test_a_missing_file_is_a_failure_only_where_the_directory_is_missing(
    number: int, there: bool, gone: bool, tmp_path: Path
) -> None:
    directory = LogDirectory(str(tmp_path), Files(), run_inline, TimerGroup(ManualClock()))
    lock = tmp_path / ".lock"
    lock.touch()
    assert directory.is_failed_by(OSError(number, "")) is there
    lock.unlink()
    assert directory.is_failed_by(OSError(number, "")) is gone
