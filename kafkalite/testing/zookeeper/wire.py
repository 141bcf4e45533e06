"""The wires between clients and an in-memory ZooKeeper, whose messages a test delays, holds back or loses."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafkalite.zk.server.access_lists import Identity
from kafkalite.zk.server.refusals import Refused
from kafkalite.zk.server.requests import WRITES
from kafkalite.zk.server.sessions import Session, Sessions

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock
    from kafkalite.zk.client.request_queue import Reply
    from kafkalite.zk.client.wire_requests import Request

REQUEST_BYTES_MAX = 0xFFFFF  # jute.maxbuffer; a server closes the connection that exceeds it

_CONNECTION_LOST = Refused(-4)


class Traffic:
    """The disturbances of the messages between one client and the servers. Messages that are sent while it
    `is_silent` wait.

    `delay_ms`: each message takes a random time between these two, in either direction.
    """

    def __init__(self, clock: Clock, lock: threading.RLock, random: Random) -> None:
        self.clock = clock
        self.delivery_lock = lock
        self._random = random
        self.delay_ms = (0.0, 0.0)
        self.is_silent = False
        self._answers_to_lose = self._requests_to_lose = 0

    def lose_answers(self, count: int) -> None:
        """Each of the next `count` writes is performed, and its connection ends before the answer."""
        self._answers_to_lose = count

    def lose_requests(self, count: int) -> None:
        """Each of the next `count` writes is not performed: its connection ends before that."""
        self._requests_to_lose = count

    def delay(self) -> float:
        least, most = self.delay_ms
        return self._random.uniform(least, most) if most else 0.0

    def takes_request(self, request: Request) -> bool:
        if request.type in WRITES and self._requests_to_lose:
            self._requests_to_lose -= 1
            return False
        return len(request.serialize()) <= REQUEST_BYTES_MAX

    def takes_answer(self, request: Request) -> bool:
        if request.type in WRITES and self._answers_to_lose:
            self._answers_to_lose -= 1
            return False
        return True


class _Message:
    __slots__ = ("deliver", "is_due")

    def __init__(self, deliver: Callable[[], None], is_due: bool) -> None:
        self.deliver = deliver
        self.is_due = is_due


class Lane:
    """One direction of a wire: messages are delivered in their order, each after a delay of its own."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._messages: deque[_Message] = deque()

    def send(self, deliver: Callable[[], None]) -> None:
        delay_ms = self._traffic.delay()
        message = _Message(deliver, is_due=not delay_ms)
        self._messages.append(message)
        if delay_ms:
            self._traffic.clock.call_later(delay_ms, partial(self._arrived, message))
        else:
            self.deliver_due()

    def deliver_due(self) -> None:
        while self._messages and self._messages[0].is_due and not self._traffic.is_silent:
            self._messages.popleft().deliver()

    def clear(self) -> None:
        self._messages.clear()

    def _arrived(self, message: _Message) -> None:
        with self._traffic.delivery_lock:
            message.is_due = True
            self.deliver_due()


class Wire:
    """One connection between a client and a server, from its beginning to its end. `lost` is called when it ends by
    itself."""

    def __init__(
        self,
        traffic: Traffic,
        sessions: Sessions,
        session: Session,
        identities: Sequence[Identity],
        on_watch_event: Callable[[str], None],
        lost: Callable[[], None],
    ) -> None:
        self._traffic = traffic
        self._sessions = sessions
        self._session = session
        self._on_watch_event = on_watch_event
        self._lost = lost
        self._to_server = Lane(traffic)
        self._to_client = Lane(traffic)
        self._waiting: dict[Reply, None] = {}
        self._is_over = False
        sessions.attach(session, self._notify, identities)

    def send(self, request: Request, reply: Reply) -> None:
        self._waiting[reply] = None
        self._to_server.send(partial(self._serve, request, reply))

    def deliver_due(self) -> None:
        self._to_server.deliver_due()
        self._to_client.deliver_due()

    def end(self) -> None:
        """End the connection: messages in transit are lost; requests without an answer fail."""
        self._is_over = True
        self._to_server.clear()
        self._to_client.clear()
        self._sessions.detach(self._session)
        waiting, self._waiting = self._waiting, {}
        for reply in waiting:
            reply.set_exception(_CONNECTION_LOST)

    def _notify(self, _: int, path: str) -> None:
        self._to_client.send(partial(self._on_watch_event, path))

    def _serve(self, request: Request, reply: Reply) -> None:
        if self._is_over or not self._sessions.is_alive(self._session):
            return
        if not self._traffic.takes_request(request):
            self._lost()
            return
        result: bytes | Refused
        try:
            result = self._sessions.serve(self._session, request.type, request.serialize())
        except Refused as refusal:
            result = refusal
        if self._traffic.takes_answer(request):
            self._to_client.send(partial(self._answer, reply, result))
        else:
            self._lost()

    def _answer(self, reply: Reply, result: bytes | Refused) -> None:
        if reply not in self._waiting:
            return
        del self._waiting[reply]
        if isinstance(result, Refused):
            reply.set_exception(result)
        else:
            reply.set((result, 0))
