"""Routes and sessions as values.

One table of routes dispatches requests, checks them, and describes the API to programs.

A session is a cookie, a token against forged requests, and the connections of the user that has logged in. Without a
login each browser still has a session of its own, for the token. The number of sessions is bounded: the one that was
idle for longest is evicted, and one without a user before any of a user.

Failed logins of the last minute are counted for each pair of user and address, and for each address: guessing locks out
the guesser, not users at other addresses. The broker has its own limits besides, on connections and on the delay of a
refusal.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.console.brokers.broker_pool import BrokerPool
from kafkalite.console.request.parameters import Parameter

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient
    from kafkalite.client.history import History
    from kafkalite.console.brokers.broker_pool import BrokerPool
    from kafkalite.console.brokers.mirrors import Mirrors
    from kafkalite.console.decoders.registry import SchemaRegistry
    from kafkalite.console.decoders.schema_decoder import DecoderPool


class Download(NamedTuple):
    """Bytes to be saved as a file."""

    name: str
    media_type: str
    pieces: Iterator[bytes]


class Event(NamedTuple):
    """One event of a stream: record, progress, done or error."""

    name: str
    data: Any


@dataclass(slots=True)
class Call:
    """One checked request. `cluster` is borrowed for its time, from `pool`."""

    path: dict[str, Any]
    query: dict[str, Any]
    body: dict[str, Any]
    session: Session
    cluster: ClusterClient
    pool: BrokerPool
    history: History
    decoders: DecoderPool
    registry: SchemaRegistry | None = None
    mirrors: Mirrors | None = None
    timeout_s: float = 30.0


Handler = Callable[[Call], Any]
"""JSON, a Download, or an iterator of events. Runs in a thread. Raises ApiError, Unanswered, ConfigError."""


@dataclass(frozen=True, slots=True)
class Route:
    """`is_change`: refused unless the console may write. `streams`: the handler's result is an iterator of events, and
    the cluster is kept until its end. `answer`: a sentence about the response."""

    method: str
    path: str
    handler: Handler
    summary: str
    parameters: tuple[Parameter, ...] = field(default=())
    streams: bool = False
    downloads: bool = False

    @property
    def is_change(self) -> bool:
        return self.method != "GET"


WINDOW_S = 60.0
OF_A_USER_MAX = 10
OF_AN_ADDRESS_MAX = 60
_COUNTED_MAX = 2_000


@dataclass(slots=True)
class FailedLogins:
    """Times of failures by (address, user) and by (address, None); the pair that failed last is at the end."""

    _times_s: OrderedDict[tuple[str, str | None], deque[float]] = field(default_factory=OrderedDict)

    def may_try(self, address: str, user: str, now_s: float) -> bool:
        return (
            self._recent((address, user), now_s) < OF_A_USER_MAX
            and self._recent((address, None), now_s) < OF_AN_ADDRESS_MAX
        )

    def add(self, address: str, user: str, now_s: float) -> None:
        for key in ((address, user), (address, None)):
            self._times_s.setdefault(key, deque(maxlen=OF_AN_ADDRESS_MAX)).append(now_s)
            self._times_s.move_to_end(key)
        while len(self._times_s) > _COUNTED_MAX:
            self._times_s.popitem(last=False)

    def _recent(self, key: tuple[str, str | None], now_s: float) -> int:
        times_s = self._times_s.get(key, ())
        return sum(now_s - each <= WINDOW_S for each in times_s)


COOKIE = "kafkalite_console"
SESSIONS_MAX = 200
IDLE_S_MAX = 12 * 3600.0
SEARCHES_PER_SESSION_MAX = 4
SEARCHES_MAX = 16
_TOKEN_BYTES = 32


class Preview(NamedTuple):
    """A change that was shown and not yet made: the request, the values that it found and those that it would set."""

    request: Mapping[str, Any]
    found: Mapping[Any, Any]
    wanted: Mapping[Any, Any]


PREVIEWS_MAX = 20


@dataclass(slots=True)
class Previews:
    """The last previews of a session, by their names. Each is for one change."""

    _kept: OrderedDict[str, Preview] = field(default_factory=OrderedDict)

    def add(self, preview: Preview) -> str:
        """The name of the preview."""
        name = secrets.token_urlsafe(12)
        self._kept[name] = preview
        while len(self._kept) > PREVIEWS_MAX:
            self._kept.popitem(last=False)
        return name

    def take(self, name: str | None, request: Mapping[str, Any]) -> Preview | None:
        """The preview of this request; None if there is none of this name, or it was of another request."""
        found = self._kept.pop(name or "", None)
        return found if found is not None and found.request == request else None


@dataclass(slots=True)
class Session:
    """`pool` is None until a user has logged in, where a login is required. `user` is None without a login."""

    key: str = field(repr=False)
    csrf_token: str = field(repr=False)
    pool: BrokerPool | None
    user: str | None = None
    used_s: float = 0.0
    searches: int = 0
    previews: Previews = field(default_factory=Previews)

    def is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="replace"), self.csrf_token.encode())


@dataclass(slots=True)
class Sessions:
    """All sessions, the most recently used one last. `shared` is the pool of all while no login is required."""

    monotonic_s: Callable[[], float]
    shared: BrokerPool | None
    _open: OrderedDict[str, Session] = field(default_factory=OrderedDict)

    @property
    def searches(self) -> int:
        return sum(one.searches for one in self._open.values())

    def find(self, key: str | None) -> Session | None:
        """The session of a cookie, unless it has been idle for too long."""
        session = self._open.get(key or "")
        if session is None:
            return None
        now_s = self.monotonic_s()
        if now_s - session.used_s > IDLE_S_MAX:
            self.end(session)
            return None
        session.used_s = now_s
        self._open.move_to_end(session.key)
        return session

    def begin(self, pool: BrokerPool | None = None, user: str | None = None) -> Session:
        """A new session. A key is never used twice: a login gives a new cookie."""
        while len(self._open) >= SESSIONS_MAX:
            strangers = (one for one in self._open.values() if one.user is None)
            self.end(next(strangers, next(iter(self._open.values()))))
        key, token = secrets.token_urlsafe(_TOKEN_BYTES), secrets.token_urlsafe(_TOKEN_BYTES)
        session = Session(key, token, pool or self.shared, user, self.monotonic_s())
        self._open[key] = session
        return session

    def end(self, session: Session) -> None:
        self._open.pop(session.key, None)
        if session.pool is not None and session.pool is not self.shared:
            session.pool.close()

    def close(self) -> None:
        for session in list(self._open.values()):
            self.end(session)
        if self.shared is not None:
            self.shared.close()
