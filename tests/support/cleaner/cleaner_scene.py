"""A cleaner over real logs in one data directory, with workers that are told what to do, and time that is moved."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from kafkalite.cleaner.log_cleaner import LogCleaner
from kafkalite.cleaner.schedule import RunOutcome
from kafkalite.cleaner.status import PartitionCleaning
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.checkpoint_file import read_offsets
from kafkalite.log.storage.files import Files, Job
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.record import read_records
from tests.support.cleaner.scripted_workers import Staff, Worker
from tests.support.manual_clock import ManualClock

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
SETTINGS = {"cleanup_policy": ("compact",), "segment_bytes": 300, "min_cleanable_dirty_ratio": 0.01}
BACKOFF_MS = 15_000


class Disks(Files):
    """`refusing[part of a path]` is the errno of every file that is made there."""

    def __init__(self) -> None:
        super().__init__()
        self.refusing: dict[str, int] = {}

    def open(self, path: str, flags: int) -> int:
        for part, number in self.refusing.items():
            if part in path:
                raise OSError(number, "refused")
        return super().open(path, flags)

    def rename(self, path: str, target: str) -> None:  # type: ignore[override]
        for part, number in self.refusing.items():
            if part in target:
                raise OSError(number, "refused")
        super().rename(path, target)


class Scene:
    """A cleaner over the logs of one data directory. `keep_jobs`: background work waits until `do_jobs`."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.root = root
        self.clock = ManualClock()
        self.files = Disks()
        self.staff = Staff(self.files)
        self.jobs: list[Job] = []
        self.keep_jobs = False
        self.released: list[tuple[str, int]] = []
        self.config = config(**settings)
        self.logs = LogManager([root], self.clock, self.config, files=self.files)
        asyncio.run(self.logs.load(CLUSTER, lambda topic: TopicConfig(**SETTINGS)))
        self.logs.complete_start()
        self.cleaner = LogCleaner(self.logs, self.config, self.clock, self.staff, self.released.append)
        self.cleaner.start()

    def make(self, topic: str = "orders", partition: int = 0, **settings: object) -> PartitionLog:
        return self.logs.create(topic, partition, uuid.uuid4(), TopicConfig(**SETTINGS | settings))

    def fill(self, log: PartitionLog, count: int = 20, keys: int = 3) -> None:
        """One record a batch, three batches a segment."""
        for number in range(count):
            now_ms = self.clock.wall_ms()
            record = NewRecord(b"key-%d" % (number % keys), b"value %d" % number, (), now_ms)
            log.append(memoryview(build_batch([record])), 0, now_ms)

    def pass_time(self, delay_ms: int = BACKOFF_MS) -> None:
        self.clock.advance(delay_ms)

    def row(self, topic: str = "orders", partition: int = 0) -> PartitionCleaning:
        (found,) = self.cleaner.rows([(topic, partition)])
        return found

    def kept(self, name: str = "cleaner-offset-checkpoint") -> dict[tuple[str, int], int]:
        """The content of a checkpoint file."""
        return read_offsets(Files(), f"{self.root}/{name}")

    def leftovers(self, topic: str = "orders") -> list[str]:
        return [path.name for path in (self.root / f"{topic}-0").iterdir() if ".cleaned" in path.name]

    @property
    def worker(self) -> Worker:
        (worker,) = self.staff.alive
        return worker

    def run_now(self, topic: str, partitions: list[int] | None = None, roll: bool = False) -> list[RunOutcome]:
        """Outcomes appear in the list that comes back."""
        found: list[RunOutcome] = []
        self.cleaner.run_now(topic, partitions, roll, found.extend)
        return found

    def close(self) -> None:
        asyncio.run(self.cleaner.stop())
        self.logs.close()


def config(**settings: object) -> BrokerConfig:
    return BrokerConfig.load({name.replace("_", "."): str(value) for name, value in settings.items()})


def values(log: PartitionLog) -> dict[bytes, bytes | None]:
    found: dict[bytes, bytes | None] = {}
    for batch in log.batches(log.start_offset):
        found |= {record.key or b"": record.value for record in read_records(batch)}
    return found


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for batch in log.batches(log.start_offset) for record in read_records(batch)]
