"""DescribeTopicPartitions: partitions of topics, in pages of which each names the first partition of the next.

Topics come in the order of their names. A page has a limited number of partitions, over all its topics, and at least
one. Topics that the client may not describe are refused by name after the others, and left out of "all topics".
Source: kafka.server.handlers.DescribeTopicPartitionsRequestHandler, KRaftMetadataCache; KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkalite.api.handlers.metadata import FIRST_VERSION_BY_ID
from kafkalite.api.request.broker_endpoints import BrokerEndpoints
from kafkalite.api.request.request_context import TOPIC, RequestContext
from kafkalite.api.request.topic_describer import TopicDescriber
from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import INTERNAL_TOPICS, topic_name_fault
from kafkalite.common.text import java_order
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.protocol.messages import topic_partitions as wire
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.security.acl.acl import Operation


class TopicPartitionApi(NamedTuple):
    """The DescribeTopicPartitions API."""

    config: Callable[[], BrokerConfig]
    cluster: ClusterMetadata
    brokers: BrokerEndpoints
    replica_manager: ReplicaManager

    def describe_topic_partitions(
        self, request: wire.DescribeTopicPartitionsRequest, context: RequestContext
    ) -> wire.DescribeTopicPartitionsResponse:
        cursor, is_all = request.cursor, not request.topics
        names = set(self.replica_manager.by_name if is_all else (topic.name for topic in request.topics))
        if cursor is not None:
            if cursor.partition_index < 0 or not (is_all or cursor.topic_name in names):
                return _refused(request)
            names = {name for name in names if java_order(name) >= java_order(cursor.topic_name)}
        described, refused = [], []
        for name in sorted(names, key=java_order):
            if context.may(Operation.DESCRIBE, TOPIC, name, is_logged=not is_all):
                described.append(name)
            elif not is_all:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(wire.DescribeTopicPartitionsResponseTopic(error_code=code, name=name))
        limit = max(1, min(self.config().max_request_partition_size_limit, request.response_partition_limit))
        response = self._page(described, context, cursor, limit, is_all=is_all)
        response.topics += refused
        return response

    def _page(
        self, names: Iterable[str], context: RequestContext, cursor: wire.Cursor | None, limit: int, *, is_all: bool
    ) -> wire.DescribeTopicPartitionsResponse:
        """At most `limit` partitions, from `cursor` on. Names of topics that do not exist take no place in it."""
        topics: list[wire.DescribeTopicPartitionsResponseTopic] = []
        describer = TopicDescriber(
            self.brokers.broker_id,
            self.brokers.all_for(context.connection),
            self.cluster,
            self.replica_manager,
            FIRST_VERSION_BY_ID,
        )
        for name in names:
            if limit == 0:
                return _response(topics, name, 0)
            topic = self.replica_manager.by_name.get(name)
            if topic is None:
                if not is_all:
                    topics.append(_missing(name, context))
                continue
            first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            indexes = describer.indexes(topic)
            chosen = [index for index in indexes if index >= first][:limit]
            topics.append(
                wire.DescribeTopicPartitionsResponseTopic(
                    name=name,
                    topic_id=topic.topic_id,
                    is_internal=topic.internal,
                    partitions=[
                        wire.DescribeTopicPartitionsResponsePartition(
                            error_code=one.error_code,
                            partition_index=one.partition_index,
                            leader_id=one.leader_id,
                            leader_epoch=one.leader_epoch,
                            replica_nodes=one.replica_nodes,
                            isr_nodes=one.isr_nodes,
                            eligible_leader_replicas=[],
                            last_known_elr=[],
                            offline_replicas=one.offline_replicas,
                        )
                        for one in (describer.partition(topic, index) for index in chosen)
                    ],
                    topic_authorized_operations=context.operations(TOPIC, name),
                )
            )
            if chosen and chosen[-1] != indexes[-1]:
                return _response(topics, name, chosen[-1] + 1)
            limit -= len(chosen)
        return wire.DescribeTopicPartitionsResponse(topics=topics)


def _response(
    topics: list[wire.DescribeTopicPartitionsResponseTopic], next_topic: str, next_index: int
) -> wire.DescribeTopicPartitionsResponse:
    cursor = wire.Cursor(topic_name=next_topic, partition_index=next_index)
    return wire.DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _missing(name: str, context: RequestContext) -> wire.DescribeTopicPartitionsResponseTopic:
    is_bad = topic_name_fault(name) is not None
    return wire.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION if is_bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=context.operations(TOPIC, name),
    )


def _refused(request: wire.DescribeTopicPartitionsRequest) -> wire.DescribeTopicPartitionsResponse:
    """The answer to a cursor that points to nothing of the request."""
    code = ErrorCode.INVALID_REQUEST
    return wire.DescribeTopicPartitionsResponse(
        topics=[wire.DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name) for topic in request.topics]
    )
