"""All access control lists of a cluster, found by the name of a resource without looking at the others.

A name has at most one literal list, the list of *, and a list for each of its prefixes. Prefixes are looked up by their
lengths: as many look-ups as there are different lengths of prefixes, at most 249 of a topic's name.
Source: kafka.security.authorizer.AclAuthorizer (matchingAcls).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from kafkalite.security.acl.acl import ANY_NAME, Acl, AclFilter, Entry, PatternType, Resource, ResourceType

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
