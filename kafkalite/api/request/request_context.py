"""The context of one request: its connection, its version, the client id, and what its client may do.

Handlers ask `may` where they loop over resources. Without an authorizer everything is allowed.
Source: kafka.server.RequestContext, kafka.server.AuthHelper; KIP-430 for the bit fields of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalite.api.request.access import CLUSTER, TOPIC, refusal
from kafkalite.security.acl.acl import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType

if TYPE_CHECKING:
    from kafkalite.api.request.access import Access
    from kafkalite.network.client_connection import ClientConnection

OPERATIONS_NOT_ASKED = -(1 << 31)
"""The bit field of operations in an answer to a client that has not asked for it."""
_ALL_OPERATIONS = {type_: sum(1 << each for each in operations) for type_, operations in OPERATIONS_OF.items()}
_Element = TypeVar("_Element")


class RequestContext:
    """`access` is None without an authorizer."""

    __slots__ = ("access", "api_version", "client_id", "connection")

    def __init__(
        self, connection: ClientConnection, api_version: int, client_id: str | None, access: Access | None = None
    ) -> None:
        self.connection = connection
        self.api_version = api_version
        self.client_id = client_id
        self.access = access

    def may(self, operation: Operation, type_: ResourceType, name: str, *, is_logged: bool = True) -> bool:
        """Whether the client may carry out an operation on a resource; a refusal is logged."""
        access = self.access
        return access is None or access.allows(self.connection, operation, type_, name, is_logged=is_logged)

    def may_cluster(self, *operations: Operation, is_logged: bool = True) -> bool:
        """Whether the client may carry out one of these operations on the cluster."""
        access = self.access
        return access is None or access.allows_cluster(self.connection, *operations, is_logged=is_logged)

    def require(self, operation: Operation, type_: ResourceType, name: str) -> None:
        """Raises KafkaError with the error of the type if the client may not."""
        if not self.may(operation, type_, name):
            raise refusal(type_)

    def may_create(self, topic: str) -> bool:
        """Whether the client may create a topic: any, or that one."""
        return self.may_cluster(Operation.CREATE, is_logged=False) or self.may(Operation.CREATE, TOPIC, topic)

    def refused_last(
        self,
        operation: Operation,
        type_: ResourceType,
        elements: Iterable[_Element],
        name_of: Callable[[Any], str] = attrgetter("name"),
    ) -> list[tuple[_Element, bool]]:
        """Each element of a request with whether the client may carry out the operation on the resource that it names.
        Refused ones come last, as in Kafka's answers."""
        if self.access is None:
            return [(each, True) for each in elements]
        named = [(each, name_of(each)) for each in elements]
        allowed = {name: self.may(operation, type_, name) for name in dict.fromkeys(name for _, name in named)}
        return sorted(((each, allowed[name]) for each, name in named), key=lambda one: not one[1])

    def operations(self, type_: ResourceType, name: str) -> int:
        """The bit field of the operations that the client may carry out on a resource."""
        access = self.access
        return _ALL_OPERATIONS[type_] if access is None else access.operations(self.connection, type_, name)

    def cluster_operations(self) -> int:
        """The same for the cluster; none for a client that may not describe it."""
        return self.operations(CLUSTER, CLUSTER_NAME) if self.may_cluster(Operation.DESCRIBE, is_logged=False) else 0
