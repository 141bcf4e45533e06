"""Access of clients to resources: the authorizer as request handlers ask it, and the errors of refusals.

Each refusal is logged with the principal, the operation and the resource, in Kafka's words; lines about the same three
are rate-limited. Questions that only decide what a response lists are not logged.
Source: kafka.server.AuthHelper, kafka.security.authorizer.AclAuthorizer (logAuditMessage).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.security.acl.acl import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType

if TYPE_CHECKING:
    from kafkalite.common.log_lines import RateLimitedLogger
    from kafkalite.network.client_connection import ClientConnection
    from kafkalite.security.acl.authorizer import Authorizer

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

_REFUSALS: Mapping[ResourceType, tuple[ErrorCode, str]] = {
    TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    TRANSACTIONAL_ID: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."),
}


def refusal(type_: ResourceType) -> KafkaError:
    """The error for a client that may not do something to a resource of this type."""
    return KafkaError(*_REFUSALS[type_])


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

    def allows_cluster(self, connection: ClientConnection, *operations: Operation, is_logged: bool = True) -> bool:
        """Whether one of these operations on the cluster is allowed."""
        last = operations[-1]
        return any(
            self.allows(connection, each, CLUSTER, CLUSTER_NAME, is_logged=is_logged and each is last)
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
