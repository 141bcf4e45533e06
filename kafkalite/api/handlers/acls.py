"""DescribeAcls, CreateAcls, DeleteAcls: the access control lists of the cluster.

Source: kafka.server.AclApis, kafka.security.authorizer.AclAuthorizer (createAcls, deleteAcls), KIP-140, KIP-290.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from kafkalite.api.request.request_context import RequestContext
from kafkalite.api.request.services import Services
from kafkalite.common.errors import Disconnect, ErrorCode, KafkaError
from kafkalite.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kafkalite.security.acl.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Entry,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from kafkalite.security.principal import parse_principal

_NO_AUTHORIZER = "No Authorizer is configured on the broker"
_FIRST_VERSION_WITH_PATTERNS = 1
_FIRST_VERSION_WITH_USERS = 3
_NAMED_IN_ERRORS_MAX = 120
_E = TypeVar("_E", bound=IntEnum)


def describe_acls(services: Services, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    wanted = _filter(request, context.api_version)
    if services.access is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)
    by_resource: dict[Resource, list[AclDescription]] = {}
    for resource, entry in services.access.authorizer.acls.found(wanted):
        by_resource.setdefault(resource, []).append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=resource.type, resource_name=resource.name, pattern_type=resource.pattern, acls=acls
            )
            for resource, acls in by_resource.items()
        ]
    )


async def create_acls(services: Services, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    version = context.api_version
    results: list[AclCreationResult] = [AclCreationResult() for _ in request.creations]
    added: dict[Resource, dict[int, Entry]] = {}
    for number, creation in enumerate(request.creations):
        try:
            acl = _acl(creation, version)
            if services.access is None:
                raise KafkaError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)
        except KafkaError as error:
            results[number] = AclCreationResult(error_code=error.code, error_message=error.message)
        else:
            added.setdefault(acl.resource, {})[number] = acl.entry
    for resource, entries in added.items():
        new = tuple(entries.values())
        try:
            await services.metadata.change_acls(resource, lambda there, new=new: _joined(there, new))  # type: ignore[misc]
        except KafkaError as error:
            for number in entries:
                results[number] = AclCreationResult(error_code=error.code, error_message=error.message)
    return CreateAclsResponse(results=results)


async def delete_acls(services: Services, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    filters = [_filter(each, context.api_version) for each in request.filters]
    if services.access is None:
        refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused for _ in filters])
    results = [DeleteAclsFilterResult() for _ in filters]
    doomed: dict[Resource, dict[Entry, int]] = {}  # -> the first filter that found it
    for acl in services.access.authorizer.acls:
        number = next((number for number, each in enumerate(filters) if each.matches(acl)), None)
        if number is not None:
            doomed.setdefault(acl.resource, {})[acl.entry] = number
    for resource, entries in doomed.items():
        code, message = ErrorCode.NONE, None
        gone = frozenset(entries)
        try:
            await services.metadata.change_acls(
                resource,
                lambda there, gone=gone: tuple(each for each in there if each not in gone),  # type: ignore[misc]
            )
        except KafkaError as error:
            code, message = error.code, error.message
        for entry, number in entries.items():
            results[number].matching_acls.append(
                DeleteAclsMatchingAcl(
                    error_code=code,
                    error_message=message,
                    resource_type=resource.type,
                    resource_name=resource.name,
                    pattern_type=resource.pattern,
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
            )
    return DeleteAclsResponse(filter_results=results)


def _joined(there: tuple[Entry, ...], new: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return tuple(dict.fromkeys((*there, *new)))


def _filter(request: DescribeAclsRequest | DeleteAclsFilter, version: int) -> AclFilter:
    return AclFilter(
        _known(ResourceType, request.resource_type_filter, version),
        request.resource_name_filter,
        _known(PatternType, request.pattern_type_filter, version),
        request.principal_filter,
        request.host_filter,
        _known(Operation, request.operation, version),
        _known(Permission, request.permission_type, version),
    )


def _acl(creation: AclCreation, version: int) -> Acl:
    """Raises KafkaError for one that nobody could mean."""
    type_ = _known(ResourceType, creation.resource_type, version)
    pattern = _known(PatternType, creation.resource_pattern_type, version)
    operation = _known(Operation, creation.operation, version)
    permission = _known(Permission, creation.permission_type, version)
    name = creation.resource_name
    if ResourceType.ANY is type_ or pattern in (PatternType.ANY, PatternType.MATCH):
        raise _invalid("ANY and MATCH are for filters, and an entry is for one resource pattern")
    if operation is Operation.ANY or permission is Permission.ANY:
        raise _invalid("ANY is for filters, and an entry is for one operation and allows or denies it")
    if not name:
        raise _invalid("the name of a resource is empty")
    if type_ is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"the only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if "/" in name:
        raise _invalid(f"the name of a resource has a slash, and ZooKeeper has no place for it: {_shown(name)}")
    try:
        parse_principal(creation.principal)
    except ValueError as fault:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"principal {fault}") from None
    return Acl(Resource(type_, name, pattern), Entry(creation.principal, permission, operation, creation.host))


def _known(kind: type[_E], number: int, version: int) -> _E:
    """Raises Disconnect for a number that this version has not: in Kafka such a request cannot be parsed."""
    try:
        found = kind(number)
    except ValueError:
        raise Disconnect(f"{number} is no {kind.__name__}") from None
    if version < _FIRST_VERSION_WITH_USERS and found is ResourceType.USER:
        raise Disconnect(f"version {version} has no resource type USER")
    return found


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _shown(name: str) -> str:
    return ascii(name[:_NAMED_IN_ERRORS_MAX])
