"""Entities that quotas are given to, the settings of each, changes of them, and filters of entities.

An entity is a user, a client id, both, or an IP address; each may be the default of its kind. Its path is that of
its node below /config in ZooKeeper, with sanitized names: users/alice, users/<default>/clients/batch%2A, ips/10.0.0.1.
A filter is that of DescribeClientQuotas: each component names a kind, and one name, the default, or any name of it.
An entity may have other kinds, unless the filter is strict.
Source: kafka.server.ZkAdminManager (parseAndSanitizeQuotaEntity, alterClientQuotas, describeClientQuotas),
QuotaConfigs, KIP-546, KIP-612.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from math import isfinite

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import desanitized, sanitized
from kafkalite.common.text import java_double

USER, CLIENT_ID, IP = "user", "client-id", "ip"
DEFAULT = "<default>"  # as the name of a node; a user of this name is %3Cdefault%3E there
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

_LONG, _INT = 2**63 - 1, 2**31 - 1
CLIENT_KEYS: Mapping[str, int | None] = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""The settings of users and clients, and the largest of those that are whole numbers."""
IP_KEYS: Mapping[str, int | None] = {CONNECTION_CREATION_RATE: _INT}
_EPSILON = 1e-6


class Entity(NamedTuple):
    """Names as they are on the wire; None is the default of the kind, and an absent kind is not in `names`."""

    names: tuple[tuple[str, str | None], ...]

    @property
    def path(self) -> str:
        """The path of its node. Raises KafkaError(INVALID_REQUEST) for an invalid entity."""
        if not self.names:
            raise _invalid("Invalid empty client quota entity")
        named: dict[str, str] = {}
        for kind, name in self.names:
            if kind not in (USER, CLIENT_ID, IP):
                raise _invalid(f"Unhandled client quota entity type: {kind}")
            if name == "":
                raise _invalid(f"Empty {kind} not supported")
            named[kind] = DEFAULT if name is None else sanitized(name)
        if IP in named:
            if len(named) > 1:
                what = "IP entity should not be used with user/client ID entity."
                raise _invalid(f"Invalid quota entity combination, {what}")
            return f"ips/{named[IP]}"
        if USER in named and CLIENT_ID in named:
            return f"users/{named[USER]}/clients/{named[CLIENT_ID]}"
        return f"users/{named[USER]}" if USER in named else f"clients/{named[CLIENT_ID]}"


def entity_of(path: str) -> Entity | None:
    """The entity of a path; None for a path that is none."""
    match path.split("/"):
        case ["users", user] if user:
            return Entity(((USER, _name(user)),))
        case ["clients", client] if client:
            return Entity(((CLIENT_ID, _name(client)),))
        case ["users", user, "clients", client] if user and client:
            return Entity(((USER, _name(user)), (CLIENT_ID, _name(client))))
        case ["ips", ip] if ip:
            return Entity(((IP, _name(ip)),))
    return None


def keys_of(path: str) -> Mapping[str, int | None]:
    """The settings that the entity of a path may have, with the largest of those that are whole numbers."""
    return IP_KEYS if path.startswith("ips/") else CLIENT_KEYS


def quotas_of(path: str, config: Mapping[str, str]) -> dict[str, float]:
    """The quotas among the settings of an entity. Values that are not numbers, in a node of another writer, are left
    out.
    """
    quotas = {}
    for key in keys_of(path):
        text = config.get(key)
        if text is not None:
            try:
                value = float(text)
            except ValueError:
                continue
            if isfinite(value):
                quotas[key] = value
    return quotas


class Alteration(NamedTuple):
    """A setting of an entity, and its new value; None removes it."""

    key: str
    value: float | None


def changed(path: str, config: Mapping[str, str], alterations: Iterable[Alteration]) -> dict[str, str]:
    """The settings of an entity after the alterations. Raises KafkaError(INVALID_REQUEST) if one cannot be."""
    keys = keys_of(path)
    after = dict(config)
    for key, value in alterations:
        if value is None:
            after.pop(key, None)
        elif key not in keys:
            raise _invalid(f"Invalid configuration key {key}")
        else:
            after[key] = _text(key, value, keys[key])
    return after


def _text(key: str, value: float, largest: int | None) -> str:
    if largest is None:
        if not isfinite(value):
            raise _invalid(f"Configuration {key} must be a finite number")
        return java_double(value)
    kind = "LONG" if largest == _LONG else "INT"
    # the largest long is 2**63 as a double: it is how clients send "no limit"
    whole = max(-largest - 1, min(largest, int(value + _EPSILON))) if isfinite(value) else 0
    if not isfinite(value) or abs(float(whole) - value) > _EPSILON:
        raise _invalid(f"Configuration {key} must be a {kind} value")
    return str(whole)


def _name(node: str) -> str | None:
    return None if node == DEFAULT else desanitized(node)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


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
    """Matches entities. Raises KafkaError for components that exclude each other."""

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
        """The quotas of the matching entities that have any. `configs` are by path."""
        found = {}
        for path, config in configs.items():
            quotas = quotas_of(path, config)
            entity = entity_of(path) if quotas else None
            if entity is not None and self.matches(entity):
                found[entity] = quotas
        return found
