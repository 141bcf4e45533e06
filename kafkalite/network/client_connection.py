"""Who is at the other end, and what a handler owes them.

What dispatch and the network share: `ClientConnection`, `Answer` with `DeferredResponse`, and `Handler`. A
`ClientConnection` is made when a connection is accepted and lives as long as it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kafkalite.common.region import Part

Lane = Callable[[memoryview], "list[Part] | DeferredResponse | None"]
"""Answers a frame like the ones before it on the same connection; None if it is not like them."""


class ClientConnection:
    """One client connection as the handlers see it.

    `local_host` and `local_port` are the address that was dialled, which is what a client is told to come back to when
    `advertised.listeners` is unset. The two client_software fields are filled by dispatch when the client tells them.
    `lanes` belong to dispatch too, by the low byte of the API key: what it learnt of this connection's requests.
    """

    __slots__ = (
        "client_software_name",
        "client_software_version",
        "host",
        "lanes",
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
        self.lanes: dict[int, Lane] = {}

    def __repr__(self) -> str:
        return f"Peer({self.host}:{self.port} on {self.listener_name})"


class DeferredResponse:
    """An answer to come, for what waits most often: it reaches the connection in the turn of the loop that gives it.

    A future and the task that awaits it take two turns more and 12 us. Settled once, by `answer`, `fail` or `cancel`;
    what comes later is ignored. `render` makes frames of what is given; both are set before it can be settled.
    """

    __slots__ = ("_withdraw", "failed", "heard", "render", "settled")

    def __init__(self, withdraw: Callable[[], None]) -> None:
        """`withdraw` is called once, when it is settled in whatever way: nobody waits any more."""
        self.settled = False
        self.render: Callable[[Any], list[Part]] = list
        self.heard: Callable[[list[Part]], None] = nobody
        self.failed: Callable[[Exception], None] = nobody
        self._withdraw = withdraw

    def answer(self, response: object) -> None:
        if not self.settled:
            render, heard, failed = self.render, self.heard, self.failed
            self.cancel()
            try:
                parts = render(response)
            except Exception as reason:
                failed(reason)
            else:
                heard(parts)

    def fail(self, reason: Exception) -> None:
        if not self.settled:
            failed = self.failed
            self.cancel()
            failed(reason)

    def cancel(self) -> None:
        """The client left: nobody is to be told."""
        if not self.settled:
            self.settled = True
            withdraw = self._withdraw
            # those who wait know the reply and it knows them: without this, each would be left to the collector
            self._withdraw = self.heard = self.failed = nobody
            withdraw()


def nobody(*_: object) -> None:
    """Hears what nobody waits for any more."""


Answer = list[Part] | None | DeferredResponse | Awaitable[list[Part] | None]
"""The parts of whole response frames in order; None: no response is due; a reply, or an awaitable of one of the first
two, parks the connection."""

Handler = Callable[[ClientConnection, memoryview], Answer]
"""Called with one request frame without its size, in writable memory that stays as it is until the answer is complete
(its last byte has left), and not longer. Raises `Malformed` or `Disconnect` to close the connection."""
