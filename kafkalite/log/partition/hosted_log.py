"""The log of a partition as the rest of the broker uses it: a `PartitionLog`, or an `OfflineLog` that refuses."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from kafkalite.common.region import FileRegion
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.append_result import AppendResult
from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.log_transactions import LogTransactions
from kafkalite.log.segment.record_counting import Tally
from kafkalite.log.segment.record_counts import LogCounts
from kafkalite.log.segment.segment import Segment
from kafkalite.log.segment.timestamp_lookup import TimeLookup
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.log.state.transaction_verification import VerificationGuard
from kafkalite.record.validation.replica_validation import EPOCH_MAX


class HostedLog(Protocol):
    """If the log is offline, everything but its name and `failure` raises StorageError."""

    topic: str
    partition: int
    directory: str
    start_offset: int
    end_offset: int
    replicated_offset: int
    config: TopicConfig
    flusher: Flusher
    epochs: LeaderEpochCache
    producers: ProducerState
    transactions: LogTransactions
    on_new_start: Callable[[], None]

    @property
    def active_base(self) -> int: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def segments(self) -> Sequence[Segment]: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def topic_id(self) -> uuid.UUID | None: ...

    def append(
        self, records: memoryview, leader_epoch: int, now_ms: int, produce_version: int = 9, trusted: bool = False,
        transactional: bool = False, guard: VerificationGuard | None = None,
    ) -> AppendResult: ...  # fmt: skip
    def append_as_follower(self, records: memoryview, now_ms: int, leader_epoch: int = EPOCH_MAX) -> int: ...
    def assign_epoch(self, leader_epoch: int) -> None: ...
    def read(self, offset: int, max_bytes: int, limit_offset: int, min_one: bool = True) -> FileRegion | None: ...
    def bytes_between(self, offset: int, limit_offset: int) -> int | None: ...
    def has_base_in(self, from_offset: int, to_offset: int) -> bool: ...
    def batches(self, from_offset: int) -> Iterator[memoryview]: ...
    def lookup_of_timestamp(self, timestamp_ms: int, limit_offset: int) -> TimeLookup: ...
    def lookup_of_max_timestamp(self, limit_offset: int) -> TimeLookup: ...
    def counts(self) -> LogCounts: ...
    def known_counts(self) -> Tally | None: ...
    def roll(self, now_ms: int) -> bool: ...
    def delete_records_before(self, offset: int) -> None: ...
    def truncate_to(self, offset: int) -> None: ...
    def restart_at(self, offset: int) -> None: ...
