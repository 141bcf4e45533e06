"""The records of a share partition that are in flight: between its start offset and the last acquired one.

They are kept in the batches in which they were first acquired. A batch is whole while all of its records have one
state; when an acquisition or an acknowledgement is of a part of it, it keeps a state for each offset, in columns: 11
bytes an offset. Whole or not, a reader sees runs: consecutive offsets of one batch that are alike.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from kafkalite.common.named_tuple import NamedTuple

AVAILABLE = 0
ACQUIRED = 1
ACKNOWLEDGED = 2
ARCHIVED = 4
TERMINAL = frozenset((ACKNOWLEDGED, ARCHIVED))
# An acknowledgement that is not durable yet: the record is acquired still, and in the state that it will have.
_PENDING = 0x10


def pending(target: int) -> int:
    """The state of an acquired record that will be in state `target` once that is durable."""
    return _PENDING | target << 5


def is_pending(state: int) -> bool:
    return state & _PENDING != 0


def is_done(state: int) -> bool:
    """Whether the record is in a terminal state, or will be once that is durable."""
    return (state >> 5 if state & _PENDING else state) in TERMINAL


class AcquisitionLock:
    """Records acquired at one time by one member, until `deadline_ms` of the monotonic clock."""

    __slots__ = ("deadline_ms", "first", "last", "member_id")

    def __init__(self, member_id: str, deadline_ms: int, first: int, last: int) -> None:
        self.member_id = member_id
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

    __slots__ = ("_counts", "_locks", "_states", "first", "last")

    def __init__(self, first: int, last: int, state: int, delivery_count: int, lock: AcquisitionLock | None) -> None:
        self.first = first
        self.last = last
        # One element for all offsets, or one for each.
        self._states = bytearray((state,))
        self._counts = array("H", (delivery_count,))
        self._locks = [lock]

    @property
    def is_whole(self) -> bool:
        """Whether all offsets are known to be alike."""
        return len(self._states) == 1

    def split(self) -> None:
        """Keep a state for each offset from now on."""
        if len(self._states) == 1:
            size = self.last - self.first + 1
            self._states *= size
            self._counts *= size
            self._locks *= size

    def run_at(self, offset: int) -> Run:
        """The state of one offset, as a run of its own; of the whole batch where it is whole."""
        if len(self._states) == 1:
            return Run(self.first, self.last, self._states[0], self._counts[0], self._locks[0])
        at = offset - self.first
        return Run(offset, offset, self._states[at], self._counts[at], self._locks[at])

    def runs(self, first: int, last: int) -> Iterator[Run]:
        """The runs between two offsets (inclusive), cut at them. Later changes of what was yielded are not seen."""
        low, high = max(first, self.first), min(last, self.last)
        if low > high:
            return
        states, counts, locks = self._states, self._counts, self._locks
        if len(states) == 1:
            yield Run(low, high, states[0], counts[0], locks[0])
            return
        base = self.first
        begin, end = low - base, high - base + 1
        state, count, lock = states[begin], counts[begin], locks[begin]
        for at in range(begin + 1, end):
            if states[at] != state or counts[at] != count or locks[at] is not lock:
                yield Run(base + begin, base + at - 1, state, count, lock)
                begin, state, count, lock = at, states[at], counts[at], locks[at]
        yield Run(base + begin, base + end - 1, state, count, lock)

    def assign(self, run: Run) -> None:
        """Give the offsets of `run` its state, delivery count and lock. A part of a whole batch splits it."""
        if len(self._states) == 1:
            if run.first <= self.first and run.last >= self.last:
                self._states[0], self._counts[0], self._locks[0] = run.state, run.delivery_count, run.lock
                return
            self.split()
        begin, end = run.first - self.first, run.last - self.first + 1
        size = end - begin
        self._states[begin:end] = bytes((run.state,)) * size
        self._counts[begin:end] = array("H", (run.delivery_count,)) * size
        self._locks[begin:end] = [run.lock] * size


class InFlightRecords:
    """All batches by their first offset. They do not overlap."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: list[InFlightBatch] = []

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

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
