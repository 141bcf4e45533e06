"""Waits of requests for what ZooKeeper has acknowledged, which share round trips and end when it does not answer.

A round trip that began before a request came may lack what that request must find. So all requests that come during one
wait for the next, which begins `PAUSE_MS` after its end: one is in flight at a time, however many requests there are.
A round trip takes 0.1 ms of the broker's processor time, more than the answer about 100 topics.

When a request has waited for `LIMIT_MS`, ZooKeeper is taken for away. All that wait are released, and others do not
wait either, until a round trip has succeeded: the one in flight or, if the connection is lost, one that a later request
begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.zk.client.operations import OperationFailed, Unavailable

LIMIT_MS = 500  # then a request is answered from the view as it is
PAUSE_MS = 2  # between two round trips: at 2,000 requests a second they take 4 instead of 20 % of a core


class _Wait(NamedTuple):
    """Of all requests for one round trip, with the time-out of the first."""

    is_over: asyncio.Event
    timer: Timer

    def end(self) -> None:
        self.timer.cancel()
        self.is_over.set()


class CatchUp:
    """See the module. `round_trip` applies what ZooKeeper has at that moment; Unavailable and OperationFailed end the
    wait as well."""

    def __init__(self, clock: Clock, round_trip: Callable[[], Awaitable[None]]) -> None:
        self._clock = clock
        self._round_trip = round_trip
        self._present: _Wait | None = None
        self._next: _Wait | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_late = False

    async def wait(self) -> bool:
        """Return when everything is applied that ZooKeeper had at the call, or when it does not answer in time. Returns
        False, at once, if it did not answer before."""
        is_away = self._is_late
        if self._next is None and not self._is_late:
            self._next = _Wait(asyncio.Event(), self._clock.call_later(LIMIT_MS, self._give_up))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="kafkalite-zookeeper-catch-up")
        if self._next is not None:
            await self._next.is_over.wait()
        return not is_away

    def stop(self) -> None:
        """End all waits, and the round trip."""
        if self._task is not None:
            self._task.cancel()
        self._release()

    async def _run(self) -> None:
        try:
            while True:
                self._present, self._next = self._next, None
                with suppress(Unavailable, OperationFailed):
                    await self._round_trip()
                    self._is_late = False
                if self._present is not None:
                    self._present.end()
                await self._pause()
                if self._next is None:
                    return
        finally:
            self._task = None
            self._release()

    async def _pause(self) -> None:
        is_over = asyncio.Event()
        timer = self._clock.call_later(PAUSE_MS, is_over.set)
        try:
            await is_over.wait()
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        self._is_late = True
        self._release()

    def _release(self) -> None:
        waits, self._present, self._next = (self._present, self._next), None, None
        for wait in waits:
            if wait is not None:
                wait.end()
