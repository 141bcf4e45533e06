"""Ports for servers that must know theirs before they start."""

from __future__ import annotations

import contextlib
import os
import random
import socket

_FIRST, _LAST = 15_000, 31_999  # below the ports that the system gives to sockets that name none
_WORKERS_MAX = 17  # each worker of pytest-xdist has a thousand ports of its own


class _Ports:
    """The ports of one worker in turn, from a random one on: none is given twice before all were given."""

    def __init__(self) -> None:
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS_MAX
        self._count = (_LAST - _FIRST + 1) // _WORKERS_MAX
        self._first = _FIRST + worker * self._count
        # not the module's generator: hypothesis seeds that, so all workers and tests would begin with the same port
        self._next = random.SystemRandom().randrange(self._count)

    def take(self) -> int:
        self._next = (self._next + 1) % self._count
        return self._first + self._next


_ports = _Ports()


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens, and which no other test of this run is given."""
    while True:
        port = _ports.take()
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
