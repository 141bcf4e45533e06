"""AlterPartitionReassignments, ListPartitionReassignments.

For a listing, topics and partitions that do not exist are no error: they are not being reassigned either. Kafka lists
reassignments on the controller only; here every broker knows them.
Source: org.apache.kafka.controller.ReplicationControlManager (alterPartitionReassignments, listPartitionReassignments),
KIP-455.
"""

from __future__ import annotations

from kafkalite.api.request.partition_limit import check_partition_count
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import KafkaError
from kafkalite.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def alter_partition_reassignments(
    services: Services, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    check_partition_count(topic.partitions for topic in request.topics)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_message="")
    wanted = [((topic.name, one.partition_index), one.replicas) for topic in request.topics for one in topic.partitions]
    try:
        refusals = iter(await services.partition_admin.reassign(wanted))
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    responses = [
        ReassignableTopicResponse(
            name=topic.name, partitions=[_answer(one.partition_index, next(refusals)) for one in topic.partitions]
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_message=None, responses=responses)


def _answer(index: int, refusal: KafkaError | None) -> ReassignablePartitionResponse:
    if refusal is None:
        return ReassignablePartitionResponse(partition_index=index, error_message=None)
    return ReassignablePartitionResponse(partition_index=index, error_code=refusal.code, error_message=refusal.message)


def list_partition_reassignments(
    services: Services, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Null topics mean all topics."""
    moving = services.partition_admin.reassignments()
    keys = list(moving)
    if request.topics is not None:
        asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
        keys = [key for key in dict.fromkeys(asked) if key in moving]
    topics: dict[str, OngoingTopicReassignment] = {}
    for name, index in keys:
        one = moving[name, index]
        topics.setdefault(name, OngoingTopicReassignment(name=name)).partitions.append(
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(one.replicas),
                adding_replicas=list(one.adding),
                removing_replicas=list(one.removing),
            )
        )
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
