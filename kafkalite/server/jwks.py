"""The public keys by which tokens of OAUTHBEARER are verified: from a file, or from an address, and read again.

They are read at the start, by another thread when they are old, and when a token names a key that is not among them
(its login fails; the next one may find it). While the source cannot be read, the last keys stay valid. While the broker
runs, another thread reads; a change of settings does not make a source be read again.
Source: org.apache.kafka.common.security.oauthbearer.internals.secured.RefreshingHttpsJwks.
"""

from __future__ import annotations

import logging
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from kafkalite.client.bearer_login import NoToken, retried
from kafkalite.client.logins import tls_of_module
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.security.sasl.jwt import BearerToken, Keys, TokenRefused, TokenRules, key_id, verify_signed

logger = logging.getLogger("kafkalite.authentication")

SETTING = "sasl.oauthbearer.jwks.endpoint.url"
_BYTES_MAX = 1 << 20
_CHUNK_BYTES = 64 << 10
_TIMEOUT_S, _WHOLE_S = 10.0, 30.0
_MISSING_PAUSE_MS = 10_000.0
"""Tokens with made-up key ids make the keys be read no more often than this."""


class KeySource(NamedTuple):
    """An address, and the options ssl.* of the login module for requests to it."""

    url: str
    tls: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:  # passwords are among the options
        return f"KeySource({self.url})"

    def read(self) -> Keys:
        """Read the keys; blocks. Raises ConfigError."""
        if urlsplit(self.url).scheme not in ("https", "http", "file"):
            raise ConfigError(f"{SETTING}={self.url}: must be an address that begins with https: or file:")
        try:
            return self.read_again()
        except ImportError:
            raise ConfigError("OAUTHBEARER needs: pip install 'kafkalite[security]'") from None
        except (OSError, ValueError) as fault:
            raise ConfigError(f"{SETTING}={self.url}: {fault}") from None

    def read_again(self) -> Keys:
        """Read the keys again; blocks. Raises OSError, ValueError, ConfigError."""
        context = tls_of_module(dict(self.tls)) if self.tls else None
        opener = urllib.request.build_opener(NoStepDown, urllib.request.HTTPSHandler(context=context))
        end = monotonic_s() + _WHOLE_S
        data = bytearray()
        with opener.open(self.url, timeout=_TIMEOUT_S) as answer:
            while more := answer.read1(_CHUNK_BYTES):
                data += more
                if len(data) > _BYTES_MAX:
                    raise ValueError(f"is larger than {_BYTES_MAX} bytes")
                if monotonic_s() > end:
                    raise TimeoutError(f"takes longer than {_WHOLE_S:g} s")
        return Keys(data.decode())


KnownKeys = dict[KeySource, Keys]
"""Keys that have been read, by their source."""


class RefreshRules(NamedTuple):
    """The settings sasl.oauthbearer.jwks.endpoint.refresh.ms and .retry.backoff.ms, .retry.backoff.max.ms."""

    refresh_ms: float = 3_600_000
    backoff_ms: float = 100
    backoff_max_ms: float = 10_000


class RefreshingKeys:
    """`verify` is called on the loop of the broker; only the reading has a thread."""

    def __init__(
        self,
        source: KeySource,
        rules: TokenRules,
        refresh: RefreshRules,
        wall_ms: Callable[[], float],
        monotonic_ms: Callable[[], float],
        known: KnownKeys | None = None,
        *,
        may_wait: bool = True,
    ) -> None:
        """The keys are those that are `known`, or are read now if this `may_wait`, or soon. Raises ConfigError if there
        are none now."""
        self._source = source
        self._rules = rules
        self._refresh = refresh
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._known = {} if known is None else known
        self._read_ms = self._tried_ms = monotonic_ms()
        self.reading: threading.Thread | None = None
        if urlsplit(source.url).scheme == "http":
            logger.warning("%s=%s: a machine in between can insert keys of its own; use https:", SETTING, source.url)
        if source not in self._known and may_wait:
            self._known[source] = source.read()
        elif source not in self._known:
            self._tried_ms -= _MISSING_PAUSE_MS
            self._read_again(self._read_ms)

    def verify(self, token: str) -> BearerToken:
        """Raises TokenRefused."""
        kid, now_ms = key_id(token), self._monotonic_ms()
        keys = self._known.get(self._source)
        is_missing = keys is None or (kid is not None and not keys.has(kid))
        if now_ms - self._read_ms >= self._refresh.refresh_ms or is_missing:
            self._read_again(now_ms)
        if keys is None:
            raise TokenRefused(f"the keys of {SETTING} are not read yet")
        return verify_signed(token, keys, self._rules, self._wall_ms())

    def _read_again(self, now_ms: float) -> None:
        if now_ms - self._tried_ms < _MISSING_PAUSE_MS or (self.reading is not None and self.reading.is_alive()):
            return
        self._tried_ms = now_ms

        def read_once() -> Keys:
            try:
                return self._source.read_again()
            except (OSError, ValueError, ConfigError) as fault:
                raise NoToken(str(fault)) from None

        def read() -> None:
            refresh = self._refresh
            try:
                self._known[self._source] = retried(
                    read_once,
                    refresh.backoff_ms,
                    refresh.backoff_max_ms,
                    _monotonic_ms,
                    lambda ms: time.sleep(ms / 1000),
                )
                self._read_ms = now_ms
            except NoToken as fault:
                logger.warning("%s=%s: %s; the keys of before stay", SETTING, self._source.url, fault)

        self.reading = threading.Thread(target=read, name="kafkalite-jwks", daemon=True)
        self.reading.start()


def _monotonic_ms() -> float:
    return monotonic_s() * 1000


class NoStepDown(urllib.request.HTTPRedirectHandler):
    """Follows redirects from https: to https: only, and from http: to both."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise HTTPError(req.full_url, code, f"it leads from {req.type}: to {newurl[:200]!r}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
