"""Requests of this broker to others: one connection to each, requests and responses in the same order.

The versions of the requests are fixed: the brokers of a cluster do not ask each other for ApiVersions. A connection is
opened with the first request; an error or a timeout closes it, and every request under way fails with
`BrokerUnreachable`. Retries are the caller's. At a SASL listener the connection begins with a login, which is repeated
before its session ends; requests wait for it.
Source: org.apache.kafka.server.util.InterBrokerSendThread, org.apache.kafka.clients.NetworkClient.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.client.sasl_login import NEVER_MS, due_ms, log_in
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.common.forks import close_writer_in_children
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame

if TYPE_CHECKING:
    import ssl

    from kafkalite.common.clock import Clock
    from kafkalite.config.listeners import ListenerConfig
    from kafkalite.security.sasl.client_exchange import Login

logger = logging.getLogger(__name__)

RESPONSE_BYTES_MAX = 64 << 20
_CORRELATION_ID_MAX = (1 << 31) - 1

FindEndpoint = Callable[[int], "ListenerConfig | None"]
"""The inter-broker endpoint of a live broker; None for a broker that is not registered."""


class ChannelSecurity(NamedTuple):
    """The beginning of a connection to another broker: TLS, and a login by SASL."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None


NO_SECURITY = ChannelSecurity()

SecurityTo = Callable[["ListenerConfig"], ChannelSecurity]
"""The security of a connection to an endpoint of another broker. Raises OSError."""


def without_security(_: ListenerConfig) -> ChannelSecurity:
    """A `SecurityTo` for endpoints that are all PLAINTEXT."""
    return NO_SECURITY


class BrokerUnreachable(KafkaError):
    """The request may have been handled, or not. Its code is NETWORK_EXCEPTION, which clients retry."""

    def __init__(self, broker_id: int, why: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id} cannot be reached: {why}")


class BrokerChannel:
    """The connection to one broker.

    Invariants: `_pending` are the requests without a response, in sending order; during `_opening`, which connects and
    logs in, no requests but its own are sent.
    """

    __slots__ = (
        "_broker_id", "_client_id", "_clock", "_correlation_id", "_endpoint", "_find", "_login_due_ms", "_opening",
        "_pending", "_reading", "_security_to", "_timeout_ms", "_writer",
    )  # fmt: skip

    def __init__(
        self, broker_id: int, find: FindEndpoint, clock: Clock, client_id: str, timeout_ms: int, security_to: SecurityTo
    ) -> None:
        self._broker_id = broker_id
        self._find = find
        self._security_to = security_to
        self._clock = clock
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._correlation_id = 0
        self._endpoint: ListenerConfig | None = None
        self._opening: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._login_due_ms = NEVER_MS
        self._reading: asyncio.Task[None] | None = None
        self._pending: deque[tuple[int, type[Message], int, asyncio.Future[Any]]] = deque()

    async def ask(self, request: Message, version: int) -> Any:
        """The response. Raises BrokerUnreachable."""
        timer = self._clock.call_later(self._timeout_ms, lambda: self._fail(f"no answer in {self._timeout_ms} ms"))
        try:
            await self._connect()
            return await self._send(request, version)
        finally:
            timer.cancel()

    def close(self) -> None:
        self._fail("this broker stops")

    async def _connect(self) -> None:
        endpoint = self._find(self._broker_id)
        if endpoint is None:
            self._fail("it is not registered")
            raise BrokerUnreachable(self._broker_id, "it is not registered")
        if endpoint != self._endpoint:
            self._fail("its address has changed")
            self._endpoint = endpoint
        if self._opening is None:
            if self._writer is not None and self._clock.monotonic_ms() < self._login_due_ms:
                return
            self._opening = asyncio.ensure_future(self._open(endpoint))
        opening = self._opening
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise BrokerUnreachable(self._broker_id, "the connection was closed") from None
            raise

    async def _open(self, endpoint: ListenerConfig) -> None:
        """Connect, unless there is a connection, and log in."""
        try:
            security = self._security_to(endpoint)
            if self._writer is None:
                reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=security.tls)
                self._writer = close_writer_in_children(writer)
                self._reading = asyncio.ensure_future(self._read(reader))
            self._login_due_ms = NEVER_MS
            if security.login is not None:
                began_ms = self._clock.monotonic_ms()
                lifetime_ms = await log_in(security.login, endpoint.host, self._send)
                self._login_due_ms = due_ms(lifetime_ms, began_ms, self._clock.monotonic_ms())
        except OSError as error:
            why = f"{endpoint.address}: {error.strerror or error}"
            if self._opening is asyncio.current_task():
                self._opening = None  # which is not to be cancelled, but says why
                self._fail(why)
            raise BrokerUnreachable(self._broker_id, why) from error
        finally:
            if self._opening is asyncio.current_task():  # else another connection is being opened since
                self._opening = None

    def _send(self, request: Message, version: int) -> asyncio.Future[Any]:
        """The response, which fails with BrokerUnreachable. Raises the same."""
        if self._writer is None:
            raise BrokerUnreachable(self._broker_id, "the connection was closed")
        self._correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
        frame = request_frame(request, version, self._correlation_id, self._client_id)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append((self._correlation_id, type(request), version, answer))
        self._writer.write(frame)
        return answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if size > RESPONSE_BYTES_MAX:
                    raise Malformed(f"a response of {size} bytes")
                frame = memoryview(await reader.readexactly(size))
                if not self._pending:
                    raise Malformed("a response without a request")
                expected_id, kind, version, answer = self._pending[0]
                correlation_id, response = decode_response(kind, version, frame)
                if correlation_id != expected_id:
                    raise Malformed("a response to another request")
                self._pending.popleft()
                if not answer.done():
                    answer.set_result(response)
        except (OSError, EOFError, Malformed) as error:
            self._reading = None
            self._fail("it closed the connection" if isinstance(error, EOFError) else str(error))

    def _fail(self, why: str) -> None:
        """Close the connection; requests under way fail."""
        for task in (self._opening, self._reading):
            if task is not None:
                task.cancel()
        self._opening = self._reading = None
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None
        pending, self._pending = self._pending, deque()
        for _, _, _, answer in pending:
            if not answer.done():
                answer.set_exception(BrokerUnreachable(self._broker_id, why))


class BrokerChannels:
    """The channels to all brokers, one for each that was asked."""

    def __init__(
        self,
        find: FindEndpoint,
        clock: Clock,
        client_id: str,
        timeout_ms: int,
        security_to: SecurityTo = without_security,
    ) -> None:
        self._find = find
        self._security_to = security_to
        self._clock = clock
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._channels: dict[int, BrokerChannel] = {}
        self._is_closed = False

    async def ask(self, broker_id: int, request: Message, version: int) -> Any:
        """The response of a broker. Raises BrokerUnreachable."""
        if self._is_closed:
            raise BrokerUnreachable(broker_id, "this broker stops")
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = BrokerChannel(
                broker_id, self._find, self._clock, self._client_id, self._timeout_ms, self._security_to
            )
            self._channels[broker_id] = channel
        return await channel.ask(request, version)

    def close(self) -> None:
        """Requests under way, and later ones, fail."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
