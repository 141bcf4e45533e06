"""DescribeTransactions, ListTransactions: the transactional ids of the coordinator here.

Source: KafkaApis.handleDescribeTransactionsRequest, handleListTransactionsRequest (3.9).
"""

from __future__ import annotations

from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.transaction_admin import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)


def describe_transactions(
    services: Services, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    described = [_described_transaction(services, each) for each in request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=described)


def _described_transaction(services: Services, transactional_id: str) -> DescribedTransaction:
    transaction, error = services.transactions.describe(transactional_id)
    if transaction is None:
        error = error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribedTransaction(transactional_id=transactional_id, error_code=error)
    topics: dict[str, DescribedTransactionTopic] = {}
    for name, index in sorted(transaction.partitions):
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
        ],
    )
