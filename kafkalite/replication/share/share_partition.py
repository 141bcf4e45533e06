"""One partition of a topic as a share group reads it: pure decisions, made by the partition's leader.

The start offset is where the group's reading begins: every record before it is done. Records from there to the end
offset are in flight: available, acquired by a member under a lock, acknowledged or archived. What becomes of an
acknowledgement is written by the share coordinator first: `acknowledge` and `release` give a `Transition`, whose
`writes` are to be made durable before `complete`. A lock that expires changes its records at once, durable or not.
Source: kafka.server.share.SharePartition (4.3).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.replication.share.durable_state import StateRange
from kafkalite.replication.share.in_flight import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    TERMINAL,
    Acknowledgement,
    AcquisitionLock,
    InFlightBatch,
    InFlightRecords,
    Run,
    ShareCounts,
    is_done,
    is_pending,
    pending,
)

_TARGET = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}


class ShareLimits(NamedTuple):
    """The limits in the settings of the group, or else of the broker."""

    lock_duration_ms: int  # share.record.lock.duration.ms
    delivery_count_limit: int  # share.delivery.count.limit
    max_record_locks: int  # share.partition.max.record.locks
    is_renew_enabled: bool  # share.renew.acknowledge.enable


class Transition(NamedTuple):
    """A change that takes effect when `writes` are durable."""

    writes: list[StateRange]
    changed: list[tuple[InFlightBatch, int, int]]


class SharePartition:
    """The state of one share partition, as read from the share coordinator. What becomes of its records is added to
    `counts`."""

    def __init__(
        self,
        start_offset: int,
        state_epoch: int,
        leader_epoch: int,
        ranges: Sequence[StateRange],
        counts: ShareCounts | None = None,
    ) -> None:
        """Raises ValueError if the ranges are none that a leader writes."""
        self.counts = ShareCounts() if counts is None else counts
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.records = InFlightRecords()
        self.delivery_complete_count = 0  # records from the start offset on that are done, or will be
        # Offsets that were acquired under an earlier leader and never acknowledged are not in the ranges: from
        # `gap_start` to `gap_end`, holes between batches are records to fetch and no effect of compaction.
        self._gap_start = self._gap_end = -1
        self._may_refetch = False  # whether something before the end offset may be available
        self._deadlines: list[tuple[int, int, AcquisitionLock]] = []
        self._lock_count = 0
        self._load(ranges)

    def _load(self, ranges: Sequence[StateRange]) -> None:
        next_offset = self.start_offset
        for first, last, state, delivery_count in ranges:
            if first < next_offset or last < first:
                raise ValueError(f"offsets {first} to {last} cannot follow {next_offset - 1}")
            if self._gap_start < 0 and first > next_offset:
                self._gap_start = next_offset
            next_offset = last + 1
            self.records.add(InFlightBatch(first, last, state, delivery_count, None))
            if state in TERMINAL:
                self.delivery_complete_count += last - first + 1
        if ranges:
            self._may_refetch = True
            self.end_offset = next_offset - 1
            if self._gap_start >= 0:
                self._gap_end = self.end_offset
            self.advance_start()

    @property
    def in_flight_count(self) -> int:
        """How many offsets are in flight, those that are done included."""
        return self.end_offset - self.start_offset + 1 if len(self.records) else 0

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next lock may expire."""
        return self._deadlines[0][0] if self._deadlines else None

    @property
    def has_read_gap(self) -> bool:
        """Whether holes between batches are records that an earlier leader gave out."""
        return self._gap_start >= 0 and self._gap_end == self.end_offset

    def pass_gap(self, offset: int) -> None:
        """Everything before `offset` was acquired again, or is no longer in the log."""
        if self._gap_start < 0:
            return
        batch = self.records.floor(offset)
        while batch is not None and batch.last >= offset:
            offset = batch.last + 1
            batch = self.records.floor(offset)
        self._gap_start = max(self._gap_start, offset) if self.has_read_gap and offset <= self._gap_end else -1

    def mark_refetch(self) -> None:
        """Something before the end offset became available."""
        self._may_refetch = True

    def next_fetch_offset(self) -> int:
        """Where the next fetch reads the log: the first record that is available, or else the first new one."""
        if not len(self.records) or self.start_offset > self.records.newest.last:
            self._may_refetch = False
            return self.end_offset
        if self._may_refetch:
            available = self._first_available()
            if available is not None:
                return available
            self._may_refetch = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        gap = self._gap_start if self.has_read_gap else None
        for batch in self.records:
            if gap is not None:
                if batch.first > gap:
                    return gap
                gap = max(batch.last + 1, gap)
            available = batch.first_available()
            if available is not None:
                return available
        return None

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Whether a fetch may acquire something: a record to deliver again, or a new one within the limit."""
        if self.next_fetch_offset() != self.end_offset + 1:
            return True
        return self.in_flight_count < limits.max_record_locks

    def lock(self, member_id: str, first: int, last: int, acquired_ms: int, deadline_ms: int) -> AcquisitionLock:
        """A lock for records that the member acquires, which `expire` will find."""
        lock = AcquisitionLock(member_id, acquired_ms, deadline_ms, first, last)
        self._lock_count += 1
        heapq.heappush(self._deadlines, (deadline_ms, self._lock_count, lock))
        return lock

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], limits: ShareLimits, now_ms: int
    ) -> Transition:
        """Raises KafkaError, without any effect but renewed locks: INVALID_RECORD_STATE for what the member has not
        acquired, INVALID_REQUEST for offsets that no member has."""
        transition = Transition([], [])
        try:
            for acknowledgement in acknowledgements:
                if acknowledgement.last >= self.start_offset:
                    for batch in self._acknowledged_batches(acknowledgement):
                        self._acknowledge_batch(transition, batch, member_id, acknowledgement, limits, now_ms)
        except KafkaError:
            self._roll_back(transition, now_ms=0, limits=limits)
            raise
        return transition

    def _acknowledged_batches(self, acknowledgement: Acknowledgement) -> list[InFlightBatch]:
        first, last, _ = acknowledgement
        floor = self.records.floor(first)
        if floor is None and first < self.start_offset <= last:
            floor = self.records.floor(self.start_offset)
        if floor is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        batches = self.records.between(floor.first, last)
        if batches[-1].last < first:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The first offset in request is past acquired records.",
            )
        if batches[-1].last < last:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )
        return batches

    def _acknowledge_batch(
        self,
        transition: Transition,
        batch: InFlightBatch,
        member_id: str,
        acknowledgement: Acknowledgement,
        limits: ShareLimits,
        now_ms: int,
    ) -> None:
        if batch.last < self.start_offset:
            return
        if batch.is_whole:
            _check_acquired(batch.run_at(batch.first), member_id, "batch", "batch record")
        first = max(acknowledgement.first, self.start_offset)
        for whole_run in batch.runs(first, acknowledgement.last):
            _check_acquired(whole_run, member_id, "offset", "offset")
            for run, kind in acknowledgement.cut(whole_run):
                if kind != RENEW:
                    self._begin(transition, batch, run, _TARGET[kind], limits)
                elif limits.is_renew_enabled and run.lock is not None:
                    since_ms, until_ms = run.lock.acquired_ms, now_ms + limits.lock_duration_ms
                    lock = self.lock(member_id, run.first, run.last, since_ms, until_ms)
                    batch.assign(run._replace(lock=lock))
                else:
                    raise KafkaError(
                        ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group."
                    )

    def release(self, member_id: str, limits: ShareLimits) -> Transition:
        """Everything that the member holds becomes available; its session has ended."""
        transition = Transition([], [])
        for batch in self.records:
            for run in batch.runs(batch.first, batch.last):
                if run.state == ACQUIRED and run.lock is not None and run.lock.member_id == member_id:
                    for part in self._cut_at_start(run):
                        self._begin(transition, batch, part, AVAILABLE, limits)
        return transition

    def _begin(self, transition: Transition, batch: InFlightBatch, run: Run, target: int, limits: ShareLimits) -> None:
        target = self._outcome(run, target, limits)
        batch.assign(run._replace(state=pending(target)))
        transition.writes.append(StateRange(run.first, run.last, target, run.delivery_count))
        transition.changed.append((batch, run.first, run.last))
        if target in TERMINAL:
            self._count_done(run.first, run.last, 1)

    def _outcome(self, run: Run, target: int, limits: ShareLimits) -> int:
        """A record that was delivered often enough, or lies before the start, is archived instead of available."""
        if target == AVAILABLE and (run.last < self.start_offset or run.delivery_count >= limits.delivery_count_limit):
            return ARCHIVED
        return target

    def complete(self, transition: Transition, *, is_durable: bool, limits: ShareLimits, now_ms: int) -> bool:
        """The writes were made, or failed: then the records are acquired as before, unless their locks have expired.
        Whether something waits that may be acquired now, or the start offset moved."""
        if not is_durable:
            return self._roll_back(transition, now_ms=now_ms, limits=limits)
        is_available = False
        for batch, first, last in transition.changed:
            for run in batch.runs(first, last):
                if is_pending(run.state):
                    target = run.state >> 5
                    for part in self._cut_at_start(run) if target == AVAILABLE else (run,):
                        state = self._outcome(part, target, limits)
                        batch.assign(part._replace(state=state, lock=None))
                        self.counts.add(state, part.last - part.first + 1)
                        is_available = is_available or state == AVAILABLE
        self._may_refetch = self._may_refetch or is_available
        return self.advance_start() or is_available

    def _roll_back(self, transition: Transition, *, now_ms: int, limits: ShareLimits) -> bool:
        is_available = False
        for batch, first, last in transition.changed:
            for run in batch.runs(first, last):
                if not is_pending(run.state):
                    continue
                if is_done(run.state):
                    self._count_done(run.first, run.last, -1)
                acquired = run._replace(state=ACQUIRED)
                batch.assign(acquired)
                if run.lock is not None and run.lock.deadline_ms <= now_ms:
                    for part in self._cut_at_start(acquired):
                        is_available = self._free(batch, part, limits) == AVAILABLE or is_available
        return is_available

    def expire(self, now_ms: int, limits: ShareLimits) -> list[StateRange]:
        """Free the records whose locks have expired. Gives what is to be written; call `advance_start` after that."""
        writes = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            lock = heapq.heappop(self._deadlines)[2]
            for batch in self.records.overlapping(lock.first, lock.last):
                for run in batch.runs(lock.first, lock.last):
                    if run.state == ACQUIRED and run.lock is lock:
                        self.counts.lock_timeouts += run.last - run.first + 1
                        for part in self._cut_at_start(run):
                            state = self._free(batch, part, limits)
                            writes.append(StateRange(part.first, part.last, state, part.delivery_count))
        return writes

    def end_locks(self, now_ms: int) -> None:
        """Have every lock expire now."""
        for _, _, lock in self._deadlines:
            lock.deadline_ms = min(lock.deadline_ms, now_ms)
        self._deadlines = [(lock.deadline_ms, number, lock) for _, number, lock in self._deadlines]
        heapq.heapify(self._deadlines)

    def _free(self, batch: InFlightBatch, run: Run, limits: ShareLimits) -> int:
        """End the lock of acquired records; their state after it."""
        state = self._outcome(run, AVAILABLE, limits)
        batch.assign(run._replace(state=state, lock=None))
        self.counts.add(state, run.last - run.first + 1)
        if state == AVAILABLE:
            self._may_refetch = True
        else:
            self._count_done(run.first, run.last, 1)
        return state

    def _cut_at_start(self, run: Run) -> Iterator[Run]:
        """The run in one part, or in two where the start offset is inside."""
        if run.first < self.start_offset <= run.last:
            yield run._replace(last=self.start_offset - 1)
            yield run._replace(first=self.start_offset)
        else:
            yield run

    def _count_done(self, first: int, last: int, sign: int) -> None:
        if last >= self.start_offset:
            self.delivery_complete_count += sign * (last - max(first, self.start_offset) + 1)

    def archive(self, first: int, last: int, from_state: int) -> None:
        """Records in `from_state` between two offsets (inclusive) will never be delivered again."""
        for batch in self.records.overlapping(first, last):
            for run in batch.runs(first, last):
                if run.state == from_state:
                    batch.assign(run._replace(state=ARCHIVED, lock=None))
                    self.counts.add(ARCHIVED, run.last - run.first + 1)
                    self._count_done(run.first, run.last, 1)
                    self._may_refetch = True

    def move_log_start(self, log_start_offset: int) -> None:
        """The log begins later: what was available before is gone. Acquired records stay so until they are
        acknowledged or their locks expire. Nothing is written until then."""
        if log_start_offset <= self.start_offset:
            return
        if not len(self.records):
            self.start_offset = self.end_offset = log_start_offset
            self.delivery_complete_count = 0
            return
        self.archive(self.start_offset, log_start_offset - 1, AVAILABLE)
        self._move_start(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)
        self.advance_start()

    def skip_compacted(self, first: int, last: int) -> None:
        """The log has none of these offsets (inclusive) any more: what was available of them is gone."""
        self.archive(first, last, AVAILABLE)
        if first <= self._gap_start <= last:
            self.pass_gap(last + 1)
        self.advance_start()

    def _move_start(self, start_offset: int) -> None:
        """Invariant: nothing between the old and the new start is to be delivered."""
        old = self.start_offset
        for batch in self.records.overlapping(old, start_offset - 1):
            for run in batch.runs(old, start_offset - 1):
                if is_done(run.state):
                    self.delivery_complete_count -= run.last - run.first + 1
        self.start_offset = start_offset
        self.pass_gap(start_offset)

    def advance_start(self) -> bool:
        """Move the start offset over the records that are done. Whether it moved or a batch was forgotten."""
        records = self.records
        if not len(records):
            return False
        at_start = records.floor(self.start_offset)
        if at_start is None:
            if self.has_read_gap:
                return False
            at_start = records.oldest
        if at_start.run_at(min(max(self.start_offset, at_start.first), at_start.last)).state not in TERMINAL:
            return False
        done = self._last_done()
        if done < 0:
            return False
        if done == records.newest.last:
            self.start_offset = self.end_offset = done + 1
            records.drop_below(done + 1)
            self.delivery_complete_count = 0
            return True
        batch = records.floor(done)
        assert batch is not None
        start = done + 1
        if batch.last == done:
            start = records.between(done + 1, records.newest.first)[0].first
            if self.has_read_gap:
                start = min(start, self._gap_start)
        if start > self.start_offset:
            self._move_start(start)
        records.drop_below(done + 1)
        return True

    def _last_done(self) -> int:
        """The last of the oldest records that are all done; -1 if the oldest is not."""
        done = -1
        for batch in self.records:
            if self.has_read_gap and batch.last >= self._gap_start:
                break
            undone = batch.first_undone()
            if undone > batch.first:
                done = undone - 1
            if undone <= batch.last:
                break
        return done


def _check_acquired(run: Run, member_id: str, of: str, owned: str) -> None:
    if run.state != ACQUIRED or run.lock is None:
        raise KafkaError(
            ErrorCode.INVALID_RECORD_STATE,
            "The offset cannot be acknowledged. The offset is not acquired."
            if of == "offset"
            else "The batch cannot be acknowledged. The batch is not in the acquired state.",
        )
    if run.lock.member_id != member_id:
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"Member is not the owner of {owned}")
