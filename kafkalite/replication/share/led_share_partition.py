"""A share partition on its leader: the decisions of `SharePartition`, its durable writes, its timer, and who waits.

It is loaded at its first use. Acknowledgements are answered when the share coordinator has stored them. When the leader
or the share coordinator is another, it is fenced: its requests get NOT_LEADER_OR_FOLLOWER, and the next request loads
it again.
Source: kafka.server.share.SharePartition, SharePartitionManager (4.3).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.replication.share.acquisition import AcquiredRange, AcquisitionRequest, FetchedBatch, acquire
from kafkalite.replication.share.durable_state import (
    UNKNOWN_OFFSET,
    SharePartitionKey,
    StateRange,
    StateWrite,
    StoredState,
)
from kafkalite.replication.share.in_flight import Acknowledgement, ShareCounts
from kafkalite.replication.share.share_partition import ShareLimits, SharePartition, Transition

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock, Timer
    from kafkalite.replication.delayed_operations import DelayedOperation
    from kafkalite.replication.partition import Partition

logger = logging.getLogger(__name__)

Done = Callable[[KafkaError | None], None]


class ShareStateStore(Protocol):
    """The share coordinators of the cluster, as a leader uses them. Each calls back once, perhaps before it returns."""

    def read(
        self, key: SharePartitionKey, leader_epoch: int, done: Callable[[StoredState | KafkaError], None], /
    ) -> None: ...

    def write(self, key: SharePartitionKey, write: StateWrite, done: Done, /) -> None: ...


_TO_CLIENT = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class LedSharePartition:
    """One share partition. `state` is None while it is being loaded, and once it is `fenced`."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        store: ShareStateStore,
        clock: Clock,
        limits: Callable[[], ShareLimits],
        on_fenced: Callable[[LedSharePartition], None],
        counts: ShareCounts,
    ) -> None:
        self.key = key
        self.counts = counts
        self.partition = partition
        self.state: SharePartition | None = None
        self.fenced: KafkaError | None = None
        # fetches that wait until something is available here, beside those that wait for the partition's log
        self.delayed_fetches: dict[DelayedOperation, None] = {}
        self._to_wake: deque[DelayedOperation] = deque()
        self._store = store
        self._clock = clock
        self._limits = limits
        self._on_fenced = on_fenced
        self._timer: Timer | None = None
        self._timer_ms = 0

    def load(self, start_offset: Callable[[], int], on_loaded: Callable[[int], None]) -> None:
        """Read the durable state. `start_offset` is where a group begins that has never read. `on_loaded` is called
        with the milliseconds that it took."""
        began_ms = self._clock.monotonic_ms()

        def on_read(stored: StoredState | KafkaError) -> None:
            on_loaded(self._clock.monotonic_ms() - began_ms)
            if self.fenced is not None:
                return
            if isinstance(stored, KafkaError):
                self.fence(_for_client(stored, "read"))
                return
            try:
                start = stored.start_offset if stored.start_offset != UNKNOWN_OFFSET else start_offset()
                epoch = self.partition.leader_epoch
                self.state = SharePartition(start, stored.state_epoch, epoch, stored.ranges, self.counts)
            except (KafkaError, ValueError) as error:
                logger.error("share partition %s cannot be loaded: %s", self.key, error)
                self.fence(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
                return
            self.wake()

        self._store.read(self.key, self.partition.leader_epoch, on_read)

    def fence(self, error: KafkaError) -> None:
        """Serve no more requests; those that wait get the error. A second call has no effect."""
        if self.fenced is not None:
            return
        self.fenced = error
        self.state = None
        if self._timer is not None:
            self._timer.cancel()
        self._on_fenced(self)
        self.wake()

    def wake(self) -> None:
        """More may be available: fetches that wait poll again, one after another for as long as there is something.
        All at once they would cost 10 us each, and the first one mostly leaves nothing."""
        self._to_wake = deque(self.delayed_fetches)
        self.wake_next()

    def wake_next(self) -> None:
        """The next of the fetches that are to be woken polls. Each has to call this when it has polled or leaves."""
        waiting = self._to_wake
        while waiting and (self.fenced is not None or self._has_more()):
            fetch = waiting.popleft()
            if fetch in self.delayed_fetches:
                fetch.wake()
                if self.fenced is None:
                    return

    def _has_more(self) -> bool:
        offset = self.fetch_offset()
        return offset is not None and offset != self.partition.high_watermark

    # --- requests

    def fetch_offset(self) -> int | None:
        """Where a fetch may read the log; None: nothing may be acquired at the moment."""
        state = self.state
        if state is None or not state.can_acquire(self._limits()):
            return None
        return state.next_fetch_offset()

    def last_acquirable(self, offset: int, max_records: int) -> int:
        """No fetch at `offset` acquires a record behind this one, or behind the end of its batch."""
        return max(offset - 1, -1 if self.state is None else self.state.end_offset) + max_records

    def acquire(
        self, request: AcquisitionRequest, batches: Sequence[FetchedBatch], aborted: Sequence[FetchedBatch]
    ) -> list[AcquiredRange]:
        """Acquire what was read at `fetch_offset`."""
        if self.state is None:
            return []
        found = acquire(self.state, request, batches, aborted, self._limits(), self._clock.monotonic_ms())
        self._schedule()
        return found

    def on_log_start(self) -> None:
        """The log begins later than the offset that was to be read."""
        if self.state is not None:
            self.state.move_log_start(self.partition.log.start_offset)

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], done: Done) -> None:
        """Calls `done` when the outcome is durable, with the error for the client otherwise."""
        state = self.state
        if state is None:
            done(self.fenced or KafkaError(ErrorCode.INVALID_RECORD_STATE, "Nothing has been acquired yet."))
            return
        try:
            transition = state.acknowledge(member_id, acknowledgements, self._limits(), self._clock.monotonic_ms())
        except KafkaError as error:
            done(error)
            return
        self._schedule()
        self._perform(state, transition, done)

    def release(self, member_id: str, done: Done) -> None:
        """Release what the member holds: its session is closed."""
        state = self.state
        if state is None:
            done(None)
            return
        self._perform(state, state.release(member_id, self._limits()), done)

    def expire_locks(self) -> int:
        """End every lock now, for tests, as if its time was over. Returns the number of records that were locked."""
        before = self.counts.lock_timeouts
        if self.state is not None:
            self.state.end_locks(self._clock.monotonic_ms())
            self._schedule()
            self._expire()
        return self.counts.lock_timeouts - before

    # --- effects

    def _perform(self, state: SharePartition, transition: Transition, done: Done) -> None:
        if not transition.writes:
            done(None)
            return

        def on_written(error: KafkaError | None) -> None:
            is_durable = error is None
            is_awaited = state.complete(
                transition, is_durable=is_durable, limits=self._limits(), now_ms=self._clock.monotonic_ms()
            )
            refusal = None if error is None else _for_client(error, "write")
            done(refusal)
            if refusal is not None and _is_fencing(error):
                self.fence(refusal)
            elif is_awaited:
                self.wake()

        self._write(state, transition.writes, on_written)

    def _write(self, state: SharePartition, ranges: Sequence[StateRange], done: Done) -> None:
        write = StateWrite(
            state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count, ranges
        )
        self._store.write(self.key, write, done)

    def _schedule(self) -> None:
        """Have the timer run when the next lock may expire."""
        due_ms = self.state.next_deadline_ms if self.state is not None else None
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._clock.call_later(due_ms - self._clock.monotonic_ms(), self._expire)

    def _expire(self) -> None:
        self._timer = None
        state = self.state
        if state is None:
            return
        writes = state.expire(self._clock.monotonic_ms(), self._limits())
        self._schedule()
        if not writes:
            return

        def on_written(error: KafkaError | None) -> None:
            if error is not None:  # the records are free all the same, as after a crash
                logger.warning("expired locks of share partition %s could not be stored: %s", self.key, error)
                if _is_fencing(error):
                    self.fence(_for_client(error, "write"))
                    return
            if state.advance_start():
                self.wake()

        self._write(state, writes, on_written)
        self.wake()


def _for_client(error: KafkaError, request: str) -> KafkaError:
    """The error of the share coordinator as a member gets it, in Kafka's words."""
    message = error.message and f"Error in {request} state RPC. {error.message}"
    return KafkaError(_TO_CLIENT.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), message)


def _is_fencing(error: KafkaError | None) -> bool:
    """Whether another leader, or another beginning of the group, has taken over."""
    return error is not None and error.code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
