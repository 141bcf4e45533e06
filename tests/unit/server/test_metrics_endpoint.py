"""The HTTP endpoint: it serves scrapers, refuses everybody else quickly, and lets clients go first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
import uvloop

from kafkalite.common.errors import ConfigError
from kafkalite.server import metrics_endpoint
from kafkalite.server.metrics_endpoint import CONNECTIONS_MAX, MetricsEndpoint
from tests.support.loop import until
from tests.support.wait import DEADLINE_S

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"


def endpoint(
    pieces: Callable[[], Iterator[str]] = lambda: iter(("", "a 1\n", "", "b 2\n")), **limits: float
) -> MetricsEndpoint:
    return MetricsEndpoint("127.0.0.1", 0, "text/plain; version=0.0.4", pieces, lambda: "ok", **limits)


def play(story: Callable[[MetricsEndpoint], Awaitable[None]], one: MetricsEndpoint | None = None) -> None:
    async def scene() -> None:
        served = one or endpoint()
        await served.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await story(served)
        finally:
            await served.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing is left behind"

    uvloop.run(scene())


async def dial(served: MetricsEndpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = served.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def ask(served: MetricsEndpoint, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body); the connection ends behind it."""
    reader, writer = await dial(served)
    writer.write(request)
    said = await reader.read()
    writer.close()
    head, _, body = said.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in rest)
    assert first.startswith("HTTP/1.1 ") and int(headers["Content-Length"]) == len(body)
    assert headers["Connection"] == "close"
    return int(first.split()[1]), headers, body


def test_a_scraper_gets_the_text() -> None:
    async def story(served: MetricsEndpoint) -> None:
        status, headers, body = await ask(served, GET)
        assert (status, body) == (200, b"a 1\nb 2\n")
        assert headers["Content-Type"] == "text/plain; version=0.0.4"
        assert (await ask(served, b"GET /metrics?name[]=a HTTP/1.0\r\n\r\n"))[0] == 200
        assert (await ask(served, b"GET /health HTTP/1.1\r\n\r\n"))[::2] == (200, b"ok\n")

    play(story)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 405),
        (b"HEAD /health HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\0\0\0\x20\0\x12\0\3\0\0\0\1\0\4kcat\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431),
    ],
)
def test_everybody_else_is_refused(request_: bytes, status: int) -> None:
    async def story(served: MetricsEndpoint) -> None:
        assert (await ask(served, request_))[0] == status
        assert (await ask(served, GET))[0] == 200

    play(story)


def test_who_says_nothing_is_hung_up_on() -> None:
    async def story(served: MetricsEndpoint) -> None:
        reader, writer = await dial(served)
        writer.write(GET[:-2])  # and never the end of it
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()

    play(story, endpoint(request_seconds_max=0.02))


def test_who_takes_no_answer_is_hung_up_on() -> None:
    ended = asyncio.Event()

    def pieces() -> Iterator[str]:
        try:
            while True:
                yield "x" * 1_000_000
        finally:
            ended.set()

    async def story(served: MetricsEndpoint) -> None:
        reader, writer = await dial(served)
        writer.write(GET)
        assert await reader.read(1) == b""
        await ended.wait()
        writer.close()

    def endless() -> Iterator[str]:
        yield ""
        yield from pieces()

    play(story, endpoint(endless, response_seconds_max=0.05))


def test_one_more_than_a_handful_is_closed_at_once() -> None:
    async def story(served: MetricsEndpoint) -> None:
        silent = [await dial(served) for _ in range(CONNECTIONS_MAX)]
        reader, writer = await dial(served)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        for _, each in silent:
            each.close()
        await until(lambda: not served._connections)
        assert (await ask(served, GET))[0] == 200

    play(story)


def test_others_go_first_between_two_pieces() -> None:
    turns: list[str] = []

    def pieces() -> Iterator[str]:
        for _ in range(50):
            turns.append("piece")
            yield ""

    async def story(served: MetricsEndpoint) -> None:
        scrape = asyncio.ensure_future(ask(served, GET))
        while not scrape.done():
            turns.append("client")
            await asyncio.sleep(0)
        await scrape
        assert "piece piece" not in " ".join(turns)

    play(story, endpoint(pieces))


def test_one_scrape_is_made_at_a_time() -> None:
    under_way: list[int] = []

    def pieces() -> Iterator[str]:
        under_way.append(1)
        for _ in range(10):
            assert sum(under_way) == 1
            yield ""
        under_way.append(-1)

    async def story(served: MetricsEndpoint) -> None:
        answers = await asyncio.gather(*(ask(served, GET) for _ in range(5)))
        assert [status for status, _, _ in answers] == [200] * 5

    play(story, endpoint(pieces))


def test_a_scrape_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def pieces() -> Iterator[str]:
        yield ""
        raise ZeroDivisionError

    async def story(served: MetricsEndpoint) -> None:
        reader, writer = await dial(served)
        writer.write(GET)
        assert await _rest(reader) == b""
        writer.close()
        assert (await ask(served, b"GET /health HTTP/1.1\r\n\r\n"))[0] == 200

    play(story, endpoint(pieces))
    assert "a scrape failed" in caplog.text


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def test_stopping_ends_what_is_under_way() -> None:
    async def story(served: MetricsEndpoint) -> None:
        reader, writer = await dial(served)
        await until(lambda: served._connections)
        await served.stop()
        assert await _rest(reader) == b""
        writer.close()
        with pytest.raises(OSError):
            await dial(served)

    play(story)


def test_an_address_that_cannot_be_had_is_one_line() -> None:
    async def story(served: MetricsEndpoint) -> None:
        port = int(served.address.rpartition(":")[2])
        other = MetricsEndpoint("127.0.0.1", port, "", lambda: iter(()), lambda: "ok")
        with pytest.raises(
            ConfigError, match=rf"^metrics.listener=127.0.0.1:{port} cannot be bound \(.*choose another"
        ):
            await other.start()
        await other.stop()

    play(story)
    assert metrics_endpoint.REQUEST_BYTES_MAX == 8192
