"""Topics that records are copied to: made with the partitions that they need, asked whether they have records.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (createTopics).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

_CREATE_VERSION = 5


def ensure_topics(cluster: ClusterClient, retries: Retries, partition_counts: Mapping[str, int]) -> None:
    """Make the topics that are not there with so many partitions and the cluster's defaults. Raises WriteFailed if one
    cannot be made, or has fewer partitions."""
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=-1)
        for name, count in partition_counts.items()
    ]

    def create() -> int:
        response = cluster.controller().ask(CreateTopicsRequest(topics=topics), _CREATE_VERSION)
        codes = {one.name: one for one in response.topics if one.error_code != ErrorCode.TOPIC_ALREADY_EXISTS}
        for name, one in codes.items():
            if one.error_code == ErrorCode.NOT_CONTROLLER:
                cluster.refresh([])
                return int(ErrorCode.LEADER_NOT_AVAILABLE)
            if one.error_code:
                said = f" ({one.error_message})" if one.error_message else ""
                raise WriteFailed(f"topic {name!r} cannot be made: {name_of_error(one.error_code)}{said}")
        return int(ErrorCode.NONE)

    def refresh() -> int:
        return max(cluster.refresh(partition_counts).values(), default=int(ErrorCode.NONE))

    retries.persist("topics cannot be made", create)
    retries.persist("the topics that were made are not there", refresh)
    for name, count in partition_counts.items():
        there = cluster.partition_count(name)
        if there < count:
            raise WriteFailed(
                f"topic {name!r} has {there} partitions there, and {count} are copied; add partitions to it"
            )


def is_empty(cluster: ClusterClient, retries: Retries, partition: TopicPartition) -> bool:
    """Whether a partition has no records. Raises WriteFailed."""
    offsets = LogOffsets(cluster, retries.timeout_s, monotonic_s=retries.monotonic_s, sleep=retries.sleep)
    try:
        return offsets.starts([partition]) == offsets.ends([partition])
    except Unanswered as fault:
        raise WriteFailed(str(fault)) from None
