"""Starts: a long recovery on threads, and the cost of logs that need none."""

from __future__ import annotations

import asyncio
import itertools
import os

import pytest

from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories import startup_loading
from kafkalite.log.partition.partition_log import PartitionLog
from tests.support.log.three_disks import CLUSTER, CONFIG, TOPIC_ID, Machine, create, write
from tests.support.wait import until


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
        open_log = startup_loading.open_log
        told = [f"{index} of 6 logs done" for index in range(6)]

        def slowly(*arguments: object) -> PartitionLog:
            log = open_log(*arguments)  # type: ignore[arg-type]
            until(lambda: any(line in caplog.text for line in told), "a line of progress")
            return log

        monkeypatch.setattr(startup_loading, "open_log", slowly)
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
