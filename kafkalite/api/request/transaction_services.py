"""The transaction coordinator as the handlers see it: values in, results through a waiter or at once.

Error codes are those of the newest versions; the handlers map them for older ones.
Source: kafka.coordinator.transaction.TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition


class ProducerIdentity(Protocol):
    """The result of InitProducerId and EndTxn: a producer id and its epoch, both -1 with an error."""

    @property
    def error(self) -> ErrorCode: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...


class IdentityWaiter(Protocol):
    """Receives the result of InitProducerId or EndTxn."""

    def answer(self, result: ProducerIdentity, /) -> None: ...


class ErrorWaiter(Protocol):
    """Receives the outcome of AddPartitionsToTxn or AddOffsetsToTxn."""

    def answer(self, result: ErrorCode, /) -> None: ...


class TransactionState(Protocol):
    """The state of a transactional id; `value` is Kafka's name."""

    @property
    def value(self) -> str: ...


class Transaction(Protocol):
    """A transactional id with its current transaction."""

    @property
    def transactional_id(self) -> str: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def state(self) -> TransactionState: ...
    @property
    def timeout_ms(self) -> int: ...
    @property
    def start_ms(self) -> int: ...
    @property
    def partitions(self) -> Collection[TopicPartition]: ...


class TransactionCoordinator(Protocol):
    """All transactional ids whose partition of __transaction_state is led here."""

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None, waiter: IdentityWaiter, /
    ) -> None: ...

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        waiter: ErrorWaiter,
        /,
    ) -> None: ...

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition], /
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str, waiter: ErrorWaiter, /
    ) -> None: ...

    def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        waiter: IdentityWaiter,
        /,
        *,
        commit: bool,
        transaction_version: int,
    ) -> None: ...

    def describe(self, transactional_id: str, /) -> tuple[Transaction | None, ErrorCode]: ...

    def list_transactions(
        self, states: Collection[str], producer_ids: Collection[int], min_duration_ms: int, /
    ) -> tuple[ErrorCode, Sequence[str], Sequence[Transaction]]: ...


class MarkerAppender(Protocol):
    """Appends a transaction marker to a partition that is led here; `done` gets the outcome when it is committed."""

    def __call__(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        done: Callable[[ErrorCode], None],
        /,
    ) -> None: ...
