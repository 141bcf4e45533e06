"""The znodes of access control lists, a node per resource pattern, and of delegation tokens, a node for each.

    /kafka-acl/Topic/orders                            literal patterns, * among them
    /kafka-acl-extended/prefixed/Topic/orders-         prefixes
    /kafka-acl-changes/acl_changes_0000000001          TOPIC:orders; Apache Kafka's brokers read the node again
    /delegation_token/tokens/CI1Rg4CgQ2KxJ8ZSV5vZ5A    below a node that only brokers may read
    /delegation_token/token_changes/token_change_0000000001     the token's id; Apache Kafka's brokers read it again

Source: kafka.zk.ZkData (ResourceZNode, LiteralAclStore, ExtendedAclStore, DelegationTokenInfoZNode),
kafka.security.authorizer.AclEntry, kafka.server.DelegationTokenManagerZk.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from kafkalite.common.names import desanitized, sanitized
from kafkalite.security.acl.acl import Entry, Operation, PatternType, Permission, Resource, ResourceType
from kafkalite.security.delegation_tokens import DelegationToken
from kafkalite.security.principal import parse_principal
from kafkalite.zk.znodes import json_object as js

LITERAL = "/kafka-acl"
EXTENDED = "/kafka-acl-extended"
PREFIXED = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
EXTENDED_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE = "acl_changes_"
ACL_TREES = (LITERAL, EXTENDED)

_ACL_VERSION = 1
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

ACL_PARENTS = tuple(f"{root}/{name}" for root in (LITERAL, PREFIXED) for name in _TYPES)
"""The nodes whose children are resources."""
ACL_PERSISTENT = (*ACL_PARENTS, LITERAL_CHANGES, EXTENDED_CHANGES)
"""Nodes that a broker with an authorizer creates at its start."""


def acl_path(resource: Resource) -> str:
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
            "version": _ACL_VERSION,
        }
    )


def parse_acls(data: bytes) -> tuple[Entry, ...]:
    """The entries of a node. No data mean no entries, as in Kafka. Raises ValueError."""
    if not data:
        return ()
    source = js.parse(data)
    if js.integer(source, "version") != _ACL_VERSION:
        raise ValueError(f"version {source['version']} is not {_ACL_VERSION}")
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


def acl_change(resource: Resource) -> tuple[str, bytes]:
    """The path (a sequential node's) and the data of the notification that a resource has changed."""
    if resource.pattern is not PatternType.PREFIXED:
        return f"{LITERAL_CHANGES}/{ACL_CHANGE}", f"{resource.type.name}:{resource.name}".encode()
    data = {
        "version": 1,
        "resourceType": resource.type.name,
        "name": resource.name,
        "patternType": resource.pattern.name,
    }
    return f"{EXTENDED_CHANGES}/{ACL_CHANGE}", js.encode(data)


TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE = f"{TOKEN_CHANGES}/token_change_"
TOKEN_PERSISTENT = (TOKENS, TOKEN_CHANGES)
"""Nodes that a broker with a secret for tokens creates at its start."""

_TOKEN_VERSION = 3
_WITH_REQUESTER = 3


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def token_of(path: str) -> str | None:
    """The id in /delegation_token/tokens/ID."""
    name = path.removeprefix(f"{TOKENS}/")
    return name if name and name != path and "/" not in name else None


def token_json(token: DelegationToken) -> bytes:
    """With the keys in the order in which Kafka 3.9 writes them."""
    return js.encode(
        {
            "issueTimestamp": token.issued_ms,
            "renewers": [sanitized(each) for each in token.renewers],
            "tokenRequester": sanitized(token.requester),
            "tokenId": token.token_id,
            "owner": sanitized(token.owner),
            "expiryTimestamp": token.expiry_ms,
            "maxTimestamp": token.max_ms,
            "version": _TOKEN_VERSION,
        }
    )


def parse_token(data: bytes, token_id: str) -> DelegationToken:
    """Raises ValueError."""
    source = js.parse(data)
    version = js.integer(source, "version", 1, _TOKEN_VERSION)
    if js.text(source, "tokenId") != token_id:
        raise ValueError("it has another id than its node")
    owner = _principal(js.text(source, "owner"))
    return DelegationToken(
        token_id,
        owner,
        _principal(js.text(source, "tokenRequester")) if version >= _WITH_REQUESTER else owner,
        tuple(_principal(js.as_text(each, "a renewer")) for each in js.list_of(source, "renewers")),
        *(js.integer(source, key, 0, js.INT64_MAX) for key in ("issueTimestamp", "maxTimestamp", "expiryTimestamp")),
    )


def _principal(text: str) -> str:
    name = desanitized(text)
    parse_principal(name)
    return name
