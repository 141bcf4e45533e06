"""The reasons for which a request of an administrator is refused before anything is decided. Pure.

In the order of Kafka's KRaft controller, which looks for the partition first; the one of ZooKeeper mode checks targets
before it looks. Both have the same codes.
Source: org.apache.kafka.controller.ReplicationControlManager (electLeader, alterPartitionReassignment,
validateManualPartitionAssignment), kafka.controller.KafkaController (processReplicaLeaderElection, validateReplicas).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import TopicPartition
from kafkalite.metadata.cluster_metadata import NO_LEADER, PartitionRecord
from kafkalite.metadata.partition_admin import Election

CHECKED_PER_TURN = 1000  # partitions in one turn of the loop: some 2 ms
_SHOWN_MAX = 10  # replicas of a refused target in a message


def election_refusal(
    partition: PartitionRecord | None, election: Election, live: Collection[int], *, is_being_deleted: bool = False
) -> KafkaError | None:
    """`partition` None: it does not exist. A preferred leader need not live to be right, as in Kafka."""
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
    """The answer if an election is needed, and no replica may be elected."""
    topic, index = key
    if election is Election.PREFERRED:
        message = f"The preferred leader of {topic}-{index} is not alive and in sync."
        return KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
    return KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"No replica of {topic}-{index} is alive.")


def reassignment_refusal(
    replicas: Sequence[int] | None, target: Sequence[int] | None, live: Collection[int], *, is_reassigned: bool
) -> KafkaError | None:
    """`replicas` are the present ones, None if there is no such partition, or it is being deleted. `target` None asks
    for the end of a reassignment. Replicas that are there already need not live, as in Kafka's ZooKeeper mode."""
    if replicas is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if target is None:
        if is_reassigned:
            return None
        return KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    shown = ", ".join(map(str, target[:_SHOWN_MAX])) + ", ..." * (len(target) > _SHOWN_MAX)
    if not target:
        return _bad_target("The list of replicas is empty.")
    if len(set(target)) < len(target):
        return _bad_target(f"The replicas {shown} name a broker twice.")
    absent = next((replica for replica in target if replica not in live and replica not in replicas), None)
    if absent is not None:
        return _bad_target(f"The replicas {shown} include broker {absent}, and no such broker is alive.")
    return None


def _bad_target(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
