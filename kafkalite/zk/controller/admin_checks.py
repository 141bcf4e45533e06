"""Checks of an administrator's requests before anything is decided, and the controller of a cluster of one broker.

In the order of Kafka's KRaft controller, which checks the partition first; the one of ZooKeeper mode checks targets
first. Both have the same codes.
Source: org.apache.kafka.controller.ReplicationControlManager (electLeader, alterPartitionReassignment,
validateManualPartitionAssignment), kafka.controller.KafkaController (processReplicaLeaderElection, validateReplicas).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.metadata.cluster_metadata import ClusterMetadata, Election, PartitionAdmin, PartitionRecord, Reassignment

_Item = TypeVar("_Item")

CHECKED_PER_TURN = 1000  # partitions in one turn of the loop: some 2 ms
_SHOWN_MAX = 10  # replicas of a refused target in a message


def election_refusal(
    partition: PartitionRecord | None, election: Election, live: Collection[int], *, is_being_deleted: bool = False
) -> KafkaError | None:
    """The reason to refuse an election. `partition` None: it does not exist. A preferred leader need not be alive for
    ELECTION_NOT_NEEDED, as in Kafka."""
    if partition is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if is_being_deleted:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")
    if election is Election.PREFERRED:
        needed = partition.leader != partition.replicas[0]
    else:
        needed = partition.leader == NO_LEADER or partition.leader not in live
    if needed:
        return None
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


def no_candidate(key: TopicPartition, election: Election) -> KafkaError:
    """The error if an election is needed, and no replica may be elected."""
    topic, index = key
    if election is Election.PREFERRED:
        message = f"The preferred leader of {topic}-{index} is not alive and in sync."
        return KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
    return KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"No replica of {topic}-{index} is alive.")


def reassignment_refusal(
    replicas: Sequence[int] | None, target: Sequence[int] | None, live: Collection[int], *, is_reassigned: bool
) -> KafkaError | None:
    """`replicas` are the present ones, None if there is no such partition, or it is being deleted. `target` None
    cancels a reassignment. Present replicas need not be alive, as in Kafka's ZooKeeper mode.
    """
    if replicas is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if target is None:
        if is_reassigned:
            return None
        return KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    listed = ", ".join(map(str, target[:_SHOWN_MAX])) + ", ..." * (len(target) > _SHOWN_MAX)
    if not target:
        return _bad_target("The list of replicas is empty.")
    if len(set(target)) < len(target):
        return _bad_target(f"The replicas {listed} name a broker twice.")
    absent = next((replica for replica in target if replica not in live and replica not in replicas), None)
    if absent is not None:
        return _bad_target(f"The replicas {listed} include broker {absent}, and no such broker is alive.")
    return None


def _bad_target(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


class StandaloneController(PartitionAdmin):
    """The controller of a single broker, which leads every partition: no election is needed, no replica can move."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election
    ) -> Sequence[KafkaError | None]:
        live = self._metadata.brokers
        return await _refusals(partitions, lambda key: election_refusal(self._partition(key), election, live))

    async def reassign(
        self, targets: Sequence[tuple[TopicPartition, Sequence[int] | None]]
    ) -> Sequence[KafkaError | None]:
        def refusal(wanted: tuple[TopicPartition, Sequence[int] | None]) -> KafkaError | None:
            partition = self._partition(wanted[0])
            replicas = None if partition is None else partition.replicas
            return reassignment_refusal(replicas, wanted[1], self._metadata.brokers, is_reassigned=False)

        return await _refusals(targets, refusal)

    def reassignments(self) -> Mapping[TopicPartition, Reassignment]:
        return {}

    def _partition(self, key: TopicPartition) -> PartitionRecord | None:
        topic = self._metadata.topics.get(key[0])
        return topic.partitions.get(key[1]) if topic is not None else None


async def _refusals(items: Sequence[_Item], check: Callable[[_Item], KafkaError | None]) -> list[KafkaError | None]:
    refusals = []
    for at, item in enumerate(items, start=1):
        refusals.append(check(item))
        if at % CHECKED_PER_TURN == 0:
            await asyncio.sleep(0)
    return refusals
