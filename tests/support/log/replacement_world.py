"""A log of small segments that are compacted, on a disk that forgets, with another hand that works when it is told."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from random import Random

from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import open_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.storage.files import Job
from kafkalite.log.storage.io_executor import SerialExecutor
from kafkalite.record.batch import BatchHeader, NewRecord, build_batch, parse_header
from kafkalite.record.record import read_records
from tests.support.log.faulty_files import FaultyFiles
from tests.support.log.plain_compaction import compact
from tests.support.manual_clock import ManualClock

START_MS = 1_700_000_000_000
DELAY_MS = 60_000
OLD = list(range(10))
FILES = {".log", ".index", ".timeindex", ".snapshot"}


class World:
    """One log on a disk that forgets, and another hand that works when it is told. Each record is a batch, and says its
    own offset; segments take two of them: 0-1, 2-3, 4-5 and so on."""

    def __init__(self, root: str, *, ordered: bool = False) -> None:
        self.root = root
        self.disks = 0
        os.makedirs(f"{root}/disk-0/orders-0")
        self.clock = ManualClock(START_MS)
        self.pending: deque[Job] = deque()
        self.background = SerialExecutor(self.pending.append)
        self.files = FaultyFiles(f"{root}/disk-0", ordered=ordered)
        self.config = TopicConfig(
            segment_bytes=160,
            index_interval_bytes=0,
            segment_index_bytes=480,
            file_delete_delay_ms=DELAY_MS,
            cleanup_policy=("compact",),
        )
        self.options = LoadOptions(clean=True)
        self.ends: list[Exception | None] = []
        self.log = self.open(clean=True)

    def open(self, *, clean: bool = False) -> PartitionLog:
        services = LogContext(
            self.clock, self.background.serial_queue, self.files, run_completions=self.background.run_completions
        )
        options = self.options._replace(clean=clean)
        self.log = open_log("orders", 0, f"{self.files.root}/orders-0", self.config, options, services)
        return self.log

    def write(self, upto: int, **producer: int) -> None:
        for offset in range(self.log.end_offset, upto):
            if producer:
                producer["base_sequence"] = offset
            batch = build_batch([NewRecord(b"k", b"%02d" % offset, (), START_MS + offset)], **producer)
            assert self.log.append(memoryview(batch), offset // 4, START_MS).base_offset == offset

    def work(self, jobs: int = 1 << 30) -> None:
        """The other hand does so many jobs, or all that there are; the owner hears of each."""
        while jobs and self.pending:
            self.pending.popleft()()
            self.background.run_completions()
            jobs -= 1

    def flush(self) -> None:
        self.log.flusher.flush()
        self.work()
        self.options = LoadOptions(False, self.log.flusher.kept_recovery_point, self.log.start_offset)

    def write_cleaned(self, bases: Sequence[int], left: Sequence[int], batches_max: int = 1 << 30) -> CleanedSegment:
        """The cleaner's files: of the segments at `bases` these offsets are left, so many in a segment."""

        def keep(header: BatchHeader, batch: bytes) -> bool:
            return header.base_offset in left

        sources = [source for source in self.log.swap.clean_sources(self.log.end_offset) if source.base_offset in bases]
        return compact(self.files, self.log, sources, keep, batches_max).replacement

    def replace(self, bases: Sequence[int], left: Sequence[int], batches_max: int = 1 << 30) -> None:
        self.log.swap.replace(self.write_cleaned(bases, left, batches_max), self.ends.append)

    def stop(self) -> None:
        self.log.abandon()
        self.pending.clear()
        self.background = SerialExecutor(self.pending.append)

    def kill(self) -> PartitionLog:
        self.stop()
        self.files = self.files.kill()
        return self.open()

    def cut_power(self, random: Random) -> PartitionLog:
        self.stop()
        self.disks += 1
        self.files = self.files.power_cut(f"{self.root}/disk-{self.disks}", random)
        return self.open()

    def offsets(self) -> list[int]:
        """The offsets that a consumer reads in the whole log, batch by batch."""
        log, found = self.log, []
        offset = log.start_offset
        while (region := log.read(offset, 1, log.end_offset)) is not None:
            batch = region.read()
            for record in read_records(batch):
                assert record.value == b"%02d" % record.offset
                found.append(record.offset)
            offset = parse_header(batch).last_offset + 1
        self.check_indexes()
        return found

    def check_indexes(self) -> None:
        """A wrong entry costs no record, but time."""
        for segment in self.log.segments:
            batches = {
                header.last_offset: (position, header.max_timestamp) for position, header, _ in segment.iter_batches()
            }
            for offset, position in segment.offset_index.all():
                assert batches[offset][0] == position
            for time, offset in segment.time_index.all():
                assert batches[offset][1] == time

    def names(self) -> list[str]:
        return sorted(os.listdir(f"{self.files.root}/orders-0"))

    def suffixes(self) -> set[str]:
        return {Path(name).suffix for name in self.names() if name[0] == "0"}
