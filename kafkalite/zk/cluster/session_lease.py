"""Until when ZooKeeper cannot have ended this broker's session.

The server ends a session when it has heard nothing for the session timeout. So the session lives at least as long as
that after the last request was sent which has been answered. A broker that stood still for longer, because it was
stopped or its machine was moved, finds the lease over before any notice has reached it.
Source: Gray and Cheriton, Leases (SOSP 1989).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkalite.common.clock import Clock, Timer
from kafkalite.zk.client.operations import OperationFailed, Unavailable

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

_RENEWALS = 3  # in a session timeout


class SessionLease:
    """Use: `begin` once the session is connected, `end`."""

    def __init__(self, session: ZooKeeperSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._until_ms = 0
        self._timer: Timer | None = None
        self._renewal: asyncio.Task[None] | None = None

    @property
    def is_held(self) -> bool:
        return self._clock.monotonic_ms() < self._until_ms

    def begin(self) -> None:
        self._renewal = asyncio.get_running_loop().create_task(self._renew(), name="kafkalite-zookeeper-lease")

    def end(self) -> None:
        self._until_ms = 0
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()

    async def _renew(self) -> None:
        sent_ms = self._clock.monotonic_ms()
        try:
            await self._session.sync()
        except (Unavailable, OperationFailed):
            pass  # the present lease stays
        else:
            self._until_ms = sent_ms + self._session.session_timeout_ms
        self._timer = self._clock.call_later(self._session.session_timeout_ms // _RENEWALS, self.begin)
