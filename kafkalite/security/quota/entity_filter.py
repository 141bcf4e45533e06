"""A filter of entities, as DescribeClientQuotas has it.

Each component names a kind, and one name, the default, or any name of it. Kinds that no component names may be there,
unless the filter is strict.
Source: kafka.server.ZkAdminManager.describeClientQuotas, KIP-546.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.security.quota.entities import CLIENT_ID, IP, USER, Entity, entity_of, quotas_of

_SHOWN = {USER: "user", CLIENT_ID: "client", IP: "ip"}


class Match(IntEnum):
    """How a component matches, as a number of the request."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    match: Match
    name: str | None = None


class EntityFilter:
    """Matches entities. Raises KafkaError for components that cannot be together."""

    __slots__ = ("_components", "_strict")

    def __init__(self, components: Iterable[tuple[str, Component]], *, strict: bool) -> None:
        self._strict = strict
        self._components: dict[str, Component] = {}
        for kind, component in components:
            if kind == "":
                message = "Unexpected empty filter component entity type"
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            if kind not in _SHOWN:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
            if kind in self._components:
                message = f"Duplicate {_SHOWN[kind]} filter component entity type"
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            self._components[kind] = component
        if IP in self._components and len(self._components) > 1:
            message = (
                "Invalid entity filter component combination, IP filter component should not be used with user or "
                "clientId filter component."
            )
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)

    def matches(self, entity: Entity) -> bool:
        names = dict(entity.names)
        if (IP in names) != (IP in self._components) and self._components:
            return False
        if self._strict and len(names) > len(self._components):
            return False
        for kind, component in self._components.items():
            if kind not in names:
                return False
            if component.match is not Match.ANY and names[kind] != component.name:
                return False
        return True

    def quotas(self, configs: Mapping[str, Mapping[str, str]]) -> dict[Entity, dict[str, float]]:
        """The quotas of the entities that match, of those that have any. `configs` are by path."""
        found = {}
        for path, config in configs.items():
            quotas = quotas_of(path, config)
            entity = entity_of(path) if quotas else None
            if entity is not None and self.matches(entity):
                found[entity] = quotas
        return found
