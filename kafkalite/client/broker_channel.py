"""Requests of this broker to others: one connection to each, requests and responses in the same order.

The versions of the requests are fixed: the brokers of a cluster do not ask each other for ApiVersions. A connection is
opened with the first request; an error or a timeout closes it, and every request under way fails with
`BrokerUnreachable`. Retries are the caller's.
Source: org.apache.kafka.server.util.InterBrokerSendThread, org.apache.kafka.clients.NetworkClient.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame

if TYPE_CHECKING:
    import ssl

    from kafkalite.common.clock import Clock
    from kafkalite.config.listeners import ListenerConfig

logger = logging.getLogger(__name__)

RESPONSE_BYTES_MAX = 64 << 20
_CORRELATION_ID_MAX = (1 << 31) - 1

FindEndpoint = Callable[[int], "ListenerConfig | None"]
"""The inter-broker endpoint of a live broker; None for a broker that is not registered."""


TlsTo = Callable[["ListenerConfig"], "ssl.SSLContext | None"]
"""The context for a connection to an endpoint of another broker; None where there is no TLS. Raises OSError."""


def without_tls(_: ListenerConfig) -> None:
    """A `TlsTo` for endpoints that are all PLAINTEXT."""


class BrokerUnreachable(KafkaError):
    """The request may have been handled, or not. Its code is NETWORK_EXCEPTION, which clients retry."""

    def __init__(self, broker_id: int, why: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id} cannot be reached: {why}")


class BrokerChannel:
    """The connection to one broker. Invariant: `_pending` are the requests without a response, in sending order."""

    __slots__ = (
        "_broker_id", "_client_id", "_clock", "_correlation_id", "_endpoint", "_find", "_opening", "_pending",
        "_reading", "_timeout_ms", "_tls_to", "_writer",
    )  # fmt: skip

    def __init__(
        self, broker_id: int, find: FindEndpoint, clock: Clock, client_id: str, timeout_ms: int, tls_to: TlsTo
    ) -> None:
        self._broker_id = broker_id
        self._find = find
        self._tls_to = tls_to
        self._clock = clock
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._correlation_id = 0
        self._endpoint: ListenerConfig | None = None
        self._opening: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pending: deque[tuple[int, type[Message], int, asyncio.Future[Any]]] = deque()

    async def ask(self, request: Message, version: int) -> Any:
        """The response. Raises BrokerUnreachable."""
        timer = self._clock.call_later(self._timeout_ms, lambda: self._fail(f"no answer in {self._timeout_ms} ms"))
        try:
            await self._connect()
            writer = self._writer
            if writer is None:
                raise BrokerUnreachable(self._broker_id, "the connection was closed")
            self._correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
            frame = request_frame(request, version, self._correlation_id, self._client_id)
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._pending.append((self._correlation_id, type(request), version, answer))
            writer.write(frame)
            return await answer
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
        if self._writer is not None:
            return
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open(endpoint))
        opening = self._opening
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise BrokerUnreachable(self._broker_id, "the connection was closed") from None
            raise

    async def _open(self, endpoint: ListenerConfig) -> None:
        try:
            reader, self._writer = await asyncio.open_connection(
                endpoint.host, endpoint.port, ssl=self._tls_to(endpoint)
            )
        except OSError as error:
            raise BrokerUnreachable(self._broker_id, f"{endpoint.address}: {error.strerror or error}") from error
        finally:
            if self._opening is asyncio.current_task():  # else another connection is being opened since
                self._opening = None
        self._reading = asyncio.ensure_future(self._read(reader))

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
        self, find: FindEndpoint, clock: Clock, client_id: str, timeout_ms: int, tls_to: TlsTo = without_tls
    ) -> None:
        self._find = find
        self._tls_to = tls_to
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
            channel = BrokerChannel(broker_id, self._find, self._clock, self._client_id, self._timeout_ms, self._tls_to)
            self._channels[broker_id] = channel
        return await channel.ask(request, version)

    def close(self) -> None:
        """Requests under way, and later ones, fail."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
