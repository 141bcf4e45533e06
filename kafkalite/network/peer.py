"""Who is at the other end, and what a handler owes them.

The three names by which dispatch and the network meet: `Peer`, `Answer`, `Handler`. One `Peer` per connection, made
when it is accepted; it lives as long as the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kafkalite.region import Part


class Peer:
    """One client connection as the handlers see it.

    `local_host` and `local_port` are the address that was dialled, which is what a client is told to come back to when
    `advertised.listeners` is unset. The two client_software fields are filled by dispatch when the client tells them.
    """

    __slots__ = (
        "client_software_name",
        "client_software_version",
        "host",
        "listener_name",
        "local_host",
        "local_port",
        "port",
    )

    def __init__(self, listener_name: str, host: str, port: int, local_host: str, local_port: int) -> None:
        self.listener_name = listener_name
        self.host = host
        self.port = port
        self.local_host = local_host
        self.local_port = local_port
        self.client_software_name: str | None = None
        self.client_software_version: str | None = None

    def __repr__(self) -> str:
        return f"Peer({self.host}:{self.port} on {self.listener_name})"


Answer = list[Part] | None | Awaitable[list[Part] | None]
"""The parts of whole response frames in order; None: no response is due; an awaitable of these parks the connection."""

Handler = Callable[[Peer, memoryview], Answer]
"""Called with one request frame without its size, in writable memory that stays as it is until the answer is complete
(its last byte has left), and not longer. Raises `Malformed` or `Disconnect` to close the connection."""
