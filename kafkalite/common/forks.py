"""Descriptors that a forked child inherits and must not keep, and the process that an object belongs to.

os.fork copies every descriptor and no thread. In a child that lives on, the copy of a listening socket keeps its port,
that of a connection keeps it open, that of a lock file keeps the lock, and no process serves any of them. So code that
opens one of these registers here how a child closes its copy, and each child begins with that. It only closes: a
shutdown, an unlock or an epoll_ctl would act on what the parent still uses. The parent in turn does these before it
closes, since a child that C code has forked does not run this module. A new Python process that needs modules of this
program gets `child_environment`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from asyncio import BaseTransport, StreamWriter
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
S = TypeVar("S", bound=socket.socket)

_closers: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


def close_in_children(owner: T, close: Callable[[T], object]) -> T:
    """Calls `close` with `owner`, while that lives, at the beginning of each child. Returns `owner`. A `close` that
    refers to the owner would keep it alive: it is a function of a module or class."""
    _closers[owner] = close
    return owner


def close_socket_in_children(sock: S) -> S:
    """`close_in_children` of a socket. With `close_socket` 3 us of the 80 that a connection costs both sides."""
    _closers[sock] = _close_copy
    return sock


def close_writer_in_children(writer: StreamWriter) -> StreamWriter:
    """`close_in_children` of a connection of asyncio."""
    return close_in_children(writer, _close_writer_copy)


def close_transport_copy(transport: BaseTransport | None) -> None:
    """Closes a connection of asyncio, in a child."""
    if transport is not None and not transport.is_closing():
        close_copy(transport.get_extra_info("socket").fileno())


def close_copy(fd: int) -> None:
    """Closes the file of a descriptor, in a child. The number stays in use: its holder may close it again."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.dup2(nothing, fd, inheritable=False)
    finally:
        os.close(nothing)


def close_socket(sock: socket.socket) -> None:
    """Shuts a socket down, for all processes that have a copy of it, and closes it. Raises OSError."""
    with contextlib.suppress(OSError):  # the other side was faster
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


class HomeProcess:
    """The process in which this was made. A forked child has a copy."""

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it is this one."""
        return self.pid == os.getpid()

    def require(self, what: str) -> None:
        """Raises RuntimeError in a child."""
        if not self.is_here:
            raise RuntimeError(
                f"{what} belongs to process {self.pid}, and this is process {os.getpid()}, forked from it: its methods "
                "work there"
            )


def _close_writer_copy(writer: StreamWriter) -> None:
    close_transport_copy(writer.transport)


def _close_copy(sock: socket.socket) -> None:
    os.close(sock.detach())  # even if something else refers to the socket


def _close_copies() -> None:
    for owner, close in list(_closers.items()):
        with contextlib.suppress(Exception):  # another thread may have been about to change it
            close(owner)
    _closers.clear()


os.register_at_fork(after_in_child=_close_copies)


def child_environment() -> dict[str, str]:
    """The variables by which the child finds every module that this process finds: its PYTHONPATH is this one's
    sys.path."""
    environment = dict(os.environ)
    if sys.flags.ignore_environment:  # then no variable had an effect on this process
        environment = {name: value for name, value in environment.items() if not name.startswith("PYTHON")}
    paths = [os.path.abspath(path) for path in sys.path]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if os.pathsep not in path)
    environment["PYTHONSAFEPATH"] = "1"
    for library in ("OPENBLAS", "OMP", "MKL"):  # numpy would start threads for matrices, and there are none
        environment[f"{library}_NUM_THREADS"] = "1"
    return environment
