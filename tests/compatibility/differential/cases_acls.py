"""DescribeAcls, CreateAcls, DeleteAcls."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from kafkalite.security.acl.acl import Operation, PatternType, Permission, ResourceType
from tests.compatibility.differential.engine import Teller, in_versions, once

ANY, MATCH = PatternType.ANY, PatternType.MATCH


def creation(name: str, **values: Any) -> AclCreation:
    there: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "principal": "User:alice",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**(there | values))


def wanted(name: str | None, **values: Any) -> DescribeAclsRequest:
    there: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": name,
        "operation": 1,
        "permission_type": 1,
    }
    return DescribeAclsRequest(**(there | values))


@in_versions(0, 1, 2, 3)
def lists_that_are_made_and_found(t: Teller) -> None:
    name = t.name("topic")
    made = [
        creation(name),
        creation(name, operation=Operation.WRITE, host="10.0.0.1", permission_type=Permission.DENY),
        creation(name, principal="User:CN=a,O=b:c"),
        creation(name, resource_type=ResourceType.GROUP),
        creation(name),
    ]
    t.ask("made", CreateAclsRequest(creations=made))
    t.ask("all", wanted(name))
    t.ask("of topics", wanted(name, resource_type_filter=2))
    t.ask("of a principal", wanted(name, principal_filter="User:alice"))
    t.ask("of nobody", wanted(name, principal_filter="User:nobody"))
    t.ask("of a host", wanted(name, host_filter="10.0.0.1"))
    t.ask("that deny", wanted(name, permission_type=2))
    t.ask("to write", wanted(name, operation=4))
    filters = [
        DeleteAclsFilter(resource_type_filter=2, resource_name_filter=name, operation=4, permission_type=1),
        DeleteAclsFilter(resource_type_filter=1, resource_name_filter=name, operation=1, permission_type=1),
        DeleteAclsFilter(resource_type_filter=1, resource_name_filter=name, operation=1, permission_type=1),
    ]
    t.ask("deleted", DeleteAclsRequest(filters=filters))
    t.ask("none", wanted(name))
    t.ask("deleted again", DeleteAclsRequest(filters=filters[:1]))


@in_versions(1, 3)
def prefixes(t: Teller) -> None:
    name = t.name("topic")
    made = [
        creation(name, resource_pattern_type=PatternType.PREFIXED),
        creation(name + "s"),
        creation(name, operation=Operation.ALL),
    ]
    t.ask("made", CreateAclsRequest(creations=made))
    for pattern in (ANY, MATCH, PatternType.LITERAL, PatternType.PREFIXED):
        for each in (name, name + "s"):
            asked = wanted(each, resource_type_filter=2, pattern_type_filter=pattern, principal_filter="User:alice")
            t.ask(f"{pattern.name} of {each[len(name) :] or 'it'}", asked)
    gone = DeleteAclsFilter(
        resource_type_filter=2, resource_name_filter=name + "s", pattern_type_filter=MATCH,
        principal_filter="User:alice", operation=1, permission_type=1,
    )  # fmt: skip
    t.ask("deleted", DeleteAclsRequest(filters=[gone]))
    t.ask("what is left", wanted(name, pattern_type_filter=ANY))


@once
def what_cannot_be(t: Teller) -> None:
    name = t.name("topic")
    t.ask("a name that is empty", CreateAclsRequest(creations=[creation("")]), 3)
    t.ask("another cluster", CreateAclsRequest(creations=[creation(name, resource_type=ResourceType.CLUSTER)]), 3)
    t.ask("a slash", CreateAclsRequest(creations=[creation(name + "/a")]), 3)
    t.ask("no principal", CreateAclsRequest(creations=[creation(name, principal="alice")]), 3)
    t.ask("an empty principal", CreateAclsRequest(creations=[creation(name, principal="")]), 3)
    some = [creation(name), creation(""), creation(name, operation=Operation.DELETE)]
    t.ask("some of them", CreateAclsRequest(creations=some), 3)
    t.ask("what was made", wanted(name), 3)
    for field in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
        for value in (0, 1, 99):
            odd = CreateAclsRequest(creations=[creation(name, **{field: value})])
            t.ask(f"{field} {value}", odd, 3, may_hang=True)
    t.ask("a filter of no kind", wanted(name, resource_type_filter=0), 3, may_hang=True)
    t.ask("a filter of an operation to come", wanted(name, operation=99), 3, may_hang=True)
    t.ask("no filters", DeleteAclsRequest(filters=[]), 3)
    t.ask("no creations", CreateAclsRequest(creations=[]), 3)
    t.ask("users in an old version", CreateAclsRequest(creations=[creation(name, resource_type=7)]), 2, may_hang=True)
