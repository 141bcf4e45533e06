"""Topics that records are copied to: made with the partitions that they need, asked whether they have records.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (createTopics, listOffsets).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.client.blocking_client import Unanswered, name_of_error
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.producer.cluster import Cluster
from kafkalite.producer.retries import Retries, WriteFailed
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

_CREATE_VERSION = 5
_LIST_VERSION = 5
_LATEST, _EARLIEST = -1, -2


def ensure_topics(cluster: Cluster, retries: Retries, partition_counts: Mapping[str, int]) -> None:
    """Make the topics that are not there with so many partitions and the cluster's defaults. Raises WriteFailed if one
    cannot be made, or has fewer partitions."""
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=-1)
        for name, count in partition_counts.items()
    ]

    def create() -> int:
        response = cluster.ask(cluster.controller(), CreateTopicsRequest(topics=topics), _CREATE_VERSION)
        codes = {one.name: one for one in response.topics if one.error_code != ErrorCode.TOPIC_ALREADY_EXISTS}
        for name, one in codes.items():
            if one.error_code == ErrorCode.NOT_CONTROLLER:
                cluster.refresh([])
                return int(ErrorCode.LEADER_NOT_AVAILABLE)
            if one.error_code:
                said = f" ({one.error_message})" if one.error_message else ""
                raise WriteFailed(f"topic {name!r} cannot be made: {name_of_error(one.error_code)}{said}")
        return int(ErrorCode.NONE)

    def look() -> int:
        return max(cluster.refresh(partition_counts).values(), default=int(ErrorCode.NONE))

    retries.persist("topics cannot be made", create)
    retries.persist("the topics that were made are not there", look)
    for name, count in partition_counts.items():
        there = cluster.partition_count(name)
        if there < count:
            raise WriteFailed(
                f"topic {name!r} has {there} partitions there, and {count} are copied; add partitions to it"
            )


def is_empty(cluster: Cluster, retries: Retries, partition: TopicPartition) -> bool:
    """Whether a partition has no records. Raises WriteFailed."""
    topic, index = partition

    def ask() -> int | tuple[int, int]:
        found = []
        for timestamp in (_EARLIEST, _LATEST):
            wanted = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
            if (code := cluster.refresh([topic])[topic]) != ErrorCode.NONE:
                return code
            leader = cluster.leaders.get(partition, -1)
            if leader < 0:
                raise Unanswered(f"nobody leads {topic}-{index} now")
            answer = cluster.ask(cluster.broker(leader), request, _LIST_VERSION).topics[0].partitions[0]
            if answer.error_code:
                return int(answer.error_code)
            found.append(answer.offset)
        return found[0], found[1]

    start, end = retries.persist(f"the offsets of {topic}-{index} cannot be read", ask)
    return bool(start == end)
