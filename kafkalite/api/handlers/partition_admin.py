"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments.

The answer to an election has a result for each partition, or, for all partitions, for those where one was needed. For a
listing, topics and partitions that do not exist are no error: they are not being reassigned either. Kafka lists
reassignments on the controller only; here every broker knows them.
Source: org.apache.kafka.controller.ReplicationControlManager (electLeaders, alterPartitionReassignments,
listPartitionReassignments), kafka.server.KafkaApis.handleElectLeaders; KIP-183, KIP-455, KIP-460.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.api.request.request_context import RequestContext, check_partition_count
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.metadata.cluster_metadata import ClusterMetadata, Election, PartitionAdmin
from kafkalite.protocol.messages import partition_admin as wire


class PartitionAdminApi(NamedTuple):
    """The APIs of leader elections and reassignments."""

    metadata: ClusterMetadata
    partition_admin: PartitionAdmin

    async def alter_partition_reassignments(
        self, request: wire.AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> wire.AlterPartitionReassignmentsResponse:
        check_partition_count(topic.partitions for topic in request.topics)
        if not request.topics:
            return wire.AlterPartitionReassignmentsResponse(error_message="")
        wanted = [
            ((topic.name, one.partition_index), one.replicas) for topic in request.topics for one in topic.partitions
        ]
        try:
            refusals = iter(await self.partition_admin.reassign(wanted))
        except KafkaError as error:
            return wire.AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
        responses = [
            wire.ReassignableTopicResponse(
                name=topic.name, partitions=[_answer(one.partition_index, next(refusals)) for one in topic.partitions]
            )
            for topic in request.topics
        ]
        return wire.AlterPartitionReassignmentsResponse(error_message=None, responses=responses)

    def list_partition_reassignments(
        self, request: wire.ListPartitionReassignmentsRequest, context: RequestContext
    ) -> wire.ListPartitionReassignmentsResponse:
        """Null topics mean all topics."""
        moving = self.partition_admin.reassignments()
        keys = list(moving)
        if request.topics is not None:
            asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
            keys = [key for key in dict.fromkeys(asked) if key in moving]
        topics: dict[str, wire.OngoingTopicReassignment] = {}
        for name, index in keys:
            one = moving[name, index]
            topics.setdefault(name, wire.OngoingTopicReassignment(name=name)).partitions.append(
                wire.OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(one.replicas),
                    adding_replicas=list(one.adding),
                    removing_replicas=list(one.removing),
                )
            )
        return wire.ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))

    async def elect_leaders(
        self, request: wire.ElectLeadersRequest, context: RequestContext
    ) -> wire.ElectLeadersResponse:
        topics = request.topic_partitions
        if topics is None:
            known = self.metadata.topics
            topics = [wire.TopicPartitions(topic=name, partitions=list(known[name].partitions)) for name in known]
        else:
            check_partition_count(topic.partitions for topic in topics)
        if not topics:
            return wire.ElectLeadersResponse()  # of any election type, as Kafka
        keys = [(topic.topic, index) for topic in topics for index in topic.partitions]
        top_code = ErrorCode.NONE
        refusals: Sequence[KafkaError | None]
        try:
            refusals = await self.partition_admin.elect_leaders(keys, _election(request.election_type))
        except KafkaError as error:
            top_code = error.code
            refusals = [error] * len(keys)
        rest = iter(refusals)
        results = []
        for topic in topics:
            found = [_result(index, next(rest)) for index in topic.partitions]
            if request.topic_partitions is None:
                found = [one for one in found if one.error_code != ErrorCode.ELECTION_NOT_NEEDED]
            results.append(wire.ReplicaElectionResult(topic=topic.topic, partition_result=found))
        return wire.ElectLeadersResponse(error_code=top_code, replica_election_results=results)


def _answer(index: int, refusal: KafkaError | None) -> wire.ReassignablePartitionResponse:
    if refusal is None:
        return wire.ReassignablePartitionResponse(partition_index=index, error_message=None)
    return wire.ReassignablePartitionResponse(
        partition_index=index, error_code=refusal.code, error_message=refusal.message
    )


def _election(number: int) -> Election:
    try:
        return Election(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {number}") from None


def _result(index: int, refusal: KafkaError | None) -> wire.PartitionResult:
    if refusal is None:
        return wire.PartitionResult(partition_id=index, error_message=None)
    return wire.PartitionResult(partition_id=index, error_code=refusal.code, error_message=refusal.message)
