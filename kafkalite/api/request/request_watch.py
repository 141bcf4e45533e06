"""Counts requests, times them and keeps the slow ones, only while a console asks.

A console asks for a report every few seconds; when it no longer does, connections call their handler directly again, so
a broker without a console pays nothing. Fetches that wait for records and members that wait for their group are not
timed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache, partial

from kafkalite.common.clock import Clock, Timer, monotonic_s
from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.region import Part
from kafkalite.network.client_connection import Answer, ClientConnection, Handler
from kafkalite.network.socket_server import SocketServer
from kafkalite.protocol.apis import SERVED
from kafkalite.protocol.header import decode_request_header

WATCHED_MS = 20_000
SLOW_MS = 50.0
SLOW_MAX = 200
TIMED_MAX = 4_096
PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP = 0, 1, 11, 14
_HEADER_BYTES = 10  # of the shortest request
_WAIT_AS_ASKED = (FETCH, JOIN_GROUP, SYNC_GROUP)


class SlowRequest(NamedTuple):
    """A slow request. `client` has its address and its software, if known. `bytes_out` is None
    for a request that wants no answer."""

    api_key: int
    version: int
    client: ClientConnection
    client_id: str | None
    began_ms: int
    took_ms: float
    bytes_in: int
    bytes_out: int | None


class WatchedClient:
    """Requests of a connection since a console asks: counts by API, the time of the last one, and its client id."""

    __slots__ = ("asked_s", "client_id", "counts")

    def __init__(self, client_id: str | None) -> None:
        self.client_id = client_id
        self.asked_s = 0.0
        self.counts: dict[int, int] = {}


class RequestWatch:
    """Stands between connections and their handler while it is on; `stand` puts it there, or (None) takes it away."""

    def __init__(self, clock: Clock, stand: Callable[[Callable[[Handler], Handler] | None], None]) -> None:
        self._clock = clock
        self._stand = stand
        self._timer: Timer | None = None
        self._times: dict[int, deque[float]] = {}
        self.counts: dict[int, int] = {}
        self.by_client: dict[ClientConnection, WatchedClient] = {}
        self.slow: deque[SlowRequest] = deque(maxlen=SLOW_MAX)

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def keep_on(self) -> None:
        """Watch requests for some more seconds."""
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
        """The median and the 99th percentile since the last call; None without requests."""
        times = sorted(self._times.pop(api_key, ()))
        if not times:
            return None
        return round(times[len(times) // 2] * 1000, 3), round(
            times[min(len(times) - 1, len(times) * 99 // 100)] * 1000, 3
        )

    def clients_now(self, clients: set[ClientConnection]) -> None:
        """The connected clients; drops those that have disconnected."""
        for one in set(self.by_client) - clients:
            del self.by_client[one]

    def idle_ms(self, client: ClientConnection) -> int | None:
        """The time since the connection's last request; None without one since the watch began."""
        watched = self.by_client.get(client)
        return None if watched is None else int((monotonic_s() - watched.asked_s) * 1000)

    def _in_front_of(self, handler: Handler) -> Handler:
        monotonic = monotonic_s

        def timed(connection: ClientConnection, frame: memoryview) -> Answer:
            began = monotonic()
            size = len(frame)
            if size < _HEADER_BYTES:  # the handler reports it
                return handler(connection, frame)
            key, version = frame[0] << 8 | frame[1], frame[3]
            of_client = self.by_client.get(connection)
            if of_client is None:
                of_client = self.by_client[connection] = WatchedClient(_client_id(frame))
            of_client.asked_s = began
            answer = handler(connection, frame)
            if answer is None or isinstance(answer, list):
                self._answered(key, version, connection, size, answer, monotonic() - began)
            elif key in _WAIT_AS_ASKED:
                self._count(key, connection)
            else:
                answer.change(partial(self._note_answer, key, version, connection, size, began))
            return answer

        return timed

    def _note_answer(
        self, key: int, version: int, client: ClientConnection, size: int, began: float, parts: list[Part] | None
    ) -> list[Part] | None:
        self._answered(key, version, client, size, parts, monotonic_s() - began)
        return parts

    def _count(self, key: int, client: ClientConnection) -> None:
        self.counts[key] = self.counts.get(key, 0) + 1
        of_client = self.by_client.get(client)
        if of_client is not None:  # None: the watch is over
            of_client.counts[key] = of_client.counts.get(key, 0) + 1

    def _answered(
        self,
        key: int,
        version: int,
        client: ClientConnection,
        size: int,
        parts: list[Part] | None,
        seconds: float,
    ) -> None:
        self._count(key, client)
        times = self._times.get(key)
        if times is None:
            if key not in SERVED:
                return
            times = self._times[key] = deque(maxlen=TIMED_MAX)
        times.append(seconds)
        if seconds * 1000 >= SLOW_MS:
            began_ms = self._clock.wall_ms() - int(seconds * 1000)
            watched = self.by_client.get(client)
            client_id = None if watched is None else watched.client_id
            sent = None if parts is None else sum(map(len, parts))
            took_ms = round(seconds * 1000, 1)
            self.slow.append(SlowRequest(key, version, client, client_id, began_ms, took_ms, size, sent))


def _client_id(frame: memoryview) -> str | None:
    try:
        return decode_request_header(frame)[0].client_id
    except Malformed:
        return None


class ReportSources:
    """`network` is asked when a report is made: the sockets are opened after the services are there."""

    __slots__ = ("network", "started_ms", "watch")

    def __init__(self, clock: Clock, network: Callable[[], SocketServer]) -> None:
        self.network = network
        self.started_ms = clock.monotonic_ms()
        self.watch = RequestWatch(clock, lambda watch: self.network().watch(watch))

    @staticmethod
    @cache
    def version() -> str | None:
        """Of the installed package."""
        from importlib import metadata

        try:
            return metadata.version("kafkalite")
        except metadata.PackageNotFoundError:
            return None
