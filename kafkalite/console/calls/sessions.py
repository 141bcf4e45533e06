"""Sessions: a cookie, a token against forged requests, and the connections of the user that has logged in.

Without a login of the listener everybody has a session of their own all the same, for the token. The number of sessions
is bounded: the one that was idle for longest makes room, and one without a user before any of a user.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.console.brokers.broker_pool import BrokerPool

COOKIE = "kafkalite_console"
SESSIONS_MAX = 200
IDLE_S_MAX = 12 * 3600.0
SEARCHES_PER_SESSION_MAX = 4
SEARCHES_MAX = 16
_TOKEN_BYTES = 32


@dataclass(slots=True)
class Session:
    """`pool` is None until a user has logged in, where a login is required. `user` is None without a login."""

    key: str = field(repr=False)
    csrf_token: str = field(repr=False)
    pool: BrokerPool | None
    user: str | None = None
    used_s: float = 0.0
    searches: int = 0

    def is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="replace"), self.csrf_token.encode())


@dataclass(slots=True)
class Sessions:
    """All sessions, the one that was used last at the end. `shared` is the pool of all while no login is required."""

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
        """A new one. A key is never used twice: a login gives a new cookie."""
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
