"""The public keys by which tokens of OAUTHBEARER are verified: from a file, or from an address, and read again.

They are read at the start, by another thread when they are old, and when a token names a key that is not among them
(its login fails; the next one may find it). While the source is away, the keys of before stay.
Source: org.apache.kafka.common.security.oauthbearer.internals.secured.RefreshingHttpsJwks.
"""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from kafkalite.common.errors import ConfigError
from kafkalite.security.sasl.jwt import BearerToken, Keys, TokenRules, key_id, verify_signed

logger = logging.getLogger("kafkalite.authentication")

SETTING = "sasl.oauthbearer.jwks.endpoint.url"
_BYTES_MAX = 1 << 20
_TIMEOUT_S = 10.0
_MISSING_PAUSE_MS = 10_000.0
"""Tokens with made-up key ids make the keys be read no more often than this."""


class RefreshingKeys:
    """`verify` is called on the loop of the broker; only the reading has a thread."""

    def __init__(
        self,
        url: str,
        rules: TokenRules,
        refresh_ms: int,
        wall_ms: Callable[[], float],
        monotonic_ms: Callable[[], float],
    ) -> None:
        """Raises ConfigError if there are no keys now."""
        self._url = url
        self._rules = rules
        self._refresh_ms = refresh_ms
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        if urlsplit(url).scheme not in ("https", "http", "file"):
            raise ConfigError(f"{SETTING}={url}: must be an address that begins with https: or file:")
        try:
            self._keys = _read(url)
        except ImportError:
            raise ConfigError("OAUTHBEARER needs: pip install 'kafkalite[security]'") from None
        except (OSError, ValueError) as fault:
            raise ConfigError(f"{SETTING}={url}: {fault}") from None
        if urlsplit(url).scheme == "http":
            logger.warning(
                "%s=%s: whoever is between here and there can put in keys of his own; use https:", SETTING, url
            )
        self._read_ms = self._tried_ms = monotonic_ms()
        self.reading: threading.Thread | None = None

    def verify(self, token: str) -> BearerToken:
        """Raises TokenRefused."""
        kid, now_ms = key_id(token), self._monotonic_ms()
        is_missing = kid is not None and not self._keys.has(kid)
        if now_ms - self._read_ms >= self._refresh_ms or is_missing:
            self._read_again(now_ms)
        return verify_signed(token, self._keys, self._rules, self._wall_ms())

    def _read_again(self, now_ms: float) -> None:
        if now_ms - self._tried_ms < _MISSING_PAUSE_MS or (self.reading is not None and self.reading.is_alive()):
            return
        self._tried_ms = now_ms

        def read() -> None:
            try:
                self._keys = _read(self._url)
                self._read_ms = now_ms
            except (OSError, ValueError) as fault:
                logger.warning("%s=%s: %s; the keys of before stay", SETTING, self._url, fault)

        self.reading = threading.Thread(target=read, name="kafkalite-jwks", daemon=True)
        self.reading.start()


class NoStepDown(urllib.request.HTTPRedirectHandler):
    """Follows https: to https: alone, and http: to these two."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise HTTPError(req.full_url, code, f"it leads from {req.type}: to {newurl[:200]!r}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _read(url: str) -> Keys:
    """Raises OSError, ValueError."""
    opener = urllib.request.build_opener(NoStepDown)
    with opener.open(url, timeout=_TIMEOUT_S) as answer:
        data: bytes = answer.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ValueError(f"is larger than {_BYTES_MAX} bytes")
    return Keys(data.decode())
