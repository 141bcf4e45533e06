"""Detects that a client has gone while its socket is not read.

A connection that holds enough unread requests stops reading, and so would not see the end of the stream behind them.
One epoll set for such sockets, watched by the loop like any descriptor, reports it (EPOLLRDHUP). Without epoll a
client that left is noticed when its connection reads or writes again.
"""

from __future__ import annotations

import select
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable

if sys.platform == "linux":

    class DisconnectWatcher:
        """Calls back once for each watched socket whose client is gone."""

        __slots__ = ("_callbacks", "_epoll", "_loop")

        def __init__(self, loop: AbstractEventLoop) -> None:
            self._loop = loop
            self._epoll: select.epoll | None = None  # made when first needed
            self._callbacks: dict[int, Callable[[], None]] = {}

        def watch(self, fd: int, callback: Callable[[], None]) -> None:
            if self._epoll is None:
                self._epoll = select.epoll()
                self._loop.add_reader(self._epoll.fileno(), self._ready)
            self._epoll.register(fd, select.EPOLLRDHUP)
            self._callbacks[fd] = callback

        def forget(self, fd: int) -> None:
            """Call it before `fd` is closed. Harmless if `fd` is not watched."""
            if self._callbacks.pop(fd, None) is not None and self._epoll is not None:
                self._epoll.unregister(fd)

        def close(self) -> None:
            if self._epoll is not None:
                self._loop.remove_reader(self._epoll.fileno())
                self._epoll.close()
                self._epoll = None
            self._callbacks.clear()

        def _ready(self) -> None:
            if self._epoll is None:
                return
            for fd, _ in self._epoll.poll(0):
                callback = self._callbacks.get(fd)
                if callback is not None:
                    self.forget(fd)
                    callback()

else:

    class DisconnectWatcher:
        """Watches nothing: this system has no epoll."""

        __slots__ = ()

        def __init__(self, loop: AbstractEventLoop) -> None: ...

        def watch(self, fd: int, callback: Callable[[], None]) -> None: ...

        def forget(self, fd: int) -> None: ...

        def close(self) -> None: ...
