"""Several data directories under one broker: where logs go, how each is left and found, and a disk that fails alone."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.common.clock import ManualClock
from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.names import parse_uuid
from kafkalite.common.region import OpenFile
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories import startup_loading
from kafkalite.log.directories.log_directory import ENTERED_FROM, DirectoryState, LogDirectory
from kafkalite.log.directories.log_manager import LogManager, ManagerState
from kafkalite.log.directories.meta_properties import MetaProperties
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.files import Files, Job, run_inline
from kafkalite.record.batch import NewRecord, build_batch

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = parse_uuid("MkU3OEVBNTcwNTJENDM2Qg")
KAFKAS_MARK = '{"version":0,"brokerEpoch":-1}'
CONFIG = TopicConfig()


class Disks(Files):
    """The machine's disks. `broken[path]` is the errno of every change below `path`; `opened` and `synced` count."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: dict[str, int] = {}
        self.opened: list[str] = []
        self.synced: list[str] = []
        self._paths: dict[int, str] = {}

    def _touch(self, path: str) -> None:
        for place, number in self.broken.items():
            if path.startswith(place):
                raise OSError(number, os.strerror(number))

    def open(self, path: str, flags: int) -> int:
        self._touch(path)
        self.opened.append(path)
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def open_file(self, path: str, flags: int) -> OpenFile:
        if flags & os.O_RDWR:
            self._touch(path)
        self.opened.append(path)
        file = super().open_file(path, flags)
        self._paths[file.fd] = path
        return file

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:  # type: ignore[override]
        self._touch(self._paths[fd])
        return os.pwrite(fd, data, position)

    def fsync(self, fd: int) -> None:
        self._touch(self._paths[fd])
        self.synced.append(self._paths[fd])
        super().fsync(fd)

    def listdir(self, path: str) -> list[str]:  # type: ignore[override]
        self._touch(path)
        return os.listdir(path)

    def mkdir(self, path: str) -> None:  # type: ignore[override]
        self._touch(path)
        os.mkdir(path)

    def rename(self, path: str, target: str) -> None:  # type: ignore[override]
        self._touch(path)
        os.rename(path, target)


class Machine:
    """Three disks with a directory each, and the lives of a broker on them."""

    def __init__(self, root: Path) -> None:
        self.paths = [str(root / name) for name in ("a", "b", "c")]
        self.disks = Disks()
        self.clock = ManualClock()
        self.offline: list[tuple[str, int]] = []
        self.jobs: list[Job] | None = None
        self.managers: list[LogManager] = []
        self.ids: dict[str, uuid.UUID] = {}

    def start(self, *paths: str, load: bool = True, progress_interval_s: float = 5.0, **settings: object) -> LogManager:
        config = BrokerConfig.load({name.replace("_", "."): str(value) for name, value in settings.items()})
        background = self.jobs.append if self.jobs is not None else None
        manager = LogManager(paths or self.paths, self.clock, config, background, self.disks)
        self.managers.append(manager)
        manager.on_offline = lambda keys, why: self.offline.extend(keys)
        if load:
            loading = manager.load(CLUSTER, lambda topic: CONFIG, self.ids.get, progress_interval_s=progress_interval_s)
            asyncio.run(loading)
            manager.complete_start()
        return manager

    def kill(self) -> None:
        """Gone without a word."""
        for manager in self.managers:
            manager._state = ManagerState.LOCKED
            manager.close()
        self.managers.clear()

    def close(self) -> None:
        self.disks.broken.clear()
        for manager in self.managers:
            manager.close()
        self.managers.clear()

    def names(self, which: int) -> list[str]:
        return sorted(name for name in os.listdir(self.paths[which]) if os.path.isdir(f"{self.paths[which]}/{name}"))

    def file(self, which: int, name: str) -> Path:
        return Path(self.paths[which], name)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def create(manager: LogManager, topic: str, count: int = 1) -> list[PartitionLog]:
    return [manager.create(topic, index, TOPIC_ID, CONFIG) for index in range(count)]


def write(log: PartitionLog, *values: str) -> None:
    for value in values:
        log.append(memoryview(build_batch([NewRecord(None, value.encode(), (), 1)])), 0, 1)


class TestManyDirectories:
    def test_a_new_log_goes_where_the_fewest_are(self, machine: Machine) -> None:
        manager = machine.start()
        create(manager, "orders", 4)
        assert [machine.names(i) for i in range(3)] == [["orders-0", "orders-3"], ["orders-1"], ["orders-2"]]
        manager.delete("orders", 1)
        create(manager, "clicks", 2)
        assert [len(each.logs) for each in manager.directories] == [2, 2, 1] or machine.names(1) == ["clicks-0"]
        assert manager.directory_of(("clicks", 0)).path == machine.paths[1]

    def test_each_is_left_in_order_and_found_again(self, machine: Machine) -> None:
        for log, value in zip(create(machine.start(), "orders", 3), "abc", strict=True):
            write(log, value, value)
        machine.close()
        for which in range(3):
            assert machine.file(which, "recovery-point-offset-checkpoint").read_text() == f"0\n1\norders {which} 2\n"
            assert machine.file(which, ".kafka_cleanshutdown").exists()
            assert f"cluster.id={CLUSTER}" in machine.file(which, "meta.properties").read_text()
        manager = machine.start()
        assert manager.was_clean and sorted(manager.logs) == [("orders", index) for index in range(3)]
        assert [log.end_offset for log in manager.logs.values()] == [2, 2, 2]

    def test_only_the_one_that_lost_its_mark_is_recovered(self, machine: Machine) -> None:
        for log in create(machine.start(), "orders", 2):
            write(log, "whole", "torn")
        machine.close()
        for which in range(2):
            path = machine.file(which, f"orders-{which}/{0:020}.log")
            path.write_bytes(path.read_bytes()[:-1])
        machine.file(1, ".kafka_cleanshutdown").unlink()
        machine.file(1, "recovery-point-offset-checkpoint").unlink()
        logs = machine.start().logs
        assert (logs["orders", 1].end_offset, logs["orders", 1].lost_bytes > 0) == (1, True)

    def test_one_that_is_in_use_keeps_all_of_them_free(self, machine: Machine) -> None:
        machine.start(machine.paths[1])
        with pytest.raises(ConfigError, match=r"/b is in use"):
            machine.start(load=False)
        machine.start(machine.paths[0], machine.paths[2])

    def test_one_directory_under_two_names_is_refused(self, machine: Machine, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "again").symlink_to(tmp_path / "a")
        for other in (str(tmp_path / "again"), f"{tmp_path}/x/../a", machine.paths[0]):
            with pytest.raises(ConfigError, match=r"log\.dirs names one directory twice"):
                machine.start(machine.paths[0], other, load=False)

    def test_directories_of_two_clusters_are_refused(self, machine: Machine) -> None:
        machine.start().close()
        machine.file(1, "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=another\n")
        with pytest.raises(
            ConfigError, match=r"/a/meta\.properties says .*, \S+/b/meta\.properties says cluster another"
        ):
            machine.start(load=False)

    def test_a_new_directory_takes_the_form_of_the_others(self, machine: Machine) -> None:
        machine.file(0, "").mkdir()
        kraft = MetaProperties(CLUSTER, 0, 1, "u1Nl4vFpQ0mVJ6xYq0cTdg").encode(0)
        machine.file(0, "meta.properties").write_bytes(kraft)
        machine.start()
        assert machine.file(0, "meta.properties").read_bytes() == kraft, "and what was found stays as it is"
        added = machine.file(1, "meta.properties").read_text()
        assert "version=1" in added and "node.id=0" in added and re.search(r"directory\.id=[\w-]{22}\n", added)


class TestALogInTwoDirectories:
    @pytest.fixture
    def doubled(self, machine: Machine) -> Machine:
        create(machine.start(), "orders")
        machine.close()
        other = machine.file(1, "orders-0")
        other.mkdir()
        (other / f"{0:020}.log").write_bytes(b"")
        return machine

    def test_stops_the_start(self, doubled: Machine) -> None:
        with pytest.raises(ConfigError, match=r"/a/orders-0 and \S+/b/orders-0 are both logs of orders-0"):
            doubled.start()

    def test_unless_one_is_of_a_topic_that_is_gone(self, doubled: Machine) -> None:
        """Its directory was offline when the topic was deleted and made again."""
        doubled.ids["orders"] = TOPIC_ID
        doubled.file(1, "orders-0/partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        manager = doubled.start()
        assert manager.directory_of(("orders", 0)).path == doubled.paths[0]
        assert re.fullmatch(r"orders-0\.[0-9a-f]{32}-stray", doubled.names(1)[0])

    @pytest.mark.parametrize("written", [0, 1])
    def test_or_was_never_written_to(self, machine: Machine, written: int) -> None:
        """It was made while the directory of the other one was not in log.dirs."""
        machine.ids["orders"] = TOPIC_ID
        for which in (0, 1):
            (log,) = create(machine.start(machine.paths[which]), "orders")
            if which == written:
                write(log, "x")
            machine.close()
        manager = machine.start(*machine.paths[:2])
        assert manager.directory_of(("orders", 0)).path == machine.paths[written]
        assert re.fullmatch(r"orders-0\.[0-9a-f]{32}-stray", machine.names(1 - written)[0])

    def test_but_not_when_both_were(self, machine: Machine) -> None:
        machine.ids["orders"] = TOPIC_ID
        for path in machine.paths[:2]:
            write(create(machine.start(path), "orders")[0], "x")
            machine.close()
        with pytest.raises(ConfigError, match=r"was not in log\.dirs for a time\. Move one of the two"):
            machine.start(*machine.paths[:2])


class TestADiskThatFailsAtStart:
    @pytest.fixture
    def filled(self, machine: Machine) -> Machine:
        for log in create(machine.start(), "orders", 3):
            write(log, "x")
        machine.close()
        return machine

    def test_stays_offline_and_the_others_are_served(self, filled: Machine, caplog: pytest.LogCaptureFixture) -> None:
        filled.disks.broken[filled.paths[1]] = errno.EIO
        manager = filled.start()
        assert [each.path for each in manager.offline] == filled.paths[1:2]
        assert sorted(manager.logs) == [("orders", 0), ("orders", 2)]
        assert f"{filled.paths[1]} as the data directory: Input/output error; it stays offline" in caplog.text
        assert [manager.directory_of(log_key(log)).path for log in create(manager, "new", 2)] == [
            filled.paths[0], filled.paths[2],
        ]  # fmt: skip
        filled.close()
        assert sorted(filled.start().logs) == [("new", 0), ("new", 1), *(("orders", i) for i in range(3))]

    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
    def test_also_when_it_fails_while_a_log_is_opened(self, filled: Machine, number: int) -> None:
        filled.file(1, ".kafka_cleanshutdown").unlink()
        filled.disks.broken[filled.paths[1] + "/orders-1"] = number
        manager = filled.start()
        assert [each.path for each in manager.offline] == filled.paths[1:2]
        assert sorted(manager.logs) == [("orders", 0), ("orders", 2)]

    def test_where_logs_begin_is_not_forgotten_for_an_error(self, filled: Machine) -> None:
        """Else records that were deleted would be there again."""
        filled.disks.broken[filled.paths[1] + "/log-start-offset-checkpoint"] = errno.EIO
        manager = filled.start()
        assert [each.path for each in manager.offline] == filled.paths[1:2]

    def test_a_full_disk_is_told_as_such(self, filled: Machine, caplog: pytest.LogCaptureFixture) -> None:
        filled.file(1, ".kafka_cleanshutdown").unlink()
        filled.disks.broken[filled.paths[1] + "/orders-1"] = errno.ENOSPC
        filled.start()
        assert f"no space left to load what is in {filled.paths[1]}; free some, and start again" in caplog.text

    def test_a_place_that_is_no_directory_is_such_a_disk(self, filled: Machine, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        manager = filled.start(str(tmp_path / "file" / "x"), *filled.paths)
        assert len(manager.online) == 3 and len(manager.logs) == 3

    def test_without_any_left_there_is_no_start(self, filled: Machine) -> None:
        filled.disks.broken["/"] = errno.EIO
        with pytest.raises(ConfigError, match=r"/a as the data directory: Input/output error"):
            filled.start()

    def test_a_log_that_is_forbidden_ends_the_start(self, filled: Machine) -> None:
        """The disk works; somebody has to look at that file."""
        filled.file(1, ".kafka_cleanshutdown").unlink()
        filled.disks.broken[filled.paths[1] + "/orders-1"] = errno.EACCES
        with pytest.raises(StorageError, match="orders-1"):
            filled.start()


def log_key(log: PartitionLog) -> tuple[str, int]:
    return log.topic, log.partition


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
        """Whoever waits for them is told: there is nothing to wait for any more."""
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

    def test_unfinished_moves_are_left_alone_until_their_topic_goes(
        self, machine: Machine, caplog: pytest.LogCaptureFixture
    ) -> None:
        create(machine.start(), "orders")
        machine.close()
        future = machine.file(1, f"orders-0.{'0' * 32}-future")
        future.mkdir()
        machine.file(2, f"clicks-3.{'1' * 32}-stray").mkdir()
        machine.file(2, f"clicks-4.{'1' * 32}-stray").mkdir()
        manager = machine.start()
        assert list(manager.logs) == [("orders", 0)]
        assert "holds 2 partitions that no topic knew" in caplog.text
        assert "unfinished copies (-future) of orders-0" in caplog.text and future.exists()
        manager.delete("orders", 0)
        assert not future.exists()
        machine.clock.advance(60_000)
        assert machine.names(0) == machine.names(1) == []
        assert len(machine.names(2)) == 2


class TestALongRecovery:
    @pytest.fixture
    def killed(self, machine: Machine) -> Machine:
        for log in create(machine.start(), "orders", 6):
            write(log, "a", "b")
        machine.kill()
        return machine

    @pytest.mark.parametrize("threads", [1, 2])
    def test_is_told_and_written_down_on_its_way(
        self, killed: Machine, threads: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        caplog.set_level("INFO", "kafkalite")
        open_log = PartitionLog.open
        told = [f"{index} of 6 logs done" for index in range(6)]

        def slowly(*arguments: object) -> PartitionLog:
            log = open_log(*arguments)  # type: ignore[arg-type]
            asyncio.run(asyncio.sleep(0.05))
            return log

        monkeypatch.setattr(PartitionLog, "open", slowly)
        manager = killed.start(progress_interval_s=0.01, num_recovery_threads_per_data_dir=threads)
        assert any(line in caplog.text for line in told)
        assert [log.end_offset for log in manager.logs.values()] == [2] * 6

    @pytest.mark.parametrize("much_bytes", [1, 1 << 20])
    def test_waits_for_the_disk_only_where_there_was_much_to_read(
        self, killed: Machine, much_bytes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(startup_loading, "_FSYNC_MIN_BYTES", much_bytes)
        killed.disks.synced.clear()
        manager = killed.start(load=False)
        asyncio.run(manager.load(CLUSTER, lambda topic: CONFIG, progress_interval_s=0))
        assert [log.end_offset for log in manager.logs.values()] == [2] * 6
        synced = {os.path.dirname(path) for path in killed.disks.synced if path.endswith(".log")}
        assert len(synced) == (6 if much_bytes == 1 else 0)

    def test_that_is_stopped_goes_on_where_it_was(self, killed: Machine) -> None:
        async def stopped() -> None:
            manager = killed.start(load=False)
            loading = asyncio.ensure_future(manager.load(CLUSTER, lambda topic: CONFIG))
            await asyncio.sleep(0)
            loading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await loading
            manager.close()

        asyncio.run(stopped())
        assert not machine_marks(killed), "it was no orderly stop"
        assert [log.end_offset for log in killed.start().logs.values()] == [2] * 6

    def test_is_not_repeated(self, killed: Machine) -> None:
        manager = killed.start()
        killed.clock.advance(1000)
        killed.kill()
        assert manager.logs == {}
        for i in range(3):  # one less than the end: the batch there is looked at again, for the sake of the indexes
            points = killed.file(i, "recovery-point-offset-checkpoint").read_text()
            assert points == f"0\n2\norders {i} 1\norders {i + 3} 1\n"


def machine_marks(machine: Machine) -> list[str]:
    return [path for path in machine.paths if os.path.exists(f"{path}/.kafka_cleanshutdown")]


def test_an_empty_log_is_recovered_without_waiting_for_the_disk(machine: Machine) -> None:
    """Of thousands of partitions most may be empty, and a sync takes milliseconds."""
    create(machine.start(machine.paths[0]), "orders", 20)
    for _ in range(2):
        machine.kill()
        machine.disks.opened.clear()
        machine.disks.synced.clear()
        manager = machine.start(machine.paths[0])
        assert [log.end_offset for log in manager.logs.values()] == [0] * 20
        assert [path for path in machine.disks.synced if "/orders-" in path] == []
        assert len([path for path in machine.disks.opened if "/orders-" in path]) <= 20 * 5
    write(manager.logs["orders", 7], "a", "b")
    machine.kill()
    assert machine.start(machine.paths[0]).logs["orders", 7].end_offset == 2
    machine.close()
    assert machine.start(machine.paths[0]).logs["orders", 7].end_offset == 2


def test_a_clean_start_looks_into_few_files(machine: Machine) -> None:
    """However many segments there are: the end of each log, and the epochs."""
    manager = machine.start(machine.paths[0])
    for index in range(5):
        log = manager.create("orders", index, TOPIC_ID, TopicConfig(segment_bytes=70))
        for value in itertools.repeat("x", 40):
            write(log, value)
        assert len(log.segments) == 40
    machine.close()
    machine.disks.opened.clear()
    manager = machine.start(machine.paths[0])
    assert [log.end_offset for log in manager.logs.values()] == [40] * 5
    below = [path for path in machine.disks.opened if "/orders-" in path]
    assert len(below) <= 5 * 4, below


def test_an_offline_directory_stays_so_until_the_next_start(tmp_path: Path) -> None:
    directory = LogDirectory(str(tmp_path), Files(), run_inline)
    directory.open()
    directory.fail_with(OSError(errno.EIO, "Input/output error"))
    directory.close()
    assert not directory.is_online and directory.failure is not None
    with pytest.raises(AssertionError):
        directory.open()
    assert set(ENTERED_FROM) == set(DirectoryState)


def test_a_closed_directory_can_be_locked_by_the_next_broker(tmp_path: Path) -> None:
    first, second = (LogDirectory(str(tmp_path), Files(), run_inline) for _ in range(2))
    first.open()
    first.close()
    second.open()
    assert second.state is DirectoryState.ONLINE and second.last_shutdown.clean
    second.close()
