"""A disk that tests can cut, corrupt and fill, with one partition's log on it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.partition.partition_log import AppendResult, PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.segment.segment import NEVER
from kafkalite.log.storage.files import DescriptorCache, Files
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.record import Record, read_records
from tests.support.manual_clock import ManualClock

START_MS = 1_700_000_000_000


class Log:
    """One partition's log, spoken to in words. `log` is the real thing."""

    def __init__(self, log: PartitionLog, clock: ManualClock) -> None:
        self.log = log
        self.clock = clock

    def write(self, *values: str, timestamp: int | None = None, epoch: int = 0, **batch: int) -> AppendResult:
        """One batch with these values, keyed by themselves."""
        now_ms = self.clock.wall_ms()
        when = now_ms if timestamp is None else timestamp
        records = [NewRecord(value.encode(), value.encode(), (), when) for value in values]
        return self.append(build_batch(records, **batch), epoch=epoch)

    def append(self, batch: bytearray, *, epoch: int = 0, version: int = 9) -> AppendResult:
        return self.log.append(memoryview(batch), epoch, self.clock.wall_ms(), produce_version=version)

    def records(self, offset: int | None = None, limit: int | None = None, max_bytes: int = 1 << 30) -> list[Record]:
        """The records that a consumer reads from `offset` to the end."""
        log = self.log
        offset = log.start_offset if offset is None else offset
        limit = log.end_offset if limit is None else limit
        found: list[Record] = []
        while (region := log.read(offset, max_bytes, limit)) is not None:
            data = region.read()
            position = 0
            while position + 12 <= len(data):
                size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
                if position + size > len(data):
                    break
                new = [r for r in read_records(data[position : position + size]) if r.offset >= offset]
                found += new
                offset = int.from_bytes(data[position : position + 8], "big") + 1
                offset += int.from_bytes(data[position + 23 : position + 27], "big")
                position += size
            assert position, "a fetch that yields no whole batch never ends"
        return found

    def read_all(self) -> list[str]:
        return [(record.value or b"").decode() for record in self.records()]


class SmallFiles(Files):
    """A disk on which one write takes at most `taken_bytes`; 0 is a full one, None one without limit."""

    taken_bytes: int | None = None

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:  # type: ignore[override]
        if self.taken_bytes == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.pwrite(fd, data[: self.taken_bytes], position)


class Disk:
    """A directory with one partition. `full()` makes every write of records fail after some bytes."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = root / "orders-0"
        self.directory.mkdir()
        self.clock = ManualClock(START_MS)
        self.files = SmallFiles(DescriptorCache(64))
        self.services = LogContext(self.clock, files=self.files)
        self.settings: dict[str, object] = {}
        self._monkeypatch = monkeypatch
        self._opened: list[PartitionLog] = []

    def open(
        self, *, clean: bool = True, recovery_point: int = 0, start_offset: int = 0, high_watermark: int = NEVER,
        **settings: object,
    ) -> Log:  # fmt: skip
        self.settings.update(settings)
        options = LoadOptions(clean, recovery_point, start_offset, high_watermark)
        log = open_log("orders", 0, str(self.directory), self.config, options, self.services)
        self._opened.append(log)
        return Log(log, self.clock)

    @property
    def config(self) -> TopicConfig:
        return TopicConfig(**self.settings)

    def restart(self, log: Log, **settings: object) -> Log:
        """Stop in good order, and start."""
        log.log.close()
        return self.open(start_offset=log.log.start_offset, **settings)

    def kill(self, log: Log, **settings: object) -> Log:
        """Stop without a warning, and start: what was written is there, what is only in memory is not."""
        log.log.abandon()
        return self.open(clean=False, recovery_point=log.log.flusher.recovery_point, **settings)

    def file(self, base: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base:020d}{suffix}"

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def cut(self, base: int, count: int) -> None:
        """`count` bytes are lost from the end of a segment."""
        os.truncate(self.file(base), self.file(base).stat().st_size - count)

    def flip(self, base: int, position: int, suffix: str = ".log") -> None:
        """One byte rots."""
        data = bytearray(self.file(base, suffix).read_bytes())
        data[position] ^= 0xFF
        self.file(base, suffix).write_bytes(data)

    def full(self, after_bytes: int = 0) -> None:
        """From now on a write of records takes at most `after_bytes`, then the disk is full."""

        self.files.taken_bytes = after_bytes

    def room(self) -> None:
        self.files.taken_bytes = None

    def close(self) -> None:
        for log in self._opened:
            log.abandon()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(tmp_path, monkeypatch)
    yield disk
    disk.close()


@pytest.fixture
def log(disk: Disk) -> Log:
    return disk.open()


@pytest.fixture
def new_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Disk]]:
    """Disks one after another, for tests that play many games. Nobody loses power there: no fsync."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    disks: list[Disk] = []

    def make() -> Disk:
        root = tmp_path / f"disk-{len(disks)}"
        root.mkdir()
        disks.append(Disk(root, monkeypatch))
        return disks[-1]

    yield make
    for disk in disks:
        disk.close()
