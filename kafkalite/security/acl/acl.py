"""Access control lists as values: resources, entries, and the filters that find them.

The numbers are those of the protocol, the names those of Kafka's tools and of ZooKeeper.
Source: org.apache.kafka.common.acl, org.apache.kafka.common.resource, kafka.security.authorizer.AclEntry.
"""

from __future__ import annotations

from enum import IntEnum

from kafkalite.common.named_tuple import NamedTuple

ANY_NAME = "*"
ANY_HOST = "*"
CLUSTER_NAME = "kafka-cluster"


class ResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation
OPERATIONS_OF: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE),
    ResourceType.CLUSTER: (
        _O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER, _O.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}  # fmt: skip
"""The operations that make sense on a resource, besides ALL: those of authorized-operations bit fields (KIP-430)."""


class Resource(NamedTuple):
    """A pattern for resources of one type: one name, all (LITERAL *), or a prefix."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    @property
    def text(self) -> str:
        """TYPE:PATTERN:name."""
        return f"{self.type.name}:{self.pattern.name}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Resource:
        """The resource of a `text`."""
        type_, pattern, name = text.split(":", 2)
        return cls(ResourceType[type_], name, PatternType[pattern])


class Entry(NamedTuple):
    """One line of a list. `host` is an address as text, or *."""

    principal: str
    permission: Permission
    operation: Operation
    host: str = ANY_HOST


class Acl(NamedTuple):
    """One line, with the resource that it is about."""

    resource: Resource
    entry: Entry


class AclFilter(NamedTuple):
    """ANY and None match everything. With PatternType.MATCH a name matches all patterns that apply to it: literal, *
    and prefixes."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        resource, entry = acl
        return (
            self.type in (ResourceType.ANY, resource.type)
            and self._matches_name(resource)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def _matches_name(self, resource: Resource) -> bool:
        wanted = self.pattern
        if wanted not in (PatternType.ANY, PatternType.MATCH, resource.pattern):
            return False
        if self.name is None or resource.name == self.name:
            return True
        if wanted is not PatternType.MATCH:
            return False
        if resource.pattern is PatternType.PREFIXED:
            return self.name.startswith(resource.name)
        return resource.name == ANY_NAME
