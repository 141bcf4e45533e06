"""A data directory: whose it is, what is in it, how it is left."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkalite.clock import ManualClock
from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.errors import ConfigError, StorageError
from kafkalite.log.batch import NewRecord, build_batch
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.names import parse_uuid

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
        manager = LogManager(tmp_path / "data", clock, BrokerConfig.load({"broker.id": str(broker_id)}))
        started.append(manager)
        try:
            manager.load(cluster_id, lambda topic: config or TopicConfig())
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
    manager._loaded = False
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
        ".kafka_cleanshutdown", ".lock", "log-start-offset-checkpoint", "meta.properties", "orders-0", "orders-1",
        "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
    ]  # fmt: skip
    assert (data / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n2\norders 0 2\norders 1 1\n"
    assert (data / "replication-offset-checkpoint").read_text() == "0\n2\norders 0 2\norders 1 1\n"
    assert (data / "log-start-offset-checkpoint").read_text() == "0\n1\norders 1 1\n"
    assert re.fullmatch(
        rf"#\n#\w{{3}} \w{{3}} \d\d [\d:]{{8}} UTC \d{{4}}\nbroker.id=0\nversion=0\ncluster.id={CLUSTER}\n",
        (data / "meta.properties").read_text(),
    )
    assert sorted(path.name for path in (data / "orders-0").iterdir()) == [
        "00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex",
        "00000000000000000002.snapshot", "leader-epoch-checkpoint", "partition.metadata",
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
    assert (log.start_offset, log.end_offset, log.recovery_point, log.topic_id) == (1, 2, 2, TOPIC_ID)
    assert manager.high_watermarks == {("orders", 0): 2}
    assert manager.stored_cluster_id == CLUSTER
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
    log.flush()
    log.delete_records_before(2)
    write(log, "d")
    manager.checkpoint({("orders", 0): 1})
    kill(manager)
    manager = start()
    log = manager.logs["orders", 0]
    assert (log.start_offset, log.recovery_point, log.end_offset) == (2, 3, 4)
    assert manager.high_watermarks == {("orders", 0): 1}


def test_a_second_broker_on_the_directory_is_refused(start: Start, tmp_path: Path, clock: ManualClock) -> None:
    manager = start()
    with pytest.raises(ConfigError, match=r"data is in use.*\.lock") as raised:
        LogManager(tmp_path / "data", clock, BrokerConfig.load({}))
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
        LogManager(tmp_path / "file" / "data", clock, BrokerConfig.load({}))


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
    assert due.recovery_point == 0
    clock.advance(1)
    manager.flush_if_due()
    assert (due.recovery_point, never.recovery_point) == (1, 0)


def test_slow_work_goes_to_the_hand_that_was_given(tmp_path: Path, clock: ManualClock) -> None:
    with ThreadPoolExecutor(1) as pool:
        manager = LogManager(tmp_path / "data", clock, BrokerConfig.load({}), pool.submit)
        manager.load(CLUSTER, lambda topic: TopicConfig())
        log = manager.create("orders", 0, TOPIC_ID, TopicConfig(segment_bytes=100))
        for value in "abcd":
            write(log, value)
        manager.checkpoint()
        manager._await_background()
        assert log.recovery_point == 3
        manager.close()
    assert (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 4\n"


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
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        manager = LogManager(tmp_path / "data", clock, BrokerConfig.load({}))
        manager.load(CLUSTER, lambda topic: TopicConfig())
        for partition in range(5):
            log = manager.get("orders", partition)
            write(log or manager.create("orders", partition, TOPIC_ID, TopicConfig(segment_bytes=80)), "a")
        manager.close()
        manager.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_idle_log_holds_no_descriptor(start: Start) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to count descriptors")
    manager = start()
    for partition in range(50):
        write(manager.create("orders", partition, TOPIC_ID, TopicConfig()), "a")
    manager.close()
    before = len(os.listdir("/proc/self/fd"))
    start()
    assert len(os.listdir("/proc/self/fd")) == before + 1, "the lock"
