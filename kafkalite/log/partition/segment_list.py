"""The segments of a log: look-up, rolling, removal at either end, and the swap of compacted segments.

    roll           begins a new segment at the end; the previous one is sealed and fsynced in the background
    remove_first   retention: removes the oldest segments
    cut            truncation: removes everything at or past an offset, the last segment first
    restart        puts one empty segment in the place of all

The files of removed segments are renamed to .deleted at once and unlinked after file.delete.delay.ms. A segment is
removed only when the directory entry of the next segment is fsynced, so a crash leaves no gap. Readers keep the
segments or the open file that they hold.
Source: org.apache.kafka.storage.internals.log.LocalLog (roll, removeAndDeleteSegments, truncateTo), LogSegments.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from kafkalite.common.clock import Timer
from kafkalite.common.errors import Malformed
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.log_context import LogContext, LogLocation
from kafkalite.log.partition.retention_policy import Reason, SegmentFacts, deletable
from kafkalite.log.segment.record_counts import RecordCounts
from kafkalite.log.segment.segment import NEVER, Segment
from kafkalite.log.segment.segment_file import iter_pieces
from kafkalite.log.state.producer import AppendedBatch
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.log.storage.file_names import DELETED, SNAPSHOT, segment_stem
from kafkalite.log.storage.files import Background
from kafkalite.record.batch import MAGIC, MAGIC_AT, SEQUENCE_MAX, parse_header
from kafkalite.record.batches import read_header

logger = logging.getLogger(__name__)

EARLIER_BYTES = 8 << 20  # five requests of a producer, each with a batch of 1 MB, are in flight at most


class SegmentList:
    """Fields: `active` is the last segment, the one that grows. `bases` are the base offsets. `waits_for_disk`: some
    segments that retention selected wait for an fsync or a replacement. `pinned_from` returns the offset from which
    segments must stay. `_unwanted` is a segment whose creation failed and whose files could not be removed. Nothing is
    appended while these files exist, because a start would take them for the end of the log.

    Invariant: segments ascend by base offset. `segments` is replaced, never changed in place, so an iteration keeps a
    consistent view.
    """

    __slots__ = (
        "_config", "_roll_age_ms", "_sealed_bytes", "_timers", "_unwanted", "active", "background", "bases", "context",
        "counts", "flusher", "location", "pinned_from", "producers", "segments", "waits_for_disk",
    )  # fmt: skip

    active: Segment
    bases: list[int]
    segments: tuple[Segment, ...]

    def __init__(
        self,
        segments: Sequence[Segment],
        location: LogLocation,
        config: TopicConfig,
        context: LogContext,
        background: Background,
        flusher: Flusher,
        producers: ProducerState,
        counts: RecordCounts,
        pinned_from: Callable[[], int] = lambda: NEVER,
    ) -> None:
        self.background = background
        self.counts = counts
        self.pinned_from = pinned_from
        self.waits_for_disk = False
        self.location = location
        self.context = context
        self.flusher = flusher
        self.producers = producers
        self._timers: dict[Timer, Sequence[Segment]] = {}
        self._unwanted: Segment | None = None
        self._set(segments)
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Applies the settings; index settings take effect with the next segment."""
        self._config = config
        age_ms = config.segment_ms
        if "compact" in config.cleanup_policy and config.max_compaction_lag_ms > 0:
            age_ms = min(age_ms, config.max_compaction_lag_ms)
        self._roll_age_ms = age_ms
        self.active.set_roll_age(age_ms)

    def _set(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)
        self.bases = [segment.base_offset for segment in segments]
        self.active = self.segments[-1]
        self._sealed_bytes = sum(segment.size_bytes for segment in self.segments[:-1])

    # look-up

    @property
    def size_bytes(self) -> int:
        return self._sealed_bytes + self.active.size_bytes

    def index_of(self, offset: int) -> int:
        """The index of the segment that `offset` belongs to; 0 for an offset before the first one."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def has_base_in(self, from_offset: int, to_offset: int) -> bool:
        """Whether a segment begins at one of these offsets, the last one included."""
        bases = self.bases
        return bases[-1] >= from_offset and bases[bisect_left(bases, from_offset)] <= to_offset

    def batches(self, from_offset: int, end_offset: int) -> Iterator[memoryview]:
        """Every whole batch from the one that holds `from_offset` up to `end_offset`.

        If compaction replaces segments meanwhile, the iteration continues in the new segments. Raises StorageError.
        """
        try:
            for segment, position in self._places(from_offset, end_offset):
                for _, header, batch in segment.iter_batches(position, segment.size_bytes):
                    if header.last_offset >= end_offset:
                        return
                    yield batch
        except (OSError, Malformed) as error:
            raise self.location.unreadable(error) from error

    def pieces(self, from_offset: int, end_offset: int, piece_bytes: int) -> Iterator[memoryview]:
        """As `batches`, but many whole batches at once, about `piece_bytes` of them. Raises StorageError."""
        try:
            for segment, position in self._places(from_offset, end_offset):
                file = segment.open_file()  # the iteration keeps it open, even if the segment is closed
                for data, bounds in iter_pieces(file.fd, position, segment.size_bytes, piece_bytes):
                    count = len(bounds) - 1
                    while count and read_header(data, bounds[count - 1]).last_offset >= end_offset:
                        count -= 1
                    if count:
                        yield data[: bounds[count]]
        except (OSError, Malformed) as error:
            raise self.location.unreadable(error) from error

    def _places(self, from_offset: int, end_offset: int) -> Iterator[tuple[Segment, int]]:
        """Each segment from the one that `from_offset` belongs to, with the position of its first batch to read. Raises
        OSError, Malformed."""
        offset = from_offset
        while True:
            at = self.index_of(offset)
            segment = self.segments[at]
            next_offset = self.bases[at + 1] if at + 1 < len(self.bases) else end_offset
            found = segment.find(offset)
            if found is not None:
                yield segment, found[0]
            offset = next_offset
            if offset >= end_offset:
                return

    def earlier_batches(self, producer_id: int, epoch: int, before_offset: int, count: int) -> list[AppendedBatch]:
        """The last batches of this producer and epoch before that offset, at most `count` of those within
        EARLIER_BYTES, oldest first. Raises StorageError."""
        found: deque[AppendedBatch] = deque(maxlen=count)
        for batch in self.batches(self._offset_before(before_offset, EARLIER_BYTES), before_offset):
            if batch[MAGIC_AT] != MAGIC:
                continue
            header = parse_header(batch)
            if (header.producer_id, header.producer_epoch) == (producer_id, epoch) and not header.is_control:
                last_sequence = (header.base_sequence + header.last_offset_delta) & SEQUENCE_MAX
                found.append(
                    AppendedBatch(last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
                )
        return list(found)

    def _offset_before(self, offset: int, size_bytes: int) -> int:
        """An offset that lies about so many bytes before that one. Raises StorageError."""
        at = self.index_of(offset)
        try:
            found = self.segments[at].find(offset)
            position = self.segments[at].size_bytes if found is None else found[0]
            while position < size_bytes and at > 0:
                at -= 1
                position += self.segments[at].size_bytes
            segment = self.segments[at]
            behind = segment.offset_behind(position - size_bytes) if position > size_bytes else None
        except OSError as error:
            raise self.location.unreadable(error) from error
        return segment.base_offset if behind is None else min(behind, offset)

    # growth

    def roll(self, end_offset: int, now_ms: int) -> Segment:
        """Begins a new segment at the end of the log and seals the previous one. Raises OSError; then the log is
        unchanged."""
        config = self._config
        old = self.active
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        if jitter_ms > 0:
            import random

            jitter_ms = random.randrange(jitter_ms)
        self.remove_unwanted()
        new = self.new_segment(end_offset, now_ms, jitter_ms=max(0, jitter_ms))
        flusher = self.flusher
        try:
            new.make_files(config)
            new.set_roll_age(self._roll_age_ms)
            new.open_for_append()
            snapshot = self.producers.take_snapshot(end_offset)
            old.seal()
        except OSError:
            flusher.mark_dirty(self.location.directory)  # a crash must not bring back a file with offsets of `old`
            self._unwanted = new
            old.close_writer()  # the next append calls `remove_unwanted`, then opens it again
            with contextlib.suppress(OSError):
                self.remove_unwanted()
            raise
        if snapshot is not None:
            flusher.mark_dirty(snapshot)
        # fsync the indexes, too, even if all records are flushed: recovery does not check them again
        flusher.mark_dirty(*old.files.paths(), self.location.directory)
        self.counts.count_appended(old, end_offset)
        self.segments = (*self.segments, new)
        self.bases.append(end_offset)
        self._sealed_bytes += old.size_bytes
        self.active = new
        self.counts.note(self.segments)
        flusher.flush_sealed(self.segments)
        flusher.refuse_if_failed()  # `flush_sealed` may have delivered the failure of an earlier background fsync
        return new

    def new_segment(
        self, base_offset: int, now_ms: int, size_bytes: int = 0, *, jitter_ms: int = 0, suffix: str = ""
    ) -> Segment:
        """A segment that is not in the list yet; `suffix`, such as ".swap", is appended to the names of its files."""
        location = self.location
        return Segment(
            location.directory, base_offset, size_bytes, self._config, now_ms, location.files, jitter_ms, suffix
        )

    def open_active(self) -> None:
        """Opens the active segment for appending. Raises StorageError after a failed fsync, OSError."""
        self.flusher.refuse_if_failed()
        self.remove_unwanted()
        self.active.open_for_append()

    def remove_unwanted(self) -> None:
        """Removes the files of a segment whose creation failed. Called before an append. Raises OSError."""
        if self._unwanted is not None:
            self._unwanted.abandon()
            self._unwanted.files.delete()
            self._unwanted = None

    def close_writer(self) -> None:
        """Makes the next append open the active segment again; the append first checks for a failed fsync."""
        self.active.close_writer()

    # removal

    def remove_old(
        self, start_offset: int, committed_offset: int, end_offset: int, now_ms: int, most: int
    ) -> tuple[list[Reason], OSError | None]:
        """Removes the oldest segments that retention selects, at most `most`. Returns the reason for each of them, and
        the error of a failed roll. Raises OSError, StorageError for segments that could not be removed."""
        ends = (*self.bases[1:], end_offset)
        facts = (
            SegmentFacts(end, segment.size_bytes, segment.largest_timestamp_ms)
            for segment, end in zip(self.segments, ends, strict=True)
        )
        count = len(self.segments)
        reasons = deletable(facts, count, self.size_bytes, start_offset, committed_offset, self._config, now_ms, most)
        fault: OSError | None = None
        if len(reasons) == count and self.flusher.failure is None:
            try:
                self.roll(end_offset, now_ms)
            except OSError as error:  # a full disk has no room for a new segment; remove the old ones nevertheless
                fault = error
        removed = self.remove_first(min(len(reasons), len(self.segments) - 1))
        return reasons[:removed], fault

    def remove_first(self, count: int) -> int:
        """Removes up to `count` of the oldest segments; returns the number removed.

        A segment is removed only when the directory entry of the next one is fsynced. Otherwise a crash could leave
        the log without segments, and offsets would be assigned twice. Raises OSError, StorageError.
        """
        removed = self._remove_removable(count)
        self.waits_for_disk = removed < count and self.flusher.failure is None
        if self.waits_for_disk and not self.flusher.is_under_way:
            self.flusher.flush_soon()
            removed += self._remove_removable(count - removed)  # the flush may be over already
            self.waits_for_disk = removed < count
        return removed

    def _remove_removable(self, count: int) -> int:
        pinned_from = self.pinned_from()
        removed = min(count, self.index_of(min(self.flusher.named_point, pinned_from)))
        self.remove(self.segments[:removed])
        return removed

    def remove(self, segments: Sequence[Segment]) -> None:
        """Removes `segments`, the first or the last ones of the log, in the given order. Raises OSError; then the
        segments before the one that could not be renamed are removed."""
        renamed: list[str] = []
        removed: set[Segment] = set()
        files = self.location.files
        try:
            for segment in segments:
                snapshot = f"{self.location.directory}/{segment_stem(segment.base_offset)}{SNAPSHOT}"
                for path in (*segment.files.paths(), snapshot):
                    with contextlib.suppress(FileNotFoundError):
                        files.rename(path, path + DELETED)
                        renamed.append(path + DELETED)
                    removed.add(segment)
        finally:
            for segment in self.segments:
                if segment in removed:
                    segment.abandon()
                    self.producers.snapshots.forget(segment.base_offset)
            self._set([segment for segment in self.segments if segment not in removed])
            if renamed:
                self.flusher.mark_dirty(self.location.directory)
                self._unlink_later(renamed)

    def _unlink_later(self, paths: list[str], retired: Sequence[Segment] = ()) -> None:
        """Unlinks `paths` after file.delete.delay.ms; the `retired` segments can be read until then."""
        location = self.location

        def unlink_all() -> None:
            for path in paths:
                location.files.unlink_if_exists(path)

        def unlinked(error: Exception | None) -> None:
            if error is not None:
                logger.warning("cannot unlink files in %s: %s; the next start tries again", location.directory, error)

        def start() -> None:
            del self._timers[timer]
            for segment in retired:
                segment.abandon()
            self.background(unlink_all, unlinked)

        timer = self.context.clock.call_later(self._config.file_delete_delay_ms, start)
        self._timers[timer] = retired

    # compaction

    def swap(self, sources: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Puts the compacted segments `new` in the place of their `sources`, for readers from now on."""
        at = self.index_of(new[0].base_offset)
        self._set((*self.segments[:at], *new, *self.segments[at + len(sources) :]))

    def retire(self, sources: Sequence[Segment], renamed: list[str]) -> None:
        """Schedules the unlinking of the `renamed` files of `sources`. Called once the new segment has its final
        names."""
        self.flusher.mark_dirty(self.location.directory)
        self._unlink_later(renamed, sources)
        self.counts.replaced(sources)
        self.counts.note(self.segments)

    # truncation

    def cut(self, offset: int) -> None:
        """Removes everything at or past `offset`, which is not before the first segment; `secure_end` completes the
        truncation. Raises OSError, Malformed."""
        keep = bisect_right(self.bases, offset)
        if keep < len(self.segments):
            # last segment first, and fsynced before the cut: in a compacted log a start accepts gaps between segments
            self.remove(self.segments[: keep - 1 : -1])
            self.location.files.sync(self.location.directory)
        self.segments[-1].truncate_to(offset)

    def secure_end(self, offset: int) -> None:
        """Fsyncs a truncated log before the next append: otherwise old records could reappear after the new ones in a
        crash.

        If compaction has removed the record right before `offset`, a new segment begins at `offset`, because only its
        name gives the next start the end offset. Raises OSError, Malformed.
        """
        location = self.location
        last = self.active
        location.files.sync_all([*last.files.paths(), location.directory])
        if last.next_offset() != offset:
            self.remove_unwanted()
            new = self.new_segment(offset, self.context.clock.wall_ms())
            new.make_files(self._config)
            last.seal()
            self._set((*self.segments, new))
            location.files.sync_all([*last.files.paths(), *new.files.paths(), location.directory])
        self.active.set_roll_age(self._roll_age_ms)

    def restart(self, offset: int) -> None:
        """Removes all segments, the last one first, then begins an empty one at `offset`. In between a crash leaves
        fewer of the old segments, or none. Raises OSError; then some are removed, and nothing may be appended."""
        self.remove_unwanted()
        location, old = self.location, self.segments
        new = self.new_segment(offset, self.context.clock.wall_ms())
        self.segments = (*old, new)
        try:
            self.remove(old[::-1])
            location.files.sync(location.directory)
            new.make_files(self._config)
            # with the names of a new log, too: from here on everything below the offset counts as flushed
            location.files.sync_all([*self.flusher.dirty_paths, *new.files.paths(), location.directory])
        except OSError:
            if len(self.segments) > 1:
                self._set(self.segments[:-1])
            raise
        new.set_roll_age(self._roll_age_ms)

    # end

    def seal_all(self, end_offset: int) -> list[str]:
        """Completes all files for a clean stop, without an fsync; returns the paths of segments that it must fsync
        beside the dirty ones. Raises OSError."""
        flusher, active = self.flusher, self.active
        paths = [path for segment in flusher.unflushed(self.segments) for path in segment.files.paths()]
        # a truncation may have removed the only snapshot; without one a start believes that there were no producers
        is_dirty = bool(flusher.dirty_paths or (len(self.producers) and not self.producers.snapshots.offsets))
        if active.is_touched or end_offset > flusher.recovery_point:
            is_dirty = True
            paths += active.files.paths()
        if is_dirty:
            snapshot = self.producers.take_snapshot(end_offset)
            if snapshot is not None:
                flusher.mark_dirty(snapshot)
            flusher.mark_dirty(self.location.directory)
        active.seal()
        self.counts.count_appended(active, end_offset)
        self.counts.note(self.segments, all_are_sealed=True)
        return paths

    def close(self) -> None:
        """Closes descriptors and cancels timers; the files stay as they are, as after a crash."""
        for segment in self.segments:
            segment.abandon()
        self.counts.close()
        for timer, retired in self._timers.items():
            timer.cancel()
            for segment in retired:
                segment.abandon()
        self._timers.clear()
