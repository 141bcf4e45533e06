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
from collections.abc import Iterable
from typing import NamedTuple

from kafkalite.config import TopicConfig
from kafkalite.errors import Malformed, StorageError
from kafkalite.log.batch import BatchHeader, compute_crc
from kafkalite.log.batch_file import hop, is_legacy
from kafkalite.log.files import Files
from kafkalite.log.leader_epochs import LeaderEpochs
from kafkalite.log.names import CLEANED, DELETED, LEADER_EPOCHS, LOG, OFFSET_INDEX, SNAPSHOT, SWAP, parse_segment_file
from kafkalite.log.producer_state import ProducerState
from kafkalite.log.segment import RELATIVE_OFFSET_MAX, Segment

logger = logging.getLogger(__name__)


class Known(NamedTuple):
    """What the checkpoints say of a log. `clean`: the last stop was orderly, so the files need no look."""

    clean: bool
    recovery_point: int = 0
    start_offset: int = 0


class LoadedLog(NamedTuple):
    """The parts of a log. `lost_bytes` is what an unclean stop cost: torn or damaged, and cut off. `rewritten` are the
    paths that the disk has to be waited for before the log can be called cleanly stopped."""

    segments: list[Segment]
    producers: ProducerState
    epochs: LeaderEpochs
    start_offset: int
    end_offset: int
    recovery_point: int
    lost_bytes: int
    rewritten: list[str]


def load(directory: str, config: TopicConfig, known: Known, now_ms: int, files: Files, expiration_ms: int) -> LoadedLog:
    """Raises OSError, and StorageError for a log that this version cannot take without harm."""
    sizes, snapshots, indexed = _list(directory, files)
    epochs = LeaderEpochs(f"{directory}/{LEADER_EPOCHS}", files)
    epochs.load()
    producers = ProducerState(directory, snapshots, files)
    segments = [Segment(directory, base, sizes[base], config, now_ms, files) for base in sorted(sizes)]
    lost_bytes = 0
    end_offset = -1
    loader = _Loader(segments, producers, epochs, known.start_offset, now_ms, expiration_ms)
    if segments and not known.clean:
        at = max((i for i, s in enumerate(segments) if s.base_offset <= known.recovery_point), default=0)
        first = min([at, *(i for i, s in enumerate(segments) if s.base_offset not in indexed)])
        if first == at > 0 and segments[at].base_offset == known.recovery_point and not segments[at - 1].was_sealed():
            loader.rebuild_index(segments[at - 1])  # the broker died while it rolled
        lost_bytes, end_offset = loader.recover_from(first)
    elif segments:
        for segment in segments:
            if segment.base_offset not in indexed:
                logger.warning("%s has no index; building it again", segment.path)
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
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    recovery_point = end_offset if known.clean and not lost_bytes else min(known.recovery_point, end_offset)
    return LoadedLog(
        segments, producers, epochs, start_offset, end_offset, recovery_point, lost_bytes, loader.rewritten
    )


def _list(directory: str, files: Files) -> tuple[dict[int, int], list[int], set[int]]:
    """The segments with their sizes, the snapshots, and the segments that have an offset index; leftovers tidied."""
    sizes: dict[int, int] = {}
    snapshots: list[int] = []
    indexed: set[int] = set()
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
            elif suffix == OFFSET_INDEX:
                indexed.add(base)
            elif suffix == SNAPSHOT:
                snapshots.append(base)
    if others:
        finish_clean_up(directory, others, files)
        return _list(directory, files)
    for base in indexed - sizes.keys():
        logger.warning("%s/%020d%s has no segment; deleting it", directory, base, OFFSET_INDEX)
        files.unlink_if_exists(f"{directory}/{base:020d}{OFFSET_INDEX}")
        indexed.discard(base)
    return sizes, snapshots, indexed


def finish_clean_up(directory: str, leftovers: Iterable[str], files: Files) -> None:
    """Finish or undo what was under way when the broker stopped. Raises OSError.

    `.deleted` goes. `.cleaned` was not finished and goes, and with it every `.swap` at or behind the first of them:
    they belong together. What `.swap` remains is complete: it takes the place of the segments that it covers.
    """
    cleaned: list[int] = []
    swaps: list[tuple[int, str, str]] = []
    for name in leftovers:
        found = parse_segment_file(name)
        assert found is not None
        base, suffix, leftover = found
        if leftover == SWAP:
            swaps.append((base, suffix, name))
            continue
        if leftover == CLEANED:
            cleaned.append(base)
        assert leftover in (CLEANED, DELETED)
        files.unlink_if_exists(f"{directory}/{name}")
    undone = min(cleaned, default=None)
    kept = []
    for base, suffix, name in swaps:
        if undone is not None and base >= undone:
            files.unlink_if_exists(f"{directory}/{name}")
        else:
            kept.append((base, suffix, name))
    logs = sorted(base for base, suffix, _ in kept if suffix == LOG)
    if logs:
        _drop_covered(directory, logs[0], _end_of(f"{directory}/{logs[-1]:020d}{LOG}{SWAP}", logs[-1], files), files)
    for _, _, name in kept:
        logger.info("%s/%s takes its place", directory, name)
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")


def _end_of(path: str, base: int, files: Files) -> int:
    """The offset behind the last batch of a complete segment file."""
    fd = files.open(path, os.O_RDONLY)
    try:
        last = base
        for _, _, last, _ in hop(fd, 0, os.fstat(fd).st_size):  # noqa: B007
            pass
        return last + 1
    except Malformed as error:
        raise StorageError(f"{path} should be complete, but {error}; move it away to start without it") from error
    finally:
        files.close(fd)


def _drop_covered(directory: str, start: int, end: int, files: Files) -> None:
    for name in files.listdir(directory):
        found = parse_segment_file(name)
        if found is not None and not found[2] and start <= found[0] < end:
            logger.info("%s/%s was compacted already; deleting it", directory, name)
            files.unlink_if_exists(f"{directory}/{name}")


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
        self, segments: list[Segment], producers: ProducerState, epochs: LeaderEpochs, start_offset: int, now_ms: int,
        expiration_ms: int,
    ) -> None:  # fmt: skip
        self._segments = segments
        self._producers = producers
        self._epochs = epochs
        self._start_offset = start_offset
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self.producers_end = -1
        self.rewritten: list[str] = []

    def recover_from(self, first: int) -> tuple[int, int]:
        """Check everything from the segment at index `first` on. (bytes lost, end offset). Raises OSError."""
        segments = self._segments
        base = segments[first].base_offset
        self.load_producers(min(max(self._start_offset, segments[0].base_offset), base), base, clean=False)
        lost_bytes = 0
        end_offset = base
        for at in range(first, len(segments)):
            lost, end_offset = self._recover(segments[at], end_offset)
            snapshot = self._producers.take_snapshot(end_offset)
            if snapshot is not None:
                self.rewritten.append(snapshot)
            lost_bytes += lost
            if lost and at + 1 < len(segments):
                for segment in segments[at + 1 :]:
                    logger.warning("%s lies behind damage; deleting its %d bytes", segment.path, segment.size_bytes)
                    lost_bytes += segment.size_bytes
                    segment.delete_files()
                del segments[at + 1 :]
                break
        self.producers_end = end_offset
        if self.rewritten:
            self.rewritten += [self._epochs.path, os.path.dirname(self._epochs.path)]
        return lost_bytes, end_offset

    def rebuild_index(self, segment: Segment) -> None:
        """Make the sparse indexes of one segment again; its batches are not in doubt. Raises OSError."""
        segment.begin_rebuild()
        self.rewritten += segment.files()
        next_offset = segment.base_offset
        try:
            for position, header, _ in segment.walk():
                _check_place(segment, position, header, next_offset)
                segment.reindex(position, header)
                next_offset = header.last_offset + 1
        except Malformed as error:
            logger.warning("%s is indexed up to where %s", segment.path, error)
        segment.end_rebuild(segment.size_bytes)

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
        """Check one segment and make its indexes again. (bytes lost, end offset). Raises OSError, StorageError."""
        producers, epochs = self._producers, self._epochs
        size = segment.size_bytes
        good = 0
        next_offset = max(expected_offset, segment.base_offset)
        fault = ""
        segment.begin_rebuild()
        segment.txn_index.reset()
        if size:
            self.rewritten += segment.files()
        try:
            for position, header, batch in segment.walk():
                _check_place(segment, position, header, next_offset)
                if header.crc != compute_crc(batch):
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
        if good < size and is_legacy(segment.open_file().fd, good, size):
            segment.abandon()
            raise StorageError(
                f"{segment.path} holds records of message format v0 or v1, which are not served; they stay as they are"
            )
        segment.end_rebuild(good)
        if good < size:
            logger.warning("%s: %s; cut off the last %d of %d bytes", segment.path, fault, size - good, size)
        return size - good, next_offset
