"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs behind an authorizer: each resource by its type.

Source: kafka.server.ConfigHelper, kafka.server.KafkaApis (authorizeAlterConfigs).
"""

from __future__ import annotations

from typing import Any

from kafkalite.api.authorization.permissions import CLUSTER, MESSAGES, REFUSALS, TOPIC
from kafkalite.api.authorization.rules import Handler, then
from kafkalite.api.request.access import Access
from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.request_split import copy_of
from kafkalite.api.request.services import Services
from kafkalite.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkalite.security.acl.acl import Operation, ResourceType

_TOPIC_RESOURCE = 2


def describe_configs(
    access: Access, services: Services, request: DescribeConfigsRequest, context: RequestContext, handler: Handler
) -> Any:
    allowed, denied = _split(access, context, request.resources, Operation.DESCRIBE_CONFIGS)

    def completed(response: DescribeConfigsResponse) -> DescribeConfigsResponse:
        response.results += [DescribeConfigsResult(**_refusal(each, type_)) for each, type_ in denied]
        return response

    return then(handler(services, _about(request, allowed), context), completed)


def alter_configs(
    access: Access,
    services: Services,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    context: RequestContext,
    handler: Handler,
) -> Any:
    allowed, denied = _split(access, context, request.resources, Operation.ALTER_CONFIGS)

    def completed(response: AlterConfigsResponse | IncrementalAlterConfigsResponse) -> Any:
        response.responses += [AlterConfigsResourceResponse(**_refusal(each, type_)) for each, type_ in denied]
        return response

    return then(handler(services, _about(request, allowed), context), completed)


def _about(request: Any, resources: list[Any]) -> Any:
    """The request, about these of its resources only."""
    if len(resources) < len(request.resources):
        request = copy_of(request)
        request.resources = resources
    return request


def _split(
    access: Access, context: RequestContext, resources: list[Any], operation: Operation
) -> tuple[list[Any], list[tuple[Any, ResourceType]]]:
    allowed: list[Any] = []
    denied: list[tuple[Any, ResourceType]] = []
    for each in resources:
        if each.resource_type == _TOPIC_RESOURCE:
            type_ = TOPIC
            is_allowed = access.allows(context.connection, operation, TOPIC, each.resource_name)
        else:
            type_ = CLUSTER
            is_allowed = access.allows_cluster(context.connection, operation)
        if is_allowed:
            allowed.append(each)
        else:
            denied.append((each, type_))
    return allowed, denied


def _refusal(resource: Any, type_: ResourceType) -> dict[str, Any]:
    return {
        "error_code": REFUSALS[type_],
        "error_message": MESSAGES[REFUSALS[type_]],
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
