"""Connections of this broker to others: those of its fetchers, and a channel to each broker for all other requests.

Requests and responses have the same order. The versions of the requests are fixed: the brokers of a cluster do not ask
each other for ApiVersions. An error or a timeout closes a connection; every request of a channel then fails with
`BrokerUnreachable`, and retries are the caller's. At a SASL listener a connection begins with a login, which is
repeated before its session ends, between two requests, of which the second waits.

A large response is received into memory of its own size, which is kept for the next.
Source: org.apache.kafka.clients.NetworkClient, kafka.server.BrokerBlockingSender,
org.apache.kafka.server.util.InterBrokerSendThread.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.client.sasl_login import NEVER_MS, due_ms, log_in
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.common.forks import close_in_children, close_transport_copy
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame

if TYPE_CHECKING:
    import ssl

    from kafkalite.common.clock import Clock, Timer
    from kafkalite.config.listeners import ListenerConfig
    from kafkalite.security.sasl.client_exchange import Login

SLAB_BYTES = 64 * 1024
KEPT_BYTES_MAX = 16 << 20
LOGIN_BYTES_MAX = 64 * 1024  # of a response before the other side has proven who it is
FRAME_BYTES_MAX = 1 << 30  # of a fetch's response: one batch may be larger than any limit of the request
RESPONSE_BYTES_MAX = 64 << 20  # of another response
_LOGIN_CORRELATION_ID = 0x7FFFFFF8  # one of those that Kafka keeps for logins
_CORRELATION_ID_MAX = (1 << 31) - 1
_read_size = struct.Struct(">i").unpack_from

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


class BrokerConnection(asyncio.BufferedProtocol):
    """One connection: request frames out, response frames in, without a task and without a copy.

    `on_frame` gets each response without its size, in the turn of the loop in which its last byte was read, as a view
    of memory that the next one overwrites; `pause` keeps it. `on_lost` is called once, with the reason. A response of
    more than `response_bytes_max` bytes ends the connection.

    Invariant: the bytes received and not delivered are `_data[_start:_end]`; `_want` is the size with prefix of a frame
    that `_data` was allocated for, or 0. During a login every response belongs to it. Requests wait in `_held` from the
    time when a login is due until it has ended; it begins when no response is pending.
    """

    def __init__(
        self,
        on_frame: Callable[[memoryview], None],
        on_lost: Callable[[str], None],
        clock: Clock,
        timeout_ms: float,
        response_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._response_bytes_max = response_bytes_max
        self._transport: asyncio.Transport | None = None
        self._slab = memoryview(bytearray(SLAB_BYTES))
        self._large = memoryview(b"")
        self._data = self._slab
        self._start = self._end = self._want = 0
        self._is_paused = False
        self._expected = 0  # responses
        self._asked_ms = 0.0  # when the oldest request without a response was sent
        self._timer: Timer | None = None
        self._login: Login | None = None
        self._host = ""
        self._is_logging_in = False
        self._why_lost = "it closed the connection"
        self._login_due_ms = NEVER_MS
        self._login_answer: asyncio.Future[bytes] | None = None
        self._login_again: asyncio.Task[None] | None = None
        self._held: list[bytes] = []

    async def open(
        self, host: str, port: int, receive_buffer_bytes: int, security: ChannelSecurity = NO_SECURITY
    ) -> None:
        """Connects, with TLS and a login if these are needed; closes the connection if that fails. Raises OSError, and
        UnicodeError for a name that no host can have."""
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_connection(lambda: self, host, port, ssl=security.tls)
            close_in_children(self, BrokerConnection._close_copy)
            sock: socket.socket = transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            self._login, self._host = security.login, host
            await self._log_in()
        except BaseException:
            self.close()
            raise

    def _close_copy(self) -> None:
        close_transport_copy(self._transport)

    def send(self, frame: bytes) -> None:
        """Sends a request, for which one response is expected within the time that was given."""
        if self._login is None or (not self._held and self._clock.monotonic_ms() < self._login_due_ms):
            self._write(frame)
        else:
            self._held.append(frame)
            self._begin_login()

    def _begin_login(self) -> None:
        """Starts the login. Only when no response is pending."""
        if not self._expected and self._login_again is None:
            self._login_again = asyncio.ensure_future(self._renew_login())

    def _write(self, frame: bytes) -> None:
        if self._transport is None:
            return  # lost during a login, which raises it
        if not self._expected:
            self._asked_ms = self._clock.monotonic_ms()
        self._expected += 1
        if self._timer is None:
            self._timer = self._clock.call_later(self._timeout_ms, self._on_timer)
        self._transport.write(frame)

    def pause(self) -> None:
        """Keep the response that was delivered: receive nothing until `resume`."""
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        self._is_paused = False
        self._hand_out()
        if self._transport is not None and not self._is_paused:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close the connection; no callback is called from now on."""
        self._on_frame = lambda _: None
        self._on_lost = lambda _: None
        self._held.clear()
        if self._login_again is not None:
            self._login_again.cancel()
        self._end_now()

    def fail(self, why: str) -> None:
        if self._is_logging_in:  # the login raises it
            self._end_now()
            self._why_lost = why
            if self._login_answer is not None and not self._login_answer.done():
                self._login_answer.set_exception(OSError(why))
            return
        on_lost = self._on_lost
        self.close()
        on_lost(why)

    def _end_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def _on_timer(self) -> None:
        """Checks the age of the oldest request. One timer at a time, since most requests are answered long before."""
        self._timer = None
        if self._expected:
            left_ms = self._asked_ms + self._timeout_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self.fail(f"no answer in {self._timeout_ms:g} ms")
            else:
                self._timer = self._clock.call_later(left_ms, self._on_timer)

    # the login

    async def _log_in(self) -> None:
        if self._login is not None:
            began_ms, self._is_logging_in = self._clock.monotonic_ms(), True
            try:
                lifetime_ms = await log_in(self._login, self._host, self._ask)
                self._login_due_ms = due_ms(lifetime_ms, began_ms, self._clock.monotonic_ms())
            finally:
                self._is_logging_in = False

    async def _ask(self, request: Message, version: int) -> Any:
        """The response to a request of the login. Raises OSError, Malformed."""
        if self._transport is None:  # lost while the login was waiting for a token or a ticket
            raise OSError(self._why_lost)
        self._login_answer = asyncio.get_running_loop().create_future()
        try:
            self._write(request_frame(request, version, _LOGIN_CORRELATION_ID, "kafkalite"))
            frame = memoryview(await self._login_answer)
        finally:
            self._login_answer = None
        return decode_response(type(request), version, frame)[1]

    async def _renew_login(self) -> None:
        try:
            await self._log_in()
        except OSError as error:
            self._login_again = None
            self.fail(str(error))
            return
        self._login_again = None
        held, self._held = self._held, []
        for frame in held:
            self._write(frame)

    # the protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.fail(str(error) if error is not None else "it closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._data[self._end : self._want] if self._want else self._data[self._end :]

    def buffer_updated(self, count: int) -> None:
        self._end += count
        if self._end >= self._want:
            self._hand_out()

    def _hand_out(self) -> None:
        """Delivers the whole frames, and makes room for the remaining bytes."""
        while not self._is_paused:
            start, end = self._start, self._end
            if end - start < 4:
                break
            (size,) = _read_size(self._data, start)
            if not 4 <= size <= (self._response_bytes_max if self._login_answer is None else LOGIN_BYTES_MAX):
                self.fail(f"a response of {size} bytes")
                return
            stop = start + 4 + size
            if stop > end:
                break
            if not self._expected:
                self.fail("a response without a request")
                return
            self._start = stop
            self._expected -= 1
            self._asked_ms = self._clock.monotonic_ms()
            if self._login_answer is None:
                self._on_frame(self._data[start + 4 : stop])
                if self._held:
                    self._begin_login()
            elif not self._login_answer.done():
                self._login_answer.set_result(bytes(self._data[start + 4 : stop]))
        else:
            return
        self._make_room()

    def _make_room(self) -> None:
        """Moves the begun frame to the beginning of memory that can hold it."""
        rest = self._data[self._start : self._end]
        left = len(rest)
        want = 4 + _read_size(rest)[0] if left >= 4 else 0
        if want > SLAB_BYTES:
            if len(self._large) < want or self._data.obj is self._large.obj:
                self._large = memoryview(bytearray(want))
            data, self._want = self._large, want
        else:
            data, self._want = self._slab, 0
            if len(self._large) > KEPT_BYTES_MAX:
                self._large = memoryview(b"")
        if left and (data is not self._data or self._start):
            data[:left] = bytes(rest)
        self._data, self._start, self._end = data, 0, left


class BrokerChannel:
    """The connection to one broker, opened with the first request.

    Invariant: `_pending` are the requests without a response, in sending order.
    """

    def __init__(
        self, find: FindEndpoint, clock: Clock, client_id: str, timeout_ms: int, security_to: SecurityTo, broker_id: int
    ) -> None:
        self._broker_id = broker_id
        self._find = find
        self._security_to = security_to
        self._clock = clock
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._correlation_id = 0
        self._endpoint: ListenerConfig | None = None
        self._opening: asyncio.Task[BrokerConnection] | None = None
        self._connection: BrokerConnection | None = None
        self._pending: deque[tuple[int, type[Message], int, asyncio.Future[Any]]] = deque()

    async def ask(self, request: Message, version: int) -> Any:
        """The response. Raises BrokerUnreachable."""
        timer = self._clock.call_later(self._timeout_ms, lambda: self._fail(f"no answer in {self._timeout_ms} ms"))
        try:
            connection = await self._connect()
            if connection is not self._connection:
                raise BrokerUnreachable(self._broker_id, "the connection was closed")
            return await self._send(connection, request, version)
        finally:
            timer.cancel()

    def close(self) -> None:
        self._fail("this broker stops")

    async def _connect(self) -> BrokerConnection:
        endpoint = self._find(self._broker_id)
        if endpoint is None:
            self._fail("it is not registered")
            raise BrokerUnreachable(self._broker_id, "it is not registered")
        if endpoint != self._endpoint:
            self._fail("its address has changed")
            self._endpoint = endpoint
        if self._connection is not None:
            return self._connection
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open(endpoint))
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise BrokerUnreachable(self._broker_id, "the connection was closed") from None
            raise

    async def _open(self, endpoint: ListenerConfig) -> BrokerConnection:
        connection = BrokerConnection(self._on_frame, self._fail, self._clock, self._timeout_ms, RESPONSE_BYTES_MAX)
        try:
            await connection.open(endpoint.host, endpoint.port, -1, self._security_to(endpoint))
        except (OSError, UnicodeError) as error:
            why = f"{endpoint.address}: {getattr(error, 'strerror', None) or error}"
            if self._opening is asyncio.current_task():
                self._opening = None  # not cancelled: it raises the reason
                self._fail(why)
            raise BrokerUnreachable(self._broker_id, why) from error
        finally:
            if self._opening is asyncio.current_task():  # else another connection is being opened since
                self._opening = None
        self._connection = connection
        return connection

    def _send(self, connection: BrokerConnection, request: Message, version: int) -> asyncio.Future[Any]:
        """The response, which fails with BrokerUnreachable."""
        self._correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
        frame = request_frame(request, version, self._correlation_id, self._client_id)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append((self._correlation_id, type(request), version, answer))
        connection.send(frame)
        return answer

    def _on_frame(self, frame: memoryview) -> None:
        expected_id, kind, version, answer = self._pending[0]
        try:
            correlation_id, response = decode_response(kind, version, memoryview(bytes(frame)))
            if correlation_id != expected_id:
                raise Malformed("a response to another request")
        except Malformed as error:
            self._fail(str(error))
            return
        self._pending.popleft()
        if not answer.done():
            answer.set_result(response)

    def _fail(self, why: str) -> None:
        """Close the connection; pending requests fail."""
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        pending, self._pending = self._pending, deque()
        for _, _, _, answer in pending:
            if not answer.done():
                answer.set_exception(BrokerUnreachable(self._broker_id, why))


class BrokerChannels:
    """The channels to other brokers, one for each that was sent a request."""

    def __init__(
        self,
        find: FindEndpoint,
        clock: Clock,
        client_id: str,
        timeout_ms: int,
        security_to: SecurityTo = without_security,
    ) -> None:
        self._channel_to = partial(BrokerChannel, find, clock, client_id, timeout_ms, security_to)
        self._channels: dict[int, BrokerChannel] = {}
        self._is_closed = False

    async def ask(self, broker_id: int, request: Message, version: int) -> Any:
        """The response of a broker. Raises BrokerUnreachable."""
        if self._is_closed:
            raise BrokerUnreachable(broker_id, "this broker stops")
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = self._channel_to(broker_id)
        return await channel.ask(request, version)

    def close(self) -> None:
        """Pending requests, and later ones, fail."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
