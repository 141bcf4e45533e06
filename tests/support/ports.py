"""Ports for brokers that are told theirs before they start."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A port of 127.0.0.1 that nobody gets who asks for any: other tests' brokers might, before this one is ready."""
    while True:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", random.randint(15_000, 30_000))) as free:
            port: int = free.getsockname()[1]
            return port
