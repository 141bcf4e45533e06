"""Waits until a condition on the state in memory is true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.common.clock import Clock


class ConditionWaiters:
    """Its owner calls `look` whenever the state has changed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        self._closed = False

    async def until(self, condition: Callable[[], bool], deadline_ms: int) -> bool:
        """Waits until the condition is true; returns False at a deadline of the monotonic clock, or after `close`."""
        if condition():
            return True
        if self._closed:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters[future] = condition
        timer = self._clock.call_later(
            deadline_ms - self._clock.monotonic_ms(), lambda: None if future.done() else future.set_result(False)
        )
        try:
            return await future
        finally:
            timer.cancel()
            self._waiters.pop(future, None)

    def look(self) -> None:
        """Evaluate all conditions. One that raises fails its own waiter only."""
        for future, condition in list(self._waiters.items()):
            try:
                is_true = not future.done() and condition()
            except Exception as error:
                future.set_exception(error)
            else:
                if is_true:
                    future.set_result(True)

    def close(self) -> None:
        """End all waiting."""
        self._closed = True
        for future in self._waiters:
            if not future.done():
                future.set_result(False)
