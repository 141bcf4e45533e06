"""The token of OAUTHBEARER by which this process logs in: fetched when it is needed, and replaced before it ends.

It is replaced by a thread of its own after its refresh time, which is looked at with every login, and by brokers every
few seconds, too. Whoever logs in then waits a second for the new one, since sessions end with their tokens. While the
authority is away the token of before serves to its end. Logins at the same time share one request.
Source: org.apache.kafka.common.security.oauthbearer.{OAuthBearerLoginCallbackHandler, internals.expiring.
ExpiringCredentialRefreshingLogin}.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future

from kafkalite.client.token_endpoint import NoToken
from kafkalite.security.sasl.oauthbearer import OwnToken, RefreshRules, refresh_at_ms

logger = logging.getLogger("kafkalite.authentication")

_PATIENCE_S = 1.0
_PAUSE_MS = 10_000.0
"""A token that could not be replaced is tried again after this, as in Kafka."""


class BearerToken:
    """`fetch` gets a new token, which may take its time, and raises NoToken."""

    def __init__(
        self,
        fetch: Callable[[], OwnToken],
        rules: RefreshRules,
        wall_ms: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._fetch = fetch
        self._rules = rules
        self._wall_ms = wall_ms
        self._chance = chance
        self._lock = threading.Lock()
        self._token: OwnToken | None = None
        self._refresh_ms = 0.0
        self._under_way: Future[OwnToken] | None = None
        self.refreshing: threading.Thread | None = None

    def get(self) -> OwnToken:
        """The token of now; it waits for one if there is none that holds. Raises NoToken."""
        token = self._token
        if token is None or self._wall_ms() >= token.expires_ms:
            return self._fetched()
        self.refresh()
        under_way = self._under_way
        if under_way is not None:
            with contextlib.suppress(NoToken, TimeoutError):
                under_way.result(_PATIENCE_S)
        return self._token or token

    def refresh(self) -> None:
        """Looks whether the token is to be replaced, which is done meanwhile."""
        token, now_ms = self._token, self._wall_ms()
        if token is None or now_ms < self._refresh_ms or self._under_way is not None:
            return
        self._refresh_ms = now_ms + _PAUSE_MS

        def replace() -> None:
            try:
                self._fulfil(under_way)
            except NoToken as fault:
                logger.warning("the token of %s is not replaced yet: %s", token.name, fault)

        under_way, is_ours = self._begin()
        if not is_ours:
            return
        self.refreshing = threading.Thread(target=replace, name="kafkalite-token", daemon=True)
        self.refreshing.start()

    def _begin(self) -> tuple[Future[OwnToken], bool]:
        """The new token to come, and whether it is for the caller to fetch it."""
        with self._lock:
            if self._under_way is not None:
                return self._under_way, False
            self._under_way = Future()
            return self._under_way, True

    def _fetched(self) -> OwnToken:
        """A new token. One of those who want it fetches it, the others wait for that."""
        under_way, is_ours = self._begin()
        return self._fulfil(under_way) if is_ours else under_way.result()

    def _fulfil(self, under_way: Future[OwnToken]) -> OwnToken:
        try:
            token = self._fetch()
            now_ms = self._wall_ms()
            if token.expires_ms <= now_ms:
                raise NoToken(f"the token that is given for {token.name} has expired")
            self._token, self._refresh_ms = token, refresh_at_ms(token, now_ms, self._rules, self._chance())
        except BaseException as fault:
            self._under_way = None
            under_way.set_exception(fault if isinstance(fault, NoToken) else NoToken(f"{type(fault).__name__}"))
            raise
        self._under_way = None
        under_way.set_result(token)
        return token
