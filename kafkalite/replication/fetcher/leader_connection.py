"""The connection of a fetcher to a leader: request frames out, response frames in, without a task and without a copy.

A response is handed out in the turn of the loop in which its last byte was read, as a view of memory that the next one
overwrites. A large one is received into memory of its own size, which is kept for the next. A response that is taken
apart over several turns must be guarded by `pause`. At a SASL listener the connection begins with a login, which is
repeated before its session ends, between two requests, of which the second waits.
Source: org.apache.kafka.clients.NetworkClient, kafka.server.BrokerBlockingSender.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalite.client.broker_channel import NO_SECURITY, ChannelSecurity
from kafkalite.client.sasl_login import NEVER_MS, due_ms, log_in
from kafkalite.common.forks import close_in_children, close_transport_copy
from kafkalite.protocol.header import decode_response, request_frame

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock, Timer
    from kafkalite.protocol.codec.schema import Message
    from kafkalite.security.sasl.client_exchange import Login

SLAB_BYTES = 64 * 1024
KEPT_BYTES_MAX = 16 << 20
LOGIN_BYTES_MAX = 64 * 1024  # of a response before the other side has proven who it is
_LOGIN_CORRELATION_ID = 0x7FFFFFF8  # one of those that Kafka keeps for logins
FRAME_BYTES_MAX = 1 << 30  # of a response, whatever its request asked for: one batch may be larger than any limit

_read_size = struct.Struct(">i").unpack_from


class LeaderConnection(asyncio.BufferedProtocol):
    """One connection. `on_frame` gets each response without its size, `on_lost` is called once, with the reason.

    Invariant: the bytes received and not handed out are `_data[_start:_end]`; `_want` is the size with prefix of a
    frame that `_data` was taken for, or 0. While a login is under way, every response is its own, and what is sent
    waits in `_held`.
    """

    def __init__(
        self, on_frame: Callable[[memoryview], None], on_lost: Callable[[str], None], clock: Clock, timeout_ms: float
    ) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._clock = clock
        self._timeout_ms = timeout_ms
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
        """Connects, with TLS and a login if these are needed. Raises OSError."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: self, host, port, ssl=security.tls)
        close_in_children(self, LeaderConnection._close_copy)
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._login, self._host = security.login, host
        await self._log_in()

    def _close_copy(self) -> None:
        close_transport_copy(self._transport)

    def send(self, frame: bytes) -> None:
        """Sends a request, for which one response is expected within the time that was given."""
        if self._login is None:
            self._write(frame)
        elif self._login_again is not None:
            self._held.append(frame)
        elif self._expected or self._clock.monotonic_ms() < self._login_due_ms:
            self._write(frame)
        else:
            self._held.append(frame)
            self._login_again = asyncio.ensure_future(self._renew_login())

    def _write(self, frame: bytes) -> None:
        if self._transport is None:
            return  # lost during a login, which says so
        if not self._expected:
            self._asked_ms = self._clock.monotonic_ms()
        self._expected += 1
        if self._timer is None:
            self._timer = self._clock.call_later(self._timeout_ms, self._on_timer)
        self._transport.write(frame)

    def pause(self) -> None:
        """Keep the response that was handed out as it is: receive nothing until `resume`."""
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        self._is_paused = False
        self._hand_out()
        if self._transport is not None and not self._is_paused:
            self._transport.resume_reading()

    def close(self) -> None:
        """Neither callback is called any more."""
        self._on_frame = self._on_lost = _ignore
        if self._login_again is not None:
            self._login_again.cancel()
        self._end_now()

    def fail(self, why: str) -> None:
        if self._is_logging_in:  # the login says it
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
        """One timer at a time, which looks when the oldest request was sent: most are answered long before."""
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
        """Hands out the whole frames that are here, and makes room for the rest."""
        while not self._is_paused:
            start, end = self._start, self._end
            if end - start < 4:
                break
            (size,) = _read_size(self._data, start)
            if not 4 <= size <= (FRAME_BYTES_MAX if self._login_answer is None else LOGIN_BYTES_MAX):
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


def _ignore(*_: object) -> None:
    """A callback of a closed connection."""
