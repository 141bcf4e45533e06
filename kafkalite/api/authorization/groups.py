"""FindCoordinator, DescribeGroups, ListGroups, OffsetFetch behind an authorizer.

Source: kafka.server.KafkaApis (handleFindCoordinatorRequest, fetchOffsetsForGroup, handleListGroupsRequest).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalite.api.authorization.permissions import GROUP, MESSAGES, REFUSALS, TOPIC, TRANSACTIONAL_ID
from kafkalite.api.authorization.rules import Handler, then
from kafkalite.api.handlers.group_admin import FIRST_VERSION_WITH_KEYS
from kafkalite.api.handlers.group_membership import FIRST_SYNC_WITH_PROTOCOL
from kafkalite.api.handlers.group_offsets import FIRST_FETCH_OF_MANY_GROUPS
from kafkalite.api.request.access import Access
from kafkalite.api.request.authorized_operations import NOT_ASKED
from kafkalite.api.request.error_answer import error_answer, merged
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.request_split import copy_of, without
from kafkalite.api.request.services import Services
from kafkalite.network.client_connection import ClientConnection
from kafkalite.protocol.messages.group_admin import (
    Coordinator,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsResponse,
)
from kafkalite.protocol.messages.group_membership import SyncGroupRequest, SyncGroupResponse
from kafkalite.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kafkalite.security.acl.acl import Operation

_KEY_TYPES = {0: GROUP, 1: TRANSACTIONAL_ID, 2: GROUP}


def find_coordinator(
    access: Access, services: Services, request: FindCoordinatorRequest, context: RequestContext, handler: Handler
) -> Any:
    type_ = _KEY_TYPES.get(request.key_type)
    if type_ is None:
        return handler(services, request, context)
    has_keys = context.api_version >= FIRST_VERSION_WITH_KEYS
    keys = request.coordinator_keys if has_keys else [request.key]
    denied = {key for key in keys if not access.allows(context.connection, Operation.DESCRIBE, type_, key)}
    if not denied:
        return handler(services, request, context)
    code, message = REFUSALS[type_], MESSAGES[REFUSALS[type_]]
    if not has_keys:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
    refusals = [
        Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message) for key in denied
    ]
    rest: FindCoordinatorRequest = copy_of(request)  # type: ignore[assignment]
    rest.coordinator_keys = [key for key in keys if key not in denied]
    if not rest.coordinator_keys:
        return FindCoordinatorResponse(coordinators=refusals)

    def completed(response: FindCoordinatorResponse) -> FindCoordinatorResponse:
        response.coordinators += refusals
        return response

    return then(handler(services, rest, context), completed)


def describe_groups(
    access: Access, services: Services, request: DescribeGroupsRequest, context: RequestContext, handler: Handler
) -> Any:
    connection = context.connection
    rest: DescribeGroupsRequest = copy_of(request)  # type: ignore[assignment]
    rest.groups = [each for each in request.groups if access.allows(connection, Operation.DESCRIBE, GROUP, each)]
    allowed = set(rest.groups)
    refusals = [
        DescribedGroup(error_code=REFUSALS[GROUP], group_id=each)
        for each in dict.fromkeys(request.groups)
        if each not in allowed
    ]

    def completed(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        for group in response.groups:
            if group.authorized_operations != NOT_ASKED:
                group.authorized_operations = access.operations(connection, GROUP, group.group_id)
        response.groups += refusals
        return response

    return then(handler(services, rest, context), completed)


def list_groups(access: Access, services: Services, request: Any, context: RequestContext, handler: Handler) -> Any:
    connection = context.connection
    response = handler(services, request, context)
    if access.allows_cluster(connection, Operation.DESCRIBE, is_logged=False):
        return response

    def filtered(answer: ListGroupsResponse) -> ListGroupsResponse:
        answer.groups = [
            each
            for each in answer.groups
            if access.allows(connection, Operation.DESCRIBE, GROUP, each.group_id, is_logged=False)
        ]
        return answer

    return then(response, filtered)


def sync_group(
    access: Access, services: Services, request: SyncGroupRequest, context: RequestContext, handler: Handler
) -> Any:
    """A request without the protocol, which is mandatory, is refused for that first."""
    is_whole = context.api_version < FIRST_SYNC_WITH_PROTOCOL or None not in (
        request.protocol_type,
        request.protocol_name,
    )
    if is_whole and not access.allows(context.connection, Operation.READ, GROUP, request.group_id):
        return SyncGroupResponse(error_code=REFUSALS[GROUP])
    return handler(services, request, context)


def offset_delete(
    access: Access, services: Services, request: OffsetDeleteRequest, context: RequestContext, handler: Handler
) -> Any:
    """The group is looked at even if no topic is left: an answer that it is missing tells nothing of topics."""
    denied = {each.name for each in request.topics if not access.may_read(context.connection, each.name)}
    rest, _ = without(request, denied.__contains__)
    refusals = error_answer(
        OffsetDeleteResponse, without(request, lambda name: name not in denied)[0], REFUSALS[TOPIC], context.api_version
    )

    def completed(response: OffsetDeleteResponse) -> Any:
        return response if response.error_code or not denied else merged(response, refusals)

    return then(handler(services, rest, context), completed)


def offset_fetch(
    access: Access, services: Services, request: OffsetFetchRequest, context: RequestContext, handler: Handler
) -> Any:
    connection = context.connection
    if context.api_version < FIRST_FETCH_OF_MANY_GROUPS:
        if not access.allows(connection, Operation.DESCRIBE, GROUP, request.group_id):
            return error_answer(OffsetFetchResponse, request, REFUSALS[GROUP], context.api_version)
        topics, refused = _split_topics(access, connection, request.topics)
        rest: OffsetFetchRequest = copy_of(request)  # type: ignore[assignment]
        rest.topics = topics
        return then(
            handler(services, rest, context),
            lambda answer: _with_topics(access, connection, answer, refused, is_all=topics is None),
        )
    return _many_groups(access, services, request, context, handler)


def _many_groups(
    access: Access, services: Services, request: OffsetFetchRequest, context: RequestContext, handler: Handler
) -> Any:
    connection = context.connection
    rest: OffsetFetchRequest = copy_of(request)  # type: ignore[assignment]
    rest.groups = []
    refusals: list[OffsetFetchResponseGroup] = []
    refused: dict[str, list[OffsetFetchResponseTopic]] = {}
    wants_all: set[str] = set()
    for group in request.groups:
        if not access.allows(connection, Operation.DESCRIBE, GROUP, group.group_id):
            refusals.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=REFUSALS[GROUP]))
            continue
        narrowed = copy_of(group)
        narrowed.topics, refused[group.group_id] = _split_topics(access, connection, group.topics)  # type: ignore[attr-defined]
        if group.topics is None:
            wants_all.add(group.group_id)
        rest.groups.append(narrowed)  # type: ignore[arg-type]

    def completed(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for group in response.groups:
            _with_topics(access, connection, group, refused.get(group.group_id, []), group.group_id in wants_all)
        response.groups += refusals
        return response

    if not rest.groups:
        return OffsetFetchResponse(groups=refusals)
    return then(handler(services, rest, context), completed)


def _split_topics(
    access: Access, connection: ClientConnection, topics: Iterable[OffsetFetchRequestTopic] | None
) -> tuple[list[OffsetFetchRequestTopic] | None, list[OffsetFetchResponseTopic]]:
    """The topics that may be described (None: all), and the answers about the others."""
    if topics is None:
        return None, []
    allowed: list[OffsetFetchRequestTopic] = []
    refused: list[OffsetFetchResponseTopic] = []
    for topic in topics:
        if access.allows(connection, Operation.DESCRIBE, TOPIC, topic.name):
            allowed.append(topic)
            continue
        partitions = [
            OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=REFUSALS[TOPIC])
            for index in topic.partition_indexes
        ]
        refused.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return allowed, refused


def _with_topics(
    access: Access,
    connection: ClientConnection,
    answer: OffsetFetchResponse | OffsetFetchResponseGroup,
    refused: list[OffsetFetchResponseTopic],
    is_all: bool,
) -> OffsetFetchResponse | OffsetFetchResponseGroup:
    if is_all:
        answer.topics = [
            each
            for each in answer.topics
            if access.allows(connection, Operation.DESCRIBE, TOPIC, each.name, is_logged=False)
        ]
    if not answer.error_code:
        answer.topics += refused
    return answer
