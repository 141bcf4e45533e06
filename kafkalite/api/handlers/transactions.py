"""Transactions: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, DescribeProducers,
DescribeTransactions, ListTransactions. Translates messages to the transaction coordinator's values.

The coordinator answers with the error codes of the newest version. Versions before 2 do not know PRODUCER_FENCED, and
get INVALID_PRODUCER_EPOCH instead.
Source: KafkaApis.handleAddPartitionsToTxnRequest, handleAddOffsetsToTxnRequest, handleWriteTxnMarkersRequest,
handleDescribeProducersRequest, handleDescribeTransactionsRequest, handleListTransactionsRequest (3.9),
handleEndTxnRequest (4.0 for version 5); TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from kafkalite.api.request.request_context import (
    TOPIC,
    TRANSACTIONAL_ID,
    PendingResponse,
    RequestContext,
    Runtime,
    refusal,
)
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.linear_regex import LinearRegex
from kafkalite.common.log_lines import RateLimitedLogger
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import INTERNAL_TOPICS, TopicPartition, topic_name_fault
from kafkalite.coordinator.marker_writer import MarkerAppender, TransactionMarker
from kafkalite.coordinator.transaction.transaction import Transaction
from kafkalite.coordinator.transaction.transaction_state import EndTransactionResult, InitProducerIdResult
from kafkalite.coordinator.transaction_coordinator import ProducerIdManager, TransactionCoordinator
from kafkalite.protocol.messages import transactions as wire
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.security.acl.acl import Operation

FIRST_VERSION_WITH_FENCED = 2
FIRST_VERSION_OF_BROKERS = 4  # of AddPartitionsToTxn
FIRST_VERSION_WITH_EPOCH_BUMP = 5  # of EndTxn: its client uses transaction.version 2


def known_error(error: ErrorCode, version: int, first_with_fenced: int = FIRST_VERSION_WITH_FENCED) -> ErrorCode:
    """The code for a client that speaks `version`."""
    if error == ErrorCode.PRODUCER_FENCED and version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


NONE = -1  # no producer id, or no epoch
FIRST_INIT_WITH_FENCED = 4


class TransactionApi(NamedTuple):
    """The APIs of transactions and producer ids. `error_log` is for errors that clients may cause repeatedly."""

    runtime: Runtime
    replica_manager: ReplicaManager
    transactions: TransactionCoordinator
    producer_ids: ProducerIdManager
    markers: MarkerAppender
    error_log: RateLimitedLogger

    def add_offsets_to_txn(
        self, request: wire.AddOffsetsToTxnRequest, context: RequestContext
    ) -> wire.AddOffsetsToTxnResponse | Awaitable[wire.AddOffsetsToTxnResponse]:
        version = context.api_version

        def render(error: ErrorCode) -> wire.AddOffsetsToTxnResponse:
            return wire.AddOffsetsToTxnResponse(error_code=known_error(error, version))

        pending = PendingResponse(render)
        self.transactions.add_offsets(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id, pending
        )
        return pending.outcome(self.runtime.loop)

    def end_txn(
        self, request: wire.EndTxnRequest, context: RequestContext
    ) -> wire.EndTxnResponse | Awaitable[wire.EndTxnResponse]:
        version = context.api_version

        def render(result: EndTransactionResult) -> wire.EndTxnResponse:
            return wire.EndTxnResponse(
                error_code=known_error(result.error, version),
                producer_id=result.producer_id,
                producer_epoch=result.producer_epoch,
            )

        pending = PendingResponse(render)
        self.transactions.end_transaction(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            pending,
            commit=request.committed,
            transaction_version=2 if version >= FIRST_VERSION_WITH_EPOCH_BUMP else 0,
        )
        return pending.outcome(self.runtime.loop)

    def add_partitions_to_txn(
        self, request: wire.AddPartitionsToTxnRequest, context: RequestContext
    ) -> wire.AddPartitionsToTxnResponse | Awaitable[wire.AddPartitionsToTxnResponse]:
        """Clients add the partitions of one transaction; brokers add or verify those of several."""
        is_of_broker = context.api_version >= FIRST_VERSION_OF_BROKERS
        if is_of_broker and not context.may_cluster(Operation.CLUSTER_ACTION):
            return wire.AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        transactions = request.transactions if is_of_broker else [_of_client(request)]
        if not transactions:
            return wire.AddPartitionsToTxnResponse()

        def render(results: list[wire.AddPartitionsToTxnResult]) -> wire.AddPartitionsToTxnResponse:
            if is_of_broker:
                return wire.AddPartitionsToTxnResponse(results_by_transaction=results)
            return wire.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)

        pending = PendingResponse(render)
        results = _GatheredResults(len(transactions), pending.answer)
        for number, transaction in enumerate(transactions):
            self._add_partitions(context, _TransactionWaiter(number, transaction, context.api_version, results))
        return pending.outcome(self.runtime.loop)

    def _add_partitions(self, context: RequestContext, waiter: _TransactionWaiter) -> None:
        """Add or verify the partitions of one transaction: all of them, or none if one does not exist, or the client
        may not write to it."""
        transaction, partitions, exists = waiter.transaction, waiter.partitions, self.replica_manager.exists
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
            waiter.answer_each(self.transactions.verify_partitions(*identity, partitions))
        else:
            self.transactions.add_partitions(*identity, partitions, waiter)

    def write_txn_markers(
        self, request: wire.WriteTxnMarkersRequest, context: RequestContext
    ) -> wire.WriteTxnMarkersResponse | Awaitable[wire.WriteTxnMarkersResponse]:
        """Append markers to partitions that are led here, for the coordinator of another broker. The response waits
        until all of them are committed. Markers of one producer are answered together, as by Kafka."""
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
            return wire.WriteTxnMarkersResponse()
        for marker, partition in appends:
            errors.setdefault(marker.producer_id, {})[partition] = ErrorCode.NONE  # in the order of the request
            self.markers.append(
                partition,
                TransactionMarker(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    marker.transaction_result,
                    marker.transaction_version,
                ),
                partial(on_append, marker.producer_id, partition),
            )
        return pending.outcome(self.runtime.loop)

    def describe_producers(
        self, request: wire.DescribeProducersRequest, context: RequestContext
    ) -> wire.DescribeProducersResponse:
        topics = []
        for topic, is_allowed in context.refused_last(Operation.READ, TOPIC, request.topics):
            error = self._topic_error(topic.name) if is_allowed else refusal(TOPIC)
            partitions = [self._described_partition(topic.name, index, error) for index in topic.partition_indexes]
            topics.append(wire.DescribeProducersTopic(name=topic.name, partitions=partitions))
        return wire.DescribeProducersResponse(topics=topics)

    def _topic_error(self, name: str) -> KafkaError | None:
        if (fault := topic_name_fault(name)) is not None:
            return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if not self.replica_manager.partition_count(name):
            return KafkaError.in_kafkas_words(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return None

    def _described_partition(self, topic: str, index: int, error: KafkaError | None) -> wire.DescribeProducersPartition:
        if error is not None:
            return wire.DescribeProducersPartition(
                partition_index=index, error_code=error.code, error_message=error.message
            )
        try:
            producers = self._replica(topic, index).producers.active()
        except KafkaError as reason:
            return wire.DescribeProducersPartition(partition_index=index, error_code=reason.code)
        return wire.DescribeProducersPartition(
            partition_index=index,
            active_producers=[
                wire.DescribedProducer(
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    last_sequence=each.last_sequence,
                    last_timestamp=each.last_timestamp_ms,
                    coordinator_epoch=each.coordinator_epoch,
                    current_txn_start_offset=each.txn_first_offset,
                )
                for each in producers
            ],
        )

    def _replica(self, topic: str, index: int) -> Partition:
        """The partition, led here or followed. Raises KafkaError."""
        found = self.replica_manager.by_name.get(topic)
        follower = found.followers.get(index) if found is not None else None
        return self.replica_manager.require(topic, index) if follower is None else follower

    def describe_transactions(
        self, request: wire.DescribeTransactionsRequest, context: RequestContext
    ) -> wire.DescribeTransactionsResponse:
        named = context.refused_last(Operation.DESCRIBE, TRANSACTIONAL_ID, request.transactional_ids, str)
        described = [self._described_transaction(context, *each) for each in named]
        return wire.DescribeTransactionsResponse(transaction_states=described)

    def _described_transaction(
        self, context: RequestContext, transactional_id: str, is_allowed: bool
    ) -> wire.DescribedTransaction:
        """The description of a transaction, with the topics that the client may describe."""
        if not is_allowed:
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return wire.DescribedTransaction(transactional_id=transactional_id, error_code=error)
        transaction, error = self.transactions.describe(transactional_id)
        if transaction is None:
            error = error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return wire.DescribedTransaction(transactional_id=transactional_id, error_code=error)
        topics: dict[str, wire.DescribedTransactionTopic] = {}
        for name, index in sorted(transaction.partitions):
            if context.may(Operation.DESCRIBE, TOPIC, name, is_logged=False):
                topics.setdefault(name, wire.DescribedTransactionTopic(topic=name)).partitions.append(index)
        return wire.DescribedTransaction(
            transactional_id=transactional_id,
            transaction_state=transaction.state.value,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=list(topics.values()),
        )

    def list_transactions(
        self, request: wire.ListTransactionsRequest, context: RequestContext
    ) -> wire.ListTransactionsResponse | Awaitable[wire.ListTransactionsResponse]:
        error, unknown_states, transactions = self.transactions.list_transactions(
            frozenset(request.state_filters), frozenset(request.producer_id_filters), request.duration_filter
        )
        if request.transactional_id_pattern and not error:
            try:
                pattern = LinearRegex(request.transactional_id_pattern)
            except ValueError:
                return wire.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
            return self._list_matching(pattern, unknown_states, transactions, context)
        return self._listed(error, unknown_states, transactions, context)

    async def _list_matching(
        self,
        pattern: LinearRegex,
        unknown_states: Sequence[str],
        transactions: Sequence[Transaction],
        context: RequestContext,
    ) -> wire.ListTransactionsResponse:
        matching = set(await pattern.select([each.transactional_id for each in transactions]))
        found = [each for each in transactions if each.transactional_id in matching]
        return self._listed(ErrorCode.NONE, unknown_states, found, context)

    def _listed(
        self,
        error: ErrorCode,
        unknown_states: Sequence[str],
        transactions: Sequence[Transaction],
        context: RequestContext,
    ) -> wire.ListTransactionsResponse:
        return wire.ListTransactionsResponse(
            error_code=error,
            unknown_state_filters=list(unknown_states),
            transaction_states=[
                wire.ListedTransaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.value,
                )
                for each in transactions
                if context.may(Operation.DESCRIBE, TRANSACTIONAL_ID, each.transactional_id, is_logged=False)
            ],
        )

    def init_producer_id(
        self, request: wire.InitProducerIdRequest, context: RequestContext
    ) -> wire.InitProducerIdResponse | Awaitable[wire.InitProducerIdResponse]:
        if (refused := _refusal(context, request.transactional_id)) is not None:
            return _refused(refused)
        has_id, has_epoch = request.producer_id != NONE, request.producer_epoch != NONE
        if request.transactional_id == "" or has_id != has_epoch:  # KIP-360: both or neither
            return _refused(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            return self._transactional(request.transactional_id, request, context.api_version)
        producer_id = self.producer_ids.try_next()
        if producer_id is None:
            return self._from_next_block()
        return wire.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    def _transactional(
        self, transactional_id: str, request: wire.InitProducerIdRequest, version: int
    ) -> wire.InitProducerIdResponse | Awaitable[wire.InitProducerIdResponse]:
        def render(result: InitProducerIdResult) -> wire.InitProducerIdResponse:
            return wire.InitProducerIdResponse(
                error_code=known_error(result.error, version, FIRST_INIT_WITH_FENCED),
                producer_id=result.producer_id,
                producer_epoch=result.producer_epoch,
            )

        expected = (request.producer_id, request.producer_epoch) if request.producer_id != NONE else None
        pending = PendingResponse(render)
        self.transactions.init_producer_id(transactional_id, request.transaction_timeout_ms, expected, pending)
        return pending.outcome(self.runtime.loop)

    async def _from_next_block(self) -> wire.InitProducerIdResponse:
        try:
            return wire.InitProducerIdResponse(producer_id=await self.producer_ids.next(), producer_epoch=0)
        except KafkaError as error:
            self.error_log.about("producer ids", str(error), f"none can be given: {error}")
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class _GatheredResults:
    """Calls `complete` with the results in the order of the request when all have arrived."""

    __slots__ = ("_complete", "_missing", "_results")

    def __init__(self, count: int, complete: Callable[[list[wire.AddPartitionsToTxnResult]], None]) -> None:
        self._results = [wire.AddPartitionsToTxnResult() for _ in range(count)]
        self._missing = count
        self._complete = complete

    def set(self, number: int, result: wire.AddPartitionsToTxnResult) -> None:
        self._results[number] = result
        self._missing -= 1
        if not self._missing:
            self._complete(self._results)


class _TransactionWaiter:
    """Receives the outcome for one transaction of a request: one error for all partitions, or an error for each."""

    __slots__ = ("_number", "_results", "partitions", "transaction", "version")

    def __init__(
        self, number: int, transaction: wire.AddPartitionsToTxnTransaction, version: int, results: _GatheredResults
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
            wire.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    wire.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=errors[topic.name, index]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in self.transaction.topics
        ]
        transactional_id = self.transaction.transactional_id
        self._results.set(
            self._number, wire.AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)
        )


def _of_client(request: wire.AddPartitionsToTxnRequest) -> wire.AddPartitionsToTxnTransaction:
    return wire.AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _written_markers(errors: Mapping[int, Mapping[TopicPartition, ErrorCode]]) -> wire.WriteTxnMarkersResponse:
    markers = []
    for producer_id, of_producer in errors.items():
        topics: dict[str, wire.WritableTxnMarkerTopicResult] = {}
        for (name, index), error in of_producer.items():
            topic = topics.setdefault(name, wire.WritableTxnMarkerTopicResult(name=name))
            topic.partitions.append(wire.WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
        markers.append(wire.WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values())))
    return wire.WriteTxnMarkersResponse(markers=markers)


def _refusal(context: RequestContext, transactional_id: str | None) -> ErrorCode | None:
    """The error for a client that may write neither with this id nor, without one, in some topic (KIP-679)."""
    if transactional_id is not None:
        is_allowed = context.may(Operation.WRITE, TRANSACTIONAL_ID, transactional_id)
        return None if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    access, idempotent = context.access, Operation.IDEMPOTENT_WRITE
    is_allowed = (
        access is None
        or context.may_cluster(idempotent, is_logged=False)
        or access.allows_any(context.connection, Operation.WRITE, TOPIC)
        or context.may_cluster(idempotent)  # logs the refusal
    )
    return None if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _refused(error: ErrorCode) -> wire.InitProducerIdResponse:
    return wire.InitProducerIdResponse(error_code=error, producer_id=NONE, producer_epoch=NONE)
