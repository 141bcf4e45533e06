"""The console as a process: its listener, the thread that samples, and its stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from kafkalite.client.broker_reports import generations, reports
from kafkalite.client.history import INTERVAL_MS, LAG_EVERY, History
from kafkalite.client.logins import ClientSecurity
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.console.app import Console
from kafkalite.console.brokers.broker_pool import BrokerPool
from kafkalite.console.calls.route import Sessions
from kafkalite.console.decoders.registry import SchemaRegistry
from kafkalite.console.login import Login
from kafkalite.console.request.parameters import ApiError

logger = logging.getLogger("kafkalite.console")

_CONNECTIONS_MAX = 256
_HEAD_BYTES_MAX = 128 << 10
_KEEP_ALIVE_S = 15
_STOP_S = 2


class ConsoleServer:
    """Serves until `stop`. `address` is HOST:PORT as it is bound. `properties` are a Kafka client's: with SASL every
    user logs in, and a login in the properties is only used to sample."""

    def __init__(
        self,
        bootstrap: str,
        host: str,
        port: int,
        *,
        may_write: bool,
        version: str,
        properties: Mapping[str, str],
        schema_registry: str | None = None,
    ) -> None:
        """Raises ConfigError if the address cannot be bound, or the properties are wrong."""
        wants_login = properties.get("security.protocol", "").strip().upper().startswith("SASL_")
        shared = None if wants_login else BrokerPool(bootstrap, ClientSecurity.of(properties))
        self._sampled = shared
        if wants_login and "sasl.jaas.config" in properties:
            self._sampled = BrokerPool(bootstrap, ClientSecurity.of(properties))
        self._socket = _bound(host, port)
        self.address = _shown(host, self._socket.getsockname()[1])
        self._history = History(lambda: int(time.time() * 1000))
        sessions = Sessions(time.monotonic, shared)
        registry = SchemaRegistry.of(schema_registry, properties)
        login = Login(bootstrap, properties, sessions, may_write, registry is not None)
        self._sessions = sessions
        self.console = Console(sessions, self._history, login, may_write, version, (host,), registry)
        self._stopping = threading.Event()
        self._server: Any = None

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve on a loop of its own in this thread, until `stop`."""
        asyncio.run(self.serve(ready))

    async def serve(self, ready: Callable[[], None] | None = None) -> None:
        import uvicorn

        config = uvicorn.Config(
            self.console.application(),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=_CONNECTIONS_MAX,
            h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
            http="h11",
        )
        self._server = uvicorn.Server(config)
        self._server.capture_signals = nullcontext  # the process has handlers of its own, which call `stop`
        sampler = threading.Thread(target=self._sample, name="sampler", daemon=True)
        sampler.start()
        if ready is not None:
            ready()
        try:
            with suppress(asyncio.CancelledError):
                await self._server.serve(sockets=[self._socket])
        finally:
            self.close()

    def close(self) -> None:
        """End the sessions, the sampling and the decoders."""
        self._stopping.set()
        self._socket.close()
        self._sessions.close()
        self.console.decoders.close()

    def stop(self) -> None:
        """Stop the console, from any thread. Searches end with what they have."""
        self._stopping.set()
        self.console.end_streams()
        if self._server is not None:
            self._server.should_exit = True

    def _sample(self) -> None:
        """Samples every broker each five seconds, the groups less often. An unreachable cluster leaves a gap."""
        count = 0
        while not self._stopping.wait(0 if count == 0 else INTERVAL_MS / 1000):
            pool = self._sampled
            if pool is None:
                return
            try:
                with pool.borrow() as cluster:
                    self._history.add(reports(cluster, pool, "broker"))
                    if count % LAG_EVERY == 0:
                        self._history.add_lags(pool.groups.get(cluster))
                        self._history.add_generations(generations(cluster, pool))
            except (Unanswered, ConfigError, ApiError) as fault:
                logger.info("nothing was sampled: %s", fault)
            count += 1


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_CONNECTIONS_MAX)  # before the address is printed: an early client waits, and is not refused
    except OSError as fault:
        listener.close()
        why = fault.strerror or fault
        raise ConfigError(f"console.listener={_shown(host, port)} cannot be bound ({why}); choose another") from None
    return listener


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
