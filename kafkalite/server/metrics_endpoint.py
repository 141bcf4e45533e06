"""An HTTP/1.1 endpoint that a Prometheus server scrapes: GET /metrics, and GET /health for programs that start brokers.

A test's broker also has its control there (`kafkalite.testing.control`). It runs on the broker's loop and
yields to clients: text is made in small pieces with a turn of the loop between two, for one scraper at a time, while
others wait. A connection carries one request, of a few kilobytes, and has a few seconds for it; a handful of
connections may be open, more are closed at once.
Source: RFC 9112, as far as GET needs it. Apache Kafka leaves this to an agent in its JVM.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from kafkalite.common.errors import ConfigError
from kafkalite.common.forks import close_copy, close_in_children, close_writer_in_children
from kafkalite.common.named_tuple import NamedTuple

CONNECTIONS_MAX = 16
REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 5.0
RESPONSE_SECONDS_MAX = 60.0
BODY_BYTES_MAX = 1 << 20
_SEND_BYTES = 64 * 1024
_CONTROL = b"/control/"
_BACKLOG = 16
_PLAIN = "text/plain; charset=utf-8"

_log = logging.getLogger("kafkalite.metrics")


class HttpRequest(NamedTuple):
    """A request for the control. `target` is the path with its query."""

    method: str
    target: str
    authorization: str | None
    body: bytes


Control = Callable[[HttpRequest], Awaitable[tuple[int, bytes]]]
"""Its status and its JSON."""

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
}


class MetricsEndpoint:
    """Serves from `start` to `stop`, on the loop that runs `start`. `address` is HOST:PORT as it is bound.

    `pieces` makes the text of one scrape, in pieces that each take a bounded time, or has to wait for them; `health` is
    one line, "ok" or the fault. Timeouts are in real time, also with a test's clock: they are for scrapers and
    the kernel.
    """

    def __init__(
        self,
        host: str,
        port: int,
        content_type: str,
        pieces: Callable[[], Iterator[str] | AsyncIterator[str]],
        health: Callable[[], str],
        *,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
        response_seconds_max: float = RESPONSE_SECONDS_MAX,
    ) -> None:
        self._host = host
        self._port = port
        self._content_type = content_type
        self._pieces = pieces
        self._health = health
        self._request_seconds_max = request_seconds_max
        self._response_seconds_max = response_seconds_max
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._one_scrape = asyncio.Lock()
        self.address = ""
        self.control: Control | None = None  # of a test's broker

    async def start(self) -> None:
        """Raises ConfigError if the address cannot be bound."""
        host, port = self._host, self._port
        bracketed = f"[{host}]" if ":" in host else host
        try:
            self._server = await asyncio.start_server(
                self._accept, host or None, port, limit=REQUEST_BYTES_MAX, backlog=_BACKLOG
            )
        except (OSError, UnicodeError) as reason:
            why = (reason.strerror if isinstance(reason, OSError) else None) or reason
            raise ConfigError(
                f"metrics.listener={bracketed}:{port} cannot be bound ({why}): choose another address, or an empty one "
                "for no metrics"
            ) from None
        close_in_children(self, MetricsEndpoint._close_copies)
        bound = self._server.sockets[0].getsockname()[1]
        self.address = f"{bracketed or '127.0.0.1'}:{bound}"
        _log.info("metrics are on http://%s/metrics", self.address)

    def _close_copies(self) -> None:
        """Close the copies of the sockets in a forked child."""
        for listening in self._server.sockets if self._server is not None else ():
            close_copy(listening.fileno())

    async def stop(self) -> None:
        """Close the listener and all connections."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for connection in list(self._connections):
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX or self._server is None:
            writer.transport.abort()
            return
        close_writer_in_children(writer)
        connection = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._request_seconds_max):
                head = await _request_head(reader)
                body = await _body(reader, head) if self._is_for_control(head) else b""
            async with asyncio.timeout(self._response_seconds_max):
                for part in await self._response(head, body):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)  # the kernel may take megabytes without a pause
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError):
            pass  # the scraper is too slow, or has disconnected
        except Exception:
            _log.exception("a scrape failed")
        finally:
            writer.transport.abort()

    def _is_for_control(self, head: bytes | None) -> bool:
        return self.control is not None and head is not None and head.partition(b" ")[2].startswith(_CONTROL)

    async def _control_response(self, control: Control, head: bytes, body: bytes | None) -> list[bytes]:
        if body is None:
            return _plain_response(413, "Content Too Large", "a body has a Content-Length, of 1 MiB at most\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        authorization = _header(head, b"authorization")
        status, answer = await control(HttpRequest(method, target, authorization, body))
        return [*_head(status, _REASONS.get(status, "Conflict"), "application/json", [answer]), answer]

    async def _response(self, head: bytes | None, sent: bytes | None) -> list[bytes]:
        """The whole response, in parts that are sent one after another."""
        if head is None:
            return _plain_response(431, "Request Header Fields Too Large", "the request has more than 8 KiB\n")
        method, _, rest = head.split(b"\n", 1)[0].strip().partition(b" ")
        target, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            return _plain_response(400, "Bad Request", "this is not HTTP/1.1; Kafka's clients want another port\n")
        path = target.split(b"?", 1)[0]
        if self.control is not None and path.startswith(_CONTROL):
            return await self._control_response(self.control, head, sent)
        if path not in (b"/metrics", b"/health"):
            return _plain_response(404, "Not Found", "there are /metrics and /health\n")
        if method != b"GET":
            return _plain_response(405, "Method Not Allowed", "GET it\n", "Allow: GET\r\n")
        if path == b"/health":
            return _plain_response(200, "OK", self._health() + "\n")
        body = await self._text()
        return _head(200, "OK", self._content_type, body) + body

    async def _text(self) -> list[bytes]:
        parts: list[bytes] = []
        async with self._one_scrape:
            async for piece in _in_turns(self._pieces()):
                if piece:
                    data = piece.encode(errors="replace")  # a path may hold bytes that are no text
                    parts += [data[at : at + _SEND_BYTES] for at in range(0, len(data), _SEND_BYTES)]
        return parts


async def _in_turns(pieces: Iterator[str] | AsyncIterator[str]) -> AsyncIterator[str]:
    """The pieces, with a turn of the loop after each."""
    if isinstance(pieces, AsyncIterator):
        async for piece in pieces:
            yield piece
    else:
        for piece in pieces:
            yield piece
            await asyncio.sleep(0)


async def _request_head(reader: asyncio.StreamReader) -> bytes | None:
    """All bytes up to the empty line; None if there are too many. Raises EOFError."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None


async def _body(reader: asyncio.StreamReader, head: bytes | None) -> bytes | None:
    """The body of a request; None if its length is not known, or too large. Raises EOFError."""
    assert head is not None
    if _header(head, b"transfer-encoding") is not None:
        return None
    length = _header(head, b"content-length") or "0"
    if not length.isascii() or not length.isdigit() or len(length) > 9 or int(length) > BODY_BYTES_MAX:
        return None
    return await reader.readexactly(int(length))


def _header(head: bytes, name: bytes) -> str | None:
    """The value of a header, by its name in small letters."""
    for line in head.split(b"\r\n")[1:]:
        found, colon, value = line.partition(b":")
        if colon and found.strip().lower() == name:
            return value.strip().decode("latin-1")
    return None


def _plain_response(status: int, reason: str, text: str, more: str = "") -> list[bytes]:
    body = [text.encode()]
    return _head(status, reason, _PLAIN, body, more) + body


def _head(status: int, reason: str, content_type: str, body: list[bytes], more: str = "") -> list[bytes]:
    size = sum(map(len, body))
    return [
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {size}\r\n{more}"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
    ]
