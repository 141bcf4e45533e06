"""Metadata, DescribeCluster and ApiVersions: the brokers, the topics, the leader of each partition, and the APIs.

A named topic that does not exist is created if client and broker both allow it. The answer is sent when the topic is
ready, so the client need not ask twice. From version 12 on topics may be asked for by id (KIP-516); 10 and 11 have the
field already, but no broker ever accepted it. In a request with any topic id, names are ignored.
Source: kafka.server.KafkaApis (handleTopicMetadataRequest, handleApiVersionsRequest), AutoTopicCreationManager;
ApiVersionsRequest.isValid; KIP-35, KIP-511, KIP-584.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from kafkalite.api.request.broker_endpoints import BrokerEndpoints
from kafkalite.api.request.request_context import OPERATIONS_NOT_ASKED, TOPIC, RequestContext, Runtime, in_time
from kafkalite.api.request.throttling import MutationQuota
from kafkalite.api.request.topic_describer import EncodedTopics, TopicDescriber
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import (
    INTERNAL_TOPICS,
    ZERO_UUID,
    topic_name_fault,
)
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.internal_topic import InternalTopic
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.metadata.finalized_features import HIGHEST_LEVELS, FinalizedFeatures
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.messages import metadata as wire
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.topic_admin import TopicAdmin
from kafkalite.security.acl.acl import Operation

logger = logging.getLogger(__name__)

FIRST_VERSION_THAT_MAY_FORBID_CREATION = 4
FIRST_VERSION_BY_ID = 12
BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2  # KIP-919
_SENT_TO_A_BROKER = "The request was sent to an endpoint of type BROKER"
_CREATED_AT_ONCE_MAX = 1_000  # topics created by one request
_CREATION_MS_MAX = 5_000  # in a cluster; later requests of the client's connection wait meanwhile
_CANNOT_NOW = ErrorCode.LEADER_NOT_AVAILABLE  # clients ask again

API_VERSIONS_KEY = 18
FIRST_VERSION_WITH_SOFTWARE = 3
FIRST_VERSION_WITH_LEVEL_ZERO = 4
_OF_TELEMETRY = ("GetTelemetrySubscriptions", "PushTelemetry")
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?\Z")


class MetadataApi(NamedTuple):
    """The Metadata, DescribeCluster and ApiVersions APIs."""

    runtime: Runtime
    config: Callable[[], BrokerConfig]
    cluster: ClusterMetadata
    brokers: BrokerEndpoints
    replica_manager: ReplicaManager
    topic_admin: TopicAdmin
    internal_topics: Mapping[str, InternalTopic]
    features: FinalizedFeatures
    encoded_topics: EncodedTopics

    def metadata(
        self, request: wire.MetadataRequest, context: RequestContext
    ) -> wire.MetadataResponse | Awaitable[wire.MetadataResponse]:
        if self.cluster.is_shared and (_is_of_all(request, context) or self._may_lack(request.topics or ())):
            return self._caught_up(request, context)
        return self._known(request, context)

    def _may_lack(self, topics: Iterable[wire.MetadataRequestTopic]) -> bool:
        """Whether another broker may have created one of the topics."""
        by_name, by_id = self.replica_manager.by_name, self.replica_manager.by_id
        return any(
            topic.name not in by_name if topic.topic_id == ZERO_UUID else topic.topic_id not in by_id
            for topic in topics
        )

    async def _caught_up(self, request: wire.MetadataRequest, context: RequestContext) -> wire.MetadataResponse:
        topics = request.topics or ()
        if _is_of_all(request, context) or any(topic.topic_id != ZERO_UUID for topic in topics):
            names: Iterable[str] = self.cluster.topics
        else:
            names = [topic.name for topic in topics if topic.name is not None]
        can_create = await self.topic_admin.catch_up(names)
        response = self._known(request, context, can_create)
        return response if isinstance(response, wire.MetadataResponse) else await response

    def _known(
        self, request: wire.MetadataRequest, context: RequestContext, can_create: bool = True
    ) -> wire.MetadataResponse | Awaitable[wire.MetadataResponse]:
        version = context.api_version
        by_name = self.replica_manager.by_name
        if request.topics is None or _is_of_all(request, context):  # the first half for the type checker
            names = list(by_name)
            if context.access is not None:
                names = [name for name in names if context.may(Operation.DESCRIBE, TOPIC, name, is_logged=False)]
            return self._answer(request, context, names)
        if any(topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics):
            return self._by_id(request, request.topics, context)
        creates = self.config().auto_create_topics_enable and (
            version < FIRST_VERSION_THAT_MAY_FORBID_CREATION or request.allow_auto_topic_creation
        )
        names, missing = [], []
        refused: list[wire.MetadataResponseTopic] = []
        for name in dict.fromkeys(topic.name or "" for topic in request.topics):
            is_created = creates and name not in by_name and not self._awaits_election(name)
            if not context.may(Operation.DESCRIBE, TOPIC, name) or (is_created and not context.may_create(name)):
                refused.append(wire.MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
                continue
            names.append(name)
            if is_created:
                missing.append(name)
        if missing and not can_create:
            return self._answer(request, context, names, refused, dict.fromkeys(missing, _CANNOT_NOW))
        if missing:
            return self._create_and_answer(request, context, names, missing, refused)
        return self._answer(request, context, names, refused)

    def _awaits_election(self, name: str) -> bool:
        """Whether others have created the topic, and it is not shown yet."""
        return self.cluster.is_shared and name in self.cluster.topics

    def _by_id(
        self, request: wire.MetadataRequest, topics: list[wire.MetadataRequestTopic], context: RequestContext
    ) -> wire.MetadataResponse:
        """The answer to a request with topic ids; names in it are ignored, as in Kafka."""
        ids = dict.fromkeys(topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID)
        if context.api_version < FIRST_VERSION_BY_ID or not ids:
            return _refused(topics, ErrorCode.INVALID_REQUEST)
        names: list[str] = []
        unknown: list[wire.MetadataResponseTopic] = []
        refused: list[wire.MetadataResponseTopic] = []
        for topic_id in ids:
            topic = self.replica_manager.by_id.get(topic_id)
            if topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
                unknown.append(wire.MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id))
            elif context.may(Operation.DESCRIBE, TOPIC, topic.name):
                names.append(topic.name)
            else:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(wire.MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id))
        response = self._answer(request, context, names, refused)
        response.topics = unknown + response.topics
        return response

    async def _create_and_answer(
        self,
        request: wire.MetadataRequest,
        context: RequestContext,
        names: list[str],
        missing: list[str],
        refused: list[wire.MetadataResponseTopic],
    ) -> wire.MetadataResponse:
        faults: dict[str, ErrorCode] = {}
        quota = MutationQuota(context.connection, self.runtime.clock, is_strict=False)
        deadline_ms = self.runtime.clock.monotonic_ms() + _CREATION_MS_MAX
        for name in missing[:_CREATED_AT_ONCE_MAX]:
            left_ms = deadline_ms - self.runtime.clock.monotonic_ms()
            try:
                if not self.cluster.is_shared:
                    await self._ensure(name, quota)
                elif left_ms > 0:
                    await in_time(self.runtime, left_ms, self._ensure(name, quota))
                else:
                    faults[name] = _CANNOT_NOW
            except KafkaError as error:
                # a topic that cannot be created now may exist later
                faults[name] = _CANNOT_NOW if error.code is ErrorCode.REQUEST_TIMED_OUT else error.code
                if error.code is not ErrorCode.INVALID_TOPIC_EXCEPTION:
                    logger.warning("topic %s could not be created on demand: %s", name, error)
        return self._answer(request, context, names, refused, faults)

    async def _ensure(self, name: str, quota: MutationQuota) -> None:
        if (internal := self.internal_topics.get(name)) is not None:
            await internal.ensure()
            return
        partition_count = self.config().num_partitions
        quota.take(partition_count)
        await self.topic_admin.ensure(name, partition_count, {})

    def _answer(
        self,
        request: wire.MetadataRequest,
        context: RequestContext,
        names: list[str],
        refused: Iterable[wire.MetadataResponseTopic] = (),
        faults: Mapping[str, ErrorCode] = MappingProxyType({}),
    ) -> wire.MetadataResponse:
        """The answer about topics that the client may describe, and about `refused` ones."""
        brokers = self.brokers.all_for(context.connection)
        describer = TopicDescriber(
            self.brokers.broker_id, brokers, self.cluster, self.replica_manager, context.api_version
        )
        by_name, is_asked = self.replica_manager.by_name, request.include_topic_authorized_operations
        topics: list[Any]  # an element may be encoded already
        if not is_asked and all(map(by_name.__contains__, names)):
            topics = self.encoded_topics.encoded(describer, [by_name[name] for name in names])
        else:
            topics = [self._topic(name, describer, context, is_asked, faults) for name in names]
        return wire.MetadataResponse(
            brokers=[
                wire.MetadataResponseBroker(
                    node_id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in brokers
            ],
            cluster_id=self.cluster.cluster_id,
            controller_id=self.cluster.controller_id,
            topics=[*topics, *refused],
            cluster_authorized_operations=_cluster_operations(request, context),
            missing_at=self._missing_at(request.is_missing),
        )

    def _topic(
        self,
        name: str,
        describer: TopicDescriber,
        context: RequestContext,
        is_asked: bool,
        faults: Mapping[str, ErrorCode],
    ) -> wire.MetadataResponseTopic:
        operations = context.operations(TOPIC, name) if is_asked else OPERATIONS_NOT_ASKED
        topic = self.replica_manager.by_name.get(name)
        if topic is not None:
            return describer.topic(topic, operations)
        code = faults.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic_name_fault(name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return wire.MetadataResponseTopic(
            error_code=code,
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[],
            topic_authorized_operations=operations,
        )

    def _missing_at(self, broker_id: int) -> int:
        """The transaction id as of which broker `broker_id`, the requester, is not registered; -1 if it is registered,
        or if this broker is not registered itself."""
        members = self.cluster.brokers
        if broker_id < 0 or broker_id in members or self.brokers.broker_id not in members:
            return -1
        return self.cluster.last_transaction

    def describe_cluster(
        self, request: wire.DescribeClusterRequest, context: RequestContext
    ) -> wire.DescribeClusterResponse:
        if request.endpoint_type != BROKER_ENDPOINTS:
            if request.endpoint_type == CONTROLLER_ENDPOINTS:
                wanted = "but we wanted an endpoint of type CONTROLLER"
                code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, f"{_SENT_TO_A_BROKER}, {wanted}"
            else:
                code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
                message = f"Unsupported endpoint type {request.endpoint_type}"
            return wire.DescribeClusterResponse(error_code=code, error_message=message)
        return wire.DescribeClusterResponse(
            cluster_id=self.cluster.cluster_id,
            controller_id=self.cluster.controller_id,
            brokers=[
                wire.DescribeClusterBroker(
                    broker_id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in self.brokers.all_for(context.connection)
            ],
            cluster_authorized_operations=_cluster_operations(request, context),
        )

    def api_versions(self, request: wire.ApiVersionsRequest, context: RequestContext) -> wire.ApiVersionsResponse:
        names = (request.client_software_name, request.client_software_version)
        if context.api_version >= FIRST_VERSION_WITH_SOFTWARE and not all(map(_SOFTWARE.match, names)):
            return wire.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.client_software_name = request.client_software_name or None
        context.connection.client_software_version = request.client_software_version or None
        return wire.ApiVersionsResponse(
            api_keys=[
                wire.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
                for api in APIS.values()
                if api.name not in _OF_TELEMETRY or self.config().metrics_listener
            ],
            supported_features=_supported_features(context.api_version),
            finalized_features_epoch=self.features.epoch,
            finalized_features=[
                wire.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in self.features.levels().items()
            ],
        )


def _is_of_all(request: wire.MetadataRequest, context: RequestContext) -> bool:
    """Whether all topics are asked for: null, or the empty list in version 0."""
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _refused(topics: list[wire.MetadataRequestTopic], code: ErrorCode) -> wire.MetadataResponse:
    return wire.MetadataResponse(
        cluster_id=None,
        topics=[
            wire.MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in topics
        ],
    )


def _cluster_operations(request: wire.MetadataRequest | wire.DescribeClusterRequest, context: RequestContext) -> int:
    return context.cluster_operations() if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED


def _supported_features(version: int) -> list[wire.SupportedFeatureKey]:
    """Clients of older versions cannot read a feature whose lowest level is 0 (KAFKA-17492)."""
    if version < FIRST_VERSION_WITH_LEVEL_ZERO:
        return []
    return [
        wire.SupportedFeatureKey(name=name, min_version=0, max_version=highest)
        for name, highest in HIGHEST_LEVELS.items()
    ]


def unsupported_version() -> wire.ApiVersionsResponse:
    """The answer, in version 0, to an ApiVersions request of an unsupported version. Its list has the versions that the
    client may retry with."""
    mine = APIS[API_VERSIONS_KEY]
    return wire.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[wire.ApiVersion(api_key=mine.key, min_version=mine.min_version, max_version=mine.max_version)],
    )
