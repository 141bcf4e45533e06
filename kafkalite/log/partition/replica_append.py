"""Appends a leader's batches to the log of a follower: offsets, epochs and bytes stay as they are.

    write    the batches that fit into the active segment are one run, and one write; it rolls where an append would
    apply    to the state beside the records: producers, transactions, the record count

The rules of rolling, and those of the sparse indexes, apply to each batch, not to the answers that brought them. So a
follower with the settings of its leader has the same files, however the fetches have cut the log. (Apache Kafka's has a
new index entry per answer at most, and rolls between answers only.)
Source: kafka.log.UnifiedLog.appendAsFollower.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from kafkalite.common.errors import StorageError
from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.log_transactions import LogTransactions
from kafkalite.log.partition.segment_list import SegmentList
from kafkalite.log.segment.segment import Segment
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.record.batch import CONTROL, MAGIC, PREFIX_BYTES, TRANSACTIONAL, BatchHeader
from kafkalite.record.validation.batch_validation import ReplicaBatches


class ReplicaAppend:
    """Fetched records that are being appended. Fields: `end_offset` is the end of the log; the first `_at` batches, up
    to byte `_position`, are appended. `_run` is the latest run.

    Invariant: a run is applied before the next one is written.
    """

    __slots__ = ("_at", "_batches", "_flusher", "_position", "_records", "_run", "_segments", "end_offset")

    def __init__(
        self, records: memoryview, batches: ReplicaBatches, end_offset: int, segments: SegmentList, flusher: Flusher
    ) -> None:
        self._records = records
        self._batches = batches
        self._segments = segments
        self._flusher = flusher
        self._at = 0
        self._position = 0
        self._run: Sequence[BatchHeader] = ()
        self.end_offset = end_offset

    @property
    def is_over(self) -> bool:
        return self._at == len(self._batches.headers)

    def write(self, epochs: LeaderEpochCache, segment_bytes: int, now_ms: int) -> int:
        """Writes the next run, and returns the end offset that the log has with it. Raises StorageError; then nothing
        of the run is there."""
        headers = self._batches.headers
        location = self._segments.location
        try:
            segment = self._open(headers[self._at], segment_bytes, now_ms)
            upto, run_bytes = self._fitting(segment, segment_bytes)
            run = headers if upto - self._at == len(headers) else headers[self._at : upto]
            latest = epochs.written
            if run[0][2] != latest or (len(run) > 1 and any(header[2] != latest for header in run)):
                self._enter_epochs(epochs, run)
            segment.append_run(self._records[self._position : self._position + run_bytes], run, now_ms)
        except OSError as error:
            with contextlib.suppress(OSError):  # epochs behind the end do no harm, and the next ones replace them
                epochs.truncate_from_end(self.end_offset)
            raise location.refusal(f"cannot append to {location.name}", error) from error
        self._run = run
        last = run[-1]
        return last[0] + last[6] + 1

    def _open(self, header: BatchHeader, segment_bytes: int, now_ms: int) -> Segment:
        """The segment that takes the batch with that header, open for appending."""
        listed = self._segments
        segment = listed.active
        if segment.fd < 0:
            listed.open_active()
        segment.used = True
        base_offset, length, _, _, _, _, delta, _, max_timestamp_ms, _, _, _, _ = header
        if segment.size_bytes and (
            segment.size_bytes + length + PREFIX_BYTES > segment_bytes
            or max_timestamp_ms > segment.roll_timestamp_ms
            or now_ms > segment.roll_wall_ms
            or base_offset + delta > segment.roll_offset
        ):
            segment = listed.roll(self.end_offset, now_ms)
        if base_offset + delta > segment.roll_offset >= 0:
            # offsets are missing, so many that they do not fit into the index
            segment.tally.record_count -= base_offset - self.end_offset
            segment = listed.roll(base_offset, now_ms)
        return segment

    def _fitting(self, segment: Segment, segment_bytes: int) -> tuple[int, int]:
        """The index behind the last batch that goes into the segment, as the first one does, and their bytes."""
        batches = self._batches
        headers = batches.headers
        size_bytes = headers[self._at][1] + PREFIX_BYTES
        if self._at + 1 == len(headers) or not segment.size_bytes:
            return self._at + 1, size_bytes  # the time at which the segment rolls comes from its first batch
        room_bytes = min(segment_bytes - segment.size_bytes, _index_room(segment))
        left_bytes = batches.size_bytes - self._position
        roll_timestamp_ms, roll_offset = segment.roll_timestamp_ms, segment.roll_offset
        last = headers[-1]
        if left_bytes <= room_bytes and batches.max_timestamp <= roll_timestamp_ms and last[0] + last[6] <= roll_offset:
            return len(headers), left_bytes
        for at in range(self._at + 1, len(headers)):
            header = headers[at]
            with_this = size_bytes + header[1] + PREFIX_BYTES
            if with_this > room_bytes or header[8] > roll_timestamp_ms or header[0] + header[6] > roll_offset:
                return at, size_bytes
            size_bytes = with_this
        return len(headers), size_bytes

    def _enter_epochs(self, epochs: LeaderEpochCache, run: Sequence[BatchHeader]) -> None:
        """Adds the first batches of epochs to the cache, before they are written. Raises OSError."""
        found: list[tuple[int, int]] = []
        latest = epochs.written
        for header in run:
            if header[3] != MAGIC and (latest >= 0 or epochs.latest >= 0):
                epochs.clear()  # without epochs the high watermark decides, as it did when the format had none
                found.clear()
                latest = -1
            elif header[2] != latest and header[2] >= 0:
                latest = header[2]
                found.append((latest, header[0]))
        if found:
            epochs.assign_all(found, durable=bool(epochs.entries()))

    def apply(
        self,
        producers: ProducerState,
        transactions: LogTransactions,
        acknowledged_to: int,
        truncate_to: Callable[[int], None],
    ) -> None:
        """Applies the run that was written; markers at or past `acknowledged_to` are not committed yet. Raises
        StorageError if an abort cannot be indexed: its marker, and what was written behind it, is removed again.
        """
        active = self._segments.active
        expected = max(self.end_offset, active.base_offset)
        position = self._position
        tally = active.tally
        has_unknown_counts = False
        for header in self._run:
            base_offset, length, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, count = header
            last_offset = base_offset + delta
            if count != last_offset + 1 - expected or attributes & CONTROL:
                tally.record_count += count - (last_offset + 1 - expected)
                has_unknown_counts |= count < 0
                if attributes & CONTROL:
                    tally.control_record_count += count
            if producer_id < 0:
                pass
            elif attributes & CONTROL:
                batch = self._records[position : position + length + PREFIX_BYTES]
                try:
                    transactions.end(batch, acknowledged=last_offset < acknowledged_to)
                except StorageError as error:
                    self._remove(expected, truncate_to, error)
                    raise
            elif count or sequence >= 0:
                producers.update(
                    producer_id, epoch, sequence, last_offset, delta, timestamp, attributes & TRANSACTIONAL
                )
            expected = last_offset + 1
            position += length + PREFIX_BYTES
        self._position = position
        self._at += len(self._run)
        self.end_offset = expected
        if has_unknown_counts:  # compressed messages of v0 or v1: only their reader knows how many
            tally.forget(active.size_bytes)
            self._segments.counts.counted_to = expected

    def _remove(self, offset: int, truncate_to: Callable[[int], None], error: StorageError) -> None:
        """Removes what was written from `offset` on and could not be applied, because of `error`. Raises StorageError
        if that fails: the log is stopped, for its state does not agree with the records."""
        try:
            truncate_to(offset)
        except StorageError as fault:
            raise self._flusher.stop(error) from fault
        self._flusher.on_append(offset)


def _index_room(segment: Segment) -> int:
    """A run of at most so many bytes fills no index. Negative if the next entry may."""
    offset_index, time_index = segment.offset_index, segment.time_index
    entries = min(offset_index.entries_max - offset_index.entries, time_index.entries_max - 1 - time_index.entries)
    return (entries - 2) * (segment.index_interval_bytes + 1)
