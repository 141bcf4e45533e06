"""The sessions that a ZooKeeper in memory keeps: their ephemeral nodes, their watches, and when they end.

A session without a connection ends after its timeout. Its watches end with its connection. Timers fire on a thread of
their own (`ThreadClock`), since this ZooKeeper belongs to no event loop.
Source: org.apache.zookeeper.server.SessionTrackerImpl, WatchManager.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

from kafkalite.common.clock import date_ms, monotonic_ms, monotonic_s
from kafkalite.testing.zookeeper.znode_tree import ZnodeTree
from kafkalite.testing.zookeeper.zookeeper_answers import answer

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock, Timer
    from kafkalite.zk.client.wire_requests import Request


class Session:
    """`watched`: the trees that the present connection watches; `notify` sends its client a changed path. `expiry` runs
    while there is no connection, or nothing is heard over it."""

    def __init__(self, number: int, timeout_ms: int) -> None:
        self.number = number
        self.timeout_ms = timeout_ms
        self.watched: set[str] = set()
        self.notify: Callable[[str], None] | None = None
        self.expiry: Timer | None = None

    def watches(self, path: str) -> bool:
        return any(path == tree or tree == "/" or path.startswith(tree + "/") for tree in self.watched)


class Sessions:
    """Belongs to the thread that holds `lock`. While `is_frozen`, no session ends by itself."""

    def __init__(self, tree: ZnodeTree, clock: Clock, lock: RLock) -> None:
        self.is_frozen = False
        self._tree = tree
        self._clock = clock
        self._lock = lock
        self._alive: dict[int, Session] = {}
        self._last = 0

    @property
    def numbers(self) -> list[int]:
        return list(self._alive)

    def open(self, timeout_ms: int) -> Session:
        # as the real ones begin with the time, so that it differs from those of an earlier cluster in its files
        self._last = max(self._last + 1, self._clock.wall_ms() << 16)
        session = self._alive[self._last] = Session(self._last, timeout_ms)
        return session

    def is_alive(self, session: Session) -> bool:
        return session.number in self._alive

    def attach(self, session: Session, notify: Callable[[str], None]) -> None:
        """It has a connection."""
        self.keep(session)
        session.watched.clear()
        session.notify = notify

    def detach(self, session: Session) -> None:
        """Its connection is lost; if it went silent before that, its end is nearer."""
        session.notify = None
        if session.expiry is None:
            self.expire_later(session)

    def keep(self, session: Session) -> None:
        """It has been heard of."""
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None

    def expire_later(self, session: Session) -> None:
        """It ends after its timeout, unless it is heard of."""
        self.keep(session)
        if not self.is_frozen and self.is_alive(session):
            session.expiry = self._clock.call_later(session.timeout_ms, partial(self.end, session))

    def end(self, session: Session) -> None:
        """End it now: its ephemeral nodes are gone."""
        with self._lock:
            self.keep(session)
            if self._alive.pop(session.number, None) is not None:
                self._notify(self._tree.end_session(session.number))

    def freeze(self) -> None:
        self.is_frozen = True
        for session in self._alive.values():
            self.keep(session)

    def thaw(self) -> None:
        """Each has its whole timeout to be heard of."""
        self.is_frozen = False
        for session in self._alive.values():
            self.expire_later(session)

    def serve(self, session: Session, request: Request) -> bytes:
        """Perform a request of a session that is alive. Raises Refused."""
        answered = answer(request, self._tree, session.number)
        if answered.watched is not None:
            session.watched.add(answered.watched)
        self._notify(answered.changed)
        return answered.data

    def _notify(self, changed: list[str]) -> None:
        for session in list(self._alive.values()):
            if session.notify is not None:
                for path in changed:
                    if session.watches(path):
                        session.notify(path)


logger = logging.getLogger(__name__)


class _Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ThreadClock:
    """The machine's clock. The thread lives as long as a timer is set: after `close` there is none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: list[tuple[float, int, _Timer]] = []
        self._count = 0
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def wall_ms(self) -> int:
        return date_ms()

    def monotonic_ms(self) -> int:
        return monotonic_ms()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> _Timer:
        """As `Clock.call_later`, from any thread. After `close` the timer never fires."""
        timer = _Timer(callback)
        with self._changed:
            if not self._is_closed:
                self._count += 1  # equal deadlines fire in the order they were set
                due_s = monotonic_s() + max(0.0, delay_ms) / 1000
                heapq.heappush(self._queue, (due_s, self._count, timer))
                self._changed.notify()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="kafkalite-test-timers", daemon=True)
                    self._thread.start()
        return timer

    def close(self) -> None:
        """Cancel all timers, and wait for the end of the thread. Not called by a timer."""
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            try:
                callback()
            except Exception:
                logger.exception("a timer failed")

    def _next(self) -> Callable[[], None] | None:
        """Waits for the next timer that falls due; None when there is none any more."""
        with self._changed:
            while self._queue:
                due_s, _, timer = self._queue[0]
                wait_s = due_s - monotonic_s()
                if timer.callback is not None and wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                heapq.heappop(self._queue)
                callback, timer.callback = timer.callback, None
                if callback is not None:
                    return callback
            self._thread = None
            return None
