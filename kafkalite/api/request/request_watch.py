"""Requests as they are answered: how many, how long they took, which were slow. Only while somebody looks.

A console asks for a report every few seconds; when it no longer does, connections call their handler directly again, so
a broker that nobody watches pays nothing. A fetch that waits for records, and a member that waits for its group, take
the time that they asked for, and are not timed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.network.client_connection import Answer, DeferredResponse
from kafkalite.protocol.apis import SERVED

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock, Timer
    from kafkalite.common.region import Part
    from kafkalite.network.client_connection import ClientConnection, Handler

WATCHED_MS = 20_000
SLOW_MS = 50.0
SLOW_MAX = 200
TIMED_MAX = 4_096
PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP = 0, 1, 11, 14
_WAIT_AS_ASKED = (FETCH, JOIN_GROUP, SYNC_GROUP)


class SlowRequest(NamedTuple):
    """One answered request that took long. `client` has its address and, if told, its software."""

    api_key: int
    version: int
    client: ClientConnection
    began_ms: int
    took_ms: float
    bytes_in: int


class RequestWatch:
    """Stands between connections and their handler while it is on; `stand` puts it there, or (None) takes it away."""

    def __init__(self, clock: Clock, stand: Callable[[Callable[[Handler], Handler] | None], None]) -> None:
        self._clock = clock
        self._stand = stand
        self._timer: Timer | None = None
        self._times: dict[int, deque[float]] = {}
        self.counts: dict[int, int] = {}
        self.by_client: dict[ClientConnection, dict[int, int]] = {}
        self.slow: deque[SlowRequest] = deque(maxlen=SLOW_MAX)

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def go_on(self) -> None:
        """Somebody looks: from now on for some seconds."""
        if self._timer is None:
            self._stand(self._in_front_of)
        else:
            self._timer.cancel()
        self._timer = self._clock.call_later(WATCHED_MS, self.stop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._stand(None)
        self._times.clear()
        self.by_client.clear()

    def quantiles_ms(self, api_key: int) -> tuple[float, float] | None:
        """The median and the 99th percentile since the last question; None without requests."""
        times = sorted(self._times.pop(api_key, ()))
        if not times:
            return None
        return round(times[len(times) // 2] * 1000, 3), round(
            times[min(len(times) - 1, len(times) * 99 // 100)] * 1000, 3
        )

    def clients_now(self, clients: set[ClientConnection]) -> None:
        """Forget the clients that have left."""
        for one in set(self.by_client) - clients:
            del self.by_client[one]

    def _in_front_of(self, handler: Handler) -> Handler:
        monotonic = time.perf_counter

        def timed(connection: ClientConnection, frame: memoryview) -> Answer:
            began = monotonic()
            key, version = frame[0] << 8 | frame[1], frame[3]
            size = len(frame)
            answer = handler(connection, frame)
            if answer is None or isinstance(answer, list):
                self._answered(key, version, connection, size, monotonic() - began)
            elif key in _WAIT_AS_ASKED:
                self._count(key, connection)
            elif isinstance(answer, DeferredResponse):
                answer.render = self._rendered(answer.render, key, version, connection, size, began)
            else:
                return self._later(answer, key, version, connection, size, began)
            return answer

        return timed

    def _rendered(
        self,
        render: Callable[[Any], list[Part]],
        key: int,
        version: int,
        client: ClientConnection,
        size: int,
        began: float,
    ) -> Callable[[Any], list[Part]]:
        def rendered(response: Any) -> list[Part]:
            self._answered(key, version, client, size, time.perf_counter() - began)
            return render(response)

        return rendered

    async def _later(
        self,
        answer: Awaitable[list[Part] | None],
        key: int,
        version: int,
        client: ClientConnection,
        size: int,
        began: float,
    ) -> list[Part] | None:
        found = await answer
        self._answered(key, version, client, size, time.perf_counter() - began)
        return found

    def _count(self, key: int, client: ClientConnection) -> None:
        self.counts[key] = self.counts.get(key, 0) + 1
        of_client = self.by_client.setdefault(client, {})
        of_client[key] = of_client.get(key, 0) + 1

    def _answered(self, key: int, version: int, client: ClientConnection, size: int, seconds: float) -> None:
        self._count(key, client)
        times = self._times.get(key)
        if times is None:
            if key not in SERVED:
                return
            times = self._times[key] = deque(maxlen=TIMED_MAX)
        times.append(seconds)
        if seconds * 1000 >= SLOW_MS:
            began_ms = self._clock.wall_ms() - int(seconds * 1000)
            self.slow.append(SlowRequest(key, version, client, began_ms, round(seconds * 1000, 1), size))
