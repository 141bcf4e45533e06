"""The context of one request: its connection, its version, the client id, and what its client may do.

Handlers ask `may` where they loop over resources. Without an authorizer everything is allowed. Each refusal is logged
with the principal, the operation and the resource, in Kafka's words; lines about the same three are rate-limited.
Questions that only decide what a response lists are not logged.
Source: kafka.server.RequestContext, kafka.server.AuthHelper, kafka.security.authorizer.AclAuthorizer
(logAuditMessage); KIP-430 for the bit fields of operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sized
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from kafkalite.common.clock import within
from kafkalite.common.errors import Disconnect, ErrorCode, KafkaError
from kafkalite.security.acl.acl import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kafkalite.common.clock import Clock
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

    def may_create(self, topic: str) -> bool:
        """Whether the client may create a topic: any, or that one."""
        return self.may_cluster(Operation.CREATE, is_logged=False) or self.may(Operation.CREATE, TOPIC, topic)

    def may_describe_topics(self, topics: Iterable[str]) -> bool:
        """Whether the client may describe all of these."""
        return all(is_allowed for _, is_allowed in self.refused_last(Operation.DESCRIBE, TOPIC, topics, str))

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

    def group_operations(self, group_id: str) -> int:
        """As `operations` for a group, in an answer of Kafka 4.3's: groups have settings there."""
        of_settings = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
        allowed = [each for each in of_settings if self.may(each, GROUP, group_id, is_logged=False)]
        return self.operations(GROUP, group_id) + sum(1 << each for each in allowed)

    def cluster_operations(self) -> int:
        """The same for the cluster; none for a client that may not describe it."""
        return self.operations(CLUSTER, CLUSTER_NAME) if self.may_cluster(Operation.DESCRIBE, is_logged=False) else 0


class Runtime:
    """The event loop, its clock, and `readers`: threads for long reads, which get files and values, never a log."""

    __slots__ = ("clock", "loop", "readers")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, readers: Executor) -> None:
        self.loop = loop
        self.clock = clock
        self.readers = readers


Result = TypeVar("Result")


async def in_time(runtime: Runtime, timeout_ms: int, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which waits for the controller and other brokers. If that takes longer than `timeout_ms`,
    raises KafkaError(REQUEST_TIMED_OUT); the change may still complete later."""
    try:
        return await within(runtime.clock, timeout_ms, work)
    except TimeoutError:
        message = "The request was taken, but is not carried out yet: is a broker away, or the controller?"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None


PARTITIONS_MAX = 100_000


def check_partition_count(topics: Iterable[Sized]) -> None:
    """Raises Disconnect for too many partitions, given those of each topic: some of these requests have no room for an
    error of their own. A partition takes four bytes of a request and hundreds in memory, so that a request of allowed
    size could name millions. No cluster has that many; larger requests are split."""
    count = sum(map(len, topics))
    if count > PARTITIONS_MAX:
        raise Disconnect(f"a request for {count} partitions: more than {PARTITIONS_MAX}")


Response = TypeVar("Response")


class PendingResponse(Generic[Result, Response]):
    """Receives one result and renders the response. If the client has left meanwhile, the result is dropped."""

    __slots__ = ("_future", "_render", "_response")

    def __init__(self, render: Callable[[Result], Response]) -> None:
        self._render = render
        self._response: Response | None = None
        self._future: asyncio.Future[Response] | None = None

    def answer(self, result: Result, /) -> None:
        response = self._render(result)
        if self._future is None:
            self._response = response
        elif not self._future.done():
            self._future.set_result(response)

    def outcome(self, loop: asyncio.AbstractEventLoop) -> Response | asyncio.Future[Response]:
        """The response if the result has arrived, else a future of the response."""
        if self._response is not None:
            return self._response
        self._future = cast("asyncio.Future[Response]", loop.create_future())
        return self._future
