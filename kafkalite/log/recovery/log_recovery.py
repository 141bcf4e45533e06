"""Recovery of a log from its batches: checks segments and rebuilds everything derived from them.

A batch that is torn, damaged or out of order ends the log: it and everything after it are cut off. The sparse indexes,
the transaction index, the leader epochs and the producer state are rebuilt from the remaining batches.
Missing offsets between segments are no damage: nothing is cut off. Compaction leaves such gaps. So does a power cut
that takes the end of a segment and spares the next one; `gap_offset` is where it may have done so.
A segment whose offsets are too far apart for its indexes is split (`segment_split`).
If a segment begins at the recovery point, the broker may have died during the roll, before the previous segment was
sealed; then the previous segment's indexes are rebuilt, too.
Source: org.apache.kafka.storage.internals.log.LogLoader (recoverLog), LogSegment.recover,
UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection
from itertools import pairwise

from kafkalite.common.errors import Malformed
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.recovery.segment_split import SegmentRebuild, find_parts, rewrite_content, split, was_sealed
from kafkalite.log.segment.segment import NEVER, RELATIVE_OFFSET_MAX, Segment
from kafkalite.log.segment.segment_file import iter_headers
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.log.storage.file_names import FAILED_SYNC
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import BatchHeader
from kafkalite.record.batches import is_intact

logger = logging.getLogger(__name__)


class LogRecovery:
    """Recovery of one log, which changes `segments`, `producers` and `epochs` in place. Methods raise OSError.

    Markers at or past `high_watermark` are not acknowledged. Below `gaps_below` compaction may have left gaps between
    segments. `on_segment_read` gets the size of each segment that was read; it may raise to end the recovery.
    `end_offset` is known after `open_clean` or `recover_unclean`; `lost_bytes` counts the bytes that were cut off,
    `rewritten` has the paths of files that were built again. `gap_offset` is the first offset of the first gap that no
    compaction explains, else NEVER.
    """

    def __init__(
        self, directory: str, segments: list[Segment], config: TopicConfig, producers: ProducerState,
        epochs: LeaderEpochCache, start_offset: int, now_ms: int, expiration_ms: int, files: Files, *,
        high_watermark: int, gaps_below: int, on_segment_read: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._directory = directory
        self._segments = segments
        self._config = config
        self._producers = producers
        self._epochs = epochs
        self._start_offset = start_offset
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self._files = files
        self._high_watermark = high_watermark
        self._gaps_below = gaps_below
        self._on_segment_read = on_segment_read
        self._recovery_point = -1
        self._writes_again = False  # an fsync has failed: the disk may lack bytes that can still be read
        self._producers_end = -1  # the producer state covers everything below
        self.end_offset = -1
        self.gap_offset = NEVER
        self.lost_bytes = 0
        self.rewritten: list[str] = []

    def open_clean(self, with_both_indexes: Collection[int]) -> None:
        """Finds the end offset of a cleanly stopped log. Rebuilds the indexes of segments whose base offsets are not in
        `with_both_indexes`."""
        segments = self._segments
        made = self._split_sealed(len(segments))
        for segment in segments:
            if segment.base_offset not in with_both_indexes and segment not in made:
                logger.warning("%s lacks an index; building both again", segment.path)
                self._rebuild_indexes(segment)
        last = segments[-1]
        try:
            self.end_offset = last.next_offset()
            last.close_writer()
            if _overflows(last, self.end_offset):
                self._split(last, NEVER)
        except Malformed as error:
            logger.warning("%s was stopped cleanly, yet %s; recovering it", last.path, error)
            self._recover_from(len(segments) - 1)

    def recover_unclean(
        self, recovery_point: int, with_offset_index: Collection[int], with_time_index: Collection[int]
    ) -> None:
        """Checks every segment from the one with the recovery point on, or from the first that lacks its offset index.

        The other segments count as sealed; their indexes are rebuilt if they do not appear sealed.
        """
        segments = self._segments
        at = max((i for i, s in enumerate(segments) if s.base_offset <= recovery_point), default=0)
        first = min([at, *(i for i, s in enumerate(segments) if s.base_offset not in with_offset_index)])
        begin = segments[first], segments[at]
        made = self._split_sealed(first)
        first, at = map(segments.index, begin)
        for i, segment in enumerate(segments[:first]):
            # the last of them may not be sealed, if the broker died during the roll
            rolled = i + 1 == at and segments[at].base_offset == recovery_point
            if segment in made:
                continue
            if segment.base_offset not in with_time_index or not self._is_sealed(i, strictly=rolled):
                logger.warning("%s is not what a roll leaves behind; building its indexes again", segment.path)
                self._rebuild_indexes(segment)
        self._recovery_point = recovery_point
        failed_sync = f"{self._directory}/{FAILED_SYNC}"
        self._writes_again = os.path.exists(failed_sync)
        self._recover_from(first)
        if self._writes_again:
            self._files.unlink_if_exists(failed_sync)

    def _recover_from(self, first: int) -> None:
        segments = self._segments
        base = segments[first].base_offset
        # Most of 10,000 logs may be empty, and three syncs each take a minute on a busy disk. Skip the sync only if the
        # log was never written (its first batch begins the file of epochs): no old bytes can reappear after a power
        # cut.
        was_never_written = not self._epochs.was_begun and not any(one.size_bytes for one in segments)
        # epochs are rebuilt from the batches; the file is not trusted, but for that of the start of the log: its first
        # batches may be gone, and then the next start has to find the same
        self._epochs.truncate_from_end(max(base, self._start_offset), keeps_one=True)
        self._load_producers(min(max(self._start_offset, segments[0].base_offset), base), base, clean=False)
        if len(self._producers):  # a split leaves no snapshot at a part, and the next start would not know as much
            self._take_snapshot(base)
        self.end_offset = base
        at = first
        while at < len(segments):
            segment, following = segments[at], segments[at + 1 :]
            limit_offset = following[0].base_offset if following else NEVER
            size_bytes = segment.size_bytes
            lost_bytes = self._recover_segment(segment, limit_offset)
            self._on_segment_read(size_bytes)
            if self.end_offset == self._recovery_point and not was_never_written:
                # if it is rolled now, the next start skips it, so sync it here
                self._files.sync_all(segment.files.paths())
            self._take_snapshot(self.end_offset)
            self.lost_bytes += lost_bytes
            if _overflows(segment, self.end_offset):
                at += len(self._split(segment, limit_offset)) - 1
            if following and (lost_bytes or not self._continues(following[0])):
                del segments[at + 1 :]
                self._delete_behind(segments[at], following)
                break
            at += 1
        self._producers_end = self.end_offset

    def _take_snapshot(self, offset: int) -> None:
        snapshot = self._producers.take_snapshot(offset)
        if snapshot is not None:
            self.rewritten.append(snapshot)

    def _recover_segment(self, segment: Segment, limit_offset: int) -> int:
        """Checks one segment, rebuilds its indexes and moves `end_offset`; returns the bytes that were cut off. The
        next segment begins at `limit_offset`."""
        producers, epochs, high_watermark = self._producers, self._epochs, self._high_watermark
        size = segment.size_bytes
        good = 0
        next_offset = max(self.end_offset, segment.base_offset)
        fault = ""
        rebuild = SegmentRebuild(segment)
        segment.txn_index.reset()
        self.rewritten += segment.files.paths()
        indexable_to = segment.base_offset + RELATIVE_OFFSET_MAX
        try:
            for position, header, batch in segment.iter_batches():
                _check_offset(position, header, next_offset)
                if not is_intact(header, batch):
                    raise Malformed(f"the checksum of the batch at position {position} is wrong")
                if header.last_offset <= indexable_to:
                    rebuild.add(position, header)
                elif next_offset <= indexable_to + 1 and not find_parts(segment, limit_offset):
                    raise Malformed(f"offset {header.last_offset} at position {position} is too far from the base")
                aborted = producers.apply(header, batch, acknowledged=header.last_offset < high_watermark)
                if aborted is not None:
                    segment.txn_index.append(aborted)
                if header.leader_epoch > epochs.latest:
                    epochs.assign(header.leader_epoch, header.base_offset)
                next_offset = header.last_offset + 1
                good = position + header.size_bytes
        except Malformed as error:
            fault = str(error)
        rebuild.finish(good)
        if self._writes_again:
            rewrite_content(self._files, segment.path, good)
        if good < size:
            logger.warning("%s: %s; cut off the last %d of %d bytes", segment.path, fault, size - good, size)
        self.end_offset = next_offset
        return size - good

    def _continues(self, following: Segment) -> bool:
        """Whether the log continues in segment `following`, without repeated offsets."""
        base, end_offset = following.base_offset, self.end_offset
        if base < end_offset:
            # left by a failed roll, after which the log continued without it
            logger.warning("%s: the segment before it continues to offset %d", following.path, end_offset)
            return False
        # offsets missing below the recovery point, or below the start of the log, were removed on purpose
        if base > max(end_offset, self._start_offset, self._gaps_below) and end_offset >= self._recovery_point:
            logger.warning("%s: offsets from %d on are missing before it", following.path, end_offset)
            self.gap_offset = min(self.gap_offset, end_offset)
        return True

    def _delete_behind(self, last: Segment, following: list[Segment]) -> None:
        """Deletes the segments after `last`, and fsyncs before anything is appended: otherwise the next crash might
        bring old records back after new ones."""
        for segment in reversed(following):
            logger.warning("%s lies behind damage; deleting its %d bytes", segment.path, segment.size_bytes)
            self.lost_bytes += segment.size_bytes
            segment.abandon()
            segment.files.delete()
        self._files.sync_all([last.path, self._directory])

    # offsets too far apart

    def _split_sealed(self, count: int) -> list[Segment]:
        """Splits those of the first `count` segments that overflow, and are followed by another one; returns all new
        ones. Only a segment with a far successor is read."""
        made: list[Segment] = []
        segments = self._segments
        for segment, following in pairwise(segments[: count + 1]):
            limit_offset = following.base_offset
            if _overflows(segment, limit_offset) and segment.size_bytes and _overflows(segment, _end_of(segment)):
                parts = self._split(segment, limit_offset)
                made += parts if len(parts) > 1 else ()
        return made

    def _split(self, segment: Segment, limit_offset: int) -> list[Segment]:
        """The segments that are in the place of `segment` now; itself, if it cannot be split."""
        parts = find_parts(segment, limit_offset)
        made = split(segment, parts, self._config, self._now_ms, self._files) if parts else None
        if made is None:
            segment.close_writer()
            return [segment]
        at = self._segments.index(segment)
        self._segments[at : at + 1] = made
        self.rewritten += [path for one in made for path in one.files.paths()]
        return made

    # indexes

    def _is_sealed(self, at: int, *, strictly: bool) -> bool:
        """Whether the segment at index `at` appears sealed. `strictly`: its files may not be fsynced, so more is
        checked."""
        segment = self._segments[at]
        if not segment.size_bytes:
            return True
        if not strictly:
            return segment.time_index.ends_in_an_entry()
        upto = self._segments[at + 1].base_offset
        try:
            end_offset = segment.next_offset()
        except Malformed:
            return False
        finally:
            segment.close_writer()
        return was_sealed(segment) and end_offset <= upto

    def _rebuild_indexes(self, segment: Segment) -> None:
        """Rebuilds the sparse indexes of a segment and fsyncs them, because the next start will not check them.

        The batches are trusted, but preallocated zeros may follow.
        """
        rebuild = SegmentRebuild(segment)
        next_offset = segment.base_offset
        good = 0
        try:
            for position, header, _ in segment.iter_batches():
                _check_offset(position, header, next_offset)
                if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
                    raise Malformed(f"offset {header.last_offset} at position {position} is too far from the base")
                rebuild.add(position, header)
                next_offset = header.last_offset + 1
                good = position + header.size_bytes
        except Malformed as error:
            logger.warning("%s is indexed up to where %s", segment.path, error)
        behind = next((other.base_offset for other in self._segments if other.base_offset > segment.base_offset), -1)
        rebuild.finish(good if next_offset == behind else segment.size_bytes)
        self._files.sync_all([*segment.files.paths(), self._directory])

    # producers and leader epochs

    def complete_producers(self, start_offset: int, end_offset: int, *, clean: bool) -> None:
        """Makes the producer state cover the log, unless the recovery has done so."""
        if self._producers_end != end_offset:
            self._load_producers(start_offset, end_offset, clean=clean)

    def _load_producers(self, start_offset: int, end_offset: int, *, clean: bool) -> None:
        """Takes the newest snapshot and applies the batches between it and `end_offset`.

        A cleanly stopped log without a snapshot never had producers.
        """
        producers = self._producers
        had_any = bool(producers.snapshots.offsets)
        covered = producers.restore(start_offset, end_offset, self._now_ms, self._expiration_ms)
        if covered == end_offset or (clean and not had_any):
            return
        segments = self._segments
        for at, segment in enumerate(segments):
            next_base = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
            if next_base <= covered or segment.base_offset >= end_offset:
                continue
            found = segment.find(covered)
            try:
                for _, header, batch in segment.iter_batches(found[0]) if found is not None else ():
                    if header.base_offset >= end_offset:
                        break
                    producers.apply(header, batch, acknowledged=header.last_offset < self._high_watermark)
            except Malformed as error:
                logger.warning("%s: %s; producers behind it are not remembered", segment.path, error)
            segment.close_writer()

    def complete_epochs(self, start_offset: int, end_offset: int) -> None:
        """Reads missing leader epochs from the first batches, if the known epochs begin after the start of the log: the
        file was lost, or a deletion at the start of the log was not on the disk yet."""
        known = self._epochs.entries()
        upto = known[0][1] if known else end_offset
        found: list[tuple[int, int]] = []
        try:
            for segment in self._segments:
                if segment.base_offset >= upto or start_offset >= upto:
                    break
                for _, header, _ in segment.iter_batches():
                    epoch = header.leader_epoch
                    if epoch < 0 or header.base_offset >= upto or (known and epoch > known[0][0]):
                        break
                    if header.last_offset >= start_offset and (not found or epoch > found[-1][0]):
                        found.append((epoch, max(header.base_offset, start_offset)))
                segment.close_writer()
        except Malformed as error:
            logger.warning("%s: no leader epochs are known up to offset %d: %s", self._directory, upto, error)
        if found:
            self._epochs.put_in_front(found)


def _check_offset(position: int, header: BatchHeader, next_offset: int) -> None:
    """Raises Malformed for a batch with an offset that cannot follow `next_offset` - 1."""
    if header.base_offset < next_offset:
        raise Malformed(f"offset {header.base_offset} at position {position} comes after {next_offset - 1}")


def _end_of(segment: Segment) -> int:
    """The offset behind the last whole batch."""
    try:
        return segment.next_offset()
    except Malformed:
        pass  # by the index, which may be wrong
    finally:
        segment.close_writer()
    last_offset = segment.base_offset - 1
    with contextlib.suppress(Malformed):
        for _, header in iter_headers(segment.open_file().fd, 0, segment.size_bytes):
            last_offset = header.last_offset
    segment.close_writer()
    return last_offset + 1


def _overflows(segment: Segment, end_offset: int) -> bool:
    """Whether the segment, which ends before `end_offset`, has offsets that its indexes cannot express."""
    return end_offset - 1 - segment.base_offset > RELATIVE_OFFSET_MAX
