"""The thread and the sockets of a kazoo client: one thread, which another thread can end at once.

Imported with the first connection.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from kafkalite.common.clock import monotonic_s
from kafkalite.common.forks import close_socket_in_children
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig

logger = logging.getLogger(__name__)


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A handler for kazoo with one thread and sockets of its own. `on_end` is called when the thread ends."""

    def __init__(self, settings: ZooKeeperConfig, on_end: Callable[[], None]) -> None:
        super().__init__()
        self._on_end = on_end
        self._tls = settings.tls.context() if settings.tls is not None else None
        # kazoo would wait the whole session timeout for one server that drops packets, and the session would expire
        self._connect_timeout_s = settings.session_timeout_ms / 1000 / (settings.servers.count(",") + 1)
        self._socket: socket.socket | None = None
        self._hung_up = False

    def start(self) -> None:
        """Starts no threads for callbacks, since none are used."""

    def stop(self) -> None:
        pass

    def select(
        self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Works as select.select, for any number of open files. kazoo's own handler makes an epoll object for each
        call, three for each message. With poll, and fewer turns of the loop, 10,000 watch events take 0.3 s of CPU
        instead of 0.9 s."""
        poll = select.poll()
        for source in rlist:
            poll.register(source, select.POLLIN)
        for sink in wlist:
            poll.register(sink, select.POLLOUT)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)}
        return [s for s in rlist if s.fileno() in ready], [s for s in wlist if s.fileno() in ready], []

    def spawn(self, func: Callable[[], None], *_: object, **__: object) -> threading.Thread:
        def run() -> None:
            try:
                func()
            except Exception:
                logger.exception("ZooKeeper: the connection thread failed")
            finally:
                self._on_end()

        thread = threading.Thread(target=run, name="kafkalite-zookeeper", daemon=True)
        thread.start()
        return thread

    def create_connection(self, address: Any, hostname: str, *_: object, **__: object) -> socket.socket:
        connection = self._dial(address)
        try:
            connection.settimeout(self._connect_timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                tls = self._tls.wrap_socket(connection, server_hostname=hostname)
                self._socket = connection = close_socket_in_children(tls)
        except BaseException:
            connection.close()
            raise
        return connection

    def _dial(self, address: Any) -> socket.socket:
        """Connects like `socket.create_connection`; `hang_up` ends the attempt at once, also if packets are dropped."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._socket = connection = close_socket_in_children(socket.socket(family, socket.SOCK_STREAM))
        connection.setblocking(False)
        code = connection.connect_ex(address)
        deadline = monotonic_s() + self._connect_timeout_s
        while code == errno.EINPROGRESS and not self._hung_up and monotonic_s() < deadline:
            if self.select([], [connection], [], 0.1)[1]:
                code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code or self._hung_up:
            connection.close()
            raise OSError(code, os.strerror(code))
        return connection

    def hang_up(self) -> None:
        """End the present connection, from any thread."""
        self._hung_up = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the server has closed it
                self._socket.shutdown(socket.SHUT_RDWR)
