"""Drives a broker that listens on a port, such as an Apache Kafka: real time, and nothing that only an operator can do.

Histories share a broker: each has names of its own, made of the plan's names and a stem.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import Any, NoReturn

from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame
from tests.support.transactions.driver import NoAnswer
from tests.support.transactions.steps import FLEETING, GROUPS, PRODUCERS, TOPICS
from tests.support.wait import DEADLINE_S

_NAMES = frozenset((*TOPICS, FLEETING, *GROUPS, *PRODUCERS.values()))
_LEAVES_AFTER_S = 0.05  # later requests, on another connection, come behind the one that is left alone


class SocketDriver:
    """The broker never ends here. `settles_ms`: after that long every transaction has timed out."""

    is_down = False
    ends = 0

    def __init__(self, address: tuple[str, int], stem: str, settles_ms: int) -> None:
        self.settles_ms = settles_ms
        self._address = address
        self._stem = stem
        self._late: deque[tuple[str, Message, int]] = deque()
        self._correlation_id = 0
        self._connections: dict[str, socket.socket] = {}

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def ask(self, client: str, request: Message, version: int) -> Any:
        connection = self._send(client, request, version)
        size = int.from_bytes(_receive(connection, 4), "big")
        correlation_id, response = decode_response(type(request), version, memoryview(_receive(connection, size)))
        assert correlation_id == self._correlation_id
        return _renamed(response, lambda name: name.removeprefix(self._stem))

    def leave(self, client: str, request: Message, version: int, *, is_late: bool) -> NoReturn:
        if is_late:
            self._late.append((client, request, version))
        else:
            self._send_and_leave(client, request, version)
        raise NoAnswer

    def deliver(self) -> None:
        if self._late:
            client, request, version = self._late.popleft()
            self._send_and_leave(f"{client}-late", request, version)

    def _send_and_leave(self, client: str, request: Message, version: int) -> None:
        self._send(client, request, version)
        time.sleep(_LEAVES_AFTER_S)
        self._connections.pop(client).close()

    def _send(self, client: str, request: Message, version: int) -> socket.socket:
        connection = self._connections.get(client)
        if connection is None:
            connection = self._connections[client] = socket.create_connection(self._address, DEADLINE_S)
        self._correlation_id += 1
        renamed = _renamed(request, lambda name: self._stem + name if name in _NAMES else name)
        connection.sendall(request_frame(renamed, version, self._correlation_id, client))
        return connection

    def wait(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)

    def start(self) -> None:
        """It always runs."""

    def operate(self, what: str, *arguments: Any) -> None:
        """Nothing is done to a broker that others use, too."""

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def _receive(connection: socket.socket, size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker has closed the connection")
        data += more
    return data


def _renamed(value: Any, rename: Any) -> Any:
    """A copy in which every string is renamed."""
    if isinstance(value, str):
        return rename(value)
    if isinstance(value, list):
        return [_renamed(each, rename) for each in value]
    if isinstance(value, Message):
        return type(value)(**{name: _renamed(getattr(value, name), rename) for name in type(value).__fields__})
    return value
