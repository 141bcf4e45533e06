"""Interceptors between the connections of a broker and its dispatcher, for tests that record or spoil requests.

Without interceptors connections call the dispatcher itself, as on any broker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from kafkalite.common.region import Part
from kafkalite.network.client_connection import Answer, ClientConnection, Handler, ThrottledAnswer
from kafkalite.network.socket_server import SocketServer

Interceptor = Callable[["ClientConnection", memoryview, Handler], Answer]
"""(connection, frame of a request, the next handler) -> its answer, which is that of the next handler, or another.
Raises Disconnect to close the connection. The frame is valid until it returns."""

Change = Callable[["list[Part] | None"], "list[Part] | None"]
"""The parts of a response frame, or None if no response is due -> the parts that are sent instead."""


class Interception:
    """The interceptors of one broker. They are called on its loop; any thread may add and remove them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._interceptors: list[Interceptor] = []
        self._server: SocketServer | None = None

    def attach(self, server: SocketServer) -> None:
        """Installs the interceptors in a broker that has started."""
        with self._lock:
            self._server = server
            self._apply()

    def add(self, interceptor: Interceptor, *, first: bool = False) -> None:
        """Adds an interceptor for all requests from now on, after the others, or before them (`first`)."""
        with self._lock:
            self._interceptors.insert(0 if first else len(self._interceptors), interceptor)
            self._apply()

    def remove(self, interceptor: Interceptor) -> None:
        """Removes an interceptor. Does nothing if it was not added."""
        with self._lock:
            if interceptor in self._interceptors:
                self._interceptors.remove(interceptor)
                self._apply()

    def _apply(self) -> None:
        if self._server is not None:
            interceptors = tuple(self._interceptors)
            self._server.intercept(lambda handler: _behind(interceptors, handler))


def _behind(interceptors: tuple[Interceptor, ...], handler: Handler) -> Handler:
    for interceptor in reversed(interceptors):
        handler = partial(_call, interceptor, handler)
    return handler


def _call(interceptor: Interceptor, following: Handler, connection: ClientConnection, frame: memoryview) -> Answer:
    return interceptor(connection, frame, following)


def changed_answer(answer: Answer, change: Change) -> Answer:
    """The same answer, at the same time, with `change` applied to its parts before they are sent. It is not called for
    a response that is never sent because its client has disconnected."""
    change = partial(_keep_throttle, change)
    if answer is None or isinstance(answer, list):
        return change(answer)
    answer.change(change)
    return answer


def _keep_throttle(change: Change, answer: list[Part] | None) -> list[Part] | None:
    """The changed answer; it keeps the muting of a client over its quota."""
    changed = change(answer)
    return ThrottledAnswer(changed or (), answer.throttle_ms) if isinstance(answer, ThrottledAnswer) else changed
