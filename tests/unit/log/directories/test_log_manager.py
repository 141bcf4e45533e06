"""A data directory: whose it is, what is in it, how it is left."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.names import parse_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.log_manager import LogManager, ManagerState
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.segment import record_counts
from kafkalite.log.segment.record_counting import Tally
from kafkalite.log.storage import io_executor
from kafkalite.log.storage.files import Files
from kafkalite.log.storage.io_executor import SerialExecutor
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.descriptors import open_below
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = parse_uuid("MkU3OEVBNTcwNTJENDM2Qg")
Start = Callable[..., LogManager]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def start(tmp_path: Path, clock: ManualClock) -> Iterator[Start]:
    started: list[LogManager] = []

    def start(*, cluster_id: str = CLUSTER, broker_id: int = 0, config: TopicConfig | None = None) -> LogManager:
        manager = LogManager([tmp_path / "data"], clock, BrokerConfig.load({"broker.id": str(broker_id)}))
        started.append(manager)
        try:
            asyncio.run(manager.load(cluster_id, lambda topic: config or TopicConfig()))
            manager.complete_start()
        except ConfigError:
            started.pop().close()
            raise
        return manager

    yield start
    for manager in started:
        manager.close()


def write(log: PartitionLog, *values: str) -> None:
    batch = build_batch([NewRecord(None, value.encode(), (), 1) for value in values])
    log.append(memoryview(batch), 0, 1)


def kill(manager: LogManager) -> None:
    """Gone without a word: descriptors and the lock go with the process."""
    for log in manager.logs.values():
        log.abandon()
    manager.logs.clear()
    manager._state = ManagerState.LOCKED
    manager.close()


def test_an_orderly_stop_leaves_kafkas_files(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    manager = start()
    write(manager.create("orders", 0, TOPIC_ID, TopicConfig()), "a", "b")
    write(manager.create("orders", 1, TOPIC_ID, TopicConfig()), "c")
    manager.logs["orders", 1].delete_records_before(1)
    assert not (data / ".kafka_cleanshutdown").exists()
    manager.close()
    assert sorted(path.name for path in data.iterdir()) == [
        ".kafka_cleanshutdown", ".kafkalite_cleanshutdown", ".lock", "log-start-offset-checkpoint", "meta.properties",
        "orders-0", "orders-1", "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
    ]  # fmt: skip
    assert (data / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1,"by":"kafkalite"}'
    assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n2\norders 0 2\norders 1 1\n"
    assert (data / "replication-offset-checkpoint").read_text() == "0\n2\norders 0 2\norders 1 1\n"
    assert (data / "log-start-offset-checkpoint").read_text() == "0\n1\norders 1 1\n"
    assert re.fullmatch(
        rf"#\n#\w{{3}} \w{{3}} \d\d [\d:]{{8}} UTC \d{{4}}\nbroker.id=0\nversion=0\ncluster.id={CLUSTER}\n",
        (data / "meta.properties").read_text(),
    )
    assert sorted(path.name for path in (data / "orders-0").iterdir()) == [
        "00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex",
        "00000000000000000002.snapshot", "kafkalite-record-counts", "leader-epoch-checkpoint", "partition.metadata",
    ]  # fmt: skip
    assert (data / "orders-0" / "00000000000000000000.index").read_bytes() == b""
    assert (data / "orders-0" / "00000000000000000000.timeindex").read_bytes() == bytes.fromhex(
        "0000000000000001 00000001"
    )


def test_everything_is_there_after_a_restart(start: Start, clock: ManualClock) -> None:
    manager = start()
    write(manager.create("orders", 0, TOPIC_ID, TopicConfig()), "a", "b")
    manager.logs["orders", 0].delete_records_before(1)
    manager.close()
    manager = start()
    log = manager.get("orders", 0)
    assert log is not None
    assert (log.start_offset, log.end_offset, log.flusher.recovery_point, log.metadata.topic_id) == (1, 2, 2, TOPIC_ID)
    assert log.replicated_offset == 2
    assert manager.directories.stored_cluster_id == CLUSTER
    assert manager.get("orders", 1) is None


def test_after_a_kill_logs_are_recovered(start: Start, tmp_path: Path) -> None:
    manager = start()
    log = manager.create("orders", 0, TOPIC_ID, TopicConfig())
    write(log, "a")
    write(log, "b")
    kill(manager)
    path = tmp_path / "data" / "orders-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1])
    log = start().logs["orders", 0]
    assert (log.end_offset, log.lost_bytes) == (1, path.stat().st_size - 1)


def test_the_checkpoint_outlives_a_kill(start: Start, tmp_path: Path) -> None:
    manager = start()
    log = manager.create("orders", 0, TOPIC_ID, TopicConfig())
    write(log, "a", "b", "c")
    log.flusher.flush()
    log.delete_records_before(2)
    write(log, "d")
    log.replicated_offset = 3
    manager.checkpoint()
    kill(manager)
    assert (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
    manager = start()
    log = manager.logs["orders", 0]
    assert (log.start_offset, log.flusher.recovery_point, log.end_offset) == (2, 4, 4)
    assert (log.replicated_offset, log.committed_offset) == (3, 3)


def test_a_second_broker_on_the_directory_is_refused(start: Start, tmp_path: Path, clock: ManualClock) -> None:
    manager = start()
    with pytest.raises(ConfigError, match=r"data is in use.*\.lock") as raised:
        LogManager([tmp_path / "data"], clock, BrokerConfig.load({}))
    assert "\n" not in str(raised.value)
    manager.close()
    start().close()


def test_another_process_is_refused_too(start: Start, tmp_path: Path) -> None:
    start()
    script = "import fcntl,sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    lock = str(tmp_path / "data" / ".lock")
    done = subprocess.run([sys.executable, "-c", script, lock], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in done.stderr, "Apache Kafka takes this kind of lock"


def test_a_directory_of_another_cluster_or_broker_is_refused(start: Start) -> None:
    start().close()
    with pytest.raises(ConfigError, match=rf"meta\.properties.*{CLUSTER}.*log\.dirs"):
        start(cluster_id="AAAAAAAAAAAAAAAAAAAAAA")
    with pytest.raises(ConfigError, match=r"meta\.properties.*broker 0.*broker\.id=0"):
        start(broker_id=5)
    start().close()


def test_a_directory_that_cannot_be_is_one_plain_line(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot use .*/file/data as the data directory: Not a directory"):
        LogManager([tmp_path / "file" / "data"], clock, BrokerConfig.load({}))


def test_a_deleted_log_frees_its_name_at_once(start: Start, tmp_path: Path, clock: ManualClock) -> None:
    data = tmp_path / "data"
    manager = start()
    old = manager.create("orders", 0, TOPIC_ID, TopicConfig(file_delete_delay_ms=1000))
    write(old, "a")
    region = old.read(0, 1000, 1)
    assert region is not None
    manager.delete("orders", 0)
    assert manager.get("orders", 0) is None
    new = manager.create("orders", 0, uuid.uuid4(), TopicConfig())
    write(new, "b")
    with pytest.raises(StorageError):
        write(old, "c")  # somebody still holds the old one
    assert new.end_offset == 1
    assert [n for n in os.listdir(data) if re.fullmatch(r"orders-0\.[0-9a-f]{32}-delete", n)]
    clock.advance(1000)
    assert not [n for n in os.listdir(data) if n.endswith("-delete")]
    assert region.read()[-2:-1] == b"a"


def test_a_deletion_that_a_stop_cut_short_is_finished(start: Start, tmp_path: Path, clock: ManualClock) -> None:
    data = tmp_path / "data"
    manager = start()
    manager.create("orders", 0, TOPIC_ID, TopicConfig())
    manager.delete("orders", 0)
    manager.close()
    manager = start()
    assert manager.logs == {}
    clock.advance(60_000)
    assert not [n for n in os.listdir(data) if n.endswith("-delete")]


def test_old_logs_are_flushed_when_their_time_has_come(start: Start, clock: ManualClock) -> None:
    manager = start()
    due = manager.create("orders", 0, TOPIC_ID, TopicConfig(flush_ms=1000))
    never = manager.create("orders", 1, TOPIC_ID, TopicConfig())
    write(due, "a")
    write(never, "a")
    clock.advance(999)
    manager.flush_if_due()
    assert due.flusher.recovery_point == 0
    clock.advance(1)
    manager.flush_if_due()
    assert (due.flusher.recovery_point, never.flusher.recovery_point) == (1, 0)


class TestANameThatIsUsedAgain:
    """The checkpoints on the disk speak of the old log of that name until they are written again."""

    def fill(self, manager: LogManager) -> None:
        """orders-0 with 6 records, of which 5 were deleted, as the checkpoints say."""
        log = manager.create("orders", 0, TOPIC_ID, TopicConfig())
        for value in "abcdef":
            write(log, value)
        log.flusher.flush()
        log.delete_records_before(5)
        manager.checkpoint()

    def checkpoint(self, tmp_path: Path, which: str = "log-start-offset") -> str:
        return (tmp_path / "data" / f"{which}-checkpoint").read_text()

    def test_the_new_log_is_not_met_by_the_old_ones_offsets(self, start: Start, tmp_path: Path) -> None:
        manager = start()
        self.fill(manager)
        manager.delete("orders", 0)
        assert self.checkpoint(tmp_path) == "0\n1\norders 0 5\n"
        write(manager.create("orders", 0, uuid.uuid4(), TopicConfig()), "new")
        kill(manager)
        log = start().logs["orders", 0]
        assert (log.start_offset, log.end_offset) == (0, 1)

    def test_not_even_after_a_kill_between_deletion_and_creation(self, start: Start) -> None:
        manager = start()
        self.fill(manager)
        manager.delete("orders", 0)
        kill(manager)
        manager = start()
        write(manager.create("orders", 0, uuid.uuid4(), TopicConfig()), "new")
        kill(manager)
        log = start().logs["orders", 0]
        assert (log.start_offset, log.end_offset) == (0, 1)

    def test_a_write_that_was_under_way_does_not_bring_them_back(self, tmp_path: Path, clock: ManualClock) -> None:
        jobs: list[Callable[[], None]] = []
        manager = LogManager([tmp_path / "data"], clock, BrokerConfig.load({}), jobs.append)
        asyncio.run(manager.load(CLUSTER, lambda topic: TopicConfig()))
        manager.complete_start()
        self.fill(manager)  # its checkpoint waits for its turn
        manager.delete("orders", 0)
        write(manager.create("orders", 0, uuid.uuid4(), TopicConfig()), "new")
        for job in jobs:
            job()
        manager.run_completions()
        assert self.checkpoint(tmp_path) == "0\n0\n"
        assert self.checkpoint(tmp_path, "recovery-point-offset") == "0\n0\n"
        kill(manager)

    def test_many_deletions_are_one_write(
        self, start: Start, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = start()
        written: list[str] = []
        write = Files.write_atomically

        def count(files: Files, path: str, data: bytes, *, durable: bool = True) -> None:
            # brokers of other tests in this process write theirs at any time
            if path.endswith("-checkpoint") and os.path.dirname(path) == manager.online[0].path:
                written.append(os.path.basename(path))
            write(files, path, data, durable=durable)

        for lazily in (True, False):
            for partition in range(20):
                manager.create("orders", partition, TOPIC_ID, TopicConfig())
            manager.checkpoint()
            monkeypatch.setattr(Files, "write_atomically", count)
            for partition in range(20):
                manager.delete("orders", partition)
            assert written == []
            if not lazily:
                clock.advance(0)  # the loop's next turn
                assert len(written) == 3
            for partition in range(20):
                manager.create("orders", partition, TOPIC_ID, TopicConfig())
                manager.delete("orders", partition)
            assert len(written) == 3
            clock.advance(0)
            written.clear()
            monkeypatch.undo()

    def test_without_the_write_there_is_no_new_log(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        manager = start()
        self.fill(manager)
        manager.delete("orders", 0)

        def full(files: Files, path: str, data: bytes, *, durable: bool = True) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Files, "write_atomically", full)
        with pytest.raises(StorageError, match="cannot create orders-0: no space left"):
            manager.create("orders", 0, TOPIC_ID, TopicConfig())
        monkeypatch.undo()
        assert manager.create("orders", 0, TOPIC_ID, TopicConfig()).end_offset == 0


def test_a_creation_that_fails_leaves_the_name_free(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start()

    def full(files: Files, path: str, data: bytes, *, durable: bool = True) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Files, "write_atomically", full)
    with pytest.raises(StorageError, match="no space left"):
        manager.create("orders", 0, TOPIC_ID, TopicConfig())
    assert not (tmp_path / "data" / "orders-0").exists()
    assert manager.logs == {}
    monkeypatch.undo()
    assert manager.create("orders", 0, TOPIC_ID, TopicConfig()).end_offset == 0


def test_what_is_left_of_an_earlier_log_is_out_of_the_way(start: Start, tmp_path: Path, clock: ManualClock) -> None:
    data = tmp_path / "data"
    manager = start()
    (data / "orders-0").mkdir()
    (data / "orders-0" / "00000000000000000000.log").write_bytes(b"rubbish")
    assert manager.create("orders", 0, TOPIC_ID, TopicConfig(file_delete_delay_ms=1000)).end_offset == 0
    assert [n for n in os.listdir(data) if n.endswith("-delete")]
    clock.advance(1000)
    assert not [n for n in os.listdir(data) if n.endswith("-delete")]


def test_a_log_that_nobody_knows_is_set_aside_and_kept(start: Start, tmp_path: Path, clock: ManualClock) -> None:
    data = tmp_path / "data"
    manager = start()
    write(manager.create("orders", 0, TOPIC_ID, TopicConfig()), "a")
    manager.close()
    manager = start()
    manager.keep_as_stray("orders", 0)
    manager.keep_as_stray("orders", 1)  # there is none
    assert manager.get("orders", 0) is None
    assert manager.create("orders", 0, TOPIC_ID, TopicConfig()).end_offset == 0
    manager.close()
    manager = start()
    clock.advance(1 << 40)
    (stray,) = [n for n in os.listdir(data) if re.fullmatch(r"orders-0\.[0-9a-f]{32}-stray", n)]
    assert (data / stray / "00000000000000000000.log").stat().st_size == 69
    assert list(manager.logs) == [("orders", 0)]


def test_the_highest_producer_id_is_known_even_of_those_that_are_forgotten(start: Start) -> None:
    manager = start()
    assert manager.highest_producer_id() == -1
    for partition, producer_id in enumerate((8, 4711, 9)):
        log = manager.create("orders", partition, TOPIC_ID, TopicConfig())
        batch = build_batch([NewRecord(None, b"x")], producer_id=producer_id, producer_epoch=0, base_sequence=0)
        log.append(memoryview(batch), 0, 1)
    assert manager.highest_producer_id() == 4711
    manager.close()
    manager = start()  # their records are very old, so that they have expired
    assert len(manager.logs["orders", 1].producers) == 0
    assert manager.highest_producer_id() == 4711


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was waited for on its way to the disk."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to name descriptors")
    found: list[str] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        found.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), tmp_path / "data"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    return found


@pytest.mark.parametrize("flushed", [False, True])
def test_an_orderly_stop_waits_for_what_an_unclean_start_made(start: Start, synced: list[str], flushed: bool) -> None:
    manager = start()
    log = manager.create("orders", 0, TOPIC_ID, TopicConfig())
    write(log, "a")
    if flushed:
        log.flusher.flush()
        manager.checkpoint()
    kill(manager)
    manager = start()
    assert manager.logs["orders", 0].flusher.recovery_point == 1, "what was recovered is brought to the disk at once"
    manager.close()
    assert {f"orders-0/{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")} <= set(synced)
    assert {"orders-0", "orders-0/00000000000000000001.snapshot", "orders-0/leader-epoch-checkpoint"} <= set(synced)
    assert synced[-2:] == [".kafka_cleanshutdown.tmp", "."]
    manager = start()
    assert manager.was_clean
    synced.clear()
    manager.close()
    assert not [name for name in synced if name.startswith("orders-0")], "and then never again"


def test_after_an_fsync_that_found_no_room_no_stop_is_clean(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    manager = start()
    bad, good = (manager.create("orders", i, TOPIC_ID, TopicConfig(flush_ms=1000)) for i in range(2))
    write(bad, "a")
    write(good, "a", "b")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError):
            bad.flusher.flush()
    clock.advance(1000)
    manager.flush_if_due()
    assert (bad.flusher.recovery_point, good.flusher.recovery_point) == (0, 2), "the others are flushed all the same"
    write(good, "c")
    manager.close()
    data = tmp_path / "data"
    assert not (data / ".kafka_cleanshutdown").exists()
    assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n2\norders 0 0\norders 1 3\n"
    manager = start()
    write(manager.logs["orders", 0], "b")
    assert [log.end_offset for log in manager.logs.values()] == [2, 3]


def test_slow_work_goes_to_the_hand_that_was_given(tmp_path: Path, clock: ManualClock) -> None:
    with ThreadPoolExecutor(1) as pool:
        manager = LogManager([tmp_path / "data"], clock, BrokerConfig.load({}), pool.submit)
        asyncio.run(manager.load(CLUSTER, lambda topic: TopicConfig()))
        manager.complete_start()
        log = manager.create("orders", 0, TOPIC_ID, TopicConfig(segment_bytes=100))
        for value in "abcd":
            write(log, value)
        manager.checkpoint()
        manager._executor.wait()
        assert log.flusher.recovery_point == 3
        manager.close()
    assert (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 4\n"


def test_a_stop_does_not_wait_until_everything_is_counted(
    start: Start, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start()
    for index in range(3):
        write(manager.create("orders", index, TOPIC_ID, TopicConfig()), "a")
    manager.close()
    for notes in tmp_path.glob("data/*/kafkalite-record-counts"):
        notes.unlink()
    counted: list[Tally] = []
    stops = threading.Event()
    count, wait = record_counts.count, SerialExecutor.wait

    def slow_count(*how: Any, **more: Any) -> Tally:
        assert stops.wait(DEADLINE_S)
        counted.append(count(*how, **more))
        return counted[-1]

    monkeypatch.setattr(record_counts, "count", slow_count)
    monkeypatch.setattr(SerialExecutor, "wait", lambda work: (stops.set(), wait(work)))
    with ThreadPoolExecutor(1) as pool:
        manager = LogManager([tmp_path / "data"], clock, BrokerConfig.load({}), pool.submit)
        asyncio.run(manager.load(CLUSTER, lambda topic: TopicConfig()))
        manager.complete_start()
        assert all(log.record_counts.current().is_counting for log in manager.logs.values())
        manager.close()
    assert counted == []
    assert start().was_clean


def test_a_stop_in_the_midst_of_a_job_that_never_ends_is_not_called_clean(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io_executor, "_WAIT_SECONDS", 0)
    manager = LogManager([tmp_path / "data"], clock, BrokerConfig.load({}), lambda job: None)
    asyncio.run(manager.load(CLUSTER, lambda topic: TopicConfig()))
    manager.complete_start()
    write(manager.create("orders", 0, TOPIC_ID, TopicConfig(flush_messages=1)), "a")
    manager.close()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_stop_that_fails_is_not_called_clean(start: Start, tmp_path: Path) -> None:
    manager = start()
    log = manager.create("orders", 0, TOPIC_ID, TopicConfig())
    write(log, "a")
    log.segments[0].offset_index.path = str(tmp_path / "gone" / "index")
    manager.close()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    manager = start()
    assert manager.logs["orders", 0].end_offset == 1


def test_nothing_is_left_behind(tmp_path: Path, clock: ManualClock) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to count descriptors")
    for _ in range(2):
        manager = LogManager([tmp_path / "data"], clock, BrokerConfig.load({}))
        asyncio.run(manager.load(CLUSTER, lambda topic: TopicConfig()))
        manager.complete_start()
        for partition in range(5):
            log = manager.get("orders", partition)
            write(log or manager.create("orders", partition, TOPIC_ID, TopicConfig(segment_bytes=80)), "a")
        manager.close()
        manager.close()
    assert open_below(tmp_path) == []


def test_an_idle_log_holds_no_descriptor(start: Start, tmp_path: Path) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to count descriptors")
    manager = start()
    for partition in range(50):
        write(manager.create("orders", partition, TOPIC_ID, TopicConfig()), "a")
    manager.close()
    start()
    assert len(open_below(tmp_path)) == 1, "the lock"


def test_a_stop_before_the_logs_were_settled_is_a_clean_one_only_after_a_clean_one(tmp_path, clock):
    def life(*, settled: bool) -> bool:
        manager = LogManager([tmp_path / "data"], clock, BrokerConfig.load({}))
        asyncio.run(manager.load(CLUSTER, lambda topic: TopicConfig()))
        if settled:
            manager.complete_start()
        manager.close()
        return (tmp_path / "data" / ".kafka_cleanshutdown").exists()

    assert life(settled=False), "a new directory holds nothing to look for"
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    assert not life(settled=False)
    assert life(settled=True)
    assert life(settled=False)


@pytest.mark.parametrize("count", [1, 3, 120])
def test_every_log_that_lacks_committed_records_is_named(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """One loses its end and one the middle, the others their ends; beyond a hundred only their number is told."""
    data = tmp_path / "data"
    manager = start()
    config = TopicConfig(segment_bytes=200)
    for index in range(count + 1):
        log = manager.create("orders", index, TOPIC_ID, config)
        for value in "abcde":
            write(log, value)
    kill(manager)
    for name in (".kafka_cleanshutdown", ".kafkalite_cleanshutdown"):
        (data / name).unlink(missing_ok=True)
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    lines = [f"orders {index} 5" for index in range(count + 1)]
    (data / "replication-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    segments = sorted((data / "orders-0").glob("*.log"))
    assert len(segments) > 2
    for index in range(count):
        path = data / f"orders-{index}" / segments[1 if index == 1 else -1].name
        path.write_bytes(b"")
    told: list[str] = []
    manager = LogManager([data], ManualClock(), BrokerConfig())
    manager.on_lost_tail.subscribe(lambda: told.append("lost"))
    asyncio.run(manager.load(CLUSTER, lambda topic: config))
    messages = [record.getMessage() for record in caplog.records]
    named = [line for line in messages if "though all below 5 was committed" in line]
    assert len(named) == min(count, 100)
    assert named[0] == "orders-0 ends at 4, though all below 5 was committed"
    if count > 1:
        gap = int(segments[1].stem)
        assert f"orders-1 has a gap at {gap}, though all below 5 was committed" in named
        assert manager.logs["orders", 1].end_offset == 5
    assert f"{count} of {count + 1} logs lack committed records" in messages
    assert told == ["lost"]
    manager.close()
