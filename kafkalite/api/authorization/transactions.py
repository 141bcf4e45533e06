"""InitProducerId, AddPartitionsToTxn, DescribeTransactions, ListTransactions behind an authorizer.

Source: kafka.server.KafkaApis (handleInitProducerIdRequest, handleAddPartitionsToTxnRequest), KIP-679, KIP-664.
"""

from __future__ import annotations

from typing import Any

from kafkalite.api.authorization.permissions import CLUSTER, REFUSALS, TOPIC, TRANSACTIONAL_ID
from kafkalite.api.authorization.rules import Handler, refused, then
from kafkalite.api.request.access import Access
from kafkalite.api.request.error_answer import error_answer, merged
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.request_split import copy_of, without
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest
from kafkalite.protocol.messages.producer_ids import InitProducerIdRequest
from kafkalite.protocol.messages.transaction_admin import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
)
from kafkalite.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kafkalite.record.batch import ATTRIBUTES_AT, MAGIC, MAGIC_AT, TRANSACTIONAL
from kafkalite.security.acl.acl import Operation

_PRODUCE, _INIT_PRODUCER_ID, _ADD_PARTITIONS = APIS[0], APIS[22], APIS[24]
_FIRST_ADD_OF_BROKERS = 4


def produce(
    access: Access, services: Services, request: ProduceRequest, context: RequestContext, handler: Handler
) -> Any:
    """The transactional id counts only if there are transactional batches."""
    name = request.transactional_id
    is_transactional = any(_is_transactional(data) for topic in request.topic_data for data in topic.partition_data)
    if is_transactional and (
        name is None or not access.allows(context.connection, Operation.WRITE, TRANSACTIONAL_ID, name)
    ):
        return refused(_PRODUCE, request, REFUSALS[TRANSACTIONAL_ID], context.api_version)
    return handler(services, request, context)


def _is_transactional(data: PartitionProduceData) -> bool:
    records = data.records
    if records is None or len(records) <= ATTRIBUTES_AT + 1 or records[MAGIC_AT] < MAGIC:
        return False
    return bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL)


def init_producer_id(
    access: Access, services: Services, request: InitProducerIdRequest, context: RequestContext, handler: Handler
) -> Any:
    connection, code = context.connection, None
    if request.transactional_id is not None:
        if not access.allows(connection, Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
            code = REFUSALS[TRANSACTIONAL_ID]
    elif not (
        access.allows_cluster(connection, Operation.IDEMPOTENT_WRITE, is_logged=False)
        or access.allows_any(connection, Operation.WRITE, TOPIC)
        or access.allows_cluster(connection, Operation.IDEMPOTENT_WRITE)
    ):
        code = REFUSALS[CLUSTER]
    if code is not None:
        return refused(_INIT_PRODUCER_ID, request, code, context.api_version)
    return handler(services, request, context)


def add_partitions_to_txn(
    access: Access, services: Services, request: AddPartitionsToTxnRequest, context: RequestContext, handler: Handler
) -> Any:
    connection, version = context.connection, context.api_version
    if version >= _FIRST_ADD_OF_BROKERS:
        if access.allows_cluster(connection, Operation.CLUSTER_ACTION):
            return handler(services, request, context)
        return refused(_ADD_PARTITIONS, request, REFUSALS[CLUSTER], version)
    if not access.allows(connection, Operation.WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return refused(_ADD_PARTITIONS, request, REFUSALS[TRANSACTIONAL_ID], version)
    denied = {
        each.name
        for each in request.v3_and_below_topics
        if not access.allows(connection, Operation.WRITE, TOPIC, each.name)
    }
    if not denied:
        return handler(services, request, context)
    others, _ = without(request, denied.__contains__)
    refusals, _ = without(request, lambda name: name not in denied)
    answer = error_answer(AddPartitionsToTxnResponse, others, ErrorCode.OPERATION_NOT_ATTEMPTED, version)
    return merged(answer, error_answer(AddPartitionsToTxnResponse, refusals, REFUSALS[TOPIC], version))


def describe_transactions(
    access: Access, services: Services, request: DescribeTransactionsRequest, context: RequestContext, handler: Handler
) -> Any:
    connection = context.connection
    names = list(dict.fromkeys(request.transactional_ids))
    allowed = [each for each in names if access.allows(connection, Operation.DESCRIBE, TRANSACTIONAL_ID, each)]
    refusals = [
        DescribedTransaction(error_code=REFUSALS[TRANSACTIONAL_ID], transactional_id=each)
        for each in names
        if each not in allowed
    ]

    def narrowed(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for transaction in response.transaction_states:
            transaction.topics = [
                each
                for each in transaction.topics
                if access.allows(connection, Operation.DESCRIBE, TOPIC, each.topic, is_logged=False)
            ]
        response.transaction_states += refusals
        return response

    rest: DescribeTransactionsRequest = copy_of(request)  # type: ignore[assignment]
    rest.transactional_ids = allowed
    return then(handler(services, rest, context), narrowed)


def list_transactions(
    access: Access, services: Services, request: Any, context: RequestContext, handler: Handler
) -> Any:
    def filtered(response: ListTransactionsResponse) -> ListTransactionsResponse:
        response.transaction_states = [
            each
            for each in response.transaction_states
            if access.allows(
                context.connection, Operation.DESCRIBE, TRANSACTIONAL_ID, each.transactional_id, is_logged=False
            )
        ]
        return response

    return then(handler(services, request, context), filtered)
