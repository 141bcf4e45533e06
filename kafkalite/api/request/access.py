"""The authorizer as request handlers ask it: for a connection, with a line in the log for each refusal.

A line says who was refused what, in Kafka's words; lines about one principal, operation and resource are rate-limited.
A question whose answer only changes what a response lists is not logged.
Source: kafka.server.AuthHelper, kafka.security.authorizer.AclAuthorizer (logAuditMessage).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.security.acl.acl import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType

if TYPE_CHECKING:
    from kafkalite.common.throttled_log import RateLimitedLogger
    from kafkalite.network.client_connection import ClientConnection
    from kafkalite.security.acl.authorizer import Authorizer


class Access:
    """Decides for the principals of connections."""

    __slots__ = ("_audit_log", "authorizer")

    def __init__(self, authorizer: Authorizer, audit_log: RateLimitedLogger) -> None:
        self.authorizer = authorizer
        self._audit_log = audit_log

    def allows(
        self,
        connection: ClientConnection,
        operation: Operation,
        type_: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        principal, host = connection.principal, connection.host
        if self.authorizer.allows(principal, host, operation, type_, name):
            return True
        if is_logged:
            what = f"Operation = {operation.name} on resource = {type_.name}:{name}"
            self._audit_log.about(host, f"{principal} {what}", f"Principal = {principal} is Denied {what}")
        return False

    def may_read(self, connection: ClientConnection, topic: str) -> bool:
        return self.allows(connection, Operation.READ, ResourceType.TOPIC, topic)

    def allows_cluster(self, connection: ClientConnection, *operations: Operation, is_logged: bool = True) -> bool:
        """Whether one of these operations on the cluster is allowed."""
        last = operations[-1]
        return any(
            self.allows(connection, each, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=is_logged and each is last)
            for each in operations
        )

    def allows_any(self, connection: ClientConnection, operation: Operation, type_: ResourceType) -> bool:
        """Whether the operation is allowed on some resource of this type (KIP-679)."""
        return self.authorizer.allows_any(connection.principal, connection.host, operation, type_)

    def operations(self, connection: ClientConnection, type_: ResourceType, name: str) -> int:
        """The bit field of the operations that are allowed on a resource (KIP-430)."""
        return sum(
            1 << each for each in OPERATIONS_OF[type_] if self.allows(connection, each, type_, name, is_logged=False)
        )
