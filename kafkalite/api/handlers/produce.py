"""Produce: batches go to their partitions as they came, each partition answered by itself.

Nothing here looks at a record, unless it comes in a message set of old (Produce 0-2). With one replica acks=1 and
acks=-1 are one: an appended batch is committed, if not at once (flush.messages) then the answer waits for it.
Source: kafka.server.KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.api.request.broker_endpoints import BrokerEndpoint
from kafkalite.api.request.delayed_produce import Uncommitted, answer_when_committed
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import Disconnect, ErrorCode, KafkaError
from kafkalite.log.partition.partition_log import AppendResult
from kafkalite.network.client_connection import DeferredResponse
from kafkalite.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceLeaderIdAndEpoch,
    ProduceNodeEndpoint,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkalite.record.validation.batch_validation import InvalidRecords, Rules
from kafkalite.record.validation.format_conversion import to_batch
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import Topic

ALL = -1  # acks
FIRST_VERSION_WITH_LEADERS = 10
FIRST_VERSION_OF_BATCHES = 3  # before it, message sets v0 and v1 travel, or a batch all the same
_AS_IF_FROM_VERSION = 7  # what came with an older one may have any codec, as at Kafka
_WITH_MESSAGE = (  # those that Kafka explains from v8 on
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_OF_THE_LOG = (  # refused in view of the log, whose start is told then
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
_WORK_MS_MAX = 500
"""What follows in a request that has taken this long is left for another try: a request may name a thousand partitions,
each with a batch that must be unpacked, and nobody else is served meanwhile."""
_ADMIN_CLIENT_ID = "__admin_client"  # may write to internal topics, as in Kafka


def produce(
    services: Services, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | DeferredResponse | None:
    acks = request.acks
    if acks not in (1, -1, 0):
        return _all_failed(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        return _all_failed(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    now_ms = services.runtime.clock.wall_ms()
    version = context.api_version
    ends_ms = services.runtime.clock.monotonic_ms() + _WORK_MS_MAX
    by_name = services.topics.by_name
    responses = []
    uncommitted: list[Uncommitted] = []
    failed = False
    for topic_data in request.topic_data:
        name = topic_data.name
        topic = by_name.get(name)
        answers = []
        for data in topic_data.partition_data:
            try:
                if services.runtime.clock.monotonic_ms() > ends_ms:
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
                partition = topic.partitions.get(data.index) if topic is not None else None
                if topic is None or partition is None:
                    raise KafkaError(services.topics.missing_partition_error(name, data.index))
                if acks == ALL and topic.config.min_insync_replicas > 1:
                    _check_replicas(topic, data.index)
                answers.append(_append(topic, partition, data, now_ms, version, context.client_id, uncommitted))
            except KafkaError as error:
                failed = True
                answers.append(failure(data.index, error, topic))
        if answers:
            responses.append(TopicProduceResponse(name=name, partition_responses=answers))
    if acks == 0:
        if failed:
            raise Disconnect("acks=0 leaves no other way to tell the producer of an error")
        return None
    response = ProduceResponse(responses=responses)
    if failed and version >= FIRST_VERSION_WITH_LEADERS:
        tell_leaders(services, response, services.brokers.finder_for(context.connection))
    return answer_when_committed(services, response, uncommitted, request.timeout_ms) if uncommitted else response


def _check_replicas(topic: Topic, index: int) -> None:
    """A topic that Kafka made with several replicas is led here without the others, and not every topic may do that:
    as in Kafka, one that has fewer replicas than it asks for needs only those that it has."""
    state = topic.states.get(index)
    wanted = min(topic.config.min_insync_replicas, len(state.replicas)) if state is not None else 0
    if state is not None and len(state.isr) < wanted:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{topic.name}-{index} has {len(state.isr)} of the {wanted} replicas that min.insync.replicas asks for",
        )


def _append(
    topic: Topic,
    partition: Partition,
    data: PartitionProduceData,
    now_ms: int,
    version: int,
    client_id: str | None,
    uncommitted: list[Uncommitted],
) -> PartitionProduceResponse:
    if topic.internal and client_id != _ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is internal and takes no client's records")
    records = data.records
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the partition's data has no record batch")
    if version < FIRST_VERSION_OF_BATCHES:
        converted = to_batch(records, Rules(partition.log.config))
        if converted is None:
            return PartitionProduceResponse(index=data.index, base_offset=-1)
        records, version = converted, _AS_IF_FROM_VERSION
    result = partition.append(records, now_ms, version)
    answer = success(data.index, result, partition)
    if result.last_offset >= partition.high_watermark:
        uncommitted.append(Uncommitted(answer, partition, result.last_offset))
    return answer


def tell_leaders(
    services: Services, response: ProduceResponse, find: Callable[[int], BrokerEndpoint | None]
) -> ProduceResponse:
    """`response` with the leaders of those partitions that are not led here, and where those brokers are (KIP-951)."""
    endpoints = {}
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = services.leader_of(topic.name, partition.index)
                partition.current_leader = ProduceLeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                if (it := find(leader)) is not None:
                    endpoints[leader] = ProduceNodeEndpoint(
                        node_id=it.broker_id, host=it.host, port=it.port, rack=it.rack
                    )
    response.node_endpoints = list(endpoints.values())
    return response


def success(index: int, result: AppendResult, partition: Partition) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=partition.log.start_offset,
    )


def failure(index: int, error: KafkaError, topic: Topic | None = None) -> PartitionProduceResponse:
    """What a producer is told of a partition that took nothing; where the log starts, if that refused."""
    response = PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1
    )
    if topic is not None and (isinstance(error, InvalidRecords) or error.code in _OF_THE_LOG):
        response.log_start_offset = topic.partitions[index].log.start_offset
    if isinstance(error, InvalidRecords):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=message)
            for at, message in error.record_errors
        ]
    if error.code in _WITH_MESSAGE:
        response.error_message = error.message
    return response


def _all_failed(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    if request.acks == 0:
        raise Disconnect(f"acks=0 produce refused with {code.name}")
    error = KafkaError(code)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name, partition_responses=[failure(data.index, error) for data in topic.partition_data]
            )
            for topic in request.topic_data
        ]
    )
