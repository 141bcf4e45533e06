"""Three disks that can be broken, with a log directory each, and the brokers that run on them one after another."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path

from kafkalite.common.names import parse_uuid
from kafkalite.common.region import OpenFile
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.log_manager import LogManager, ManagerState
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.files import Files, Job
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.manual_clock import ManualClock

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
        self.doubts = 0  # how often a manager has said that logs may lack records
        self.lost_tails = 0  # how often it has found that they do
        self.jobs: list[Job] | None = None
        self.managers: list[LogManager] = []
        self.ids: dict[str, uuid.UUID] = {}

    def start(self, *paths: str, load: bool = True, progress_interval_s: float = 5.0, **settings: object) -> LogManager:
        config = BrokerConfig.load({name.replace("_", "."): str(value) for name, value in settings.items()})
        background = self.jobs.append if self.jobs is not None else None
        manager = LogManager(paths or self.paths, self.clock, config, background, self.disks)
        self.managers.append(manager)
        manager.on_offline.subscribe(lambda keys, why: self.offline.extend(keys))
        manager.on_tail_in_doubt.subscribe(self._doubt)
        manager.on_lost_tail.subscribe(self._miss)
        if load:
            loading = manager.load(CLUSTER, lambda topic: CONFIG, self.ids.get, progress_interval_s=progress_interval_s)
            asyncio.run(loading)
            manager.complete_start()
        return manager

    def _doubt(self) -> None:
        self.doubts += 1

    def _miss(self) -> None:
        self.lost_tails += 1

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


def create(manager: LogManager, topic: str, count: int = 1) -> list[PartitionLog]:
    return [manager.create(topic, index, TOPIC_ID, CONFIG) for index in range(count)]


def write(log: PartitionLog, *values: str) -> None:
    for value in values:
        log.append(memoryview(build_batch([NewRecord(None, value.encode(), (), 1)])), 0, 1)


def log_key(log: PartitionLog) -> tuple[str, int]:
    return log.topic, log.partition
