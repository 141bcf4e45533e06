"""The console as a process: its listener, the threads that sample, and its stop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from kafkalite.common.errors import ConfigError
from kafkalite.console.clusters import ClusterConsole, ServedCluster, Shared, checked_base, mounted, paths_of
from kafkalite.console.decoders.schema_decoder import DecoderPool

_CONNECTIONS_MAX = 256
_HEAD_BYTES_MAX = 128 << 10
_KEEP_ALIVE_S = 15
_STOP_S = 2


class ConsoleServer:
    """Serves until `stop`. `address` is HOST:PORT as it is bound. `base` is the path in front of all addresses, `names`
    the hosts by which browsers reach it through a proxy, `certificate` the files of a certificate and its key."""

    def __init__(
        self,
        clusters: Sequence[ServedCluster],
        host: str,
        port: int,
        *,
        version: str,
        base: str = "",
        names: Sequence[str] = (),
        certificate: tuple[str, str] | None = None,
    ) -> None:
        """Raises ConfigError if the address cannot be bound, or properties or paths are wrong."""
        self._certificate = certificate
        self._stopping = threading.Event()
        self._server: Any = None
        self._decoders = DecoderPool()
        shared = Shared(version, (host, *names), self._decoders, certificate is not None)
        base = checked_base(base)
        paths = paths_of(clusters, base)
        consoles = zip(clusters, paths, strict=True)
        self.consoles = [ClusterConsole(one, shared, path, paths) for one, (_, path) in consoles]
        applications = {path: one.application for (_, path), one in zip(paths, self.consoles, strict=True)}
        self.application = mounted(base, applications)
        if certificate is not None:
            _check(*certificate)
        self._socket = _bound(host, port)
        self.address = _shown(host, self._socket.getsockname()[1])

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve on a loop of its own in this thread, until `stop`."""
        asyncio.run(self.serve(ready))

    async def serve(self, ready: Callable[[], None] | None = None) -> None:
        import uvicorn

        certificate, key = self._certificate or (None, None)
        config = uvicorn.Config(
            self.application,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=_CONNECTIONS_MAX,
            h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
            http="h11",
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(config)
        self._server.capture_signals = nullcontext  # the process has handlers of its own, which call `stop`
        for one in self.consoles:
            threading.Thread(target=one.sample, args=(self._stopping,), name="sampler", daemon=True).start()
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
        for one in self.consoles:
            one.close()
        self._decoders.close()

    def stop(self) -> None:
        """Stop the console, from any thread. Searches end with what they have."""
        self._stopping.set()
        for one in self.consoles:
            one.console.end_streams()
        if self._server is not None:
            self._server.should_exit = True


def _check(certificate: str, key: str) -> None:
    """Raises ConfigError for files that are no certificate and its key."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as fault:
        why = getattr(fault, "reason", None) or fault.strerror or fault
        raise ConfigError(f"--tls-certificate {certificate}, --tls-key {key}: {why}") from None


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
