"""The log of one partition: a list of segments, the last of which grows.

    append: validate -> duplicate? -> roll if needed -> stamp offset and epoch -> one write -> index -> advance
    read:   segment by bisect -> sparse index -> iterate headers -> a region of the file, sent with sendfile

A follower's log appends its leader's batches as they are (`replica_append`), and is truncated where it has others
(`log_truncation`).
A leader epoch begins with its first batch, or when its leader is elected, which may write nothing. It goes with its
records, at either end of the log.

Memory follows the disk: offsets, indexes and producers move only after the write, so a failed append changes nothing.
The event loop owns the log; threads only fsync or unlink the paths that they are given. An append touches a fixed
number of objects, independent of the number of segments and partitions.
Source: kafka.log.UnifiedLog (append, truncateTo, truncateFullyAndStartAt, maybeAssignEpochStartOffset),
org.apache.kafka.storage.internals.log.LocalLog; KIP-279.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.region import FileRegion
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.log_context import LogContext, LogLocation, PartitionMetadata
from kafkalite.log.partition.log_transactions import LogTransactions
from kafkalite.log.partition.log_truncation import LogTruncation
from kafkalite.log.partition.replica_append import ReplicaAppend
from kafkalite.log.partition.retention_policy import SEGMENTS_PER_TURN, Reason
from kafkalite.log.partition.segment_list import SegmentList
from kafkalite.log.partition.segment_swap import SegmentSwap
from kafkalite.log.recovery.log_loader import LoadedLog, LoadOptions
from kafkalite.log.segment.record_counts import RecordCounts
from kafkalite.log.segment.segment import NEVER, Segment
from kafkalite.log.segment.timestamp_lookup import TimeLookup, first_at_or_after, latest
from kafkalite.log.state.producer import AppendedBatch
from kafkalite.log.state.transaction_verification import VerificationGuard
from kafkalite.log.storage.files import storage_error
from kafkalite.record.batch import CONTROL, TRANSACTIONAL, parse_header, stamp_prefix, unpack_header
from kafkalite.record.validation.batch_validation import EPOCH_MAX, Rules, check_batches, rewrite, validate


class AppendResult(NamedTuple):
    """`log_append_time_ms` is -1 unless the topic uses LogAppendTime. `duplicate`: the batch was in the log already;
    the offsets are those of its first append, and nothing was written."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


_FRESH_BYTES_MAX = 128 * 1024  # a region of the latest appends up to this size is in the page cache


class PartitionLog:
    """Fields: `start_offset` is the first offset that may be read, `end_offset` that of the next record. `on_new_start`
    is called when `start_offset` increases. `lost_bytes` is the number of bytes that recovery cut off at the start.
    Other replicas have everything below `replicated_offset`; NEVER: the log waits for none. After a start it is the
    checkpointed high watermark until the partition has decided. `truncated_to` is the lowest offset that it was cut at.
    From `gap_offset` on, if it is not NEVER, a power cut may have taken records and spared later ones.

    Invariant: base offset of the first segment <= start_offset <= end_offset, replicated_offset.
    """

    __slots__ = (
        "_config", "_context", "_location", "_rules", "_segment_bytes", "_truncation", "directory", "end_offset",
        "epochs", "files", "flusher", "gap_offset", "lost_bytes", "metadata", "on_new_start", "partition", "producers",
        "record_counts", "replicated_offset", "segment_list", "start_offset", "swap", "topic", "transactions",
        "truncated_to",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, directory: str, config: TopicConfig, loaded: LoadedLog, context: LogContext
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.on_new_start: Callable[[], None] = lambda: None
        self._context = context
        self._adopt(directory, config, loaded)

    def _adopt(self, directory: str, config: TopicConfig, loaded: LoadedLog) -> None:
        """Makes the parts loaded from a directory the content of the log."""
        context = self._context
        self.directory = directory
        self.files = context.files
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.replicated_offset = loaded.high_watermark
        self.lost_bytes = loaded.lost_bytes
        self.gap_offset = loaded.gap_offset
        self.truncated_to = NEVER
        self._location = LogLocation(self.topic, self.partition, directory, context.files)
        background = context.serial_queue()
        self.flusher = Flusher(
            self._location, lambda: (self.segment_list.segments, self.end_offset), context, background, loaded,
            lambda: self.segment_list.close_writer(),
        )  # fmt: skip
        self.epochs.mark_dirty = self.flusher.mark_dirty
        self.metadata = PartitionMetadata(self._location, self.flusher.mark_dirty)
        self.record_counts = RecordCounts(
            directory, context.files, context.counting, loaded.end_offset,
            lambda: (self.segment_list.segments, self.start_offset, self.end_offset),
        )  # fmt: skip
        self.segment_list = SegmentList(
            loaded.segments, self._location, config, context, background, self.flusher, self.producers,
            self.record_counts, lambda: self.swap.pinned_from(),
        )  # fmt: skip
        self.swap = SegmentSwap(self.segment_list)
        self.transactions = LogTransactions(self._location, self.segment_list, self.producers)
        self._truncation = LogTruncation(
            self._location, context, self.segment_list, self.flusher, self.epochs, self.transactions, self.swap
        )
        self.config = config

    def reopen(self, directory: str) -> None:
        """Continues in another directory, where a clean stop has left the same records. Producers and listeners stay,
        and so do the references to the log, some of which are held across turns of the loop. Raises StorageError; the
        log is closed then."""
        on_ack, producers, epochs = self.flusher.on_ack, self.producers, self.epochs.entries()
        options = LoadOptions(True, self.end_offset, self.start_offset, self.replicated_offset)
        self.abandon()
        loaded = self._context.load((self.topic, self.partition), directory, self.config, options)
        producers.move(directory, loaded.producers.snapshots.offsets)
        with LogLocation(self.topic, self.partition, directory, self.files).refusing("reopen"):
            loaded.epochs.assign_all(epochs, durable=True)  # the last one may have no batch yet, and be in none
        self._adopt(directory, self.config, loaded._replace(producers=producers))
        self.flusher.on_ack = on_ack
        on_ack(None)

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic}-{self.partition}, {self.start_offset}..{self.end_offset})"

    # the hot path

    def append(
        self, records: memoryview, leader_epoch: int, now_ms: int, produce_version: int = 9, trusted: bool = False,
        transactional: bool = False, guard: VerificationGuard | None = None,
    ) -> AppendResult:  # fmt: skip
        """Appends exactly one v2 batch, which is stamped in place. `trusted`: this broker made it, skip validation.
        `transactional`: the batch may be transactional; `guard` verifies the first of its transaction.

        With flush.messages the batch may not be fsynced yet when this returns (`Flusher.ack_offset`). Raises KafkaError
        with the code for the producer, and StorageError when the disk refuses. After an error the log is unchanged,
        unless only the flush, or the index entry of an abort, failed after the write: then `end_offset` has moved.
        """
        rules = self._rules
        fields = unpack_header(records) if trusted else validate(records, rules, now_ms, produce_version, transactional)
        if rules.rewrites:
            records, fields = rewrite(records, parse_header(records), rules, now_ms)
        _, length, _, _, _, attributes, delta, _, max_timestamp_ms, producer_id, epoch, sequence, count = fields
        is_transactional = attributes & TRANSACTIONAL
        if producer_id >= 0:
            if trusted:
                self.producers.check_own(parse_header(records), records, guard)
            elif earlier := self.producers.check(producer_id, epoch, sequence, delta, is_transactional, guard):
                return self._duplicate(earlier)
        base_offset = self.end_offset
        last_offset = base_offset + delta
        size = length + 12
        segment = self.segment_list.active
        flusher = self.flusher
        try:
            if segment.fd < 0:
                self.segment_list.open_active()
            segment.used = True
            if (
                segment.size_bytes + size > self._segment_bytes
                or max_timestamp_ms > segment.roll_timestamp_ms
                or now_ms > segment.roll_wall_ms
                or last_offset > segment.roll_offset
            ) and segment.size_bytes:
                segment = self.segment_list.roll(base_offset, now_ms)
            if leader_epoch != self.epochs.written and leader_epoch >= 0:
                self.epochs.assign(leader_epoch, base_offset)
            stamp_prefix(records, 0, base_offset, length, leader_epoch)
            segment.append(records, size, base_offset, last_offset, max_timestamp_ms, now_ms)
        except OSError as error:
            raise self._location.refusal(f"cannot append to {self._location.name}", error) from error
        self.end_offset = last_offset + 1
        if trusted and (attributes & CONTROL or count != delta + 1):
            segment.tally.add_unusual(parse_header(records))
            if attributes & CONTROL:
                self.transactions.end_here(records, last_offset, self.replicated_offset, flusher)
                producer_id = -1
        if producer_id >= 0:
            self.producers.update(producer_id, epoch, sequence, last_offset, delta, max_timestamp_ms, is_transactional)
        if last_offset >= flusher.flush_at:
            flusher.flush_soon()
        else:
            flusher.ack_offset = last_offset + 1
        return _result(AppendResult, (base_offset, last_offset, now_ms if rules.log_append_time else -1, False))

    def append_as_follower(
        self, records: memoryview, now_ms: int, leader_epoch: int = EPOCH_MAX, *, from_mirror: bool = False
    ) -> int:
        """Appends batches of a leader of `leader_epoch`, or of a mirror to this leader, as they are; returns the end
        offset. A batch of a leader that is cut off at the end is ignored. The ack offset follows the disk as in
        `append`. Raises KafkaError if any batch is corrupt, or has another offset or epoch than it can have; then
        nothing is appended. Raises StorageError when the disk refuses; then the first batches may be appended."""
        check = self._rules.check_copies if from_mirror else check_batches
        batches = check(records, self.end_offset, leader_epoch)
        batches_left = ReplicaAppend(records, batches, self.end_offset, self.segment_list, self.flusher)
        while not batches_left.is_over:
            self.end_offset = batches_left.write(self.epochs, self._segment_bytes, now_ms)
            acknowledged_to = min(self.flusher.flush_at, self.replicated_offset)
            batches_left.apply(self.producers, self.transactions, acknowledged_to, self.truncate_to)
            self.flusher.on_append(self.end_offset)
        return self.end_offset

    def _duplicate(self, earlier: AppendedBatch) -> AppendResult:
        if earlier.last_offset >= self.flusher.ack_offset:
            self.flusher.flush_soon()  # the flush is in flight, or has failed; then this raises again
        return AppendResult(earlier.first_offset, earlier.last_offset, earlier.timestamp_ms, True)

    def assign_epoch(self, leader_epoch: int) -> None:
        """Begins an epoch at the end of the log, whose leader was elected here. It is on the disk when this returns:
        followers must learn of it even if nothing is written (KIP-279). Raises StorageError."""
        with self._location.refusing("begin an epoch of"):
            self.flusher.refuse_if_failed()
            self.epochs.elect(leader_epoch, self.end_offset)

    def read(self, offset: int, max_bytes: int, limit_offset: int, min_one: bool = True) -> FileRegion | None:
        """The batches from the one that holds `offset` up to `limit_offset`; None if no batch remains.

        At most `max_bytes`; the last batch may be cut off. A first batch above `max_bytes` is returned whole with
        `min_one`; without it the result is None. Raises KafkaError(OFFSET_OUT_OF_RANGE), StorageError.
        """
        end_offset = self.end_offset
        if offset < self.start_offset or offset > end_offset:
            span = f"{self.start_offset} and {end_offset} in {self._location.name}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not between {span}")
        if offset >= limit_offset or offset == end_offset:
            return None
        listed = self.segment_list
        segment = listed.active
        at = -1
        if offset < segment.base_offset:
            at = bisect_right(listed.bases, offset) - 1
            segment = listed.segments[at]
        try:
            while (found := segment.find(offset)) is None:
                if at == -1:
                    return None
                at += 1  # compaction has removed the batches from the offset to the segment's end
                segment = listed.segments[at]
                if segment is listed.active:
                    at = -1
            position, batch_bytes = found
            end = segment.size_bytes
            if limit_offset < end_offset and (at == -1 or limit_offset < listed.bases[at + 1]):
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

    def bytes_between(self, offset: int, limit_offset: int) -> int | None:
        """The bytes from the batch that holds `offset` up to `limit_offset`; None if this one lies in a later segment.
        Raises as `read`."""
        region = self.read(offset, NEVER, limit_offset)
        if region is None:
            return 0
        listed = self.segment_list
        return region.size if region.file is listed.segments[listed.index_of(limit_offset)].file else None

    # state

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments as they are now; the tuple never changes."""
        return self.segment_list.segments

    @property
    def size_bytes(self) -> int:
        return self.segment_list.size_bytes

    @property
    def committed_offset(self) -> int:
        """Everything below is committed, as far as the log knows: the other replicas have it, and so has the disk if
        flush.messages asks for it. Nothing above is deleted or compacted."""
        return min(self.replicated_offset, self.flusher.ack_offset)

    @property
    def failure(self) -> str | None:
        """The reason why the log takes no more records; None for a healthy one."""
        return self.flusher.failure

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        """Takes effect with the next append; the index settings with the next segment."""
        self._config = config
        self._rules = Rules(config, self._context.record_validation)
        self._segment_bytes = config.segment_bytes
        self.segment_list.configure(config)
        self.flusher.configure(config)

    # look-up

    def batches(self, from_offset: int) -> Iterator[memoryview]:
        """Every whole batch from the one that holds `from_offset` to the current end offset. Raises StorageError."""
        return self.segment_list.batches(from_offset, self.end_offset)

    def lookup_of_timestamp(self, timestamp_ms: int, limit_offset: int) -> TimeLookup:
        """Looks up the first record at or after `timestamp_ms`, if it lies below `limit_offset`."""
        searches = first_at_or_after(self.segments, timestamp_ms, self.start_offset)
        return TimeLookup(searches, limit_offset, self._location.unreadable)

    def lookup_of_max_timestamp(self, limit_offset: int) -> TimeLookup:
        """Looks up the first record with the largest timestamp of the log, if it lies below `limit_offset`."""
        return TimeLookup(latest(self.segments, self.start_offset), limit_offset, self._location.unreadable)

    # growth and deletion

    def roll(self, now_ms: int) -> bool:
        """Seals the active segment and begins a new one; False when the active one is empty. Raises StorageError; then
        nothing has changed."""
        if not self.segment_list.active.size_bytes:
            return False
        with self._location.refusing("begin a new segment of"):
            self.flusher.refuse_if_failed()
            self.segment_list.roll(self.end_offset, now_ms)
        return True

    def delete_records_before(self, offset: int) -> None:
        """Makes `offset` the start offset, and removes segments that end at or below it, at most SEGMENTS_PER_TURN;
        retention removes the others. Raises KafkaError(OFFSET_OUT_OF_RANGE) past the end, StorageError."""
        if offset > self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self.replicated_offset = max(self.replicated_offset, offset)  # a follower may learn of the deletion first
        try:
            with self._location.refusing("delete from"):
                self.segment_list.remove_first(min(self.segment_list.index_of(offset), SEGMENTS_PER_TURN))
        finally:
            self._start_moved()

    def delete_old_segments(self, now_ms: int, most: int) -> list[Reason]:
        """Removes the oldest segments that retention selects (`deletable`), at most `most`; returns a reason for each.

        If all are selected, the log rolls first, and the former active segment is removed, too. Raises StorageError
        for segments that could not be removed; the others are removed nevertheless.
        """
        listed, start_offset = self.segment_list, self.start_offset
        try:
            with self._location.refusing("delete from"):
                reasons, fault = listed.remove_old(start_offset, self.committed_offset, self.end_offset, now_ms, most)
        finally:
            if listed.bases[0] > start_offset:
                self.start_offset = listed.bases[0]
                self._start_moved()
        if fault is not None:
            raise self._location.refusal(f"cannot begin a new segment of {self._location.name}", fault) from fault
        return reasons

    def _start_moved(self) -> None:
        if self.start_offset > self.gap_offset:
            self.gap_offset = NEVER
        self.epochs.forget_before(self.start_offset)
        self.on_new_start()

    def truncate_to(self, offset: int) -> None:
        """Drops everything at or past `offset`, and the leader epochs that begin there, even if the log ends there.
        Raises StorageError; the log may take no more records then (`failure`)."""
        if offset >= self.end_offset:
            with self._location.refusing("truncate the epochs of"):
                self.epochs.truncate_from_end(self.end_offset)
        elif offset < self.segment_list.bases[0]:
            self.restart_at(offset)
        else:
            start_offset = min(self.start_offset, offset)
            self._truncation.cut(offset, start_offset, self.end_offset, self.committed_offset)
            self._end_moved(start_offset, offset)

    def restart_at(self, offset: int) -> None:
        """Drops all records, leader epochs and producers: the log is empty and begins at `offset`. Raises StorageError;
        the log may take no more records then (`failure`)."""
        self._truncation.restart(offset)
        self._end_moved(offset, offset)
        self.on_new_start()

    def _end_moved(self, start_offset: int, end_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.truncated_to = min(self.truncated_to, end_offset)
        if end_offset <= self.gap_offset:
            self.gap_offset = NEVER
        if self.replicated_offset < NEVER:
            self.replicated_offset = max(start_offset, min(self.replicated_offset, end_offset))
        self.flusher.on_ack(None)

    # the end

    def shut(self) -> list[str]:
        """Seals and completes all files without an fsync; returns the paths that a clean stop must fsync.

        Raises StorageError, also if an fsync failed before. The log is closed afterwards in any case.
        """
        try:
            with self._location.refusing("close"):
                self.swap.complete()
                self.flusher.refuse_if_failed()
                paths = self.segment_list.seal_all(self.end_offset)
        finally:
            self.abandon()
        return [*paths, *self.flusher.dirty_paths]

    def close(self) -> None:
        """As `shut`, and fsyncs everything. Raises StorageError."""
        paths = self.shut()
        with self._location.refusing("flush"):
            self.files.sync_all(paths)
        self.flusher.recovery_point = self.end_offset

    def abandon(self) -> None:
        """Closes descriptors and cancels timers; the files stay as they are, as after a crash or a deletion."""
        self.segment_list.close()
        self.swap.close()


_result = tuple.__new__  # 0.15 us less than AppendResult(...)
