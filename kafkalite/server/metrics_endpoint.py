"""An HTTP/1.1 endpoint that a Prometheus server scrapes: GET /metrics, and GET /health for those who start brokers.

It runs on the broker's loop and steps back: text is made in small pieces with a turn of the loop between two, for one
scraper at a time, and whoever else asks waits. A connection carries one request, of a few kilobytes, and has a few
seconds for it; a handful of connections may be open, more are closed at once.
Source: RFC 9112, as far as GET needs it. Apache Kafka leaves this to an agent in its JVM.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from kafkalite.common.errors import ConfigError

CONNECTIONS_MAX = 16
REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 60.0
_SEND_BYTES = 64 * 1024
_BACKLOG = 16
_PLAIN = "text/plain; charset=utf-8"

_log = logging.getLogger("kafkalite.metrics")


class MetricsEndpoint:
    """Serves from `start` to `stop`, on the loop that runs `start`. `address` is HOST:PORT as it is bound.

    `pieces` makes the text of one scrape, in pieces that each take a bounded time; `health` is one line, "ok" or what
    is wrong. Times are real, whatever a test's clock says: they are for the peers and the kernel.
    """

    def __init__(
        self,
        host: str,
        port: int,
        content_type: str,
        pieces: Callable[[], Iterator[str]],
        health: Callable[[], str],
        *,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
    ) -> None:
        self._host = host
        self._port = port
        self._content_type = content_type
        self._pieces = pieces
        self._health = health
        self._request_seconds_max = request_seconds_max
        self._answer_seconds_max = answer_seconds_max
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self.address = ""

    async def start(self) -> None:
        """Raises ConfigError if the address cannot be had."""
        host, port = self._host, self._port
        shown = f"[{host}]" if ":" in host else host
        try:
            self._server = await asyncio.start_server(
                self._accept, host or None, port, limit=REQUEST_BYTES_MAX, backlog=_BACKLOG
            )
        except (OSError, UnicodeError) as reason:
            why = (reason.strerror if isinstance(reason, OSError) else None) or reason
            raise ConfigError(
                f"metrics.listener={shown}:{port} cannot be bound ({why}): choose another address, or an empty one for "
                "no metrics"
            ) from None
        bound = self._server.sockets[0].getsockname()[1]
        self.address = f"{shown or '127.0.0.1'}:{bound}"
        _log.info("metrics are on http://%s/metrics", self.address)

    async def stop(self) -> None:
        """Answer nobody any more, and leave nothing behind."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for conversation in list(self._conversations):
            conversation.cancel()
        if self._conversations:
            await asyncio.wait(self._conversations)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._conversations) >= CONNECTIONS_MAX or self._server is None:
            writer.transport.abort()
            return
        conversation = asyncio.ensure_future(self._converse(reader, writer))
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._request_seconds_max):
                head = await _request_head(reader)
            async with asyncio.timeout(self._answer_seconds_max):
                for part in await self._answer(head):
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)  # the kernel may take megabytes without a pause
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError):
            pass  # too slow, or gone: there is nobody to tell
        except Exception:
            _log.exception("a scrape failed")
        finally:
            writer.transport.abort()

    async def _answer(self, head: bytes | None) -> list[bytes]:
        """The whole answer, in parts that are sent one after another."""
        if head is None:
            return _answer(431, "Request Header Fields Too Large", "the request has more than 8 KiB\n")
        method, _, rest = head.split(b"\n", 1)[0].strip().partition(b" ")
        target, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            return _answer(400, "Bad Request", "this is not HTTP/1.1; Kafka's clients want another port\n")
        path = target.split(b"?", 1)[0]
        if path not in (b"/metrics", b"/health"):
            return _answer(404, "Not Found", "there are /metrics and /health\n")
        if method != b"GET":
            return _answer(405, "Method Not Allowed", "GET it\n", "Allow: GET\r\n")
        if path == b"/health":
            return _answer(200, "OK", self._health() + "\n")
        body = await self._text()
        return _head(200, "OK", self._content_type, body) + body

    async def _text(self) -> list[bytes]:
        parts: list[bytes] = []
        async with self._turn:
            for piece in self._pieces():
                if piece:
                    data = piece.encode(errors="replace")  # a path may hold what is no text
                    parts += [data[at : at + _SEND_BYTES] for at in range(0, len(data), _SEND_BYTES)]
                await asyncio.sleep(0)
        return parts


async def _request_head(reader: asyncio.StreamReader) -> bytes | None:
    """Everything up to the empty line; None if that is too much. Raises EOFError."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None


def _answer(status: int, reason: str, text: str, more: str = "") -> list[bytes]:
    body = [text.encode()]
    return _head(status, reason, _PLAIN, body, more) + body


def _head(status: int, reason: str, content_type: str, body: list[bytes], more: str = "") -> list[bytes]:
    size = sum(map(len, body))
    return [
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {size}\r\n{more}"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
    ]
