"""Servers at an address where a command expects a broker: they hang up, stay silent, or speak another protocol."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafkalite.protocol.header import response_frame
from kafkalite.protocol.messages.metadata import MetadataResponse
from tests.support.wait import DEADLINE_S

METADATA = 3


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that accepts one connection, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(DEADLINE_S)


def hang_up(connection: socket.socket) -> None:
    connection.recv(1 << 16)


def break_off(connection: socket.socket) -> None:
    connection.recv(1)  # unread data make the close a reset


def speak_http(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def keep_silent(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def drip(connection: socket.socket) -> None:
    """Never long silent, and never done."""
    connection.recv(1 << 16)
    connection.sendall(b"\0\1\0\0")
    try:
        while True:
            connection.sendall(b"x")
            threading.Event().wait(0.01)
    except OSError:
        pass


def talk_nonsense(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(b"\0\0\0\x05" + b"\0\0\0\1\xff")


def nobody_else(header: Any) -> bytes:
    """The answer to Metadata of a broker that is alone."""
    return b"".join(response_frame(MetadataResponse(), header.api_version, header.correlation_id))  # type: ignore[arg-type]
