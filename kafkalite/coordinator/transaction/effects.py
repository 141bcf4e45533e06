"""The effects of a transaction's decisions, as values: tests compare lists, the coordinator performs them in order."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeVar

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.transaction.transaction_metadata import NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata


class InitProducerIdResult(NamedTuple):
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class EndTransactionResult(NamedTuple):
    """With NONE: the id and epoch of the producer's next transaction."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


R = TypeVar("R", contravariant=True)


class Waiter(Protocol[R]):
    """Receives the result of a request. Its client may have left meanwhile."""

    def answer(self, result: R, /) -> None: ...


class Answer(NamedTuple):
    waiter: Waiter[Any]
    result: InitProducerIdResult | EndTransactionResult | ErrorCode


class AllocateProducerId(NamedTuple):
    """The only effect of a decision that needs a new producer id: allocate one and decide again with it."""


class ProducerIdStored(NamedTuple):
    """The producer's new id or epoch is on disk."""

    waiter: Waiter[InitProducerIdResult]


class PartitionsStored(NamedTuple):
    """The partitions of the transaction are on disk; records may be appended to them."""

    waiter: Waiter[ErrorCode]


class EndStored(NamedTuple):
    """The outcome of the transaction is on disk; the markers may be written."""

    waiter: Waiter[EndTransactionResult]


class FenceStored(NamedTuple):
    """The producer is fenced and its transaction aborted: by a new producer, which waits, or (None) by the time-out."""

    waiter: Waiter[InitProducerIdResult] | None


class CompletionStored(NamedTuple):
    """The completion is on disk: all markers are written."""


Then = ProducerIdStored | PartitionsStored | EndStored | FenceStored | CompletionStored


class Append(NamedTuple):
    """Write a record of `metadata`, then call the transaction's `on_append` with `then`."""

    metadata: TransactionMetadata
    then: Then


class AppendLater(NamedTuple):
    """As `Append`, after a pause: the last try has failed, and no request waits that could be told so."""

    metadata: TransactionMetadata
    then: Then


class SendMarkers(NamedTuple):
    """Write a marker to each partition, and report each to `on_marker_written`."""

    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]


Effect = Answer | AllocateProducerId | Append | AppendLater | SendMarkers
