"""A directory with one log whose exact numbers are compared with a plain recount."""

from __future__ import annotations

import itertools
import struct
from collections import deque
from pathlib import Path
from random import Random

from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.segment.record_counts import LogCounts
from kafkalite.log.storage.file_names import RECORD_COUNTS
from kafkalite.log.storage.files import Files, Job, run_inline
from kafkalite.log.storage.io_executor import SerialExecutor
from kafkalite.record.batch import MAGIC, NewRecord, build_batch, parse_header
from kafkalite.record.message_set import read_messages
from kafkalite.record.record import read_records
from tests.support.manual_clock import ManualClock
from tests.unit.log.conftest import START_MS

Counts = list[tuple[int, int, int, int]]


def recount(directory: Path, start_offset: int, sizes: dict[int, int] | None = None) -> Counts:
    """(base offset, bytes, live records, control records) of each segment, by reading every record.

    With `sizes` only those segments, and of each so many bytes.
    """
    found = []
    for path in sorted(directory.glob("*.log")):
        if sizes is not None and int(path.name[:20]) not in sizes:
            continue
        data = path.read_bytes()[: None if sizes is None else sizes[int(path.name[:20])]]
        live = control = position = 0
        while position < len(data):
            size = 12 + struct.unpack_from(">i", data, position + 8)[0]
            batch = data[position : position + size]
            if batch[16] == MAGIC:
                offsets = [record.offset for record in read_records(batch)]
                is_control = parse_header(batch).is_control
            else:
                offsets = [record.offset for record in read_messages(batch)]
                is_control = False
            count = sum(offset >= start_offset for offset in offsets)
            live += 0 if is_control else count
            control += count if is_control else 0
            position += size
        found.append((int(path.name[:20]), len(data), live, control))
    return found


def as_told(counts: LogCounts) -> list[tuple[int, int, int | None, int | None]]:
    return [tuple(segment) for segment in counts.segments]


def records(count: int, random: Random | None = None) -> list[NewRecord]:
    size = 10 if random is None else random.randint(0, 60)
    return [NewRecord(b"k%d" % i, b"v" * size, (), START_MS) for i in range(count)]


PRODUCERS = itertools.count(1000)


def marker(kind: int = 1) -> bytearray:
    """The end of a transaction of somebody new: 0 aborts, 1 commits."""
    record = NewRecord(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), (), START_MS)
    return build_batch([record], producer_id=next(PRODUCERS), producer_epoch=0, transactional=True, control=True)


class Disk:
    """One partition's directory, and the log in it: it can be stopped, killed and started again."""

    def __init__(self, directory: Path, *, later: bool = False, **config: object) -> None:
        self.directory = directory / "orders-0"
        self.directory.mkdir(parents=True)
        self.files = Files()
        self.clock = ManualClock(START_MS)
        self.config = TopicConfig(**{"segment_bytes": 700, "cleanup_policy": ("compact", "delete")} | config)
        self.pending: deque[Job] = deque()
        self.background = SerialExecutor(self.pending.append)
        self.later = later
        self.options = LoadOptions(clean=True)
        self.log = self._open()

    def _open(self) -> PartitionLog:
        serial_queue = self.background.serial_queue if self.later else (lambda: run_inline)
        services = LogContext(self.clock, serial_queue, self.files, run_completions=self.background.run_completions)
        return open_log("orders", 0, str(self.directory), self.config, self.options, services)

    def write(self, count: int = 1, **batch: object) -> None:
        self.append(build_batch(records(count), **batch))  # type: ignore[arg-type]

    def append(self, batch: bytearray) -> None:
        self.log.append(memoryview(batch), 0, self.clock.wall_ms(), trusted=True)

    def fill(self, segments: int) -> None:
        """Until there are so many."""
        while len(self.log.segments) < segments:
            self.write(3)
            self.append(marker())

    def work(self) -> None:
        self.background.run_completions()
        while self.pending:
            self.pending.popleft()()
            self.background.run_completions()

    def stop(self) -> None:
        self.work()
        self.log.close()
        self.options = LoadOptions(True, self.log.end_offset, self.log.start_offset)
        for path in self.directory.glob("*.deleted"):
            path.unlink()

    def restart(self) -> None:
        self.stop()
        self.log = self._open()

    def kill(self) -> None:
        self.log.abandon()
        self.work()
        self.options = LoadOptions(False, self.log.flusher.recovery_point, self.log.start_offset)
        self.log = self._open()

    @property
    def noted(self) -> Path:
        return self.directory / RECORD_COUNTS

    def recount(self) -> Counts:
        return recount(self.directory, self.log.start_offset)

    def check(self) -> LogCounts:
        """Checks that the counts of the log are right when all are known."""
        counts = self.log.record_counts.current()
        for _ in range(4):
            self.work()
            counts = self.log.record_counts.current()
        told = self.recount()
        assert as_told(counts) == told
        assert counts.size_bytes == self.log.size_bytes == sum(size for _, size, _, _ in told)
        assert counts.live_records == sum(live for _, _, live, _ in told)
        assert counts.control_records == sum(control for _, _, _, control in told)
        assert not counts.is_counting
        return counts
