"""The log of one partition: a list of segments, the last of which grows.

    append: validate -> is it a duplicate? -> roll if needed -> stamp offset and epoch -> one write -> index -> advance
    read:   segment by bisect -> sparse index -> hop over headers -> a region of the file, sent without being read

Memory follows disk: offsets, indexes and producers move only after the bytes were taken, so an append that failed has
changed nothing. The event loop owns the log; a thread may only fsync or unlink the paths that it was handed. The way of
an append touches a fixed number of objects, whatever the number of segments and partitions. Where flush.messages asks
for it, a record counts as committed only when another hand has brought it to the disk (`flusher`).
Source: kafka.log.UnifiedLog, org.apache.kafka.storage.internals.log.LocalLog.
"""

from __future__ import annotations

import logging
import os
import uuid
from bisect import bisect_right
from typing import NamedTuple

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.common.region import FileRegion
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.compacted_log import CompactedLog
from kafkalite.log.partition.flusher import Flusher, remember_failed_sync
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.recovery.log_loader import LoadedLog, LoadOptions, load
from kafkalite.log.segment.record_counts import RecordCounts
from kafkalite.log.segment.segment import RELATIVE_OFFSET_MAX
from kafkalite.log.segment.timestamp_lookup import TimeLookup, TimestampOffset, first_at_or_after, latest
from kafkalite.log.storage.checkpoint_file import encode_topic_id, read_topic_id
from kafkalite.log.storage.file_names import PARTITION_METADATA
from kafkalite.log.storage.files import storage_error
from kafkalite.record.batch import CONTROL, parse_header, stamp
from kafkalite.record.validation.batch_validation import Rules, rewrite, validate

logger = logging.getLogger(__name__)

_FRESH_BYTES_MAX = 128 * 1024  # of what was appended last, nobody asks whether it is still in memory


class AppendResult(NamedTuple):
    """`log_append_time_ms` is -1 unless the broker's time counts. A `duplicate` was in the log already: the offsets
    are those of its first coming, and nothing was written."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class PartitionLog(CompactedLog):
    """`lost_bytes` is what the last start had to cut off; the other fields are told of where they are at home, how far
    the log is on the disk in `FlushedLog`, its segments in `SegmentedLog`, and compaction in `CompactedLog`."""

    __slots__ = ("_rules", "_segment_bytes", "_topic_id", "lost_bytes")

    is_offline = False  # see OfflineLog

    def __init__(
        self, topic: str, partition: int, directory: str, config: TopicConfig, loaded: LoadedLog, services: LogContext
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.segments = tuple(loaded.segments)
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.committed_offset = loaded.end_offset
        self.on_commit = _nobody
        self.on_new_start = _no_one
        self.waits_for_the_disk = False
        self.lost_bytes = loaded.lost_bytes
        self._services = services
        self.files = services.files
        self.background = services.lane()
        self.flusher = Flusher(
            f"{topic}-{partition}", directory, services.files, self.background, services.run_completions,
            services.clock.wall_ms, loaded.recovery_point, loaded.segments[-1].base_offset, loaded.rewritten,
        )  # fmt: skip
        self.flusher.on_failure = self._rest
        self._counts = RecordCounts(directory, services.files, services.counting)
        self._counted_to = loaded.end_offset
        self._timers = {}
        self._unwanted = None
        self._replacement = None
        self._given_out = {}
        self._is_closed = False
        self._topic_id: uuid.UUID | None = None
        self._take_stock()
        self.config = config

    @classmethod
    def open(
        cls, topic: str, partition: int, directory: str, config: TopicConfig, options: LoadOptions, services: LogContext
    ) -> PartitionLog:
        """The log in an existing directory. Raises StorageError."""
        try:
            now_ms = services.clock.wall_ms()
            loaded = load(directory, config, options, now_ms, services.files, services.producer_expiration_ms)
        except OSError as error:
            raise storage_error(f"cannot load {topic}-{partition}", directory, error) from error
        return cls(topic, partition, directory, config, loaded, services)

    @classmethod
    def create(
        cls, topic: str, partition: int, directory: str, topic_id: uuid.UUID, config: TopicConfig, services: LogContext
    ) -> PartitionLog:
        """A new log in a directory that does not exist yet. Raises StorageError; then there is none afterwards."""
        try:
            services.files.mkdir(directory)
        except OSError as error:
            raise storage_error(f"cannot create {topic}-{partition}", os.path.dirname(directory), error) from error
        log = None
        try:
            log = cls.open(topic, partition, directory, config, LoadOptions(clean=True), services)
            log.set_topic_id(topic_id)
        except BaseException:
            if log is not None:
                log.abandon()
            try:
                services.files.remove_directory(directory)
            except OSError as error:
                logger.warning("cannot remove %s, which was not finished: %s", directory, error)
            raise
        log.flusher.owe(os.path.dirname(directory), directory)
        # first of all: else the disk might know the directory, and not whose it is
        log.flusher.owed = {f"{directory}/{PARTITION_METADATA}": None} | log.flusher.owed
        return log

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic}-{self.partition}, {self.start_offset}..{self.end_offset})"

    # the hot path

    def append(
        self,
        records: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        produce_version: int = 9,
        trusted: bool = False,
    ) -> AppendResult:
        """Append exactly one v2 batch, which is stamped where it lies. `trusted`: this broker made it, do not check it.

        Where flush.messages asks for it the batch is not committed yet when this returns: see `committed_offset`.
        Raises KafkaError with the code for the producer, StorageError when the disk refuses; then nothing has changed,
        unless it was the flush behind the batch that failed: then `end_offset` has moved.
        """
        rules = self._rules
        header = parse_header(records) if trusted else validate(records, rules, now_ms, produce_version)
        if rules.rewrites:
            records, header = rewrite(records, header, rules, now_ms)
        _, length, _, _, _, attributes, delta, _, max_timestamp_ms, producer_id, epoch, sequence, count = header
        if producer_id >= 0:
            earlier = self.producers.check(producer_id, epoch, sequence, delta)
            if earlier is not None:
                if earlier.last_offset >= self.committed_offset:
                    self.flush_soon()  # under way, or it was answered with an error because this had failed
                return AppendResult(earlier.first_offset, earlier.last_offset, earlier.timestamp_ms, True)
        base_offset = self.end_offset
        last_offset = base_offset + delta
        size = length + 12
        segment = self._active
        try:
            if segment.fd < 0:
                self.flusher.refuse_if_failed()
                self._remove_unwanted()
                segment.open_for_append()
            segment.used = True
            if (
                segment.size_bytes + size > self._segment_bytes
                or max_timestamp_ms > segment.roll_timestamp_ms
                or now_ms > segment.roll_wall_ms
                or segment.index_is_full
                or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            ) and segment.size_bytes:
                segment = self._roll(now_ms)
            if leader_epoch != self.epochs.latest and leader_epoch >= 0:
                self._enter_epoch(leader_epoch)
            stamp(records, base_offset, leader_epoch)
            segment.append(records, size, base_offset, last_offset, max_timestamp_ms, now_ms)
        except OSError as error:
            raise self.refusal(f"cannot append to {self.topic}-{self.partition}", error) from error
        if trusted and (attributes & CONTROL or count != delta + 1):
            segment.record_count += count - delta - 1
            if attributes & CONTROL:
                segment.control_record_count += count
        if producer_id >= 0:
            self.producers.update(producer_id, epoch, sequence, last_offset, delta, max_timestamp_ms)
        self.end_offset = last_offset + 1
        if last_offset >= self._flush_at:
            self.flush_soon()
        else:
            self.committed_offset = last_offset + 1
        return _result(AppendResult, (base_offset, last_offset, now_ms if rules.log_append_time else -1, False))

    def read(self, offset: int, max_bytes: int, limit_offset: int, min_one: bool = True) -> FileRegion | None:
        """Whole batches from the one that holds `offset` on, below `limit_offset`; None where nothing is to be read.

        At most `max_bytes`, the last batch possibly cut off; but with `min_one` the first batch whole, however large,
        and without it nothing rather than a part of the first. Raises KafkaError(OFFSET_OUT_OF_RANGE), StorageError.
        """
        end_offset = self.end_offset
        if offset < self.start_offset or offset > end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not between {self.start_offset} and {end_offset} in {self.topic}-{self.partition}",
            )
        if offset >= limit_offset or offset == end_offset:
            return None
        segment = self._active
        at = -1
        if offset < segment.base_offset:
            at = bisect_right(self._bases, offset) - 1
            segment = self.segments[at]
        try:
            while (found := segment.find(offset)) is None:
                if at == -1:
                    return None
                at += 1  # what compaction left of the segment ends before the offset
                segment = self.segments[at]
                if segment is self._active:
                    at = -1
            position, batch_bytes = found
            end = segment.size_bytes
            if limit_offset < end_offset and (at == -1 or limit_offset < self._bases[at + 1]):
                behind = segment.find(limit_offset)
                if behind is not None:
                    end = behind[0]
            available = end - position
            if available > max_bytes:
                if batch_bytes <= max_bytes:
                    available = max_bytes
                elif min_one:
                    available = batch_bytes
                else:
                    return None
            elif available <= 0:
                return None
            file = segment.file
            if file is None:
                file = segment.open_file()
            segment.used = True
        except OSError as error:
            raise storage_error(f"cannot read {self.topic}-{self.partition}", self.directory, error) from error
        is_fresh = at == -1 and available <= _FRESH_BYTES_MAX and offset >= segment.tail_from
        return FileRegion(file, position, available, is_fresh)

    # settings

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        """Takes effect with the next append; the index settings with the next segment."""
        self._config = config
        self._rules = Rules(config)
        self._segment_bytes = config.segment_bytes
        age_ms = config.segment_ms
        if self._rules.compacted and config.max_compaction_lag_ms > 0:
            age_ms = min(age_ms, config.max_compaction_lag_ms)
        self._roll_age_ms = age_ms
        self._active.set_roll_age(age_ms)
        self._mark_flushed()

    @property
    def topic_id(self) -> uuid.UUID | None:
        """From partition.metadata, read when first asked for."""
        if self._topic_id is None:
            self._topic_id = read_topic_id(self.files, f"{self.directory}/{PARTITION_METADATA}")
        return self._topic_id

    def set_topic_id(self, topic_id: uuid.UUID) -> None:
        """Raises StorageError."""
        path = f"{self.directory}/{PARTITION_METADATA}"
        try:
            self.files.write_atomically(path, encode_topic_id(topic_id), durable=False)
        except OSError as error:
            raise self.refusal(f"cannot write {path}", error) from error
        self._topic_id = topic_id
        self.flusher.owe(path)

    # looking things up

    def offset_for_timestamp(self, timestamp_ms: int, limit_offset: int) -> TimestampOffset | None:
        """The first record at or after `timestamp_ms`, if it lies below `limit_offset`. Raises StorageError."""
        return self.lookup_of_timestamp(timestamp_ms, limit_offset).answer()

    def lookup_of_timestamp(self, timestamp_ms: int, limit_offset: int) -> TimeLookup:
        """The same for those who cannot wait for it."""
        searches = first_at_or_after(self.segments, timestamp_ms, self.start_offset)
        return TimeLookup(searches, limit_offset, self._unreadable)

    def max_timestamp_offset(self, limit_offset: int) -> TimestampOffset | None:
        """The first record that carries the latest timestamp of all, if it lies below `limit_offset`."""
        return self.lookup_of_max_timestamp(limit_offset).answer()

    def lookup_of_max_timestamp(self, limit_offset: int) -> TimeLookup:
        """The same for those who cannot wait for it."""
        return TimeLookup(latest(self.segments, self.start_offset), limit_offset, self._unreadable)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, -1 if there is none."""
        return self.epochs.latest

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 if nobody knows."""
        return self.epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(that epoch or the one before it that is known, the offset behind its last record); (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # the end

    def _rest(self) -> None:
        self._active.rest()  # so that the next append asks before it opens

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were silent for producer.id.expiration.ms; returns how many."""
        return self.producers.expire(now_ms, self._services.producer_expiration_ms)

    def shut(self) -> list[str]:
        """Bring every file into its final form, without waiting for the disk; the paths that a clean stop must sync.

        Raises StorageError, also for a log that has failed before. The log is closed afterwards in any case.
        """
        try:
            if self._replacement is not None:
                self._replacement.settle()
            self.flusher.refuse_if_failed()
            touched = self.end_offset > self.recovery_point or bool(self.flusher.owed)
            paths = [path for segment in self.flusher.unflushed(self.segments) for path in segment.files()]
            if self._active.is_touched or self.end_offset > self.recovery_point:
                touched = True
                paths += self._active.files()
            if touched:
                snapshot = self.producers.take_snapshot(self.end_offset)
                if snapshot is not None:
                    self.flusher.owe(snapshot)
                self.flusher.owe(self.directory)
            self._active.seal()
            self._count_appended()
            self._counts.note(self.segments, all_are_sealed=True)
        except OSError as error:
            raise self.refusal(f"cannot close {self.topic}-{self.partition}", error) from error
        finally:
            self.abandon()
        return [*paths, *self.flusher.owed]

    def close(self) -> None:
        """`shut`, and wait until all of it is on the disk. Raises StorageError."""
        paths = self.shut()
        try:
            self.files.sync_all(paths)
        except OSError as error:
            remember_failed_sync(self.files, self.directory)
            raise self.refusal(f"cannot flush {self.topic}-{self.partition}", error) from error
        self.flusher.recovery_point = self.end_offset

    def abandon(self) -> None:
        """Give every descriptor and timer back and leave the files as they are, as after a crash or a deletion."""
        self._is_closed = True
        for segment in self.segments:
            segment.abandon()
        self._counts.close()
        for timer, retired in self._timers.items():
            timer.cancel()
            for segment in retired:
                segment.abandon()
        self._timers.clear()
        if self._replacement is not None:
            self._replacement.abandon()


def _nobody(error: StorageError | None) -> None:
    """Waits for nothing."""


def _no_one() -> None:
    """Waits for nothing."""


_result = tuple.__new__  # 0.15 us less than AppendResult(...)
