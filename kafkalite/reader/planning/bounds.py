"""Bounds of a partition, fixed at planning: log start, log end, last stable offset, and the range that a read asks for.

A partition in several of the directories is read from one replica: the one with the latest leader epoch, of these the
one with the largest log end, of these the one that begins earliest.

The log end is the last whole batch, and a consumer reads up to the high watermark, which is in no file: the
checkpoint of high watermarks (`replication-offset-checkpoint`) is some seconds old while a broker runs. So:
* With one replica the high watermark is the log end, and so is the end of reading. This is also the choice where only
  one broker's directories are given and the partition has replicas elsewhere: no file of these has their offsets, and a
  broker that starts on these files alone would serve them to the end.
* Replicas of several brokers (by the broker ids of their meta.properties): records that not every replica has may still
  be truncated. The end is the largest offset that surely was below the high watermark: the smallest of the log ends, or
  the largest checkpointed one if that is greater. While all replicas are in sync this is the high watermark itself;
  with one of them behind, the last seconds before it are left for the next read.
A timestamp means the first record at or after it, as a broker answers ListOffsets. A segment is passed over where its
time index proves that all its records are earlier: its last entry reaches the end of the segment, or the headers behind
that entry say so. Where the index is missing or short, headers are read from the last place that it knows. A batch is
decompressed only if its largest timestamp says that it may hold the record.
Read committed ends at the last stable offset. The newest producer snapshot has the transactions that were open at its
offset; the batch headers behind it have those that began and ended since. Aborted ones that ended before the snapshot
are in the `.txnindex` files of their segments; those behind it are taken from the markers, since a broker may just be
writing both.
Source: kafka.cluster.Partition.maybeIncrementLeaderHW, kafka.server.checkpoints.OffsetCheckpointFile,
kafka.log.UnifiedLog.fetchOffsetByTimestamp; KIP-33; org.apache.kafka.storage.internals.log.{ProducerStateManager,
TransactionIndex}; KIP-98.
"""

from __future__ import annotations

import os
import uuid
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress

from kafkalite.common.errors import ConfigError, Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.log.directories.meta_properties import read_meta_properties
from kafkalite.log.index.sparse_index import TIME_ENTRY, IndexFile
from kafkalite.log.index.transaction_index import AbortedTxn, decode_index
from kafkalite.log.segment.segment_file import CutOff, SegmentFile, iter_headers
from kafkalite.log.state.producer_snapshots import decode_snapshot
from kafkalite.log.storage import file_names
from kafkalite.log.storage.checkpoint_file import decode_entries, read_offsets, read_topic_id
from kafkalite.log.storage.file_names import SNAPSHOT, TXN_INDEX, SegmentFiles, segment_stem
from kafkalite.log.storage.files import Files
from kafkalite.reader.planning.discovery import Replica, list_segments
from kafkalite.reader.planning.read_options import At, Position, ReadOptions
from kafkalite.record.batch import CONTROL, TRANSACTIONAL, BatchHeader
from kafkalite.record.batches import batch_times
from kafkalite.record.transaction_marker import read_marker


class SegmentRange(NamedTuple):
    """A segment: its base offset, the offset behind its last record, and the position behind its last whole batch.

    `file_id` is the inode of the file that was read for them, -1 if none was.
    """

    base_offset: int
    end_offset: int
    end_position: int
    file_id: int = -1


def first_offset_at(
    directory: str, segments: Sequence[SegmentRange], timestamp_ms: int, start_offset: int
) -> int | None:
    """The offset of the first record at or past `start_offset` that is not earlier than `timestamp_ms`, or None.

    Raises FileNotFoundError for a segment that is gone, Malformed.
    """
    for segment in segments:
        if segment.end_offset <= start_offset:
            continue
        offset = earlier_up_to(directory, segment, timestamp_ms)
        if offset >= segment.end_offset:
            continue
        with SegmentFile(directory, segment.base_offset) as file:
            first = file.locate(max(offset, start_offset), segment.end_position)
            for position, header in file.headers(first[0], segment.end_position) if first is not None else ():
                if header.max_timestamp >= timestamp_ms:
                    found = _first_in(file, position, header, timestamp_ms, start_offset)
                    if found is not None:
                        return found
    return None


def earlier_up_to(directory: str, segment: SegmentRange, timestamp_ms: int) -> int:
    """An offset before which all records of the segment are earlier than `timestamp_ms`, as its time index knows."""
    index = IndexFile(f"{directory}/{file_names.segment_stem(segment.base_offset)}{file_names.TIME_INDEX}", TIME_ENTRY)
    try:
        entry = index.last
        if entry is None or entry[0] >= timestamp_ms:
            entry = index.last_where(lambda entry: entry[0] < timestamp_ms)
    finally:
        index.close()
    return segment.base_offset if entry is None else min(segment.base_offset + entry[1] + 1, segment.end_offset)


def _first_in(
    file: SegmentFile, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> int | None:
    batch = memoryview(os.pread(file.fd, header.size_bytes, position))
    try:
        for offset, record_ms in batch_times(batch):
            if record_ms >= timestamp_ms and offset >= start_offset:
                return offset
    except Malformed as error:
        raise Malformed(f"{file.path}: the batch at position {position} cannot be read: {error}") from None
    return None


_FILES = Files()


class Bounds(NamedTuple):
    """The offsets that a partition has, [log_start, end), and its segments.

    `end` is the end for a consumer: the last stable offset for read_committed. `log_end_position` lies behind
    the last whole batch of the last segment.
    """

    directory: str
    segments: file_names.SegmentFiles
    log_start: int
    end: int
    log_end: int
    log_end_position: int
    last_file_id: int = -1
    aborted: tuple[AbortedTxn, ...] = ()

    def ranges(self) -> list[SegmentRange]:
        """The segments with the part of them that belongs to the log at planning."""
        bases, sizes = list(self.segments.sizes), list(self.segments.sizes.values())
        ends = [*bases[1:], self.log_end]
        ranges = [*map(SegmentRange, bases, ends, [*sizes[:-1], self.log_end_position])]
        return [*ranges[:-1], *(each._replace(file_id=self.last_file_id) for each in ranges[-1:])]


def cluster_id(data_directory: str) -> str | None:
    """Of meta.properties; None if that is not there, or has none."""
    properties = read_meta_properties(_FILES, os.path.join(data_directory, file_names.META_PROPERTIES))
    return None if properties is None else properties.cluster_id


class DataDirectories:
    """The checkpoints of data directories, each read once, when it is first asked for."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[TopicPartition, int]] = {}

    def log_start(self, replica: Replica, of: TopicPartition) -> int:
        """The checkpointed log start offset, 0 without one: then the first segment begins the log."""
        return self._checkpoint(replica, file_names.LOG_STARTS).get(of, 0)

    def high_watermark(self, replica: Replica, of: TopicPartition) -> int:
        """A lower bound of the high watermark."""
        return self._checkpoint(replica, file_names.HIGH_WATERMARKS).get(of, 0)

    def broker_id(self, replica: Replica) -> object:
        """The id of the broker that the data directory is of; without meta.properties the directory itself."""
        properties = read_meta_properties(_FILES, os.path.join(replica.data_directory, file_names.META_PROPERTIES))
        if properties is None or properties.broker_id is None:
            return replica.data_directory
        return properties.broker_id

    def _checkpoint(self, replica: Replica, name: str) -> dict[TopicPartition, int]:
        path = os.path.join(replica.data_directory, name)
        if path not in self._offsets:
            self._offsets[path] = read_offsets(_FILES, path)
        return self._offsets[path]


def find_bounds(
    of: TopicPartition, replicas: Sequence[Replica], directories: DataDirectories, *, read_committed: bool
) -> Bounds:
    """The bounds of a partition in the replica that has most. Raises FileNotFoundError, StorageError, Malformed."""
    if len(replicas) == 1:
        bounds = _bounds(of, replicas[0], directories)
    else:
        bounds = _best(of, replicas, directories)
    if not read_committed or not bounds.segments.sizes:
        return bounds
    end, aborted = read_transactions(
        bounds.directory, bounds.segments, bounds.log_end_position, bounds.end, bounds.log_start
    )
    return bounds._replace(end=max(bounds.log_start, end), aborted=aborted)


def resolve(options: ReadOptions, of: TopicPartition, bounds: Bounds) -> tuple[int, int]:
    """The offsets that a read of the partition begins and ends at, among those that it has. Raises ConfigError."""
    start_at, end_at = options.start.position(*of), options.end.position(*of)
    assert start_at is not None and end_at is not None, "discovery checks this"
    name = f"{of[0]}-{of[1]}"
    start = _offset(start_at, bounds)
    if start is None:
        if not options.later_is_latest:
            raise ConfigError(
                f"{options.start.option} of {name} is {start_at.value}, and no record has a timestamp so late; set "
                "startingOffsetsByTimestampStrategy to latest to read nothing of such a partition"
            )
        start = bounds.end
    end = _offset(end_at, bounds)
    if end is None:
        end = bounds.end
    if options.fail_on_data_loss:
        for limit, offset in ((options.start, start), (options.end, end)):
            if not bounds.log_start <= offset <= bounds.end:
                raise ConfigError(
                    f"{limit.option} of {name} is {offset}, but offsets {bounds.log_start} to {bounds.end} are there; "
                    "choose among these, or set failOnDataLoss to false to read what is left"
                )
    elif start <= end:
        start, end = (min(max(offset, bounds.log_start), bounds.end) for offset in (start, end))
    if start > end:
        raise ConfigError(
            f"{options.start.option} of {name} is {start}, after its {options.end.option}, {end}; begin earlier"
        )
    return start, end


def _offset(position: Position, bounds: Bounds) -> int | None:
    """The offset that is meant; None for a timestamp that no record has reached."""
    if position.at is At.EARLIEST:
        return bounds.log_start
    if position.at is At.LATEST:
        return bounds.end
    if position.at is At.BEFORE_LATEST:
        return max(bounds.log_start, bounds.end - position.value)
    if position.at is At.OFFSET:
        return position.value
    offset = first_offset_at(bounds.directory, bounds.ranges(), position.value, bounds.log_start)
    return offset if offset is not None and offset < bounds.end else None


def _bounds(of: TopicPartition, replica: Replica, directories: DataDirectories) -> Bounds:
    segments = list_segments(replica.directory)
    bases = list(segments.sizes)
    if not bases:
        return Bounds(replica.directory, segments, 0, 0, 0, 0)
    with SegmentFile(replica.directory, bases[-1]) as last:
        position, log_end = last.end()
        file_id = last.file_id
    log_start = min(max(bases[0], directories.log_start(replica, of)), log_end)
    return Bounds(replica.directory, segments, log_start, log_end, log_end, position, file_id)


def _topic_id(replica: Replica) -> uuid.UUID | None:
    """None where the directory does not say."""
    try:
        return read_topic_id(_FILES, os.path.join(replica.directory, file_names.PARTITION_METADATA))
    except (ValueError, OSError):
        return None


def _best(of: TopicPartition, replicas: Sequence[Replica], directories: DataDirectories) -> Bounds:
    ids = {_topic_id(each) for each in replicas} - {None}
    if len(ids) > 1:
        raise ConfigError(
            f"{of[0]}-{of[1]} is of different topics of the same name (by their ids) in "
            f"{', '.join(each.directory for each in replicas)}; give only the directories of one in 'path'"
        )
    all_bounds = [_bounds(of, each, directories) for each in replicas]
    epochs = [_last_epoch(each) for each in replicas]
    if None in epochs:  # files were copied without it
        epochs = [0] * len(epochs)
    rank = [(epoch or 0, one.log_end, -one.log_start) for epoch, one in zip(epochs, all_bounds, strict=True)]
    best = all_bounds[max(range(len(rank)), key=rank.__getitem__)]
    if len({directories.broker_id(each) for each in replicas}) > 1:
        everywhere = min(one.log_end for one in all_bounds)
        watermark = max(directories.high_watermark(each, of) for each in replicas)
        best = best._replace(end=max(best.log_start, min(best.log_end, max(everywhere, watermark))))
    return best


def _last_epoch(replica: Replica) -> int | None:
    """The latest leader epoch that the replica has records of, -1 for none; None if it is unknown."""
    try:
        entries = decode_entries(_FILES.read(os.path.join(replica.directory, file_names.LEADER_EPOCHS)), 2)
        return int(entries[-1][0]) if entries else -1
    except (FileNotFoundError, ValueError):
        return None


_READ_BYTES = 64 << 10  # of headers of small batches


class Transactions(NamedTuple):
    """`last_stable_offset`: the end of the log, or the first offset of the oldest open transaction. `aborted`: those
    with records in the wanted range, or more."""

    last_stable_offset: int
    aborted: tuple[AbortedTxn, ...]


def read_transactions(
    directory: str, segments: SegmentFiles, end_position: int, end_offset: int, start: int
) -> Transactions:
    """The transactions of a log up to `end_offset`, whose last segment ends at `end_position`; aborted ones from the
    offset `start` on.

    Markers at or behind `end_offset` do not count. Raises FileNotFoundError for a segment that is gone, Malformed.
    """
    bases = list(segments.sizes)
    snapshot_offset, open_since = _newest_snapshot(directory, segments, end_offset)
    first = max((base for base in bases if base <= snapshot_offset), default=bases[0])
    follower = _Follower(snapshot_offset, end_offset, open_since)
    for base in bases[bases.index(first) :]:
        if base < end_offset:
            with SegmentFile(directory, base) as segment:
                follower.follow(segment, end_position if base == bases[-1] else segment.size_bytes)
    aborted = follower.aborted
    known = {txn.last_offset for txn in aborted}
    for base in _indexes_from(segments, start):
        aborted += [txn for txn in _index(directory, base) if txn.last_offset not in known]
    stable = min([end_offset, *open_since.values()])
    return Transactions(stable, tuple(sorted(txn for txn in aborted if start <= txn.last_offset < end_offset)))


def _indexes_from(segments: SegmentFiles, start: int) -> list[int]:
    """The segments that have a transaction index and may hold a marker at or behind `start`."""
    bases = list(segments.sizes)
    first = bases[max(0, bisect_right(bases, start) - 1)]
    return [base for base in segments.offsets[TXN_INDEX] if base >= first]


def _newest_snapshot(directory: str, segments: SegmentFiles, end_offset: int) -> tuple[int, dict[int, int]]:
    """Its offset and the first offsets of the transactions that were open there, by producer id. Without a snapshot
    that can be read: the beginning of the log."""
    first = next(iter(segments.sizes))
    for offset in reversed(segments.offsets[SNAPSHOT]):
        if first <= offset <= end_offset:
            try:
                with open(os.path.join(directory, segment_stem(offset) + SNAPSHOT), "rb") as file:
                    entries, _ = decode_snapshot(file.read())
            except (FileNotFoundError, Malformed):
                continue
            return offset, {one.producer_id: one.txn_first_offset for one in entries if one.txn_first_offset >= 0}
    return first, {}


class _Follower:
    """Follows the batches from the offset `start` to `end`: brings `open_since`, the first offsets of open transactions
    by producer id, forward and collects the aborted ones."""

    def __init__(self, start: int, end: int, open_since: dict[int, int]) -> None:
        self.aborted: list[AbortedTxn] = []
        self._start, self._end = start, end
        self._open_since = open_since

    def follow(self, segment: SegmentFile, end_position: int) -> None:
        """Raises Malformed for damage, except for a torn batch at the end."""
        first = segment.locate(self._start, end_position)
        if first is None:
            return
        with suppress(CutOff):
            for position, header in iter_headers(segment.fd, first[0], end_position, _READ_BYTES):
                if header.attributes & (TRANSACTIONAL | CONTROL):
                    self._follow(segment, position, header)

    def _follow(self, segment: SegmentFile, position: int, header: BatchHeader) -> None:
        producer_id, offset = header.producer_id, header.base_offset
        if producer_id < 0 or not self._start <= offset < self._end:
            return
        if not header.is_control:
            self._open_since.setdefault(producer_id, offset)
            return
        marker = read_marker(os.pread(segment.fd, header.size_bytes, position))
        first = self._open_since.pop(producer_id, None)
        if first is not None and marker is not None and not marker.commit:
            self.aborted.append(AbortedTxn(producer_id, first, offset, offset + 1))


def _index(directory: str, base: int) -> list[AbortedTxn]:
    try:
        with open(os.path.join(directory, segment_stem(base) + TXN_INDEX), "rb") as file:
            return decode_index(file.read())
    except FileNotFoundError:
        return []
