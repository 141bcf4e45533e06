"""Replicas and leaders of partitions, moved by an administrator: reassignments and elections.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (alterPartitionReassignments, listPartitionReassignments,
electLeaders); KIP-183, KIP-455, KIP-460.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kafkalite.client.blocking_client import BlockingClient, name_of_error
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages import partition_admin as wire

PREFERRED, UNCLEAN = 0, 1
_VERSION = 0
_ELECT_VERSION = 1
_GRACE_S = 5.0


class Reassignment(NamedTuple):
    """A reassignment in progress."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def list_reassignments(
    controller: BlockingClient, partitions: Iterable[TopicPartition] | None = None
) -> list[Reassignment]:
    """The reassignments in progress, of these partitions or all. Raises Unanswered."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions or ():
        topics.setdefault(topic, []).append(index)
    asked = [wire.ListPartitionReassignmentsTopics(name=name, partition_indexes=some) for name, some in topics.items()]
    request = wire.ListPartitionReassignmentsRequest(topics=None if partitions is None else asked)
    answer = controller.ask(request, _VERSION)
    if answer.error_code:
        why = answer.error_message or name_of_error(answer.error_code)
        raise Unanswered(f"the reassignments cannot be listed: {why}")
    return sorted(
        Reassignment(
            topic.name,
            one.partition_index,
            tuple(one.replicas),
            tuple(one.adding_replicas),
            tuple(one.removing_replicas),
        )
        for topic in answer.topics
        for one in topic.partitions
    )


def alter_reassignments(
    controller: BlockingClient, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, str]:
    """Moves partitions to these replicas, the preferred leader first; None cancels a move. Returns the reasons of
    partitions that stay. Raises Unanswered."""
    topics: dict[str, list[wire.ReassignablePartition]] = {}
    for (topic, index), replicas in wanted.items():
        to = None if replicas is None else list(replicas)
        topics.setdefault(topic, []).append(wire.ReassignablePartition(partition_index=index, replicas=to))
    asked = [wire.ReassignableTopic(name=name, partitions=some) for name, some in topics.items()]
    answer = controller.ask(wire.AlterPartitionReassignmentsRequest(topics=asked), _VERSION)
    if answer.error_code:
        raise Unanswered(answer.error_message or name_of_error(answer.error_code))
    return {
        (topic.name, one.partition_index): one.error_message or name_of_error(one.error_code)
        for topic in answer.responses
        for one in topic.partitions
        if one.error_code
    }


def elect_leaders(
    cluster: ClusterClient, partitions: Collection[TopicPartition] | None, kind: int, timeout_s: float
) -> tuple[int, list[str]]:
    """Elects the preferred replicas as leaders, or any replica (UNCLEAN, which may lose records); of all partitions if
    none are given. Returns the number of new leaders, and a sentence for each partition without one. Raises
    Unanswered."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions or ():
        topics.setdefault(topic, []).append(index)
    named = [wire.TopicPartitions(topic=name, partitions=some) for name, some in topics.items()]
    request = wire.ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None if partitions is None else named,
        timeout_ms=int(timeout_s * 1000),
    )
    answer = cluster.controller().ask(request, _ELECT_VERSION, timeout_s + _GRACE_S)
    if answer.error_code:
        raise Unanswered(f"no leader is elected: {name_of_error(answer.error_code)}")
    refusals: list[str] = []
    elected = 0
    for topic in answer.replica_election_results:
        for one in topic.partition_result:
            if not one.error_code:
                elected += 1
            elif one.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                why = one.error_message or name_of_error(one.error_code)
                refusals.append(f"{topic.topic}-{one.partition_id} keeps its leader: {why}")
    return elected, refusals
