"""The znodes of access control lists, as AclAuthorizer keeps them: a node per resource pattern.

    /kafka-acl/Topic/orders                            literal patterns, * among them
    /kafka-acl-extended/prefixed/Topic/orders-         prefixes
    /kafka-acl-changes/acl_changes_0000000001          TOPIC:orders; Apache Kafka's brokers read the node again

Source: kafka.zk.ZkData (ResourceZNode, LiteralAclStore, ExtendedAclStore), kafka.security.authorizer.AclEntry.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from kafkalite.security.acl.acl import Entry, Operation, PatternType, Permission, Resource, ResourceType
from kafkalite.zk.znodes import json_object as js

LITERAL = "/kafka-acl"
EXTENDED = "/kafka-acl-extended"
PREFIXED = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
EXTENDED_CHANGES = "/kafka-acl-extended-changes"
CHANGE = "acl_changes_"
TREES = (LITERAL, EXTENDED)

_VERSION = 1
_E = TypeVar("_E", bound=IntEnum)


def _titles(kinds: Iterable[_E]) -> dict[str, _E]:
    """The members by their names as Kafka writes them here: TransactionalId, DescribeConfigs."""
    return {each.name.title().replace("_", ""): each for each in kinds if each.name != "ANY"}


_TYPES = _titles(ResourceType)
_OPERATIONS = _titles(Operation)
_PERMISSIONS = _titles(Permission)
_TYPE_NAMES = {value: name for name, value in _TYPES.items()}
_OPERATION_NAMES = {value: name for name, value in _OPERATIONS.items()}
_PERMISSION_NAMES = {value: name for name, value in _PERMISSIONS.items()}

PARENTS = tuple(f"{root}/{name}" for root in (LITERAL, PREFIXED) for name in _TYPES)
"""The nodes whose children are resources."""
PERSISTENT = (*PARENTS, LITERAL_CHANGES, EXTENDED_CHANGES)
"""Nodes that a broker with an authorizer creates at its start."""


def path_of(resource: Resource) -> str:
    root = PREFIXED if resource.pattern is PatternType.PREFIXED else LITERAL
    return f"{root}/{_TYPE_NAMES[resource.type]}/{resource.name}"


def resource_of(path: str) -> Resource | None:
    for root, pattern in ((PREFIXED, PatternType.PREFIXED), (LITERAL, PatternType.LITERAL)):
        if path.startswith(root + "/"):
            kind, slash, name = path[len(root) + 1 :].partition("/")
            if slash and name and "/" not in name and kind in _TYPES:
                return Resource(_TYPES[kind], name, pattern)
    return None


def acl_json(entries: Iterable[Entry]) -> bytes:
    """With the keys in the order in which Kafka 3.9 writes them, that of a java.util.HashMap."""
    return js.encode(
        {
            "acls": [
                {
                    "principal": each.principal,
                    "permissionType": _PERMISSION_NAMES[each.permission],
                    "host": each.host,
                    "operation": _OPERATION_NAMES[each.operation],
                }
                for each in entries
            ],
            "version": _VERSION,
        }
    )


def parse_acls(data: bytes) -> tuple[Entry, ...]:
    """No data mean no entries, as in Kafka. Raises ValueError."""
    if not data:
        return ()
    source = js.parse(data)
    if js.integer(source, "version") != _VERSION:
        raise ValueError(f"version {source['version']} is not {_VERSION}")
    return tuple(_entry(js.as_object(each, "an entry")) for each in js.list_of(source, "acls"))


def _entry(source: js.JsonObject) -> Entry:
    return Entry(
        js.text(source, "principal"),
        _member(_PERMISSIONS, source, "permissionType"),
        _member(_OPERATIONS, source, "operation"),
        js.text(source, "host"),
    )


def _member(members: dict[str, _E], source: js.JsonObject, key: str) -> _E:
    name = js.text(source, key)
    found = members.get(name)
    if found is None:
        raise ValueError(f"{key} is none of {', '.join(members)} but {js.literal(name)}")
    return found


def change_of(resource: Resource) -> tuple[str, bytes]:
    """The path (a sequential node's) and the data of the notification that a resource has changed."""
    if resource.pattern is not PatternType.PREFIXED:
        return f"{LITERAL_CHANGES}/{CHANGE}", f"{resource.type.name}:{resource.name}".encode()
    data = {
        "version": 1,
        "resourceType": resource.type.name,
        "name": resource.name,
        "patternType": resource.pattern.name,
    }
    return f"{EXTENDED_CHANGES}/{CHANGE}", js.encode(data)
