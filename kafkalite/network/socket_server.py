"""All listeners and all processors: started together, stopped together.

New connections go to the processors in turn. Stopping: listen no more; a connection without a request in flight is
closed at once, the others when their answer has left; after the grace they are closed in any case.
Source: kafka.network.SocketServer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Mapping, Sequence

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ConfigError
from kafkalite.common.region import Part
from kafkalite.common.throttled_log import RateLimitedLogger
from kafkalite.network.acceptor import Acceptor
from kafkalite.network.client_connection import Handler
from kafkalite.network.cold_reads import ColdReads
from kafkalite.network.connection_quotas import ConnectionQuotas, NetworkLimits
from kafkalite.network.listener import Listener, Tls, bind, plain_address
from kafkalite.network.processor import Processor
from kafkalite.network.tls_handshake import TlsHandshakes

__all__ = ["Listener", "NetworkLimits", "SocketServer", "Tls"]

CANCEL_SECONDS_MAX = 5.0

_log = logging.getLogger("kafkalite.network")


class SocketServer:
    """Serves `handler` on `listeners`, from `start` to `stop`, on the loop that runs `start`.

    `ports` maps each listener's name to the port it is bound to. `processors` hold the connections and the counters.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        handler: Handler,
        limits: NetworkLimits,
        clock: Clock,
        processors: int,
    ) -> None:
        assert processors > 0
        self._listeners = tuple(listeners)
        self._handler = handler
        self._limits = limits
        self._clock = clock
        self._processor_count = processors
        self._acceptors: list[Acceptor] = []
        self._cold_reads: ColdReads | None = None
        self.processors: tuple[Processor, ...] = ()
        self.ports: dict[str, int] = {}

    @property
    def connection_count(self) -> int:
        return sum(len(processor.connections) for processor in self.processors)

    async def start(self) -> None:
        """Bind everything, then accept. Raises ConfigError and holds nothing if one address cannot be had."""
        loop = asyncio.get_running_loop()
        limits = self._limits
        bound: list[tuple[Listener, list[socket.socket]]] = []
        try:
            overrides = await _addresses_of(limits.max_connections_per_ip_overrides, loop)
            for listener in self._listeners:
                bound.append((listener, await bind(listener, loop, limits)))
        except BaseException:
            for _, sockets in bound:
                for sock in sockets:
                    sock.close()
            raise
        quotas = ConnectionQuotas(limits, overrides)
        rate_limited_log = RateLimitedLogger(self._clock)
        self._cold_reads = cold_reads = ColdReads(loop)
        self.processors = tuple(
            Processor(number, loop, self._handler, limits, self._clock, quotas, rate_limited_log, cold_reads)
            for number in range(self._processor_count)
        )
        turns = itertools.cycle(self.processors)
        handshakes = TlsHandshakes(loop, self._clock)
        for listener, sockets in bound:
            self.ports[listener.name] = sockets[0].getsockname()[1]
            self._acceptors.append(
                Acceptor(
                    listener, sockets, loop, limits, self._clock, quotas, rate_limited_log, turns.__next__, handshakes
                )
            )

    def abort(self) -> None:
        """Close every socket at once, without an answer, as the end of the process would."""
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()
        for processor in self.processors:
            processor.close()
        if self._cold_reads is not None:
            self._cold_reads.close()

    async def stop(self, grace_ms: int) -> None:
        """Let the requests in flight finish for at most `grace_ms`, then leave nothing behind. May be called again.

        The grace is in real time, regardless of the broker's clock, because it is for clients and the kernel.
        """
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()
        for processor in self.processors:
            processor.drain()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                for processor in self.processors:
                    await processor.emptied.wait()
        except TimeoutError:
            _log.info("closing %d connections whose requests did not finish in %d ms", self.connection_count, grace_ms)
        pending: set[asyncio.Future[list[Part] | None]] = set()
        for processor in self.processors:
            processor.close()
            pending |= processor.pending_responses
        if pending:
            _, stuck = await asyncio.wait(pending, timeout=CANCEL_SECONDS_MAX)
            if stuck:
                _log.error("%d cancelled requests do not end", len(stuck))
        if self._cold_reads is not None:
            self._cold_reads.close()


async def _addresses_of(limits: Mapping[str, int], loop: asyncio.AbstractEventLoop) -> dict[str, int]:
    """`limits` with the addresses of the hosts for their names."""
    by_address: dict[str, int] = {}
    for host, limit in limits.items():
        try:
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as reason:
            raise ConfigError(f"max.connections.per.ip.overrides: host '{host}' is not known ({reason})") from None
        for entry in found:
            by_address[plain_address(str(entry[4][0]))] = limit
    return by_address
