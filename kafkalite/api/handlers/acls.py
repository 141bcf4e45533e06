"""DescribeAcls, CreateAcls, DeleteAcls: the access control lists of the cluster.

Source: kafka.server.AclApis, kafka.security.authorizer.AclAuthorizer (createAcls, deleteAcls), KIP-140, KIP-290.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from kafkalite.api.request.request_context import RequestContext
from kafkalite.common.errors import Disconnect, ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.protocol.messages import acls as wire
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
_UNKNOWN = 0
_NAMED_IN_ERRORS_MAX = 120
_E = TypeVar("_E", bound=IntEnum)


class AclApi(NamedTuple):
    """The APIs of access control lists."""

    metadata: ClusterMetadata

    def describe_acls(self, request: wire.DescribeAclsRequest, context: RequestContext) -> wire.DescribeAclsResponse:
        wanted = _filter(request)
        if context.access is None:
            return wire.DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)
        by_resource: dict[Resource, list[wire.AclDescription]] = {}
        for resource, entry in context.access.authorizer.acls.found(wanted) if wanted is not None else ():
            by_resource.setdefault(resource, []).append(
                wire.AclDescription(
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
            )
        return wire.DescribeAclsResponse(
            resources=[
                wire.DescribeAclsResource(
                    resource_type=resource.type, resource_name=resource.name, pattern_type=resource.pattern, acls=acls
                )
                for resource, acls in by_resource.items()
            ]
        )

    async def create_acls(self, request: wire.CreateAclsRequest, context: RequestContext) -> wire.CreateAclsResponse:
        results: list[wire.AclCreationResult] = [wire.AclCreationResult() for _ in request.creations]
        added: dict[Resource, dict[int, Entry]] = {}
        for number, creation in enumerate(request.creations):
            try:
                acl = _acl(creation)
                if context.access is None:
                    raise KafkaError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)
            except KafkaError as error:
                results[number] = wire.AclCreationResult(error_code=error.code, error_message=error.message)
            else:
                added.setdefault(acl.resource, {})[number] = acl.entry
        for resource, entries in added.items():
            new = tuple(entries.values())
            try:
                await self.metadata.writes.change_acls(resource, lambda there, new=new: _joined(there, new))  # type: ignore[misc]
            except KafkaError as error:
                for number in entries:
                    results[number] = wire.AclCreationResult(error_code=error.code, error_message=error.message)
        return wire.CreateAclsResponse(results=results)

    async def delete_acls(self, request: wire.DeleteAclsRequest, context: RequestContext) -> wire.DeleteAclsResponse:
        filters = [_filter(each) for each in request.filters]
        if context.access is None:
            refused = wire.DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)
            return wire.DeleteAclsResponse(filter_results=[refused for _ in filters])
        results = [wire.DeleteAclsFilterResult() for _ in filters]
        doomed: dict[Resource, dict[Entry, int]] = {}  # -> the first filter that found it
        for acl in context.access.authorizer.acls:
            number = next(
                (number for number, each in enumerate(filters) if each is not None and each.matches(acl)), None
            )
            if number is not None:
                doomed.setdefault(acl.resource, {})[acl.entry] = number
        for resource, entries in doomed.items():
            code, message = ErrorCode.NONE, None
            gone = frozenset(entries)
            try:
                await self.metadata.writes.change_acls(
                    resource,
                    lambda there, gone=gone: tuple(each for each in there if each not in gone),  # type: ignore[misc]
                )
            except KafkaError as error:
                code, message = error.code, error.message
            for entry, number in entries.items():
                results[number].matching_acls.append(
                    wire.DeleteAclsMatchingAcl(
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
        return wire.DeleteAclsResponse(filter_results=results)


def _joined(there: tuple[Entry, ...], new: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return tuple(dict.fromkeys((*there, *new)))


def _filter(request: wire.DescribeAclsRequest | wire.DeleteAclsFilter) -> AclFilter | None:
    """The filter; None if it has an unknown number, and so matches nothing."""
    type_, pattern = (
        _value_of(ResourceType, request.resource_type_filter),
        _value_of(PatternType, request.pattern_type_filter),
    )
    operation, permission = _value_of(Operation, request.operation), _value_of(Permission, request.permission_type)
    if type_ is None or pattern is None or operation is None or permission is None:
        return None
    return AclFilter(
        type_,
        request.resource_name_filter,
        pattern,
        request.principal_filter,
        request.host_filter,
        operation,
        permission,
    )


def _acl(creation: wire.AclCreation) -> Acl:
    """The entry. Raises KafkaError for an invalid one."""
    type_ = _value_of(ResourceType, creation.resource_type)
    pattern = _value_of(PatternType, creation.resource_pattern_type)
    operation = _value_of(Operation, creation.operation)
    permission = _value_of(Permission, creation.permission_type)
    name = creation.resource_name
    if type_ is None or pattern is None or operation is None or permission is None:
        raise _invalid("a resource type, a pattern type, an operation or a permission is not known here")
    if ResourceType.ANY is type_ or pattern in (PatternType.ANY, PatternType.MATCH):
        raise _no_entry("ANY and MATCH are for filters, and an entry is for one resource pattern")
    if operation is Operation.ANY or permission is Permission.ANY:
        raise _no_entry("ANY is for filters, and an entry is for one operation and allows or denies it")
    if not name:
        raise _invalid("the name of a resource is empty")
    if type_ is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"the only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if "/" in name:
        raise _invalid(f"the name of a resource has a slash, and ZooKeeper has no place for it: {_printable(name)}")
    try:
        parse_principal(creation.principal)
    except ValueError as fault:
        raise _no_entry(f"principal {fault}") from None
    return Acl(Resource(type_, name, pattern), Entry(creation.principal, permission, operation, creation.host))


def _value_of(kind: type[_E], number: int) -> _E | None:
    """The value; None for a number that newer versions may define. Raises Disconnect for UNKNOWN, which Kafka refuses
    to parse.
    """
    if number == _UNKNOWN:
        raise Disconnect(f"{number} is no {kind.__name__}")
    try:
        return kind(number)
    except ValueError:
        return None


def _no_entry(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _printable(name: str) -> str:
    return ascii(name[:_NAMED_IN_ERRORS_MAX])
