"""The segments of a log, and how they come and go.

    roll       a new one begins at the end; the one before it is sealed, and brought to the disk by another hand
    remove     the first ones go when nobody may read them any more, the last ones when the log is cut. Their files are
               renamed now and unlinked after file.delete.delay.ms

Nothing goes before what follows it is on the disk by name, and the last go last one first: whatever a crash leaves has
no hole. Who reads holds the segments or the open file that it has, and is not disturbed. See also `CompactedLog`.
Source: org.apache.kafka.storage.internals.log.LocalLog (roll, removeAndDeleteSegments, truncateTo),
kafka.log.UnifiedLog (deleteOldSegments, truncateTo).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafkalite.common.clock import Timer
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed, StorageError
from kafkalite.log.partition.flushed_log import FlushedLog
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.retention_policy import SEGMENTS_PER_TURN, Reason, SegmentFacts, deletable
from kafkalite.log.segment.record_counting import Tally
from kafkalite.log.segment.record_counts import LogCounts, RecordCounts
from kafkalite.log.segment.segment import Segment
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.log.storage.file_names import DELETED, SNAPSHOT, segment_stem
from kafkalite.log.storage.files import Background, Files, storage_error
from kafkalite.record.batch import parse_header

if TYPE_CHECKING:
    from kafkalite.log.partition.segment_replacement import SegmentReplacement

logger = logging.getLogger(__name__)


class SegmentedLog(FlushedLog):
    """Fields: `start_offset` is the first offset that may be read. `on_new_start` is called when records were deleted.
    `waits_for_the_disk`: segments that are to go have to wait until what follows them is on it, or until compaction has
    put them in place. `_given_out` are the segments that the cleaner was told of, as they were then, and `_replacement`
    is what it puts in the place of some of them. `_unwanted` is a segment that could not be begun, and whose files
    could not be removed either: as long as they are there nothing is appended, for a start would take them for the end
    of the log.

    Invariant: start_offset <= end_offset; the first segment's base offset is <= start_offset.
    """

    __slots__ = (
        "_active", "_bases", "_counted_to", "_counts", "_given_out", "_is_closed", "_replacement", "_roll_age_ms",
        "_sealed_bytes", "_services", "_timers", "_unwanted", "background", "directory", "epochs", "files",
        "on_new_start",
        "partition", "producers", "start_offset", "topic", "waits_for_the_disk",
    )  # fmt: skip

    _active: Segment
    _bases: list[int]
    _counted_to: int
    _counts: RecordCounts
    _given_out: dict[int, Segment]
    _is_closed: bool
    _replacement: SegmentReplacement | None
    _roll_age_ms: int
    _sealed_bytes: int
    _services: LogContext
    _timers: dict[Timer, Sequence[Segment]]
    _unwanted: Segment | None
    background: Background
    directory: str
    epochs: LeaderEpochCache
    files: Files
    on_new_start: Callable[[], None]
    partition: int
    producers: ProducerState
    start_offset: int
    topic: str
    waits_for_the_disk: bool

    @property
    def size_bytes(self) -> int:
        return self._sealed_bytes + self._active.size_bytes

    def batches(self, from_offset: int) -> Iterator[memoryview]:
        """Every whole batch from the one that holds `from_offset` to the end as it is now. Whoever goes on later may
        find that compaction has been there: what it has left comes. Raises StorageError."""
        end_offset = self.end_offset
        offset = from_offset
        try:
            while True:
                at = self._index_of(offset)
                segment = self.segments[at]
                behind = self._bases[at + 1] if at + 1 < len(self._bases) else end_offset
                found = segment.find(offset)
                if found is not None:
                    for _, header, batch in segment.walk(found[0], segment.size_bytes):
                        if header.last_offset >= end_offset:
                            return
                        yield batch
                offset = behind
                if offset >= end_offset:
                    return
        except (OSError, Malformed) as error:
            raise self._unreadable(error) from error

    # counting

    def counts(self) -> LogCounts:
        """How many records and bytes each segment holds. What has to be read for it is None in this answer, and known
        in one of the next."""
        self._count_appended()
        return self._counts.of(self.segments, self.start_offset, self.end_offset)

    def known_counts(self) -> Tally | None:
        """The records of the whole log where that is known already (`RecordCounts.known`), for those who ask often."""
        self._count_appended()
        return self._counts.known(self.segments, self.start_offset, self.end_offset)

    def stop_counting(self) -> None:
        """What is being read to answer `counts` is given up: a stop must not wait for it."""
        self._counts.close()

    def _count_appended(self) -> None:
        """Every offset that was appended here is a record, so nothing need be counted with each append (0.05 us there
        instead of 0.2). What is not so, and markers, the append tells the segment by itself."""
        self._active.record_count += self.end_offset - self._counted_to
        self._counted_to = self.end_offset

    # growing

    def roll(self, now_ms: int) -> bool:
        """Seal what was appended so far, and go on in a new segment; False when there is nothing to seal. Raises
        StorageError; then nothing has changed."""
        if not self._active.size_bytes:
            return False
        try:
            self.flusher.refuse_if_failed()
            self._roll(now_ms)
        except OSError as error:
            raise self.refusal(f"cannot begin a new segment of {self.topic}-{self.partition}", error) from error
        return True

    def _remove_unwanted(self) -> None:
        """Before anything is appended. Raises OSError."""
        if self._unwanted is not None:
            self._unwanted.delete_files()
            self._unwanted = None

    def _roll(self, now_ms: int) -> Segment:
        """Begin a new segment at the end of the log. Raises OSError; then nothing has changed."""
        config = self._config
        old = self._active
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        jitter_ms = random.randrange(jitter) if jitter > 0 else 0
        self._remove_unwanted()
        new = Segment(self.directory, self.end_offset, 0, config, now_ms, self.files, jitter_ms)
        try:
            new.make_files(config)
            new.set_roll_age(self._roll_age_ms)
            new.open_for_append()
            snapshot = self.producers.take_snapshot(self.end_offset)
            old.seal()
        except OSError:
            self.flusher.owe(self.directory)  # a crash must not bring the new one back: its offsets are the old one's
            self._unwanted = new
            old.rest()  # so that the next append has to come by `_remove_unwanted`
            with contextlib.suppress(OSError):
                self._remove_unwanted()
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

    # removing the first ones

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
            raise self.refusal(f"cannot delete from {self.topic}-{self.partition}", error) from error
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
            raise self.refusal(f"cannot delete from {self.topic}-{self.partition}", error) from error
        finally:
            if self.segments[0].base_offset > start_offset:
                self.start_offset = max(start_offset, self.segments[0].base_offset)
                self._started_anew()
        if fault is not None:
            raise self.refusal(f"cannot begin a new segment of {self.topic}-{self.partition}", fault) from fault
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

    def _remove_first(self, count: int) -> int:
        """Remove the first `count` segments, as far as the name of what follows is on the disk for sure; how many went.

        Else a crash might leave the log without any, and offsets would be given a second time. Raises OSError,
        StorageError.
        """
        gone = min(count, self._removable())
        self._remove(self.segments[:gone])
        self.waits_for_the_disk = gone < count and self.failure is None
        if not self.waits_for_the_disk or self.flusher.is_under_way:
            return gone
        self.flush_soon()
        more = min(count - gone, self._removable())  # it may have been done at once
        self._remove(self.segments[:more])
        self.waits_for_the_disk = gone + more < count
        return gone + more

    def _removable(self) -> int:
        """How many of the first segments could go now. Raises OSError."""
        upto = self._index_of(self.flusher.named_point)
        replacement = self._replacement
        if replacement is not None and replacement.is_stuck:
            replacement.retry()
        if replacement is not None and replacement.is_holding:
            upto = min(upto, self._index_of(replacement.base_offset))
        return upto

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
                        self.files.rename(path, path + DELETED)
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

    def _unlink_later(self, paths: list[str], retired: Sequence[Segment] = ()) -> None:
        """`retired` segments can be read until then."""

        def unlink_all() -> None:
            for path in paths:
                self.files.unlink_if_exists(path)

        def hand_out() -> None:
            del self._timers[timer]
            for segment in retired:
                segment.abandon()
            self.background(unlink_all, self._unlinked)

        timer = self._services.clock.call_later(self._config.file_delete_delay_ms, hand_out)
        self._timers[timer] = retired

    def _unlinked(self, error: Exception | None) -> None:
        if error is not None:
            logger.warning("cannot unlink files in %s: %s; the next start tries again", self.directory, error)

    # cutting the end off

    def truncate_to(self, offset: int) -> None:
        """The log ends before `offset` now: everything at or past it is dropped. Raises StorageError."""
        if offset >= self.end_offset:
            return
        try:
            if self._replacement is not None:
                self._replacement.give_way(offset)
        except OSError as error:
            raise self.refusal(f"cannot truncate {self.topic}-{self.partition}", error) from error
        first_cut = self._bases[self._index_of(offset)]
        self._given_out = {base: given for base, given in self._given_out.items() if base < first_cut}
        self._counts.cut()
        self._count_appended()
        try:
            if offset < self.segments[0].base_offset:
                self._start_anew(offset)
            else:
                keep = bisect_right(self._bases, offset)
                if keep < len(self.segments):
                    # the last one first, and the disk knows it before the cut: where compaction was, a start believes
                    # in holes
                    self._remove(self.segments[: keep - 1 : -1])
                    self.files.sync(self.directory)
                self.segments[-1].truncate_to(offset)
                self.end_offset = offset
            self._counted_to = offset
            # before anything new comes: else a crash might bring the old records back behind the new ones
            self.files.sync_all([*self.segments[-1].files(), self.directory])
            self._name_the_end(offset)
            self.start_offset = min(self.start_offset, offset)
            self.epochs.truncate_from_end(offset)
            self._take_stock()
            self._active.set_roll_age(self._roll_age_ms)
            self._reload_producers()
        except OSError as error:
            raise self.refusal(f"cannot truncate {self.topic}-{self.partition}", error) from error
        self.flusher.begin_anew(offset)
        self.flusher.owe(self.epochs.path, self.directory)
        self.committed_offset = min(self.committed_offset, offset)
        self._mark_flushed()
        self.on_commit(None)

    def _name_the_end(self, offset: int) -> None:
        """Where compaction has left nothing right before the end, only a segment's name tells a start where it is."""
        last = self.segments[-1]
        try:
            is_told = last.next_offset() == offset
        except Malformed as error:
            raise OSError(errno.EIO, str(error)) from error
        if not is_told:
            self._remove_unwanted()
            now_ms = self._services.clock.wall_ms()
            new = Segment.create(self.directory, offset, self._config, now_ms, self.files)
            last.seal()
            self.segments = (*self.segments, new)
            self.files.sync_all([*last.files(), *new.files(), self.directory])

    def _start_anew(self, offset: int) -> None:
        """Drop every segment; the next record gets `offset`."""
        self._remove_unwanted()
        new = Segment.create(self.directory, offset, self._config, self._services.clock.wall_ms(), self.files)
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

    # the parts

    def _index_of(self, offset: int) -> int:
        """Which segment `offset` belongs to; the first one for what lies before it."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def _take_stock(self) -> None:
        self._bases = [segment.base_offset for segment in self.segments]
        self._active = self.segments[-1]
        self._sealed_bytes = sum(segment.size_bytes for segment in self.segments) - self._active.size_bytes

    def refusal(self, what: str, error: OSError) -> StorageError:
        """For whoever asked for a change; the directory hears of it too, for all of its disk may have failed."""
        return self.files.report_io_error(what, self.directory, error)

    def _unreadable(self, error: OSError | Malformed) -> KafkaError:
        """For whoever wanted to read."""
        name = f"{self.topic}-{self.partition}"
        if isinstance(error, Malformed):
            return storage_error(f"{name} is damaged", self.directory, OSError(errno.EIO, str(error)))
        return storage_error(f"cannot read {name}", self.directory, error)
