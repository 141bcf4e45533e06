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

import contextlib
import errno
import logging
import os
import random
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kafkalite.clock import Clock, Timer
from kafkalite.config import TopicConfig
from kafkalite.errors import ErrorCode, KafkaError, Malformed, StorageError
from kafkalite.log.batch import CONTROL, parse_header, stamp
from kafkalite.log.checkpoint import encode_topic_id, read_topic_id
from kafkalite.log.files import (
    Background,
    Files,
    run_inline,
    storage_error,
)
from kafkalite.log.flusher import Flusher
from kafkalite.log.names import DELETED, PARTITION_METADATA, SNAPSHOT, segment_stem
from kafkalite.log.producer_state import EXPIRATION_MS
from kafkalite.log.record_counts import LogCounts, RecordCounts
from kafkalite.log.recovery import Known, LoadedLog, load
from kafkalite.log.retention import SEGMENTS_PER_TURN, Reason, SegmentFacts, deletable
from kafkalite.log.segment import NEVER, RELATIVE_OFFSET_MAX, Segment
from kafkalite.log.time_lookup import TimestampOffset, first_at_or_after, latest
from kafkalite.log.validate import Rules, rewrite, validate
from kafkalite.region import FileRegion

logger = logging.getLogger(__name__)

_FRESH_BYTES_MAX = 128 * 1024  # of what was appended last, nobody asks whether it is still in memory


class AppendResult(NamedTuple):
    """`log_append_time_ms` is -1 unless the broker's time counts. A `duplicate` was in the log already: the offsets
    are those of its first coming, and nothing was written."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class LogServices:
    """What all logs of a broker share: time, hands for slow work, the door to the disk, how long producers last.

    `hear` has the outcomes of slow work told that nobody was told of yet. `counting` is the lane of those who count
    records: one log after another.
    """

    __slots__ = ("clock", "counting", "files", "hear", "lane", "producer_expiration_ms")

    def __init__(
        self,
        clock: Clock,
        lane: Callable[[], Background] = lambda: run_inline,
        files: Files | None = None,
        producer_expiration_ms: int = EXPIRATION_MS,
        hear: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock = clock
        self.lane = lane
        self.counting = lane()
        self.hear = hear
        self.files = Files() if files is None else files
        self.producer_expiration_ms = producer_expiration_ms


class PartitionLog:
    """Fields: `end_offset` is the next record's, `start_offset` the first that may be read. Everything below
    `committed_offset` is as safe as the topic's settings ask; that is the end, unless flush.messages makes it wait, and
    then `on_commit` is called when it moves, or with the error for which it will not, or when the log was cut.
    `on_new_start` is called when records were deleted. `waits_for_the_disk`: segments that are to go have to wait until
    what follows them is on it. `lost_bytes` is what the last start had to cut off.

    Invariant: start_offset <= end_offset; segments ascend by base offset, the first one's is <= start_offset.
    `segments` is never changed in place: whoever goes through it sees the log as it was.
    """

    __slots__ = (
        "_active", "_background", "_bases", "_config", "_counted_to", "_counts", "_flush_at", "_roll_age_ms", "_rules",
        "_sealed_bytes", "_segment_bytes", "_services", "_timers", "_topic_id", "committed_offset", "directory",
        "end_offset", "epochs", "flusher", "lost_bytes", "on_commit", "on_new_start", "partition", "producers",
        "segments", "start_offset", "topic", "waits_for_the_disk",
    )  # fmt: skip

    is_offline = False  # see OfflineLog

    def __init__(
        self, topic: str, partition: int, directory: str, config: TopicConfig, loaded: LoadedLog, services: LogServices
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.segments: Sequence[Segment] = tuple(loaded.segments)
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.committed_offset = loaded.end_offset
        self.on_commit: Callable[[StorageError | None], object] = _nobody
        self.on_new_start: Callable[[], None] = _no_one
        self.waits_for_the_disk = False
        self.lost_bytes = loaded.lost_bytes
        self._services = services
        self._background = services.lane()
        self.flusher = Flusher(
            f"{topic}-{partition}", directory, services.files, self._background, services.hear, services.clock.wall_ms,
            loaded.recovery_point, loaded.segments[-1].base_offset, loaded.rewritten,
        )  # fmt: skip
        self.flusher.on_failure = self._rest
        self._counts = RecordCounts(directory, services.files, services.counting)
        self._counted_to = loaded.end_offset
        self._timers: dict[Timer, None] = {}
        self._topic_id: uuid.UUID | None = None
        self._active: Segment = self.segments[-1]
        self._sealed_bytes = 0
        self._take_stock()
        self.config = config

    @classmethod
    def open(
        cls, topic: str, partition: int, directory: str, config: TopicConfig, known: Known, services: LogServices
    ) -> PartitionLog:
        """The log in an existing directory. Raises StorageError."""
        try:
            now_ms = services.clock.wall_ms()
            loaded = load(directory, config, known, now_ms, services.files, services.producer_expiration_ms)
        except OSError as error:
            raise storage_error(f"cannot load {topic}-{partition}", directory, error) from error
        return cls(topic, partition, directory, config, loaded, services)

    @classmethod
    def create(
        cls, topic: str, partition: int, directory: str, topic_id: uuid.UUID, config: TopicConfig, services: LogServices
    ) -> PartitionLog:
        """A new log in a directory that does not exist yet. Raises StorageError; then there is none afterwards."""
        try:
            services.files.mkdir(directory)
        except OSError as error:
            raise storage_error(f"cannot create {topic}-{partition}", os.path.dirname(directory), error) from error
        log = None
        try:
            log = cls.open(topic, partition, directory, config, Known(clean=True), services)
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
            raise self._refusal(f"cannot append to {self.topic}-{self.partition}", error) from error
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
            self._topic_id = read_topic_id(self._services.files, f"{self.directory}/{PARTITION_METADATA}")
        return self._topic_id

    def set_topic_id(self, topic_id: uuid.UUID) -> None:
        """Raises StorageError."""
        path = f"{self.directory}/{PARTITION_METADATA}"
        try:
            self._services.files.write_atomically(path, encode_topic_id(topic_id), durable=False)
        except OSError as error:
            raise self._refusal(f"cannot write {path}", error) from error
        self._topic_id = topic_id
        self.flusher.owe(path)

    @property
    def size_bytes(self) -> int:
        return self._sealed_bytes + self._active.size_bytes

    def counts(self) -> LogCounts:
        """How many records and bytes each segment holds. What has to be read for it is None in this answer, and known
        in one of the next."""
        self._count_appended()
        return self._counts.of(self.segments, self.start_offset, self.end_offset)

    def stop_counting(self) -> None:
        """What is being read to answer `counts` is given up: a stop must not wait for it."""
        self._counts.close()

    def _count_appended(self) -> None:
        """Every offset that was appended here is a record, so nothing need be counted with each append (0.05 us there
        instead of 0.2). What is not so, and markers, the append tells the segment by itself."""
        self._active.record_count += self.end_offset - self._counted_to
        self._counted_to = self.end_offset

    # looking things up

    def offset_for_timestamp(self, timestamp_ms: int, limit_offset: int) -> TimestampOffset | None:
        """The first record at or after `timestamp_ms`, if it lies below `limit_offset`. Raises StorageError."""
        try:
            return first_at_or_after(self.segments, timestamp_ms, self.start_offset, limit_offset)
        except OSError as error:
            raise storage_error(f"cannot read {self.topic}-{self.partition}", self.directory, error) from error
        except Malformed as error:
            raise self._damaged(error) from error

    def max_timestamp_offset(self, limit_offset: int) -> TimestampOffset | None:
        """The first record that carries the latest timestamp of all, if it lies below `limit_offset`."""
        try:
            return latest(self.segments, self.start_offset, limit_offset)
        except OSError as error:
            raise storage_error(f"cannot read {self.topic}-{self.partition}", self.directory, error) from error
        except Malformed as error:
            raise self._damaged(error) from error

    def batches(self, from_offset: int) -> Iterator[memoryview]:
        """Every whole batch from the one that holds `from_offset` to the end as it is now. Raises StorageError."""
        try:
            for segment, end in [(s, s.size_bytes) for s in self.segments[self._index_of(from_offset) :]]:
                found = segment.find(from_offset)
                if found is not None:
                    for _, _, batch in segment.walk(found[0], end):
                        yield batch
        except OSError as error:
            raise storage_error(f"cannot read {self.topic}-{self.partition}", self.directory, error) from error
        except Malformed as error:
            raise self._damaged(error) from error

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

    # cutting

    def delete_records_before(self, offset: int) -> None:
        """Nothing below `offset` is to be read any more; segments that lie below it altogether are removed.

        If they are many, the next look at all logs removes the rest. Raises KafkaError(OFFSET_OUT_OF_RANGE) past the
        end, StorageError.
        """
        if offset > self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        try:
            self._remove_first(min(self._index_of(offset), SEGMENTS_PER_TURN))
        except OSError as error:
            raise self._refusal(f"cannot delete from {self.topic}-{self.partition}", error) from error
        finally:
            self._started_anew()

    def delete_old_segments(self, now_ms: int, most: int) -> list[Reason]:
        """Remove the first segments that have had their time (see `retention`), at most `most`; why each of them went.

        The active one is sealed, and a new one begun, before it goes. Raises StorageError for what could not be done;
        what could be was.
        """
        fault: OSError | None = None
        start_offset = self.start_offset
        try:
            reasons = deletable(
                self._facts(), len(self.segments), self.size_bytes, start_offset, self.committed_offset, self._config,
                now_ms, most,
            )  # fmt: skip
            if reasons and len(reasons) == len(self.segments) and self.failure is None:
                try:
                    self._roll(now_ms)
                except OSError as error:  # a full disk has no room for a new segment; the old ones go all the same
                    fault = error
            gone = self._remove_first(min(len(reasons), len(self.segments) - 1))
        except OSError as error:
            raise self._refusal(f"cannot delete from {self.topic}-{self.partition}", error) from error
        finally:
            if self.segments[0].base_offset > start_offset:
                self.start_offset = max(start_offset, self.segments[0].base_offset)
                self._started_anew()
        if fault is not None:
            raise self._refusal(f"cannot begin a new segment of {self.topic}-{self.partition}", fault) from fault
        return reasons[:gone]

    def _facts(self) -> Iterator[SegmentFacts]:
        bases = self._bases
        for at, segment in enumerate(self.segments, start=1):
            end_offset = bases[at] if at < len(bases) else self.end_offset
            yield SegmentFacts(end_offset, segment.size_bytes, segment.largest_timestamp_ms)

    def _started_anew(self) -> None:
        try:
            self.epochs.truncate_from_start(self.start_offset)
            self.flusher.owe(self.epochs.path, self.directory)
        except OSError as error:  # the next start does it again
            logger.warning("cannot write %s: %s", self.epochs.path, error)
        self.on_new_start()

    def truncate_to(self, offset: int) -> None:
        """The log ends before `offset` now: everything at or past it is dropped. Raises StorageError."""
        if offset >= self.end_offset:
            return
        self._counts.cut()
        self._count_appended()
        try:
            if offset < self.segments[0].base_offset:
                self._start_anew(offset)
            else:
                keep = bisect_right(self._bases, offset)
                self._remove(self.segments[: keep - 1 : -1])  # the last one first: whatever happens, no hole is left
                self.segments[-1].truncate_to(offset)
                self.end_offset = offset
            self._counted_to = offset
            # before anything new comes: else a crash might bring the old records back behind the new ones
            self._services.files.sync_all([*self.segments[-1].files(), self.directory])
            self.start_offset = min(self.start_offset, offset)
            self.epochs.truncate_from_end(offset)
            self._take_stock()
            self._active.set_roll_age(self._roll_age_ms)
            self._reload_producers()
        except OSError as error:
            raise self._refusal(f"cannot truncate {self.topic}-{self.partition}", error) from error
        self.flusher.begin_anew(offset)
        self.flusher.owe(self.epochs.path, self.directory)
        self.committed_offset = min(self.committed_offset, offset)
        self._mark_flushed()
        self.on_commit(None)

    def _start_anew(self, offset: int) -> None:
        """Drop every segment; the next record gets `offset`."""
        new = Segment.create(self.directory, offset, self._config, self._services.clock.wall_ms(), self._services.files)
        old = self.segments
        self.segments = (new, *old)
        self._remove(old[::-1])
        self.end_offset = offset

    def _reload_producers(self) -> None:
        covered = self.producers.restore(
            self.start_offset, self.end_offset, self._services.clock.wall_ms(), self._services.producer_expiration_ms
        )
        for batch in self.batches(covered) if covered < self.end_offset else ():
            self.producers.apply(parse_header(batch), batch)

    def _remove_first(self, count: int) -> int:
        """Remove the first `count` segments, as far as the name of what follows is on the disk for sure; how many went.

        Else a crash might leave the log without any, and offsets would be given a second time. Raises OSError,
        StorageError.
        """
        gone = min(count, self._index_of(self.flusher.named_point))
        self._remove(self.segments[:gone])
        self.waits_for_the_disk = gone < count and self.failure is None
        if not self.waits_for_the_disk or self.flusher.is_under_way:
            return gone
        self.flush_soon()
        more = min(count - gone, self._index_of(self.flusher.named_point))  # it may have been done at once
        self._remove(self.segments[:more])
        self.waits_for_the_disk = gone + more < count
        return gone + more

    def _remove(self, segments: Sequence[Segment]) -> None:
        """Take `segments`, the first or the last ones, out of the log: their files are renamed now and unlinked after
        file.delete.delay.ms. Raises OSError; then those before the one that would not go are gone."""
        renamed: list[str] = []
        gone: set[int] = set()
        try:
            for segment in segments:
                snapshot = f"{self.directory}/{segment_stem(segment.base_offset)}{SNAPSHOT}"
                for path in (*segment.files(), snapshot):
                    with contextlib.suppress(FileNotFoundError):
                        self._services.files.rename(path, path + DELETED)
                        renamed.append(path + DELETED)
                    gone.add(segment.base_offset)
        finally:
            for segment in self.segments:
                if segment.base_offset in gone:
                    segment.abandon()
                    self.producers.forget_snapshot(segment.base_offset)
            self.segments = tuple(segment for segment in self.segments if segment.base_offset not in gone)
            self._take_stock()
            if renamed:
                self.flusher.owe(self.directory)
                self._unlink_later(renamed)

    def _unlink_later(self, paths: list[str]) -> None:
        def unlink_all() -> None:
            for path in paths:
                self._services.files.unlink_if_exists(path)

        def hand_out() -> None:
            del self._timers[timer]
            self._background(unlink_all, self._unlinked)

        timer = self._services.clock.call_later(self._config.file_delete_delay_ms, hand_out)
        self._timers[timer] = None

    def _unlinked(self, error: Exception | None) -> None:
        if error is not None:
            logger.warning("cannot unlink files in %s: %s; the next start tries again", self.directory, error)

    # growing

    def _roll(self, now_ms: int) -> Segment:
        """Begin a new segment at the end of the log. Raises OSError; then nothing has changed."""
        config = self._config
        old = self._active
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        jitter_ms = random.randrange(jitter) if jitter > 0 else 0
        new = Segment.create(self.directory, self.end_offset, config, now_ms, self._services.files, jitter_ms)
        try:
            new.set_roll_age(self._roll_age_ms)
            new.open_for_append()
            snapshot = self.producers.take_snapshot(self.end_offset)
            old.seal()
        except OSError:
            new.delete_files()
            if old.fd < 0:
                old.open_for_append()
            raise
        if snapshot is not None:
            self.flusher.owe(snapshot)
        # its indexes too, even when every record of it was flushed before: nobody looks at them again after a crash
        self.flusher.owe(*old.files(), self.directory)
        self.segments = (*self.segments, new)
        self._bases.append(new.base_offset)
        self._sealed_bytes += old.size_bytes
        self._count_appended()
        self._active = new
        self._counts.note(self.segments)
        self.flusher.flush_sealed(self.segments)
        self._mark_flushed()
        self.flusher.refuse_if_failed()  # some fsync before may have been heard of only now
        return new

    def _enter_epoch(self, leader_epoch: int) -> None:
        self.epochs.assign(leader_epoch, self.end_offset)
        self.flusher.owe(self.epochs.path, self.directory)

    # flushing

    @property
    def recovery_point(self) -> int:
        """Everything below it is on the disk for sure."""
        return self.flusher.recovery_point

    @property
    def kept_recovery_point(self) -> int:
        """What the checkpoint is to say of it."""
        return self.flusher.kept_recovery_point

    @property
    def failure(self) -> str | None:
        """Why the log takes no more records; None for one in good health."""
        return self.flusher.failure

    def flush(self) -> None:
        """Wait until everything appended is on the disk. Raises StorageError."""
        end_offset = self.end_offset  # somebody may append while others are told
        self.flusher.flush(self.segments, end_offset)
        self._mark_flushed()
        if self.committed_offset < end_offset:
            self.committed_offset = end_offset
            self.on_commit(None)

    def flush_if_due(self, now_ms: int) -> None:
        """Have another hand flush what is older than flush.ms. Raises StorageError if it is known at once that this
        cannot be; a log that failed for good said so when it did."""
        flusher = self.flusher
        if now_ms - flusher.last_flush_ms < self._config.flush_ms or flusher.failure is not None:
            return
        if self.recovery_point < self.end_offset or flusher.owed:
            self.flush_soon()

    def flush_soon(self) -> None:
        """See to it that everything appended so far is flushed by another hand and committed then.

        Raises StorageError when it is known at once that this has failed.
        """
        self.flusher.refuse_if_failed()
        if self.flusher.is_under_way:
            return  # what it does not take along goes when it has ended
        fault: list[StorageError] = []

        def flushed(error: StorageError | None) -> None:
            if error is not None:
                fault.append(error)
            else:
                self._mark_flushed()
                # not all that was to be flushed, should the log have been cut meanwhile
                self.committed_offset = max(self.committed_offset, min(self.recovery_point, self.end_offset))
                if self.end_offset <= self._flush_at:
                    self.committed_offset = self.end_offset
                else:
                    self._flush_more(fault)
            self.on_commit(fault[0] if fault else None)

        self.flusher.flush_soon(self.segments, self.end_offset, flushed)
        if fault:
            raise fault[0]

    def _flush_more(self, fault: list[StorageError]) -> None:
        """What came during a flush may need one too."""
        try:
            self.flush_soon()
        except StorageError as error:
            fault.append(error)

    def _mark_flushed(self) -> None:
        self._flush_at = min(NEVER, self.recovery_point + self._config.flush_messages - 1)

    def _rest(self) -> None:
        self._active.rest()  # so that the next append asks before it opens

    # the end

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were silent for producer.id.expiration.ms; returns how many."""
        return self.producers.expire(now_ms, self._services.producer_expiration_ms)

    def shut(self) -> list[str]:
        """Bring every file into its final form, without waiting for the disk; the paths that a clean stop must sync.

        Raises StorageError, also for a log that has failed before. The log is closed afterwards in any case.
        """
        touched = self.end_offset > self.recovery_point or bool(self.flusher.owed)
        try:
            self.flusher.refuse_if_failed()
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
            raise self._refusal(f"cannot close {self.topic}-{self.partition}", error) from error
        finally:
            self.abandon()
        return [*paths, *self.flusher.owed]

    def close(self) -> None:
        """`shut`, and wait until all of it is on the disk. Raises StorageError."""
        paths = self.shut()
        try:
            self._services.files.sync_all(paths)
        except OSError as error:
            raise self._refusal(f"cannot flush {self.topic}-{self.partition}", error) from error
        self.flusher.recovery_point = self.end_offset

    def abandon(self) -> None:
        """Give every descriptor and timer back and leave the files as they are, as after a crash or a deletion."""
        for segment in self.segments:
            segment.abandon()
        self._counts.close()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _index_of(self, offset: int) -> int:
        """Which segment `offset` belongs to; the first one for what lies before it."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def _take_stock(self) -> None:
        self._bases = [segment.base_offset for segment in self.segments]
        self._active = self.segments[-1]
        self._sealed_bytes = sum(segment.size_bytes for segment in self.segments) - self._active.size_bytes

    def _refusal(self, what: str, error: OSError) -> StorageError:
        """For whoever asked for a change; the directory hears of it too, for all of its disk may have failed."""
        return self._services.files.refusal(what, self.directory, error)

    def _damaged(self, error: Malformed) -> KafkaError:
        return storage_error(
            f"{self.topic}-{self.partition} is damaged", self.directory, OSError(errno.EIO, str(error))
        )


def _nobody(error: StorageError | None) -> None:
    """Waits for nothing."""


def _no_one() -> None:
    """Waits for nothing."""


_result = tuple.__new__  # 0.15 us less than AppendResult(...)
