"""Decides whether a principal may do something with a resource, from all access control lists of the cluster.

In this order: a super user may; without any list for the resource, `allow.everyone.if.no.acl.found` decides; an entry
that denies, denies; an entry that allows, allows; else no. To be allowed READ, WRITE, DELETE or ALTER implies DESCRIBE,
ALTER_CONFIGS implies DESCRIBE_CONFIGS; to be denied implies nothing.
Decisions are cached until a list changes, so a repeated request costs a look-up in a dictionary.
Lists are found by the name of a resource without a scan of the others: a name has at most one literal list, the list
of *, and a list for each of its prefixes. Prefixes are looked up by their lengths: as many look-ups as there are
different lengths of prefixes, at most 249 of a topic's name.
Source: kafka.security.authorizer.AclAuthorizer, KIP-11, KIP-290, KIP-679.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import TypeVar

from kafkalite.security.acl.acl import (
    ANY_HOST,
    ANY_NAME,
    Acl,
    AclFilter,
    Entry,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from kafkalite.security.principal import WILDCARD

Entries = tuple[Entry, ...]
_Key = TypeVar("_Key")


class AclIndex:
    """The entries of each resource pattern, in the order in which they were added, none twice."""

    __slots__ = ("_lengths", "_literal", "_prefixed")

    def __init__(self) -> None:
        self._literal: dict[tuple[ResourceType, str], Entries] = {}
        self._prefixed: dict[ResourceType, dict[str, Entries]] = {}
        self._lengths: dict[ResourceType, tuple[int, ...]] = {}  # of the prefixes, ascending

    def __iter__(self) -> Iterator[Acl]:
        for resource in self.resources():
            for entry in self.entries(resource):
                yield Acl(resource, entry)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def resources(self) -> Iterator[Resource]:
        for type_, name in self._literal:
            yield Resource(type_, name)
        for type_, by_prefix in self._prefixed.items():
            for name in by_prefix:
                yield Resource(type_, name, PatternType.PREFIXED)

    def entries(self, resource: Resource) -> Entries:
        """Entries of exactly this pattern."""
        if resource.pattern is PatternType.PREFIXED:
            return self._prefixed.get(resource.type, {}).get(resource.name, ())
        return self._literal.get((resource.type, resource.name), ())

    def put(self, resource: Resource, entries: Iterable[Entry]) -> None:
        """Replace the entries of a pattern; none removes it."""
        unique = tuple(dict.fromkeys(entries))
        if resource.pattern is not PatternType.PREFIXED:
            _put(self._literal, (resource.type, resource.name), unique)
            return
        by_prefix = self._prefixed.setdefault(resource.type, {})
        _put(by_prefix, resource.name, unique)
        self._lengths[resource.type] = tuple(sorted({len(prefix) for prefix in by_prefix}))

    def matching(self, type_: ResourceType, name: str) -> list[Entry]:
        """All entries that apply to a resource: of its own list, of *, and of its prefixes."""
        found = [*self._literal.get((type_, name), ())]
        if name != ANY_NAME:
            found += self._literal.get((type_, ANY_NAME), ())
        by_prefix = self._prefixed.get(type_)
        if by_prefix:
            for length in self._lengths[type_]:
                if length > len(name):
                    break
                found += by_prefix.get(name[:length], ())
        return found

    def found(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self if wanted.matches(acl)]


def _put(lists: dict[_Key, Entries], key: _Key, entries: Entries) -> None:
    if entries:
        lists[key] = entries
    else:
        lists.pop(key, None)


_DECISIONS_MAX = 65_536
_IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


class Authorizer:
    """Its owner changes `acls`, and calls `changed` afterwards."""

    __slots__ = ("_by_default", "_decisions", "_super_users", "acls")

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone_if_no_acl_found: bool = False) -> None:
        self.acls = AclIndex()
        self._super_users = frozenset(super_users)
        self._by_default = allow_everyone_if_no_acl_found
        self._decisions: dict[tuple[str, str, Operation, ResourceType, str | None], bool] = {}

    def changed(self) -> None:
        """Drop all cached decisions."""
        self._decisions.clear()

    def allows(self, principal: str, host: str, operation: Operation, type_: ResourceType, name: str) -> bool:
        key = (principal, host, operation, type_, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._kept(key, self._decide(principal, host, operation, type_, name))
        return decision

    def allows_any(self, principal: str, host: str, operation: Operation, type_: ResourceType) -> bool:
        """Whether there is, or could be, a resource of this type for which the operation is allowed (KIP-679)."""
        key = (principal, host, operation, type_, None)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._kept(key, self._decide_any(principal, host, operation, type_))
        return decision

    def _kept(self, key: tuple[str, str, Operation, ResourceType, str | None], decision: bool) -> bool:
        if len(self._decisions) >= _DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[key] = decision
        return decision

    def _decide(self, principal: str, host: str, operation: Operation, type_: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        entries = self.acls.matching(type_, name)
        if not entries:
            return self._by_default
        host = host_text(host)
        own = [each for each in entries if _is_about(each, principal, host)]
        if any(each.permission is Permission.DENY and each.operation in (operation, Operation.ALL) for each in own):
            return False
        sufficient = {operation, Operation.ALL, *_IMPLIED_BY.get(operation, ())}
        return any(each.permission is Permission.ALLOW and each.operation in sufficient for each in own)

    def _decide_any(self, principal: str, host: str, operation: Operation, type_: ResourceType) -> bool:
        if principal in self._super_users:
            return True
        host = host_text(host)
        names: dict[tuple[Permission, PatternType], set[str]] = {}
        for resource, entry in self.acls:
            if (
                resource.type is type_
                and _is_about(entry, principal, host)
                and entry.operation in (operation, Operation.ALL)
            ):
                names.setdefault((entry.permission, resource.pattern), set()).add(resource.name)
        denied = names.get((Permission.DENY, PatternType.LITERAL), set())
        denied_prefixes = names.get((Permission.DENY, PatternType.PREFIXED), set())
        if ANY_NAME in denied:
            return False
        if self._by_default:
            return True

        def is_free(name: str) -> bool:
            return not any(name.startswith(prefix) for prefix in denied_prefixes)

        literal = names.get((Permission.ALLOW, PatternType.LITERAL), set())
        prefixed = names.get((Permission.ALLOW, PatternType.PREFIXED), set())
        return (
            ANY_NAME in literal
            or any(name not in denied and is_free(name) for name in literal)
            or any(is_free(name) for name in prefixed)
        )


def _is_about(entry: Entry, principal: str, host: str) -> bool:
    return entry.principal in (principal, WILDCARD) and (entry.host == ANY_HOST or host_text(entry.host) == host)


def host_text(host: str) -> str:
    """An address as Java writes it: IPv6 in full, without leading zeros (0:0:0:0:0:0:0:1)."""
    if ":" not in host:
        return host
    address, percent, zone = host.partition("%")
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return host
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + percent + zone
