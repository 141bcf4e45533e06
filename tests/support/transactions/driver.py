"""The broker as a history of transactions sees it: requests by named clients, time, and what an operator may do to it.

`in_process_driver` has one below the sockets, where every call to the disk may be the last one; `socket_driver` one for
any broker that listens on a port.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from kafkalite.protocol.codec.schema import Message


class NoAnswer(Exception):
    """The request was sent, and no answer will come: the broker has ended, or the client did not wait. It may have been
    carried out, and may still be."""


class Driver(Protocol):
    """`is_down`: the broker has ended, and has to be started. `ends` counts the ends at a call to its disk. After
    `settles_ms` every transaction that nobody ends has timed out."""

    is_down: bool
    ends: int
    settles_ms: int

    def now_ms(self) -> int:
        """The broker's wall clock."""
        ...

    def ask(self, client: str, request: Message, version: int) -> Any:
        """Send a request on the connection of `client`, and give the answer. Raises NoAnswer."""
        ...

    def leave(self, client: str, request: Message, version: int, *, is_late: bool) -> NoReturn:
        """Send a request and leave. Raises NoAnswer. If it `is_late`, it reaches the broker when `deliver` is called,
        or never."""
        ...

    def deliver(self) -> None:
        """The oldest late request reaches the broker. Raises NoAnswer."""
        ...

    def wait(self, duration_ms: int) -> None:
        """Let time pass."""
        ...

    def start(self) -> None:
        """Start the broker again when it is down."""
        ...

    def operate(self, what: str, *arguments: Any) -> None:
        """An act of the operator, the disk or the machine: see `steps`. A driver leaves out what it cannot do."""
        ...

    def close(self) -> None: ...
