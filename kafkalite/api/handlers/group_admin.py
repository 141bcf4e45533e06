"""FindCoordinator, DescribeGroups, ListGroups, DeleteGroups.

The topic that keeps the groups is made when the first client asks for a coordinator.
Source: kafka.server.KafkaApis.handleFindCoordinatorRequest, KIP-699.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from kafkalite.api.request.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import GROUP_METADATA_TOPIC
from kafkalite.protocol.messages.group_admin import (
    Coordinator,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_KEYS = 4
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
SHARE_KEY_TYPE = 2
FIRST_VERSION_OF_SHARE_GROUPS = 6
NO_ERROR = "NONE"  # what Kafka says up to version 3 where nothing is wrong; the empty string from 4 on
_NO_TRANSACTIONS = "this broker has no transactions yet: use an idempotent producer without a transactional.id"


def find_coordinator(
    services: Services, request: FindCoordinatorRequest, call: RequestContext
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    if request.key_type == GROUP_KEY_TYPE and not services.offsets_topic.is_ready:
        return _make_topic_and_answer(services, request, call)
    return _coordinators(services, request, call, None)


async def _make_topic_and_answer(
    services: Services, request: FindCoordinatorRequest, call: RequestContext
) -> FindCoordinatorResponse:
    try:
        await services.offsets_topic.ensure()
    except KafkaError as error:
        return _coordinators(services, request, call, error)
    return _coordinators(services, request, call, None)


def _coordinators(
    services: Services, request: FindCoordinatorRequest, call: RequestContext, topic_fault: KafkaError | None
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.api_version >= FIRST_VERSION_WITH_KEYS else [request.key]
    found = [_coordinator(services, request.key_type, key, call, topic_fault) for key in keys]
    if call.api_version >= FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message or NO_ERROR,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(
    services: Services, key_type: int, key: str, call: RequestContext, topic_fault: KafkaError | None
) -> Coordinator:
    fault = topic_fault
    if key_type == TRANSACTION_KEY_TYPE:
        # an error that every client takes for final: the producer is to fail at once and not to ask again
        fault = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO_TRANSACTIONS)
        logger.warning("%s wants the transactional id %r: %s", call.client_id or "a client", key, _NO_TRANSACTIONS)
    elif key_type == SHARE_KEY_TYPE and call.api_version >= FIRST_VERSION_OF_SHARE_GROUPS:
        fault = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are no share groups here")
    elif key_type != GROUP_KEY_TYPE:
        fault = KafkaError(ErrorCode.INVALID_REQUEST, f"unknown coordinator key type {key_type}")
    elif topic_fault is not None:
        fault = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(topic_fault))
    if fault is not None:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=fault.code, error_message=fault.message)
    leader, _ = services.leader_of(GROUP_METADATA_TOPIC, services.groups.partition_for(key))
    broker = services.brokers.find(call.connection, leader)
    if broker is None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        message = "nobody leads the group's partition at the moment, or not on this listener"
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
    return Coordinator(error_message="", key=key, node_id=broker.broker_id, host=broker.host, port=broker.port)


def describe_groups(services: Services, request: DescribeGroupsRequest, call: RequestContext) -> DescribeGroupsResponse:
    response = services.groups.describe_groups(request, call.api_version)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    for group in response.groups:
        group.authorized_operations = operations if group.error_code == ErrorCode.NONE else NOT_ASKED
    return response


def list_groups(services: Services, request: ListGroupsRequest, call: RequestContext) -> ListGroupsResponse:
    return services.groups.list_groups(request, call.api_version)


def delete_groups(
    services: Services, request: DeleteGroupsRequest, call: RequestContext
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    return services.groups.delete_groups(request)
