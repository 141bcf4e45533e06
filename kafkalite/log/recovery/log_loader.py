"""From the files in a partition's directory to a log that can be used.

After a clean stop the files are as they were sealed: the names give the segments, the last index entry the end. After
an unclean one every segment from the one that holds the recovery point on is read: lengths, checksums, ascending
offsets. What is wrong ends the log there; the indexes, the leader epochs and the producers are made again from what is
right. Where a segment begins at the recovery point, the roll may have been cut short before the one in front of it was
sealed: that one's indexes are made again too. What an interrupted clean-up left is finished or undone first.
Source: org.apache.kafka.storage.internals.log.LogLoader, LogSegment.recover, UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import NamedTuple

from kafkalite.common.errors import Malformed
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.recovery.swap_recovery import finish_clean_up
from kafkalite.log.segment.file_batches import is_intact
from kafkalite.log.segment.segment import RELATIVE_OFFSET_MAX, Segment
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.log.storage.file_names import (
    FAILED_SYNC,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    parse_segment_file,
)
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import BatchHeader

logger = logging.getLogger(__name__)


def _nobody(size_bytes: int) -> None:
    """Wants to know."""


class Known(NamedTuple):
    """What the checkpoints say of a log. `clean`: the last stop was orderly, so the files need no look. `was_read` is
    told the bytes of each segment that was read again; it may raise to put an end to it. `may_have_gaps`: somebody may
    have compacted it, whatever its settings say now, or nobody knows what was flushed."""

    clean: bool
    recovery_point: int = 0
    start_offset: int = 0
    was_read: Callable[[int], None] = _nobody
    may_have_gaps: bool = False


class LoadedLog(NamedTuple):
    """The parts of a log. `lost_bytes` is what an unclean stop cost: torn or damaged, and cut off. `rewritten` are the
    paths that the disk has to be waited for before the log can be called cleanly stopped."""

    segments: list[Segment]
    producers: ProducerState
    epochs: LeaderEpochCache
    start_offset: int
    end_offset: int
    recovery_point: int
    lost_bytes: int
    rewritten: list[str]


def load(directory: str, config: TopicConfig, known: Known, now_ms: int, files: Files, expiration_ms: int) -> LoadedLog:
    """Raises OSError, and StorageError for a log that this version cannot take without harm."""
    sizes, snapshots, indexed, timed = _list(directory, files)
    epochs = LeaderEpochCache(f"{directory}/{LEADER_EPOCHS}", files)
    epochs.load()
    producers = ProducerState(directory, snapshots, files)
    segments = [Segment(directory, base, sizes[base], config, now_ms, files) for base in sorted(sizes)]
    lost_bytes = 0
    end_offset = -1
    loader = _Loader(directory, segments, producers, epochs, known.start_offset, now_ms, expiration_ms, files)
    loader.has_gaps = known.may_have_gaps or "compact" in config.cleanup_policy
    loader.was_read = known.was_read
    if segments and not known.clean:
        at = max((i for i, s in enumerate(segments) if s.base_offset <= known.recovery_point), default=0)
        first = min([at, *(i for i, s in enumerate(segments) if s.base_offset not in indexed)])
        for i, segment in enumerate(segments[:first]):
            # the last of them may not have been sealed: the broker died while it rolled
            rolled = i + 1 == at and segments[at].base_offset == known.recovery_point
            if segment.base_offset not in timed or not loader.was_sealed(i, closely=rolled):
                logger.warning("%s is not what a roll leaves behind; building its indexes again", segment.path)
                loader.rebuild_index(segment)
        loader.recovery_point = known.recovery_point
        loader.writes_again = os.path.exists(f"{directory}/{FAILED_SYNC}")
        lost_bytes, end_offset = loader.recover_from(first)
        if loader.writes_again:
            files.unlink_if_exists(f"{directory}/{FAILED_SYNC}")
    elif segments:
        for segment in segments:
            if segment.base_offset not in indexed or segment.base_offset not in timed:
                logger.warning("%s lacks an index; building both again", segment.path)
                loader.rebuild_index(segment)
        try:
            end_offset = segments[-1].next_offset()
            segments[-1].rest()
        except Malformed as error:
            logger.warning("%s was stopped cleanly, yet %s; recovering it", segments[-1].path, error)
            lost_bytes, end_offset = loader.recover_from(len(segments) - 1)
    if segments and end_offset < known.start_offset:
        logger.warning(
            "%s ends at %d, before its start %d; starting anew there", directory, end_offset, known.start_offset
        )
        for segment in segments:
            segment.delete_files()
        segments.clear()
        epochs.clear()
        for offset in snapshots:
            producers.drop_snapshot(offset)
    if not segments:
        base = max(0, known.start_offset)
        segments.append(Segment.create(directory, base, config, now_ms, files))
        loader.rewritten.append(directory)
        end_offset = base
    start_offset = max(known.start_offset, segments[0].base_offset)
    if loader.producers_end != end_offset:
        loader.load_producers(start_offset, end_offset, clean=known.clean)
    if len(producers.snapshots) > 1 or not known.clean:
        producers.keep_useful_snapshots([segment.base_offset for segment in segments])
    known_epochs = epochs.entries()
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    if epochs.entries() != known_epochs:
        loader.rewritten += [epochs.path, directory]
    if not known.clean:
        loader.fill_epochs(start_offset, end_offset)
        epochs.truncate_from_end(end_offset)
        # names too: whoever was killed may have made some that nobody waited for
        loader.rewritten += [epochs.path, f"{directory}/{PARTITION_METADATA}", directory, os.path.dirname(directory)]
    recovery_point = end_offset if known.clean and not lost_bytes else min(known.recovery_point, end_offset)
    return LoadedLog(
        segments, producers, epochs, start_offset, end_offset, recovery_point, lost_bytes, loader.rewritten
    )


def _list(directory: str, files: Files) -> tuple[dict[int, int], list[int], set[int], set[int]]:
    """The segments with their sizes, the snapshots, and the segments that have an offset index and a time index;
    leftovers tidied."""
    sizes: dict[int, int] = {}
    beside: dict[str, set[int]] = {OFFSET_INDEX: set(), TIME_INDEX: set(), TXN_INDEX: set(), SNAPSHOT: set()}
    others: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            found = parse_segment_file(entry.name)
            if found is None:
                continue
            base, suffix, leftover = found
            if leftover:
                others.append(entry.name)
            elif suffix == LOG:
                sizes[base] = entry.stat().st_size
            elif suffix in beside:
                beside[suffix].add(base)
    if others:
        finish_clean_up(directory, others, files)
        return _list(directory, files)
    snapshots = sorted(beside.pop(SNAPSHOT))
    for suffix, bases in beside.items():
        for base in bases - sizes.keys():
            # a new segment of that name would take it for its own
            logger.warning("%s/%020d%s has no segment; deleting it", directory, base, suffix)
            files.unlink_if_exists(f"{directory}/{base:020d}{suffix}")
    return sizes, snapshots, beside[OFFSET_INDEX], beside[TIME_INDEX]


def _check_place(segment: Segment, position: int, header: BatchHeader, next_offset: int) -> None:
    """Raise Malformed for a batch with offsets that cannot follow `next_offset` - 1 in this segment."""
    if header.base_offset < next_offset:
        raise Malformed(f"offset {header.base_offset} at position {position} comes after {next_offset - 1}")
    if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        raise Malformed(f"offset {header.last_offset} at position {position} is too far from the base")


class _Loader:
    """The walk through a log's batches at start. `producers_end`: the producers' state covers everything below.
    `rewritten`: the paths of what was made again on the way."""

    def __init__(
        self, directory: str, segments: list[Segment], producers: ProducerState, epochs: LeaderEpochCache,
        start_offset: int, now_ms: int, expiration_ms: int, files: Files,
    ) -> None:  # fmt: skip
        self._directory = directory
        self._files = files
        self._segments = segments
        self._producers = producers
        self._epochs = epochs
        self._start_offset = start_offset
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self.producers_end = -1
        self.has_gaps = False  # between segments: compaction leaves them
        self.recovery_point = -1
        self.writes_again = False  # what was recovered: the disk may not have it, though it can be read
        self.rewritten: list[str] = []
        self.was_read: Callable[[int], None] = _nobody

    def recover_from(self, first: int) -> tuple[int, int]:
        """Check everything from the segment at index `first` on. (bytes lost, end offset). Raises OSError."""
        segments = self._segments
        base = segments[first].base_offset
        # Most of 10,000 logs may be empty, and three syncs each are a minute on a busy disk. Only where nothing ever
        # stood there is nothing that could come back with the power: the first batch of all begins the file of epochs.
        was_never_written = not self._epochs.was_begun and not any(one.size_bytes for one in segments)
        self._epochs.truncate_from_end(base)  # what the batches say counts
        self.load_producers(min(max(self._start_offset, segments[0].base_offset), base), base, clean=False)
        lost_bytes = 0
        end_offset = base
        for at in range(first, len(segments)):
            size_bytes = segments[at].size_bytes
            lost, end_offset = self._recover(segments[at], end_offset)
            self.was_read(size_bytes)
            if end_offset == self.recovery_point and not was_never_written:
                # should it be rolled now, the next start would not look at it
                self._files.sync_all(segments[at].files())
            snapshot = self._producers.take_snapshot(end_offset)
            if snapshot is not None:
                self.rewritten.append(snapshot)
            lost_bytes += lost
            behind = segments[at + 1 :]
            flushed = end_offset < self.recovery_point  # what is missing was there once, and was taken away on purpose
            if behind and not lost and not self.has_gaps and not flushed and behind[0].base_offset > end_offset:
                logger.warning("%s: what comes before it, from offset %d on, is missing", behind[0].path, end_offset)
                lost = behind[0].base_offset - end_offset
            if behind and not lost and behind[0].base_offset < end_offset:
                # begun by a roll that failed, after which the log went on without it
                logger.warning("%s: what comes before it goes on, to offset %d", behind[0].path, end_offset)
                lost = end_offset - behind[0].base_offset
            if lost:
                del segments[at + 1 :]
                lost_bytes += self._cut_behind(segments[at], behind)
                break
        self.producers_end = end_offset
        return lost_bytes, end_offset

    def _cut_behind(self, last: Segment, behind: list[Segment]) -> int:
        """Nothing comes behind the segment `last`, which was cut, and the disk has to know it before anything new does:
        else the next crash might bring the old records back behind the new ones. How many bytes went."""
        lost_bytes = 0
        for segment in reversed(behind):
            logger.warning("%s lies behind damage; deleting its %d bytes", segment.path, segment.size_bytes)
            lost_bytes += segment.size_bytes
            segment.delete_files()
        self._files.sync_all([last.path, self._directory])
        return lost_bytes

    def fill_epochs(self, start_offset: int, end_offset: int) -> None:
        """Find the epochs of the first batches again, where the list begins behind the log's start: what was deleted in
        front of it came back, or the list was lost. Raises OSError."""
        known = self._epochs.entries()
        upto = known[0][1] if known else end_offset
        found: list[tuple[int, int]] = []
        try:
            for segment in self._segments:
                if segment.base_offset >= upto or start_offset >= upto:
                    break
                for _, header, _ in segment.walk():
                    epoch = header.leader_epoch
                    if epoch < 0 or header.base_offset >= upto or (known and epoch > known[0][0]):
                        break
                    if header.last_offset >= start_offset and (not found or epoch > found[-1][0]):
                        found.append((epoch, max(header.base_offset, start_offset)))
                segment.rest()
        except Malformed as error:
            logger.warning("%s: no leader epochs are known up to offset %d: %s", self._directory, upto, error)
        if found:
            self._epochs.put_in_front(found)

    def was_sealed(self, at: int, *, closely: bool) -> bool:
        """Whether the segment at index `at` looks as `seal` leaves it. `closely`: nobody may have waited for the disk
        then. Raises OSError."""
        segment = self._segments[at]
        if not segment.size_bytes:
            return True
        if not closely:
            return segment.time_index.ends_in_an_entry()
        upto = self._segments[at + 1].base_offset
        try:
            end_offset = segment.next_offset()
        except Malformed:
            return False
        finally:
            segment.rest()
        return segment.was_sealed() and (end_offset == upto or (self.has_gaps and end_offset < upto))

    def rebuild_index(self, segment: Segment) -> None:
        """Make the sparse indexes of one segment again, and wait for the disk: the next start will not look at them.

        Its batches are not in doubt, but zeros may follow that were reserved for more. Raises OSError.
        """
        segment.begin_rebuild()
        next_offset = segment.base_offset
        good = 0
        try:
            for position, header, _ in segment.walk():
                _check_place(segment, position, header, next_offset)
                segment.reindex(position, header)
                next_offset = header.last_offset + 1
                good = position + header.size_bytes
        except Malformed as error:
            logger.warning("%s is indexed up to where %s", segment.path, error)
        behind = next((other.base_offset for other in self._segments if other.base_offset > segment.base_offset), -1)
        segment.end_rebuild(good if next_offset == behind else segment.size_bytes)
        self._files.sync_all([*segment.files(), self._directory])

    def load_producers(self, start_offset: int, end_offset: int, *, clean: bool) -> None:
        """Make the producers' state cover everything below `end_offset`: the newest snapshot and what lies behind it.

        A cleanly stopped log without any snapshot never had a producer to remember. Raises OSError.
        """
        producers = self._producers
        had_any = bool(producers.snapshots)
        covered = producers.restore(start_offset, end_offset, self._now_ms, self._expiration_ms)
        self.producers_end = end_offset
        if covered == end_offset or (clean and not had_any):
            return
        segments = self._segments
        for at, segment in enumerate(segments):
            next_base = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
            if next_base <= covered or segment.base_offset >= end_offset:
                continue
            found = segment.find(covered)
            try:
                for _, header, batch in segment.walk(found[0]) if found is not None else ():
                    if header.base_offset >= end_offset:
                        break
                    producers.apply(header, batch)
            except Malformed as error:
                logger.warning("%s: %s; producers behind it are not remembered", segment.path, error)
            segment.rest()

    def _recover(self, segment: Segment, expected_offset: int) -> tuple[int, int]:
        """Check one segment and make its indexes again. (bytes lost, end offset). Raises OSError."""
        producers, epochs = self._producers, self._epochs
        size = segment.size_bytes
        good = 0
        next_offset = max(expected_offset, segment.base_offset)
        fault = ""
        segment.begin_rebuild()
        segment.txn_index.reset()
        self.rewritten += segment.files()
        try:
            for position, header, batch in segment.walk():
                _check_place(segment, position, header, next_offset)
                if not is_intact(header, batch):
                    raise Malformed(f"the checksum of the batch at position {position} is wrong")
                segment.reindex(position, header)
                aborted = producers.apply(header, batch)
                if aborted is not None:
                    segment.txn_index.append(aborted)
                if header.leader_epoch > epochs.latest:
                    epochs.assign(header.leader_epoch, header.base_offset)
                next_offset = header.last_offset + 1
                good = position + header.size_bytes
        except Malformed as error:
            fault = str(error)
        segment.end_rebuild(good)
        if self.writes_again:
            segment.write_again(good)
        if good < size:
            logger.warning("%s: %s; cut off the last %d of %d bytes", segment.path, fault, size - good, size)
        return size - good, next_offset
