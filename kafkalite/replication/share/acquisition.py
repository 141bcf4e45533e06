"""The acquisition of fetched records by a member of a share group.

The log is read from where something may be available, in whole record batches; what of it the member gets is decided
here. A record that was delivered half as often as it may be, or more, is delivered in ever smaller company, at the last
delivery alone: so that one record that cannot be processed takes no others with it.
Source: kafka.server.share.SharePartition.acquire (4.3), KIP-1206 for the limit of records, KIP-1222.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.replication.share.in_flight import ACQUIRED, AVAILABLE, InFlightBatch, Run
from kafkalite.replication.share.share_partition import ShareLimits, SharePartition


class FetchedBatch(NamedTuple):
    """A record batch that was read from the log, without its records; `last` is inclusive."""

    first: int
    last: int


class AcquiredRange(NamedTuple):
    """Records that a member holds now; `last` is inclusive."""

    first: int
    last: int
    delivery_count: int


class AcquisitionRequest(NamedTuple):
    """One fetch of one partition by a member."""

    member_id: str
    fetch_offset: int  # where the log was read from
    max_records: int  # more are acquired to the end of a batch, unless `is_record_limited`
    batch_size: int  # records that are to be acknowledged together, at least
    is_record_limited: bool  # share.acquire.mode=record_limit (KIP-1206)


def acquire(
    partition: SharePartition,
    request: AcquisitionRequest,
    batches: Sequence[FetchedBatch],
    aborted: Sequence[FetchedBatch],
    limits: ShareLimits,
    now_ms: int,
) -> list[AcquiredRange]:
    """Lock what of the fetched `batches` is available. Those of `aborted` transactions are archived instead."""
    if not batches or request.max_records <= 0 or batches[-1].last < partition.start_offset:
        return []
    if len(partition.records) and request.fetch_offset < batches[0].first:
        partition.skip_compacted(request.fetch_offset, batches[0].first - 1)
    acquisition = _Acquisition(partition, request, batches, limits, now_ms)
    if acquisition.remaining <= 0:
        return []
    found = acquisition.run()
    if aborted and found:
        for batch in aborted:
            partition.archive(batch.first, batch.last, ACQUIRED)
        if partition.in_flight_count >= limits.max_record_locks:
            partition.advance_start()  # otherwise with the next acknowledgement, as in Kafka
        return _without(found, aborted)
    return found


def _without(ranges: Sequence[AcquiredRange], aborted: Sequence[FetchedBatch]) -> list[AcquiredRange]:
    """The parts of the ranges that no batch of `aborted` has. Both are in the order of their offsets."""
    left: list[AcquiredRange] = []
    for found in ranges:
        first = found.first
        for batch in aborted:
            if batch.last < first or batch.first > found.last:
                continue
            if batch.first > first:
                left.append(found._replace(first=first, last=batch.first - 1))
            first = batch.last + 1
        if first <= found.last:
            left.append(found._replace(first=first))
    return left


class _Acquisition:
    """One call of `acquire`."""

    def __init__(
        self,
        partition: SharePartition,
        request: AcquisitionRequest,
        batches: Sequence[FetchedBatch],
        limits: ShareLimits,
        now_ms: int,
    ) -> None:
        self.partition = partition
        self.request = request
        self.batches = batches
        self.limits = limits
        self.now_ms = now_ms
        self.deadline_ms = now_ms + limits.lock_duration_ms
        self.found: list[AcquiredRange] = []
        self.first = batches[0].first
        self.last = batches[-1].last
        self.remaining = min(request.max_records, limits.max_record_locks - partition.in_flight_count)
        if self.remaining <= 0 and request.fetch_offset <= partition.end_offset:
            # No new record may be acquired; those that were delivered before may be again.
            self.remaining = min(request.max_records, partition.end_offset - request.fetch_offset + 1)
            self.last = min(self.last, partition.end_offset)
        self.throttled_from = max(2, -(-limits.delivery_count_limit // 2))

    def run(self) -> list[AcquiredRange]:
        partition = self.partition
        records = partition.records
        base = self.first
        floor = records.floor(base)
        if floor is None:
            base = max(base, partition.start_offset)
        elif floor.last >= base:
            base = floor.first
        known = records.between(min(self.first, base), self.last)
        if not known:
            self._acquire_new(base, self.last)
            return self.found
        self._acquire_known(known, base)
        if self.remaining > 0 and known[-1].last < self.last:
            self._acquire_new(known[-1].last + 1, self.last)
        if self.found:
            partition.pass_gap(self.found[-1].last + 1)
        return self.found

    def _acquire_known(self, known: Sequence[InFlightBatch], gap_start: int) -> None:
        """Acquire again what is available, and on the way what an earlier leader gave out."""
        for batch in known:
            if self.remaining <= 0:
                return
            if self.partition.has_read_gap:
                if gap_start < batch.first:
                    self._acquire_new(gap_start, batch.first - 1)
                gap_start = batch.last + 1
                if self.remaining <= 0:
                    return
            available = [run for run in batch.runs(self.first, self.last) if run.state == AVAILABLE]
            if not available:
                continue
            is_throttled = max(run.delivery_count for run in available) >= self.throttled_from
            if is_throttled and self.found:
                self.remaining = 0
                return
            size = batch.last - batch.first + 1
            is_covered = batch.first >= self.first and batch.last <= self.last
            is_too_long = self.request.is_record_limited and size > self.remaining
            if batch.is_whole and is_covered and not is_too_long and not is_throttled:
                self._take(batch, available[0])
                self.found.append(AcquiredRange(batch.first, batch.last, available[0].delivery_count + 1))
                self.remaining -= size
                continue
            batch.split()
            if self._acquire_part(batch, available) and is_throttled:
                self.remaining = 0
                return

    def _acquire_part(self, batch: InFlightBatch, available: Sequence[Run]) -> int:
        """Acquire available records of one batch, within the limits that their delivery counts set. How many."""
        limit = self.limits.delivery_count_limit
        most = self.remaining if self.request.is_record_limited else batch.last - batch.first + 1
        is_throttled = False
        count = 0
        found: list[AcquiredRange] = []
        for run in available:
            delivered = run.delivery_count
            is_last_delivery = limit > 2 and delivered >= limit - 1
            if is_last_delivery and count:
                break
            if delivered >= self.throttled_from and not is_throttled:
                is_throttled = True
                size = batch.last - batch.first + 1
                fewer = max(1, size >> (delivered - self.throttled_from + 1))
                most = min(most, fewer) if fewer > count else most
            part = run._replace(last=min(run.first if is_last_delivery else run.last, run.first + most - count - 1))
            self._take(batch, part)
            count += part.last - part.first + 1
            if found and found[-1].last + 1 == part.first and found[-1].delivery_count == delivered + 1:
                found[-1] = found[-1]._replace(last=part.last)
            else:
                found.append(AcquiredRange(part.first, part.last, delivered + 1))
            if count >= most or is_last_delivery:
                break
        self.found += found
        self.remaining -= count
        return count

    def _take(self, batch: InFlightBatch, run: Run) -> None:
        lock = self.partition.lock(self.request.member_id, run.first, run.last, self.now_ms, self.deadline_ms)
        batch.assign(Run(run.first, run.last, ACQUIRED, run.delivery_count + 1, lock))

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire records that are not in flight: up to the end of the batch in which the limit is reached."""
        partition = self.partition
        # After the log's beginning was deleted, an acquired batch from before it may still be in flight.
        first = max(first, partition.start_offset if len(partition.records) else partition.end_offset)
        if first > last:
            return
        end = last
        if self.remaining < last - first + 1:
            end = self._batch_end(first + self.remaining - 1)
            if partition.has_read_gap:
                end = min(end, last)
        taken = self._add(first, end)
        if partition.records.oldest.first == first:
            partition.start_offset = first
        partition.end_offset = max(partition.end_offset, end)
        partition.pass_gap(taken + 1)
        self.remaining -= taken - first + 1

    def _add(self, first: int, last: int) -> int:
        """Put the offsets in flight as batches of `batch_size` records or more, cut where record batches begin. The
        last offset that was acquired: with a limit of records, others of the last batch are only available."""
        request = self.request
        if request.is_record_limited:
            taken = min(last, first + self.remaining - 1)
            batch = self._new_batch(first, last)
            if taken < last:
                batch.assign(Run(taken + 1, last, AVAILABLE, 0, None))
                self.partition.mark_refetch()
            self.found.append(AcquiredRange(first, taken, 1))
            return taken
        if last - first + 1 > request.batch_size:
            for record_batch in self.batches:
                if record_batch.first > last:
                    break
                if record_batch.first - first >= request.batch_size:
                    self._new_batch(first, record_batch.first - 1)
                    self.found.append(AcquiredRange(first, record_batch.first - 1, 1))
                    first = record_batch.first
        self._new_batch(first, last)
        self.found.append(AcquiredRange(first, last, 1))
        return last

    def _new_batch(self, first: int, last: int) -> InFlightBatch:
        lock = self.partition.lock(self.request.member_id, first, last, self.now_ms, self.deadline_ms)
        batch = InFlightBatch(first, last, ACQUIRED, 1, lock)
        self.partition.records.add(batch)
        self.partition.counts.batch_sizes.add(last - first + 1)
        return batch

    def _batch_end(self, offset: int) -> int:
        """The end of the record batch that has the offset; the offset itself if none has it."""
        at = bisect_right(self.batches, offset, key=lambda batch: batch.first) - 1
        return max(offset, self.batches[at].last) if at >= 0 and self.batches[at].last >= offset else offset
