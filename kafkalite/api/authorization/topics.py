"""Metadata, CreateTopics, DeleteTopics, DescribeCluster, DescribeLogDirs behind an authorizer.

Whether a topic exists is told only to those who may describe it.
Source: kafka.server.KafkaApis (handleTopicMetadataRequest, handleCreateTopicsRequest, handleDeleteTopicsRequest).
"""

from __future__ import annotations

from typing import Any

from kafkalite.api.authorization.permissions import CLUSTER, REFUSALS, TOPIC
from kafkalite.api.authorization.rules import Handler, then, without_denied
from kafkalite.api.handlers.metadata import FIRST_VERSION_THAT_MAY_FORBID_CREATION
from kafkalite.api.request.access import Access
from kafkalite.api.request.authorized_operations import NOT_ASKED
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.request_split import copy_of
from kafkalite.api.request.services import Services
from kafkalite.common.names import ZERO_UUID
from kafkalite.network.client_connection import ClientConnection
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.messages.log_dirs import DescribeLogDirsResponse
from kafkalite.protocol.messages.metadata import (
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kafkalite.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafkalite.security.acl.acl import CLUSTER_NAME, Operation

_CREATE_TOPICS = APIS[19]
_REFUSED = REFUSALS[TOPIC]
_FAILED = "Authorization failed."


def metadata(
    access: Access, services: Services, request: MetadataRequest, context: RequestContext, handler: Handler
) -> Any:
    connection = context.connection
    is_all = request.topics is None or (context.api_version == 0 and not request.topics)
    refusals: list[MetadataResponseTopic] = []
    allowed: list[MetadataRequestTopic] = []
    for topic in request.topics or ():
        refusal = _metadata_refusal(access, services, request, context, topic)
        if refusal is None:
            allowed.append(topic)
        else:
            refusals.append(refusal)

    def narrowed(response: MetadataResponse) -> MetadataResponse:
        if is_all:
            response.topics = [each for each in response.topics if _may_describe(access, connection, each.name, False)]
        elif not allowed:
            response.topics = []  # version 0 takes an empty list for all
        for each in response.topics:
            if request.include_topic_authorized_operations and each.name is not None:
                each.topic_authorized_operations = access.operations(connection, TOPIC, each.name)
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = _cluster_operations(access, connection)
        response.topics += refusals
        return response

    if not is_all:
        request = copy_of(request)  # type: ignore[assignment]
        request.topics = allowed
    return then(handler(services, request, context), narrowed)


def _metadata_refusal(
    access: Access,
    services: Services,
    request: MetadataRequest,
    context: RequestContext,
    topic: MetadataRequestTopic,
) -> MetadataResponseTopic | None:
    """The answer about a topic that may not be described, or that is missing and may not be created."""
    connection, manager, name = context.connection, services.replica_manager, topic.name
    if topic.topic_id != ZERO_UUID:
        found = manager.by_id.get(topic.topic_id)
        if found is None or _may_describe(access, connection, found.name):
            return None
        return MetadataResponseTopic(error_code=_REFUSED, name=None, topic_id=topic.topic_id)
    if name is None:
        return None
    is_allowed = _may_describe(access, connection, name)
    if is_allowed and name not in manager.by_name and services.config.auto_create_topics_enable:
        may_ask = context.api_version < FIRST_VERSION_THAT_MAY_FORBID_CREATION or request.allow_auto_topic_creation
        is_allowed = not may_ask or _may_create(access, connection, name)
    return None if is_allowed else MetadataResponseTopic(error_code=_REFUSED, name=name)


def _may_describe(access: Access, connection: ClientConnection, name: str | None, is_logged: bool = True) -> bool:
    return name is None or access.allows(connection, Operation.DESCRIBE, TOPIC, name, is_logged=is_logged)


def _may_create(access: Access, connection: ClientConnection, name: str) -> bool:
    return access.allows_cluster(connection, Operation.CREATE, is_logged=False) or access.allows(
        connection, Operation.CREATE, TOPIC, name
    )


def _cluster_operations(access: Access, connection: ClientConnection) -> int:
    if not access.allows_cluster(connection, Operation.DESCRIBE, is_logged=False):
        return 0
    return access.operations(connection, CLUSTER, CLUSTER_NAME)


def describe_cluster(
    access: Access, services: Services, request: Any, context: RequestContext, handler: Handler
) -> Any:
    def told(response: DescribeClusterResponse) -> DescribeClusterResponse:
        if response.cluster_authorized_operations != NOT_ASKED:
            response.cluster_authorized_operations = _cluster_operations(access, context.connection)
        return response

    return then(handler(services, request, context), told)


def describe_log_dirs(
    access: Access, services: Services, request: Any, context: RequestContext, handler: Handler
) -> Any:
    if access.allows_cluster(context.connection, Operation.DESCRIBE):
        return handler(services, request, context)
    return DescribeLogDirsResponse(error_code=REFUSALS[CLUSTER])


def create_topics(
    access: Access, services: Services, request: CreateTopicsRequest, context: RequestContext, handler: Handler
) -> Any:
    connection = context.connection
    denied = {each.name for each in request.topics if not _may_create(access, connection, each.name)}

    def hidden(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for topic in response.topics:
            if topic.error_code == _REFUSED:
                topic.error_message = _FAILED
            if not access.allows(connection, Operation.DESCRIBE_CONFIGS, TOPIC, topic.name, is_logged=False):
                topic.topic_config_error_code, topic.topic_id = _REFUSED, ZERO_UUID
                topic.num_partitions, topic.replication_factor, topic.configs = -1, -1, []
        return response

    response = without_denied(_CREATE_TOPICS, services, request, context, handler, denied, _REFUSED)
    return then(response, hidden)


def delete_topics(
    access: Access, services: Services, request: DeleteTopicsRequest, context: RequestContext, handler: Handler
) -> Any:
    connection = context.connection
    refusals: list[DeletableTopicResult] = []
    rest: DeleteTopicsRequest = copy_of(request)  # type: ignore[assignment]
    rest.topics, rest.topic_names = [], []
    for topic in request.topics:
        found = services.replica_manager.by_id.get(topic.topic_id) if topic.topic_id != ZERO_UUID else None
        name = found.name if found is not None else topic.name
        if name is None:  # an unknown id
            rest.topics.append(topic)
        elif found is not None and not _may_describe(access, connection, name):
            refusals.append(DeletableTopicResult(name=None, topic_id=topic.topic_id, error_code=_REFUSED))
        elif access.allows(connection, Operation.DELETE, TOPIC, name):
            rest.topics.append(topic)
        else:
            refusals.append(DeletableTopicResult(name=name, topic_id=topic.topic_id, error_code=_REFUSED))
    for name in request.topic_names:
        if access.allows(connection, Operation.DELETE, TOPIC, name):
            rest.topic_names.append(name)
        else:
            refusals.append(DeletableTopicResult(name=name, error_code=_REFUSED))

    def completed(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        response.responses += refusals
        return response

    if not rest.topics and not rest.topic_names:
        return DeleteTopicsResponse(responses=refusals)
    return then(handler(services, rest, context), completed)
