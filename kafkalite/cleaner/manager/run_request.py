"""A request to clean partitions of a topic now, as `kafkalite cleaner run` makes it."""

from __future__ import annotations

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
