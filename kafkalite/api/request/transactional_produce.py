"""Verifies the transactional batches of a Produce request before they are appended (KIP-890).

A batch of a transaction that is open in its partition is appended at once. A batch that would open it waits until the
transaction's coordinator has confirmed the partition, or has added it (Produce 12). Each partition is answered by
itself: those that are refused have their errors, the others are appended.
Source: kafka.server.ReplicaManager.handleProduceAppend (3.9; for Produce 12 4.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.api.request.admission import ProduceAdmission, TopicAdmission, append_transactional
from kafkalite.api.request.pending_response import PendingResponse
from kafkalite.common.errors import COORDINATOR_MOVES, ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.record.batch import HEADER_BYTES, MAGIC, TRANSACTIONAL, parse_header

if TYPE_CHECKING:
    from collections.abc import Awaitable, Container

    from kafkalite.api.request.services import Services
    from kafkalite.log.partition.append_result import AppendResult
    from kafkalite.log.state.transaction_verification import VerificationGuard
    from kafkalite.protocol.messages.produce import ProduceRequest
    from kafkalite.replication.partition import Partition

FIRST_VERSION_THAT_ADDS = 12
FIRST_VERSION_WITH_ABORTABLE = 11
_PREFIX_BYTES = 12
_TRANSIENT = COORDINATOR_MOVES | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION}


class TransactionRefused(KafkaError):
    """A transactional batch is refused before its append. The message, if there is one, is for the client, too."""


class TransactionalBatch(NamedTuple):
    producer_id: int
    epoch: int
    first_sequence: int


class VerifiedAdmission:
    """The admission of one request, whose transactional batches are verified or refused."""

    __slots__ = ("_admission", "_errors", "_guards", "_version")

    def __init__(
        self,
        admission: ProduceAdmission,
        version: int,
        errors: dict[TopicPartition, KafkaError],
        guards: Mapping[TopicPartition, VerificationGuard],
    ) -> None:
        self._admission = admission
        self._version = version
        self._errors = errors
        self._guards = guards

    def with_errors(self, errors: Mapping[TopicPartition, ErrorCode]) -> VerifiedAdmission:
        """The admission with the errors of the coordinator."""
        for each, error in errors.items():
            self._errors[each] = _producers_error(error, self._version)
        return self

    def topic(self, name: str, acks: int, client_id: str | None, version: int) -> TopicAdmission | None:
        admitted = self._admission.topic(name, acks, client_id, version, partial(self._append, name))
        if admitted is not None and self._errors:
            admitted.append = partial(self._append_unless_refused, admitted)
        return admitted

    def _append(self, topic: str, partition: Partition, records: memoryview, now_ms: int, version: int) -> AppendResult:
        return append_transactional(partition, records, now_ms, version, self._guards.get((topic, partition.index)))

    def _append_unless_refused(
        self, admitted: TopicAdmission, partition: Partition, records: memoryview, now_ms: int, version: int
    ) -> AppendResult | None:
        error = self._errors.get((admitted.topic.name, partition.index))
        if error is not None:
            raise error
        return admitted.check_and_append(partition, records, now_ms, version)


def verify(
    services: Services, request: ProduceRequest, transactional_id: str, version: int, refused: Container[str] = ()
) -> VerifiedAdmission | Awaitable[VerifiedAdmission]:
    """The admission of `request` but its topics that are `refused`; an awaitable if the coordinator cannot answer at
    once. Raises TransactionRefused if the request has batches of several producers."""
    batches = {
        (topic.name, data.index): batch
        for topic in request.topic_data
        for data in topic.partition_data
        if topic.name not in refused and (batch := transactional_batch(data.records)) is not None
    }
    producers = {(batch.producer_id, batch.epoch) for batch in batches.values()}
    if len(producers) > 1:
        message = "Transactional records contained more than one producer ID"
        raise TransactionRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
    errors: dict[TopicPartition, KafkaError] = {}
    guards: dict[TopicPartition, VerificationGuard] = {}
    verified = VerifiedAdmission(services.produce_admission, version, errors, guards)
    adds = version >= FIRST_VERSION_THAT_ADDS
    if not (adds or services.config.transaction_partition_verification_enable):
        return verified

    def begin() -> bool:
        before = guards.copy()
        for (topic, index), batch in batches.items():
            try:
                guard = services.replica_manager.require(topic, index).begin_verification(*batch)
            except KafkaError as error:
                errors[topic, index] = error
            else:
                if guard is not None:
                    guards[topic, index] = guard
        return guards != before

    begin()
    if not guards:
        return verified
    pending = PendingResponse(verified.with_errors)
    ((producer_id, epoch),) = producers
    services.add_partitions.verify_or_add(
        transactional_id, producer_id, epoch, list(guards), adds, pending.answer, begin
    )
    return pending.outcome(services.runtime.loop)


def transactional_batch(records: memoryview | None) -> TransactionalBatch | None:
    """The identity of a transactional batch. None for other batches, and for bytes that are not exactly one batch: they
    will be refused."""
    if records is None or len(records) < HEADER_BYTES:
        return None
    _, length, _, magic, _, attributes, _, _, _, producer_id, epoch, sequence, _ = parse_header(records)
    if not attributes & TRANSACTIONAL or producer_id < 0 or magic != MAGIC or length + _PREFIX_BYTES != len(records):
        return None
    return TransactionalBatch(producer_id, epoch, sequence)


def _producers_error(error: ErrorCode, version: int) -> TransactionRefused:
    """The coordinator's error as the client's version knows it, so that the client retries where this may help."""
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        error = ErrorCode.INVALID_TXN_STATE
    if error == ErrorCode.INVALID_TXN_STATE:
        return TransactionRefused(error, "Partition was not added to the transaction")
    if error == ErrorCode.CONCURRENT_TRANSACTIONS and version >= FIRST_VERSION_THAT_ADDS:
        return TransactionRefused(error)
    if error in _TRANSIENT:
        message = "Unable to verify the partition has been added to the transaction. Underlying error: "
        return TransactionRefused(ErrorCode.NOT_ENOUGH_REPLICAS, message + error.name)
    return TransactionRefused(error)
