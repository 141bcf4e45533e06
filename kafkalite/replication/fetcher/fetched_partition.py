"""A partition as its fetcher sees it: it says what to ask the leader, and takes the answers.

The fetcher knows no logs. All methods return without a wait. Errors of the own disk are the partition's to handle: then
it asks no more.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Protocol

from kafkalite.common.errors import ErrorCode
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset
from kafkalite.replication.replica.follower_replica import AskEpochEnd, AskOffset, Fetch, FetchAnswer, Request


class FetchedPartition(Protocol):
    """`lag` is the number of committed records of the leader that are not here, None until its first answer. The
    fetcher sets `on_ready`, which is called when `next_request` may have another answer though nothing was answered.
    `is_being_added`: a reassignment adds the replica."""

    topic: str
    topic_id: uuid.UUID
    index: int
    leader_id: int
    lag: int | None
    is_being_added: bool
    on_ready: Callable[[], None]

    @property
    def end_offset(self) -> int:
        """The end of its log."""
        ...

    @property
    def is_failed(self) -> bool:
        """Whether it asks nothing until this broker gets another leader epoch."""
        ...

    @property
    def retry_at_ms(self) -> float:
        """No request before that time (monotonic)."""
        ...

    @property
    def throttled_replicas(self) -> tuple[str, ...]:
        """The topic's follower.replication.throttled.replicas."""
        ...

    def begin(self) -> None: ...
    def next_request(self, now_ms: float) -> Request | None: ...
    def on_fetch(
        self, sent: Fetch, answer: FetchAnswer, records: memoryview | None, now_ms: float, wall_ms: int
    ) -> int:
        """Takes the answer to a fetch; returns the bytes that were appended, 0 if they were refused."""
        ...

    def on_epoch_end(self, error: ErrorCode, end: EpochEndOffset, now_ms: float) -> None: ...
    def on_offset(self, sent: AskOffset, error: ErrorCode, offset: int, now_ms: float) -> None: ...
    def on_failure(self, error: ErrorCode, now_ms: float) -> None: ...


Asked = dict[FetchedPartition, AskEpochEnd] | dict[FetchedPartition, AskOffset]
"""The partitions of one request, each with its part."""
