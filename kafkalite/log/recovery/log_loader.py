"""Loads a log from the files in its partition's directory.

After a clean shutdown all files are sealed: their names give the segments, and the end offset is found from the last
index entry. After an unclean one, every segment from the one with the recovery point on is checked (`log_recovery`). An
interrupted replacement of segments is completed or undone first (`swap_recovery`).
Source: org.apache.kafka.storage.internals.log.LogLoader.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.recovery.log_recovery import LogRecovery
from kafkalite.log.segment.segment import NEVER, Segment
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.log.storage import file_names
from kafkalite.log.storage.files import Files

logger = logging.getLogger(__name__)


def _ignore(size_bytes: int) -> None:
    """The default of `on_segment_read`: does nothing."""


class LoadOptions(NamedTuple):
    """How to load a log, by the checkpoints and the last shutdown. `clean`: the last shutdown was clean, so the files
    are not checked; with `is_flushed` they are on the disk. `on_segment_read` gets the size of each segment that was
    checked; it may raise to end the recovery. `gaps_below`: below that offset compaction may have left gaps between
    segments; NEVER: anywhere, for another broker may have compacted the log, or the recovery point is unknown.
    `high_watermark`: NEVER for a log that waits for no other replica."""

    clean: bool
    recovery_point: int = 0
    start_offset: int = 0
    high_watermark: int = NEVER
    on_segment_read: Callable[[int], None] = _ignore
    gaps_below: int = 0
    is_flushed: bool = True


class LoadedLog(NamedTuple):
    """The parts of a log. `lost_bytes` were torn or damaged, and cut off. `rewritten` has the paths that must be
    fsynced before the log can be called cleanly shut down. `high_watermark` lies between start and end, or is NEVER. At
    `gap_offset`, if it is not NEVER, offsets are missing that the log may have lost."""

    segments: list[Segment]
    producers: ProducerState
    epochs: LeaderEpochCache
    start_offset: int
    end_offset: int
    recovery_point: int
    lost_bytes: int
    rewritten: list[str]
    high_watermark: int = NEVER
    gap_offset: int = NEVER


def load(
    directory: str, config: TopicConfig, options: LoadOptions, now_ms: int, files: Files, expiration_ms: int
) -> LoadedLog:
    """Loads a log. Raises OSError, and StorageError for a log that this version would damage."""
    listing = _list(directory, files)
    epochs = LeaderEpochCache(f"{directory}/{file_names.LEADER_EPOCHS}", files)
    epochs.load()
    snapshots = listing.offsets[file_names.SNAPSHOT]
    with_offset_index, with_time_index, with_txn_index = (
        set(listing.offsets[suffix])
        for suffix in (file_names.OFFSET_INDEX, file_names.TIME_INDEX, file_names.TXN_INDEX)
    )
    producers = ProducerState(directory, snapshots, files)
    segments = [Segment(directory, base, size, config, now_ms, files) for base, size in listing.sizes.items()]
    for segment in segments:
        if segment.base_offset not in with_txn_index:
            segment.txn_index.size_bytes = 0
    recovery = LogRecovery(
        directory, segments, config, producers, epochs, options.start_offset, now_ms, expiration_ms, files,
        high_watermark=options.high_watermark,
        gaps_below=NEVER if "compact" in config.cleanup_policy else options.gaps_below,
        on_segment_read=options.on_segment_read,
    )  # fmt: skip
    if segments and options.clean:
        recovery.open_clean(with_offset_index & with_time_index)
    elif segments:
        recovery.recover_unclean(options.recovery_point, with_offset_index, with_time_index)
    end_offset = recovery.end_offset
    if segments and end_offset < options.start_offset:
        start_offset = options.start_offset
        logger.warning(
            "%s ends at %d, before its start %d; starting there without records", directory, end_offset, start_offset
        )
        _clear(segments, epochs, producers, snapshots)
    if not segments:
        end_offset = max(0, options.start_offset)
        first = Segment(directory, end_offset, 0, config, now_ms, files)
        first.make_files(config)
        segments.append(first)
        recovery.rewritten.append(directory)
    index = segments[-1].txn_index
    if index.last_offset >= end_offset:  # damaged, or from before a log that was cut; no abort could be added behind it
        logger.warning("%s names aborted transactions that end past the log, and is cut", index.path)
        index.keep_before(end_offset)
    start_offset = max(options.start_offset, segments[0].base_offset)
    recovery.complete_producers(start_offset, end_offset, clean=options.clean)
    if len(producers.snapshots.offsets) > 1 or not options.clean:
        producers.snapshots.keep_useful([segment.base_offset for segment in segments])
    _fit_epochs(recovery, epochs, start_offset, end_offset, clean=options.clean)
    is_intact = options.clean and options.is_flushed and not recovery.lost_bytes
    recovery_point = end_offset if is_intact else min(options.recovery_point, end_offset)
    if recovery_point < end_offset and config.flush_messages != NEVER:
        # readers may rely on the records from now on: a coordinator writes markers for what it has loaded
        files.sync_all([*recovery.rewritten, *_paths_from(recovery_point, segments, end_offset)])
    return LoadedLog(
        segments, producers, epochs, start_offset, end_offset, recovery_point, recovery.lost_bytes, recovery.rewritten,
        _within(options.high_watermark, start_offset, end_offset), recovery.gap_offset,
    )  # fmt: skip


def _fit_epochs(
    recovery: LogRecovery, epochs: LeaderEpochCache, start_offset: int, end_offset: int, *, clean: bool
) -> None:
    """Cuts the leader epochs to the log, and completes them after an unclean shutdown. Raises OSError."""
    directory = os.path.dirname(epochs.path)
    epochs_before = epochs.entries()
    epochs.truncate_from_end(end_offset, keeps_one=True)
    epochs.truncate_from_start(start_offset)
    if epochs.entries() != epochs_before:
        recovery.rewritten += [epochs.path, directory]
    if not clean:
        recovery.complete_epochs(start_offset, end_offset)
        epochs.truncate_from_end(end_offset, keeps_one=True)
        # directories, too: a killed broker may have created names that are not fsynced
        metadata = f"{directory}/{file_names.PARTITION_METADATA}"
        recovery.rewritten += [epochs.path, metadata, directory, os.path.dirname(directory)]


def _clear(
    segments: list[Segment], epochs: LeaderEpochCache, producers: ProducerState, snapshots: Iterable[int]
) -> None:
    for segment in segments:
        segment.abandon()
        segment.files.delete()
    segments.clear()
    epochs.clear()
    for offset in snapshots:
        producers.snapshots.drop(offset)


def _paths_from(offset: int, segments: Sequence[Segment], end_offset: int) -> list[str]:
    """Log files of the segments that have something at or behind the offset."""
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    return [segment.path for segment, end in zip(segments, ends, strict=True) if end > offset]


def _within(high_watermark: int, start_offset: int, end_offset: int) -> int:
    """A checkpointed high watermark may lie outside of the log's present offsets. NEVER: the log has none."""
    return NEVER if high_watermark == NEVER else max(start_offset, min(high_watermark, end_offset))


def _list(directory: str, files: Files) -> file_names.SegmentFiles:
    """Removes .cleaned, .swap and .deleted files, and indexes without a segment; returns the new listing."""
    listing = file_names.list_segment_files(directory)
    if listing.temporary:
        from kafkalite.log.recovery.swap_recovery import complete_swaps

        complete_swaps(directory, listing.temporary, files)
        return _list(directory, files)
    for suffix in (file_names.OFFSET_INDEX, file_names.TIME_INDEX, file_names.TXN_INDEX):
        for base in set(listing.offsets[suffix]) - listing.sizes.keys():
            # a new segment of that name would use it
            logger.warning("%s/%020d%s has no segment; deleting it", directory, base, suffix)
            files.unlink_if_exists(f"{directory}/{base:020d}{suffix}")
    return listing
