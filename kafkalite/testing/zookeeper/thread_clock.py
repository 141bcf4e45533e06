"""A clock whose timers fire on a thread of their own, for a ZooKeeper that belongs to no event loop."""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable

from kafkalite.common.clock import date_ms, monotonic_ms, monotonic_s

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
        """Waits for the next due timer; None when there is none any more."""
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
