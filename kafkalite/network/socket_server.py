"""All listeners and all processors: started together, stopped together; listeners come and go meanwhile.

New connections go to the processors in turn. Stopping: listen no more; a connection without a request in flight is
closed at once, the others when their answer has left; after the grace they are closed in any case.
Source: kafka.network.SocketServer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ConfigError
from kafkalite.common.forks import close_socket
from kafkalite.common.log_lines import RateLimitedLogger
from kafkalite.network.acceptor import Acceptor
from kafkalite.network.client_connection import ClientConnection, Handler
from kafkalite.network.connection_quotas import ConnectionQuotas, NetworkLimits
from kafkalite.network.listener import Listener, Tls, bind, plain_address
from kafkalite.network.processor import ProcessedConnection, Processor
from kafkalite.network.sender import ColdReads
from kafkalite.network.tls_handshake import TlsHandshakes

__all__ = ["Listener", "NetworkLimits", "SocketServer", "Tls"]


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
        self._intercept: Callable[[Handler], Handler] = _as_it_is
        self._watch: Callable[[Handler], Handler] = _as_it_is
        self._limits = limits
        self._clock = clock
        self._processor_count = processors
        self._acceptors: dict[str, Acceptor] = {}
        self._rate_limited_log = RateLimitedLogger(clock)
        self._cold_reads: ColdReads | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._known_names: dict[str, list[str]] = {}  # of quotas of addresses
        self.quotas = ConnectionQuotas(limits, {}, clock)
        self.processors: tuple[Processor, ...] = ()
        self.ports: dict[str, int] = {}

    def serve(self, handler: Handler) -> None:
        """Give requests to `handler` from now on."""
        self._handler = handler
        self._apply_handler()

    def intercept(self, intercept: Callable[[Handler], Handler]) -> None:
        """Give requests to the handler that `intercept` makes of the current one, also after `serve`."""
        self._intercept = intercept
        self._apply_handler()

    def watch(self, watch: Callable[[Handler], Handler] | None) -> None:
        """Give requests to the handler that `watch` makes, which observes and changes nothing; None ends it."""
        self._watch = watch or _as_it_is
        self._apply_handler()

    @property
    def handler(self) -> Handler:
        """The current handler, with interception and watch."""
        return self._watch(self._intercept(self._handler))

    def clients(self) -> Iterator[ClientConnection]:
        """Every client with an open connection."""
        return (connection.client for processor in self.processors for connection in processor.connections)

    def reconfigure(self, limits: NetworkLimits) -> None:
        """Take the limits of connections from `limits`. Host names in them are resolved, which takes a moment."""

        async def apply() -> None:
            try:
                overrides = await _addresses_of(limits.max_connections_per_ip_overrides, asyncio.get_running_loop())
            except ConfigError as fault:
                _log.error("the limits of connections stay as they are: %s", fault)
            else:
                self.quotas.reconfigure(limits, overrides)

        self._carry_out(apply())

    def limit_ip(self, host: str | None, rate: float | None) -> None:
        """Set the quota of new connections from an address, or (None) from any; without `rate` remove it."""
        if host is None:
            self.quotas.limit_ip(None, rate)
            return
        address = _literal(host)
        if address is not None:
            self.quotas.limit_ip(address, rate)
            return

        async def apply() -> None:
            for known in self._known_names.pop(host, ()):
                self.quotas.limit_ip(known, None)
            if rate is not None:
                try:
                    found = list(await _addresses_of({host: 0}, asyncio.get_running_loop(), "quota of an IP"))
                except ConfigError as fault:
                    _log.error("without effect: %s", fault)
                    return
                self._known_names[host] = found
                for known in found:
                    self.quotas.limit_ip(known, rate)

        self._carry_out(apply())

    def _carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _close_excess(self) -> None:
        """Close the longest silent connections where a limit is exceeded."""
        excess_count = self.quotas.excess_count
        if excess_count > 0:
            some = [
                connection
                for processor in self.processors
                for connection in processor.connections
                if not self.quotas.is_protected(connection.client.listener_name)
            ]
            some.sort(key=lambda connection: connection.active_ms)
            for connection in some[:excess_count]:
                connection.close()

    def _apply_handler(self) -> None:
        handler = self.handler
        for processor in self.processors:
            processor.handler = handler

    @property
    def connection_count(self) -> int:
        return sum(len(processor.connections) for processor in self.processors)

    async def start(self) -> None:
        """Bind everything, then accept. Raises ConfigError and holds nothing if one address cannot be bound."""
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
                    close_socket(sock)
            raise
        quotas = self.quotas
        quotas.on_excess = lambda: loop.call_soon(self._close_excess)
        quotas.reconfigure(limits, overrides)
        self._cold_reads = cold_reads = ColdReads(loop)
        self.processors = tuple(
            Processor(number, loop, self.handler, limits, self._clock, quotas, self._rate_limited_log, cold_reads)
            for number in range(self._processor_count)
        )
        self._turns = itertools.cycle(self.processors)
        self._handshakes = TlsHandshakes(loop, self._clock)
        for listener, sockets in bound:
            self._accept_at(listener, sockets)

    def _accept_at(self, listener: Listener, sockets: Sequence[socket.socket]) -> None:
        self.ports[listener.name] = sockets[0].getsockname()[1]
        self._acceptors[listener.name] = Acceptor(
            listener,
            sockets,
            asyncio.get_running_loop(),
            self._limits,
            self._clock,
            self.quotas,
            self._rate_limited_log,
            self._turns.__next__,
            self._handshakes,
        )

    async def check_address(self, listener: Listener) -> None:
        """Bind the listener for a moment, without accepting. Raises ConfigError if its address cannot be bound now."""
        for sock in await bind(listener, asyncio.get_running_loop(), self._limits):
            close_socket(sock)

    async def add(self, listener: Listener) -> None:
        """Accept at one more listener. Raises ConfigError if its address cannot be bound."""
        self._accept_at(listener, await bind(listener, asyncio.get_running_loop(), self._limits))

    def remove(self, name: str, grace_ms: int) -> None:
        """Accept no more at this listener. Its connections are closed as their requests in flight are answered, at the
        latest after `grace_ms` of real time."""
        self._acceptors.pop(name).close()
        del self.ports[name]
        left = self._connections_of(name)
        for connection in left:
            connection.drain()

        def close() -> None:
            for connection in left:
                connection.close()

        asyncio.get_running_loop().call_later(grace_ms / 1000, close)

    def _connections_of(self, listener_name: str) -> list[ProcessedConnection]:
        return [
            connection
            for processor in self.processors
            for connection in processor.connections
            if connection.client.listener_name == listener_name
        ]

    def abort(self) -> None:
        """Close every socket at once, without an answer, as the end of the process would."""
        self._close_acceptors()
        for processor in self.processors:
            processor.close()
        self._close_helpers()

    def _close_acceptors(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.close()
        self._acceptors.clear()

    def _close_helpers(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._cold_reads is not None:
            self._cold_reads.close()

    async def stop(self, grace_ms: int) -> None:
        """Let the requests in flight finish for at most `grace_ms`, then leave nothing behind. May be called again.

        The grace is in real time, regardless of the broker's clock, because it is for clients and the kernel.
        """
        self._close_acceptors()
        for processor in self.processors:
            processor.drain()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                for processor in self.processors:
                    await processor.emptied.wait()
        except TimeoutError:
            _log.info("closing %d connections whose requests did not finish in %d ms", self.connection_count, grace_ms)
        for processor in self.processors:
            processor.close()
        self._close_helpers()


def _as_it_is(handler: Handler) -> Handler:
    return handler


def _literal(host: str) -> str | None:
    """An address as a socket writes it; None for a host name."""
    try:
        return plain_address(str(ipaddress.ip_address(host)))
    except ValueError:
        return None


async def _addresses_of(
    limits: Mapping[str, int], loop: asyncio.AbstractEventLoop, what: str = "max.connections.per.ip.overrides"
) -> dict[str, int]:
    """`limits`, which are `what`, with the addresses of the hosts for their names."""
    by_address: dict[str, int] = {}
    for host, limit in limits.items():
        try:
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as reason:
            raise ConfigError(f"{what}: host '{host}' is not known ({reason})") from None
        for entry in found:
            by_address[plain_address(str(entry[4][0]))] = limit
    return by_address
