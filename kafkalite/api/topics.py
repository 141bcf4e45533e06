"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords. Each topic of a request succeeds or fails by itself.

Source: kafka.server.ZkAdminManager, kafka.server.KafkaApis.handleDeleteRecordsRequest.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from kafkalite.api.configs import topic_config_entries
from kafkalite.api.context import Call, Services
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.names import INTERNAL_TOPICS, ZERO_UUID
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

DEFAULT = -1
FIRST_VERSION_WITH_DELETION_DISABLED = 3


async def create_topics(services: Services, request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    doubled = _doubled(topic.name for topic in request.topics)
    results = []
    answered: set[str] = set()
    for topic in request.topics:
        if topic.name in answered:
            continue
        answered.add(topic.name)
        try:
            if topic.name in doubled:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            results.append(await _create(services, topic, request.validate_only))
        except KafkaError as error:
            results.append(
                CreatableTopicResult(
                    name=topic.name,
                    error_code=error.code,
                    error_message=error.message,
                    num_partitions=-1,
                    replication_factor=-1,
                    configs=[],
                )
            )
    return CreateTopicsResponse(topics=results)


async def _create(services: Services, wanted: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
    overrides = _overrides(wanted)
    if wanted.assignments:
        if wanted.num_partitions != DEFAULT or wanted.replication_factor != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        assigned = {one.partition_index: list(one.broker_ids) for one in wanted.assignments}
        if len(assigned) != len(wanted.assignments) or sorted(assigned) != list(range(len(assigned))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be numbered from 0 on")
        for broker_ids in assigned.values():
            _check_replicas(services, broker_ids)
        partition_count = len(assigned)
    else:
        partition_count = services.config.num_partitions if wanted.num_partitions == DEFAULT else wanted.num_partitions
        _check_replication_factor(wanted.replication_factor)
    topic = await services.topics.create(wanted.name, partition_count, overrides, validate_only=validate_only)
    result = CreatableTopicResult(
        name=wanted.name,
        num_partitions=partition_count,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=overrides.get(entry.name, entry.value),
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in topic_config_entries(services, overrides)
        ],
    )
    if topic is not None:
        result.topic_id = topic.topic_id
    return result


def _overrides(wanted: CreatableTopic) -> dict[str, str]:
    overrides = {}
    for entry in wanted.configs:
        if entry.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {entry.name}")
        overrides[entry.name] = entry.value
    return overrides


def _check_replication_factor(factor: int) -> None:
    if factor == 0 or factor < DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if factor > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"Replication factor: {factor} larger than available brokers: 1."
        )


def _check_replicas(services: Services, broker_ids: list[int]) -> None:
    if broker_ids != [services.broker_id]:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas {broker_ids} are not brokers of this cluster, whose only broker is {services.broker_id}",
        )


async def delete_topics(services: Services, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    if not services.config.delete_topic_enable:
        newer = call.api_version >= FIRST_VERSION_WITH_DELETION_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if newer else ErrorCode.INVALID_REQUEST
        return DeleteTopicsResponse(responses=[_not_deleted(state.name, state.topic_id, code) for state in states])
    names: Counter[str] = Counter()
    ids: Counter[UUID] = Counter()
    results = []
    for state in states:
        if state.name is not None and state.topic_id == ZERO_UUID:
            names[state.name] += 1
        elif state.name is None and state.topic_id != ZERO_UUID:
            ids[state.topic_id] += 1
        else:
            what = "Neither topic name nor id were" if state.name is None else "Both topic name and id were"
            results.append(_not_deleted(state.name, state.topic_id, ErrorCode.INVALID_REQUEST, f"{what} specified."))
    named_too = set()
    for name, count in names.items():
        topic = services.topics.by_name.get(name)
        if count > 1:
            results.append(_not_deleted(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif topic is not None and topic.topic_id in ids:
            named_too.add(topic.topic_id)
            said = "The topic is named by its id as well."
            results.append(_not_deleted(name, topic.topic_id, ErrorCode.INVALID_REQUEST, said))
        else:
            results.append(await _delete(services, name))
    for topic_id, count in ids.items():
        if count > 1:
            results.append(_not_deleted(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id."))
        elif topic_id not in named_too:
            results.append(await _delete(services, topic_id))
    return DeleteTopicsResponse(responses=results)


async def _delete(services: Services, name_or_id: str | UUID) -> DeletableTopicResult:
    try:
        for name in INTERNAL_TOPICS:
            internal = services.topics.by_name.get(name)
            if name == name_or_id or (internal is not None and internal.topic_id == name_or_id):
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal and cannot be deleted")
        topic = await services.topics.delete(name_or_id)
    except KafkaError as error:
        if isinstance(name_or_id, str):
            return _not_deleted(name_or_id, ZERO_UUID, error.code, error.message)
        return _not_deleted(None, name_or_id, error.code, error.message)
    services.groups.topic_deleted(topic.name)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _not_deleted(name: str | None, topic_id: UUID, code: ErrorCode, message: str | None = None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


async def create_partitions(
    services: Services, request: CreatePartitionsRequest, call: Call
) -> CreatePartitionsResponse:
    doubled = _doubled(topic.name for topic in request.topics)
    results = []
    answered: set[str] = set()
    for topic in request.topics:
        if topic.name in answered:
            continue
        answered.add(topic.name)
        try:
            if topic.name in doubled:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            _check_added(services, topic)
            await services.topics.add_partitions(topic.name, topic.count, validate_only=request.validate_only)
            results.append(CreatePartitionsTopicResult(name=topic.name))
        except KafkaError as error:
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            )
    return CreatePartitionsResponse(results=results)


def _check_added(services: Services, wanted: CreatePartitionsTopic) -> None:
    if wanted.name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{wanted.name} is internal: a group would change its partition")
    if wanted.assignments is None:
        return
    topic = services.topics.by_name.get(wanted.name)
    added = wanted.count - (len(topic.partitions) if topic is not None else 0)
    if added > 0 and len(wanted.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {added} but {len(wanted.assignments)} assignments provided.",
        )
    for assignment in wanted.assignments:
        _check_replicas(services, list(assignment.broker_ids))


async def delete_records(services: Services, request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    """Answered when the new start is written down: what was deleted does not come back after a kill. A disk that takes
    no checkpoint is logged, and then a kill before the next one may bring some of it back, as in Kafka."""
    topics = []
    raised = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            try:
                if topic.name in INTERNAL_TOPICS:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                partition = services.topics.require(topic.name, wanted.partition_index)
                before = partition.log.start_offset
                low = partition.delete_records_before(wanted.offset)
                if low > before:  # that took some renames and a small file: others get their turn
                    raised.append((topic.name, wanted.partition_index))
                    await asyncio.sleep(0)
                answers.append(DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=low))
            except KafkaError as error:
                answers.append(
                    DeleteRecordsPartitionResult(
                        partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
                    )
                )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    kept = asyncio.Event()
    services.logs.keep_starts(raised, kept.set)
    await kept.wait()
    return DeleteRecordsResponse(topics=topics)


def _doubled(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}
