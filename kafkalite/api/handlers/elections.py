"""ElectLeaders: the answer has a result for each partition, or, for all partitions, for those where one was needed.

Source: org.apache.kafka.controller.ReplicationControlManager.electLeaders, kafka.server.KafkaApis.handleElectLeaders;
KIP-183, KIP-460.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.api.request.partition_limit import check_partition_count
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.metadata.cluster_metadata import Election
from kafkalite.protocol.messages.elections import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)


async def elect_leaders(
    services: Services, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    topics = request.topic_partitions
    if topics is None:
        known = services.metadata.topics
        topics = [TopicPartitions(topic=name, partitions=list(known[name].partitions)) for name in known]
    else:
        check_partition_count(topic.partitions for topic in topics)
    if not topics:
        return ElectLeadersResponse()  # of whatever election type, as Kafka
    keys = [(topic.topic, index) for topic in topics for index in topic.partitions]
    top_code = ErrorCode.NONE
    refusals: Sequence[KafkaError | None]
    try:
        refusals = await services.partition_admin.elect_leaders(keys, _election(request.election_type))
    except KafkaError as error:
        top_code = error.code
        refusals = [error] * len(keys)
    rest = iter(refusals)
    results = []
    for topic in topics:
        found = [_result(index, next(rest)) for index in topic.partitions]
        if request.topic_partitions is None:
            found = [one for one in found if one.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=found))
    return ElectLeadersResponse(error_code=top_code, replica_election_results=results)


def _election(number: int) -> Election:
    try:
        return Election(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {number}") from None


def _result(index: int, refusal: KafkaError | None) -> PartitionResult:
    if refusal is None:
        return PartitionResult(partition_id=index, error_message=None)
    return PartitionResult(partition_id=index, error_code=refusal.code, error_message=refusal.message)
