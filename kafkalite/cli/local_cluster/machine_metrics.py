"""The metrics of a machine: those of all its brokers as one text, each sample with a label `broker`.

The supervisor reads the brokers' own endpoints when a scraper comes, and adds a few metrics of its own. A broker that
does not answer is left out; `kafkalite_broker_up` says so.
Source: the Prometheus exposition format, version 0.0.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

from kafkalite.common.metrics import CONTENT_TYPE, Column, Metrics, Row
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.listeners import LOOPBACK_OF, metrics_listener
from kafkalite.server.metrics_endpoint import MetricsEndpoint

SCRAPE_S_MAX = 5.0
SCRAPE_BYTES_MAX = 256 << 20


class BrokerState(NamedTuple):
    """A broker of the machine. `metrics` is the address of its own endpoint, None while it is not known."""

    broker_id: int
    is_up: bool
    restarts: int
    metrics: str | None


def machine_endpoint(listener: str, states: Callable[[], Iterable[BrokerState]]) -> MetricsEndpoint:
    """The endpoint at HOST:PORT, not started yet."""
    where = metrics_listener(listener)
    own = Metrics()
    own.table(
        (
            Column("kafkalite_broker_up", "Whether the broker's process serves."),
            Column("kafkalite_broker_restarts_total", "How often the process was started again after its death."),
        ),
        ("broker",),
        lambda: [Row((str(one.broker_id),), (one.is_up, one.restarts)) for one in states()],
    )

    async def pieces() -> AsyncIterator[str]:
        up = [one for one in states() if one.is_up and one.metrics]
        texts = await asyncio.gather(*(scrape(one.metrics or "") for one in up))
        for piece in own.pieces():
            yield piece
        for piece in merged({one.broker_id: text for one, text in zip(up, texts, strict=True)}):
            yield piece

    def health() -> str:
        down = [f"broker {one.broker_id}" for one in states() if not one.is_up]
        return f"{', '.join(down)} {'is' if len(down) == 1 else 'are'} down" if down else "ok"

    return MetricsEndpoint(where.host, where.port, CONTENT_TYPE, pieces, health)


async def scrape(address: str) -> str:
    """The text of one broker's endpoint; empty if it does not answer in time."""
    where = metrics_listener(address)
    host = LOOPBACK_OF.get(where.host, where.host)
    try:
        async with asyncio.timeout(SCRAPE_S_MAX):
            reader, writer = await asyncio.open_connection(host, where.port)
            try:
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: machine\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
                if not head.startswith(b"HTTP/1.1 200 ") or size > SCRAPE_BYTES_MAX:
                    return ""
                return (await reader.readexactly(size)).decode(errors="replace")
            finally:
                writer.close()
    except (OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError):
        return ""


def merged(texts: Mapping[int, str]) -> Iterator[str]:
    """The samples of all texts, by broker, with those of one metric together as the format requires."""
    headers: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for broker_id, text in texts.items():
        name = ""
        for line in text.splitlines():
            if line.startswith("# "):
                name = line.split(" ", 3)[2]
                header = headers.setdefault(name, [])
                if line not in header and len(header) < 2:
                    header.append(line)
            elif line:
                samples.setdefault(name, []).append(_labelled(line, broker_id))
    for name, lines in samples.items():
        yield "\n".join((*headers.get(name, ()), *lines, ""))


def _labelled(sample: str, broker_id: int) -> str:
    name, brace, rest = sample.partition("{")
    if brace:
        return f'{name}{{broker="{broker_id}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{broker="{broker_id}"}} {value}'
