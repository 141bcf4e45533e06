"""The records of a share partition that are in flight: between its start offset and the last acquired one.

They are kept in the batches in which they were first acquired. A batch is whole while all of its records have one
state, and takes as much memory as a record then; when an acquisition or an acknowledgement is of a part of it, it keeps
a state for each offset, in columns: 11 bytes an offset. Whole or not, a reader sees runs: consecutive offsets of one
batch that are alike.
Source: org.apache.kafka.clients.consumer.AcknowledgeType; org.apache.kafka.server.share.metrics.SharePartitionMetrics
(lock_timeouts and batch_sizes; 4.3).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby

from kafkalite.common.metrics import LatestValues
from kafkalite.common.named_tuple import NamedTuple

AVAILABLE = 0
ACQUIRED = 1
ACKNOWLEDGED = 2
ARCHIVED = 4
TERMINAL = frozenset((ACKNOWLEDGED, ARCHIVED))
# An acknowledgement that is not durable yet: the record is acquired still, and in the state that it will have.
_PENDING = 0x10


_NAMES = {AVAILABLE: "available", ACQUIRED: "acquired", ACKNOWLEDGED: "acknowledged", ARCHIVED: "archived"}


def state_name(state: int) -> str:
    """The state in reports: a record whose acknowledgement is not durable yet is acquired still."""
    return _NAMES[ACQUIRED if is_pending(state) else state]


def pending(target: int) -> int:
    """The state of an acquired record that will be in state `target` once that is durable."""
    return _PENDING | target << 5


def is_pending(state: int) -> bool:
    return state & _PENDING != 0


def is_done(state: int) -> bool:
    """Whether the record is in a terminal state, or will be once that is durable."""
    return (state >> 5 if state & _PENDING else state) in TERMINAL


class AcquisitionLock:
    """Records acquired at one time by one member, from `acquired_ms` until `deadline_ms` of the monotonic clock."""

    __slots__ = ("acquired_ms", "deadline_ms", "first", "last", "member_id")

    def __init__(self, member_id: str, acquired_ms: int, deadline_ms: int, first: int, last: int) -> None:
        self.member_id = member_id
        self.acquired_ms = acquired_ms
        self.deadline_ms = deadline_ms
        self.first = first
        self.last = last  # inclusive; not every offset between them need be locked by it


class Run(NamedTuple):
    """Consecutive offsets of one batch that are alike; `last` is inclusive."""

    first: int
    last: int
    state: int
    delivery_count: int
    lock: AcquisitionLock | None


class InFlightBatch:
    """Offsets `first` to `last` (inclusive), which were acquired at one time."""

    __slots__ = ("_count", "_counts", "_lock", "_locks", "_state", "_states", "first", "last")

    def __init__(self, first: int, last: int, state: int, delivery_count: int, lock: AcquisitionLock | None) -> None:
        self.first = first
        self.last = last
        # Of all offsets while they are alike; then the columns count, with an element for each offset.
        self._state = state
        self._count = delivery_count
        self._lock = lock
        self._states: bytearray | None = None
        self._counts = _NO_COUNTS
        self._locks: list[AcquisitionLock | None] = _NO_LOCKS

    @property
    def is_whole(self) -> bool:
        """Whether all offsets are known to be alike."""
        return self._states is None

    def split(self) -> None:
        """Keep a state for each offset from now on."""
        if self._states is None:
            size = self.last - self.first + 1
            self._states = bytearray((self._state,)) * size
            self._counts = array("H", (self._count,)) * size
            self._locks = [self._lock] * size
            self._lock = None

    def run_at(self, offset: int) -> Run:
        """The state of one offset, as a run of its own; of the whole batch where it is whole."""
        states = self._states
        if states is None:
            return Run(self.first, self.last, self._state, self._count, self._lock)
        at = offset - self.first
        return Run(offset, offset, states[at], self._counts[at], self._locks[at])

    def runs(self, first: int, last: int) -> Sequence[Run]:
        """The runs between two offsets (inclusive), cut at them. Later changes are not seen."""
        low, high = max(first, self.first), min(last, self.last)
        if low > high:
            return ()
        if self._states is None:
            return (Run(low, high, self._state, self._count, self._lock),)
        return self._split_runs(self._states, low, high)

    def first_available(self) -> int | None:
        """The first offset that is available."""
        if self._states is None:
            return self.first if self._state == AVAILABLE else None
        at = self._states.find(AVAILABLE)
        return None if at < 0 else self.first + at

    def first_undone(self) -> int:
        """The first offset that is in no terminal state, or the one behind the batch."""
        if self._states is None:
            return self.last + 1 if self._state in TERMINAL else self.first
        return self.last + 1 - len(self._states.lstrip(_TERMINAL_BYTES))

    def _split_runs(self, states: bytearray, low: int, high: int) -> list[Run]:
        counts, locks, base, found = self._counts, self._locks, self.first, []
        begin, end = low - base, high - base + 1
        state, count, lock = states[begin], counts[begin], locks[begin]
        for at in range(begin + 1, end):
            if states[at] != state or counts[at] != count or locks[at] is not lock:
                found.append(Run(base + begin, base + at - 1, state, count, lock))
                begin, state, count, lock = at, states[at], counts[at], locks[at]
        found.append(Run(base + begin, base + end - 1, state, count, lock))
        return found

    def assign(self, run: Run) -> None:
        """Give the offsets of `run` its state, delivery count and lock. A part of a whole batch splits it."""
        if self._states is None:
            if run.first <= self.first and run.last >= self.last:
                self._state, self._count, self._lock = run.state, run.delivery_count, run.lock
                return
            self.split()
        states = self._states
        assert states is not None
        begin, end = run.first - self.first, run.last - self.first + 1
        size = end - begin
        states[begin:end] = bytes((run.state,)) * size
        self._counts[begin:end] = array("H", (run.delivery_count,)) * size
        self._locks[begin:end] = [run.lock] * size


_TERMINAL_BYTES = bytes(TERMINAL)
_NO_COUNTS = array("H")
_NO_LOCKS: list[AcquisitionLock | None] = []


class InFlightRecords:
    """All batches by their first offset. They do not overlap."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: list[InFlightBatch] = []

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    def runs(self) -> Iterator[Run]:
        """All records, in the order of their offsets."""
        for batch in self._batches:
            yield from batch.runs(batch.first, batch.last)

    @property
    def oldest(self) -> InFlightBatch:
        return self._batches[0]

    @property
    def newest(self) -> InFlightBatch:
        return self._batches[-1]

    def add(self, batch: InFlightBatch) -> None:
        if not self._firsts or batch.first > self._firsts[-1]:
            self._firsts.append(batch.first)
            self._batches.append(batch)
            return
        at = bisect_left(self._firsts, batch.first)
        self._firsts.insert(at, batch.first)
        self._batches.insert(at, batch)

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at `offset` or before."""
        at = bisect_right(self._firsts, offset)
        return self._batches[at - 1] if at else None

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that begin between two offsets (inclusive)."""
        return self._batches[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that have one of the offsets (inclusive)."""
        at = bisect_right(self._firsts, first)
        if at and self._batches[at - 1].last >= first:
            at -= 1
        return self._batches[at : bisect_right(self._firsts, last)]

    def drop_below(self, offset: int) -> None:
        """Forget the batches that end before `offset`."""
        count = 0
        for batch in self._batches:
            if batch.last >= offset:
                break
            count += 1
        del self._firsts[:count], self._batches[:count]


GAP = 0
ACCEPT = 1
RELEASE = 2
REJECT = 3
RENEW = 4


class Acknowledgement(NamedTuple):
    """The word of a member about the offsets `first` to `last` (inclusive): one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def cut(self, run: Run) -> Iterator[tuple[Run, int]]:
        """The parts of a run that are acknowledged alike, each with its type."""
        if len(self.types) == 1:
            yield run, self.types[0]
            return
        first = run.first
        low = first - self.first
        for kind, alike in groupby(self.types[low : low + run.last - first + 1]):
            last = first + sum(1 for _ in alike) - 1
            yield run._replace(first=first, last=last), kind
            first = last + 1


class ShareCounts:
    """Numbers of records of a share partition by their outcome, since this broker leads it. They outlive the share
    partition in memory, which is dropped when its group has no session: a test, or a console, asks for them when the
    workers are gone. `released` are those that became available again, given back or after their lock."""

    __slots__ = ("acknowledged", "archived", "batch_sizes", "lock_timeouts", "released")

    def __init__(self) -> None:
        self.acknowledged = 0
        self.archived = 0  # rejected, delivered too often, aborted, deleted from the log, or never there
        self.released = 0
        self.lock_timeouts = 0
        self.batch_sizes = LatestValues()  # of records that were acquired for the first time together

    def add(self, state: int, count: int) -> None:
        """Acquired or available records have come to `state`."""
        if state == ACKNOWLEDGED:
            self.acknowledged += count
        elif state == ARCHIVED:
            self.archived += count
        else:
            self.released += count
