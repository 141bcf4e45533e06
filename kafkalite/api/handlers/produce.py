"""Produce: appends batches unchanged to their partitions, and answers each partition separately.

Only old message sets (Produce 0-2) are decoded. With acks=-1 the answer waits until the batch is committed: all in-sync
replicas have it. With acks=1 it waits for this broker alone. With one replica both mean the same: a batch is committed
at once, or when it is on the disk (flush.messages).
Source: kafka.server.KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any

from kafkalite.api.request.admission import ACKS_ALL
from kafkalite.api.request.awaited_election import awaited, elections
from kafkalite.api.request.broker_endpoints import FindBroker
from kafkalite.api.request.delayed_produce import DelayedProduce, PendingPartition, waits
from kafkalite.api.request.pipelined_refusals import told
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.api.request.transactional_produce import TransactionRefused, VerifiedAdmission, verify
from kafkalite.common.errors import Disconnect, ErrorCode, KafkaError
from kafkalite.log.partition.append_result import AppendResult
from kafkalite.network.client_connection import DeferredResponse
from kafkalite.protocol.messages.metadata import LeaderIdAndEpoch, NodeEndpoint
from kafkalite.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkalite.record.validation.batch_validation import InvalidRecords
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import Topic

FIRST_VERSION_WITH_LEADERS = 10
_CODES_WITH_MESSAGE = (  # from version 8 on these have a message
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_CODES_WITH_LOG_START = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
)
_WORK_MS_MAX = 500
"""After this time the remaining partitions of a request are refused, and the client retries. A request may name a
thousand partitions, each with a batch to decompress, and no other client is served meanwhile."""

Produced = ProduceResponse | DeferredResponse | Coroutine[Any, Any, ProduceResponse | None] | None
"""The response, now or later; None for acks=0."""


def produce(services: Services, request: ProduceRequest, context: RequestContext) -> Produced:
    if keys := awaited(services, request):
        _keep_records(request)
        return _produce_when_led(services, request, context, elections(services, keys))
    return _produce(services, request, context)


def _produce(
    services: Services, request: ProduceRequest, context: RequestContext, verified: VerifiedAdmission | None = None
) -> Produced:
    """`verified` is the admission of a transactional request whose coordinator has answered."""
    admission = verified or services.produce_admission
    if verified is None:
        error_code = services.produce_admission.request_error(request)
        if error_code is not None:
            return _all_failed(request, KafkaError(error_code))
        if request.transactional_id is not None:
            return _verify_and_produce(services, request, context, request.transactional_id)
    acks, version = request.acks, context.api_version
    clock = services.runtime.clock
    now_ms = clock.wall_ms()
    deadline_ms = clock.monotonic_ms() + _WORK_MS_MAX
    responses: list[TopicProduceResponse] = []
    pending: list[PendingPartition] = []
    failed = False
    for topic_data in request.topic_data:
        name = topic_data.name
        admitted = admission.topic(name, acks, context.client_id, version)
        answers: list[PartitionProduceResponse] = []
        for data in topic_data.partition_data:
            try:
                if (answers or responses) and clock.monotonic_ms() > deadline_ms:
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
                partition = admitted.topic.partitions.get(data.index) if admitted is not None else None
                if admitted is None or partition is None:
                    raise KafkaError(services.replica_manager.missing_partition_error(name, data.index))
                records = data.records
                if records is None:
                    result = admitted.check_and_append(partition, records, now_ms, version)
                else:
                    result = admitted.append(partition, records, now_ms, version)
                if result is None:
                    answers.append(PartitionProduceResponse(index=data.index, base_offset=-1))
                    continue
                answers.append(answer := success(data.index, result, partition))
                if result.last_offset >= partition.high_watermark and waits(partition, result.last_offset, acks):
                    pending.append(PendingPartition(answer, partition, result.last_offset, acks == ACKS_ALL))
            except KafkaError as reason:
                failed = True
                error = told(services.metadata, context.connection, name, data.index, reason)
                answers.append(failure(data.index, error, admitted.topic if admitted is not None else None))
        if answers:
            responses.append(TopicProduceResponse(name=name, partition_responses=answers))
    if acks == 0:
        if failed:
            raise Disconnect("acks=0 leaves no other way to tell the producer of an error")
        return None
    response = ProduceResponse(responses=responses)
    if not failed and not pending:
        return response
    find = services.brokers.finder_for(context.connection)
    complete = partial(add_leaders, services, find=find) if version >= FIRST_VERSION_WITH_LEADERS else None
    if pending:
        return DelayedProduce(clock, response, pending, request.timeout_ms, complete, has_moved=failed)
    if complete is not None:
        complete(response)
    return response


def _verify_and_produce(
    services: Services, request: ProduceRequest, context: RequestContext, transactional_id: str
) -> Produced:
    try:
        verified = verify(services, request, transactional_id, context.api_version)
    except KafkaError as error:
        return _all_failed(request, error)
    if isinstance(verified, VerifiedAdmission):
        return _produce(services, request, context, verified)
    _keep_records(request)
    return _produce_when_verified(services, request, context, verified)


async def _produce_when_verified(
    services: Services, request: ProduceRequest, context: RequestContext, verified: Awaitable[VerifiedAdmission]
) -> ProduceResponse | None:
    return await _finished(services, _produce(services, request, context, await verified))


async def _produce_when_led(
    services: Services, request: ProduceRequest, context: RequestContext, elected: Awaitable[None]
) -> ProduceResponse | None:
    await elected
    return await _finished(services, _produce(services, request, context))


def _keep_records(request: ProduceRequest) -> None:
    """Copy the records: they are appended later, even if the client leaves, and the frame with it."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


async def _finished(services: Services, response: Produced) -> ProduceResponse | None:
    """The response when it is complete."""
    if isinstance(response, Coroutine):
        return await response
    if not isinstance(response, DelayedProduce):
        assert response is None or isinstance(response, ProduceResponse)
        return response
    committed = services.runtime.loop.create_future()
    response.render, response.on_answer = (lambda _: []), committed.set_result
    await committed
    return response.response


def add_leaders(services: Services, response: ProduceResponse, find: FindBroker) -> None:
    """Add the leaders of partitions that are led elsewhere, and the addresses of their brokers (KIP-951)."""
    endpoints = {}
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = services.leader_of(topic.name, partition.index)
                partition.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                if (it := find(leader)) is not None:
                    endpoints[leader] = NodeEndpoint(node_id=it.broker_id, host=it.host, port=it.port, rack=it.rack)
    response.node_endpoints = list(endpoints.values())


def success(index: int, result: AppendResult, partition: Partition) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=partition.log.start_offset,
    )


def failure(index: int, error: KafkaError, topic: Topic | None = None) -> PartitionProduceResponse:
    """The answer for a partition without an append; with the log's start offset if the log refused the batch."""
    response = PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1
    )
    if isinstance(error, TransactionRefused):
        response.error_message = error.message
        return response
    if topic is not None and (isinstance(error, InvalidRecords) or error.code in _CODES_WITH_LOG_START):
        response.log_start_offset = topic.partitions[index].log.start_offset
    if isinstance(error, InvalidRecords):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=message)
            for at, message in error.record_errors
        ]
    if error.code in _CODES_WITH_MESSAGE:
        response.error_message = error.message
    return response


def _all_failed(request: ProduceRequest, error: KafkaError) -> ProduceResponse | None:
    if request.acks == 0:
        raise Disconnect(f"acks=0 produce refused with {error.code.name}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name, partition_responses=[failure(data.index, error) for data in topic.partition_data]
            )
            for topic in request.topic_data
        ]
    )
