"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers: translates messages to the coordinator's values.

The coordinator answers with the error codes of the newest version. Versions before 2 do not know PRODUCER_FENCED, and
get INVALID_PRODUCER_EPOCH instead.
Source: KafkaApis.handleAddPartitionsToTxnRequest, handleAddOffsetsToTxnRequest, handleEndTxnRequest,
handleWriteTxnMarkersRequest (3.9; handleEndTxnRequest of 4.0 for version 5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.api.request.access import TOPIC, TRANSACTIONAL_ID
from kafkalite.api.request.pending_response import PendingResponse
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import INTERNAL_TOPICS, TopicPartition
from kafkalite.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkalite.security.acl.acl import Operation

if TYPE_CHECKING:
    from kafkalite.coordinator.transaction.transaction_state import EndTransactionResult

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_OF_BROKERS = 4  # of AddPartitionsToTxn
FIRST_VERSION_WITH_EPOCH_BUMP = 5  # of EndTxn: its client uses transaction.version 2


def known_error(error: ErrorCode, version: int, first_with_fenced: int = FIRST_VERSION_WITH_FENCED) -> ErrorCode:
    """The code for a client that speaks `version`."""
    if error == ErrorCode.PRODUCER_FENCED and version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def add_offsets_to_txn(
    services: Services, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    version = context.api_version

    def render(error: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=known_error(error, version))

    pending = PendingResponse(render)
    services.transactions.add_offsets(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id, pending
    )
    return pending.outcome(services.runtime.loop)


def end_txn(
    services: Services, request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    version = context.api_version

    def render(result: EndTransactionResult) -> EndTxnResponse:
        return EndTxnResponse(
            error_code=known_error(result.error, version),
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
        )

    pending = PendingResponse(render)
    services.transactions.end_transaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        pending,
        commit=request.committed,
        transaction_version=2 if version >= FIRST_VERSION_WITH_EPOCH_BUMP else 0,
    )
    return pending.outcome(services.runtime.loop)


# --- AddPartitionsToTxn


def add_partitions_to_txn(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    """Clients add the partitions of one transaction; brokers add or verify those of several."""
    is_of_broker = context.api_version >= FIRST_VERSION_OF_BROKERS
    if is_of_broker and not context.may_cluster(Operation.CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    transactions = request.transactions if is_of_broker else [_of_client(request)]
    if not transactions:
        return AddPartitionsToTxnResponse()

    def render(results: list[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
        if is_of_broker:
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)

    pending = PendingResponse(render)
    results = _GatheredResults(len(transactions), pending.answer)
    for number, transaction in enumerate(transactions):
        _add_partitions(services, context, _TransactionWaiter(number, transaction, context.api_version, results))
    return pending.outcome(services.runtime.loop)


class _GatheredResults:
    """Calls `tell` with the results in the order of the request when all have arrived."""

    __slots__ = ("_missing", "_results", "_tell")

    def __init__(self, count: int, tell: Callable[[list[AddPartitionsToTxnResult]], None]) -> None:
        self._results = [AddPartitionsToTxnResult() for _ in range(count)]
        self._missing = count
        self._tell = tell

    def set(self, number: int, result: AddPartitionsToTxnResult) -> None:
        self._results[number] = result
        self._missing -= 1
        if not self._missing:
            self._tell(self._results)


class _TransactionWaiter:
    """Receives the outcome for one transaction of a request: one error for all partitions, or an error for each."""

    __slots__ = ("_number", "_results", "partitions", "transaction", "version")

    def __init__(
        self, number: int, transaction: AddPartitionsToTxnTransaction, version: int, results: _GatheredResults
    ) -> None:
        self._number = number
        self._results = results
        self.transaction = transaction
        self.version = version
        self.partitions = dict.fromkeys(
            (topic.name, index) for topic in transaction.topics for index in topic.partitions
        )

    def answer(self, error: ErrorCode, /) -> None:
        self.answer_each(dict.fromkeys(self.partitions, known_error(error, self.version)))

    def answer_each(self, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        """Answer the topics and partitions of the request, also a topic without partitions or a partition twice."""
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=errors[topic.name, index]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in self.transaction.topics
        ]
        transactional_id = self.transaction.transactional_id
        self._results.set(
            self._number, AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)
        )


def _add_partitions(services: Services, context: RequestContext, waiter: _TransactionWaiter) -> None:
    """Add or verify the partitions of one transaction: all of them, or none if one does not exist, or the client may
    not write to it."""
    transaction, partitions, exists = waiter.transaction, waiter.partitions, services.replica_manager.exists
    errors = {each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in partitions if not exists(*each)}
    if waiter.version < FIRST_VERSION_OF_BROKERS:
        if not context.may(Operation.WRITE, TRANSACTIONAL_ID, transaction.transactional_id):
            waiter.answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        denied = set(INTERNAL_TOPICS)  # no client may write to these
        denied.update({each[0] for each in partitions if not context.may(Operation.WRITE, TOPIC, each[0])})
        errors.update({each: ErrorCode.TOPIC_AUTHORIZATION_FAILED for each in partitions if each[0] in denied})
    if errors:
        waiter.answer_each(dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | errors)
        return
    identity = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        waiter.answer_each(services.transactions.verify_partitions(*identity, partitions))
    else:
        services.transactions.add_partitions(*identity, partitions, waiter)


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


# --- WriteTxnMarkers


def write_txn_markers(
    services: Services, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    """Append markers to partitions that are led here, for the coordinator of another broker. The response waits until
    all of them are committed. Markers of one producer are answered together, as by Kafka."""
    pending = PendingResponse(_written_markers)
    errors: dict[int, dict[TopicPartition, ErrorCode]] = {}
    appends = [
        (marker, (topic.name, index))
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    missing = len(appends)

    def on_append(producer_id: int, partition: TopicPartition, error: ErrorCode) -> None:
        nonlocal missing
        errors[producer_id][partition] = error
        missing -= 1
        if not missing:
            pending.answer(errors)

    if not appends:
        return WriteTxnMarkersResponse()
    for marker, partition in appends:
        errors.setdefault(marker.producer_id, {})[partition] = ErrorCode.NONE  # in the order of the request
        services.markers.append(
            partition,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            partial(on_append, marker.producer_id, partition),
        )
    return pending.outcome(services.runtime.loop)


def _written_markers(errors: Mapping[int, Mapping[TopicPartition, ErrorCode]]) -> WriteTxnMarkersResponse:
    markers = []
    for producer_id, of_producer in errors.items():
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for (name, index), error in of_producer.items():
            topic = topics.setdefault(name, WritableTxnMarkerTopicResult(name=name))
            topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
        markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values())))
    return WriteTxnMarkersResponse(markers=markers)
