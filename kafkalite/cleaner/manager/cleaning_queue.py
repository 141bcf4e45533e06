"""The queue of logs that wait for a worker, and the requests by name that wait for their outcome.

Logs that `kafkalite cleaner run` has named come first, then the due logs of the last scan, the filthiest first.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.cleaner.manager.cleaner_state import is_compacted
from kafkalite.common.errors import KafkaError
from kafkalite.common.names import TopicPartition

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanStats
    from kafkalite.log.partition.partition_log import PartitionLog


class RunOutcome(NamedTuple):
    """The outcome for one partition: `stats` of its last cleaning, or `why_not`: nothing was to be done, or `error`."""

    topic: str
    partition: int
    stats: CleanStats | None = None
    why_not: str | None = None
    error: str | None = None


Done = Callable[[list[RunOutcome]], None]


class RunRequest:
    """`done` is called once, when the last partition has its outcome, with all of them in the order of partitions."""

    def __init__(self, keys: Iterable[TopicPartition], done: Done) -> None:
        self._left = set(keys)
        self._outcomes: list[RunOutcome] = []
        self._done = done
        if not self._left:
            done([])

    def tell(self, outcome: RunOutcome) -> None:
        self._left.discard((outcome.topic, outcome.partition))
        self._outcomes.append(outcome)
        if not self._left:
            self._done(sorted(self._outcomes, key=lambda one: one.partition))


class QueueEntry:
    """`requests` wait for the outcome of this entry's cleaning; a later request gets an entry of its own. `is_durable`:
    its dirty range has been flushed."""

    __slots__ = ("dirty_ratio", "is_durable", "key", "requests")

    def __init__(self, key: TopicPartition, dirty_ratio: float = 0.0, *, is_durable: bool = False) -> None:
        self.key = key
        self.dirty_ratio = dirty_ratio
        self.is_durable = is_durable
        self.requests: list[RunRequest] = []

    def tell(self, outcome: RunOutcome) -> None:
        """Answers the requests."""
        requests, self.requests = self.requests, []
        for request in requests:
            request.tell(outcome)


class CleaningQueue:
    """An entry that was taken stays known until `finish` or `put_back`: no other of its log is taken meanwhile."""

    def __init__(self) -> None:
        self._requested: dict[TopicPartition, QueueEntry] = {}  # in order
        self._due: list[QueueEntry] = []  # the filthiest last
        self._taken: dict[TopicPartition, QueueEntry] = {}

    @property
    def is_empty(self) -> bool:
        return not (self._requested or self._due)

    def replace_due(self, due: Iterable[tuple[float, TopicPartition]]) -> list[TopicPartition]:
        """Replace the findings of the last scan, by (dirty ratio, log); the logs that wait now."""
        durable = {entry.key for entry in self._due if entry.is_durable}
        self._due = [QueueEntry(key, ratio, is_durable=key in durable) for ratio, key in due if key not in self._taken]
        self._due.sort(key=_filth)
        return [entry.key for entry in self._due]

    def request(self, key: TopicPartition, request: RunRequest) -> None:
        self._requested.setdefault(key, QueueEntry(key)).requests.append(request)

    def take(self) -> QueueEntry | None:
        """The next entry whose log is not taken already."""
        for key in self._requested:
            if key not in self._taken:
                return self._take(self._requested.pop(key))
        while self._due:
            entry = self._due.pop()
            if entry.key not in self._taken:
                return self._take(entry)
        return None

    def _take(self, entry: QueueEntry) -> QueueEntry:
        self._taken[entry.key] = entry
        return entry

    def put_back(self, entry: QueueEntry, *, is_durable: bool = False) -> None:
        """Its log needs another turn: the first one, or behind other requests if it was FLUSHING."""
        key = entry.key
        self._taken.pop(key, None)
        entry.is_durable = is_durable
        later = self._requested.pop(key, None)
        if later is not None:
            entry.requests += later.requests
        if not entry.requests:
            insort(self._due, entry, key=_filth)
        elif is_durable:
            self._requested[key] = entry
        else:
            self._requested = {key: entry, **self._requested}

    def finish(self, entry: QueueEntry) -> None:
        """Its cleaning has ended, so that another entry of its log may be taken."""
        self._taken.pop(entry.key, None)

    def clear(self, reason: str) -> None:
        """Empties the queue and answers all requests, also of taken entries."""
        entries = [*self._taken.values(), *self._requested.values()]
        self._requested = {}
        self._due = []
        for entry in entries:
            entry.tell(RunOutcome(*entry.key, error=reason))


def _filth(entry: QueueEntry) -> tuple[float, TopicPartition]:
    return entry.dirty_ratio, entry.key


def refusal(log: PartitionLog | None, roll: bool, now_ms: int) -> str | None:
    """The reason why the log cannot be cleaned at all, or None; then the log is rolled if requested."""
    if log is None:
        return "there is no such partition, or it is offline"
    if not is_compacted(log):
        return f"it is not compacted: its cleanup.policy is {','.join(log.config.cleanup_policy)}"
    if log.failure is not None:
        return log.failure
    try:
        if roll:
            log.roll(now_ms)
    except KafkaError as error:
        return str(error)
    return None
