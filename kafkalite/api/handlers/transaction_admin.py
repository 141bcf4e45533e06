"""DescribeProducers, DescribeTransactions, ListTransactions: the producers of partitions and the transactions here.

Source: KafkaApis.handleDescribeProducersRequest, handleDescribeTransactionsRequest, handleListTransactionsRequest
(3.9).
"""

from __future__ import annotations

from kafkalite.api.request.access import TOPIC, TRANSACTIONAL_ID, refusal
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import topic_name_fault
from kafkalite.protocol.messages.transaction_admin import (
    DescribedProducer,
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafkalite.replication.partition import Partition
from kafkalite.security.acl.acl import Operation

_UNKNOWN_TOPIC = "This server does not host this topic-partition."  # Kafka's words; clients show them


def describe_producers(
    services: Services, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    topics = []
    for topic, is_allowed in context.refused_last(Operation.READ, TOPIC, request.topics):
        error = _topic_error(services, topic.name) if is_allowed else refusal(TOPIC)
        partitions = [_described_partition(services, topic.name, index, error) for index in topic.partition_indexes]
        topics.append(DescribeProducersTopic(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _topic_error(services: Services, name: str) -> KafkaError | None:
    if (fault := topic_name_fault(name)) is not None:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if not services.replica_manager.partition_count(name):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC)
    return None


def _described_partition(
    services: Services, topic: str, index: int, error: KafkaError | None
) -> DescribeProducersPartition:
    if error is not None:
        return DescribeProducersPartition(partition_index=index, error_code=error.code, error_message=error.message)
    try:
        producers = _replica(services, topic, index).active_producers()
    except KafkaError as reason:
        return DescribeProducersPartition(partition_index=index, error_code=reason.code)
    return DescribeProducersPartition(
        partition_index=index,
        active_producers=[
            DescribedProducer(
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


def _replica(services: Services, topic: str, index: int) -> Partition:
    """The partition, led here or followed. Raises KafkaError."""
    found = services.replica_manager.by_name.get(topic)
    follower = found.followers.get(index) if found is not None else None
    return services.replica_manager.require(topic, index) if follower is None else follower


def describe_transactions(
    services: Services, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    named = context.refused_last(Operation.DESCRIBE, TRANSACTIONAL_ID, request.transactional_ids, str)
    described = [_described_transaction(services, context, *each) for each in named]
    return DescribeTransactionsResponse(transaction_states=described)


def _described_transaction(
    services: Services, context: RequestContext, transactional_id: str, is_allowed: bool
) -> DescribedTransaction:
    """The description of a transaction, with the topics that the client may describe."""
    if not is_allowed:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return DescribedTransaction(transactional_id=transactional_id, error_code=error)
    transaction, error = services.transactions.describe(transactional_id)
    if transaction is None:
        error = error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribedTransaction(transactional_id=transactional_id, error_code=error)
    topics: dict[str, DescribedTransactionTopic] = {}
    for name, index in sorted(transaction.partitions):
        if context.may(Operation.DESCRIBE, TOPIC, name, is_logged=False):
            topics.setdefault(name, DescribedTransactionTopic(topic=name)).partitions.append(index)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=list(topics.values()),
    )


def list_transactions(
    services: Services, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    error, unknown_states, transactions = services.transactions.list_transactions(
        frozenset(request.state_filters), frozenset(request.producer_id_filters), request.duration_filter
    )
    return ListTransactionsResponse(
        error_code=error,
        unknown_state_filters=list(unknown_states),
        transaction_states=[
            ListedTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            for each in transactions
            if context.may(Operation.DESCRIBE, TRANSACTIONAL_ID, each.transactional_id, is_logged=False)
        ],
    )
