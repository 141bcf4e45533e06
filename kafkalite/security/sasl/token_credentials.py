"""Logins by delegation tokens: the credentials of SCRAM that are made of their HMACs.

Source: kafka.server.DelegationTokenManager (prepareScramCredentials).
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from kafkalite.security.delegation_tokens import Tokens, hmac_of
from kafkalite.security.sasl.scram import MECHANISMS, ScramCredential, new_credential

_SPARE = 100  # credentials of tokens that are gone, before they are forgotten


class TokenCredentials:
    """The credentials of SCRAM by which tokens log in, each computed at its first login, which takes 1 to 2 ms."""

    def __init__(self, tokens: Tokens, secret: str, wall_ms: Callable[[], int]) -> None:
        self._tokens = tokens
        self._secret = secret
        self._wall_ms = wall_ms
        self._known: dict[tuple[str, str], ScramCredential] = {}

    def find(self, mechanism: str, token_id: str) -> tuple[ScramCredential, str, int] | None:
        """The credential, the owner and the remaining milliseconds of a token that is valid."""
        tokens = self._tokens()
        token = tokens.get(token_id)
        if token is None or token.is_expired(now_ms := self._wall_ms()):
            return None
        if len(self._known) > len(MECHANISMS) * (len(tokens) + _SPARE):
            self._known.clear()
        known = self._known.get((mechanism, token_id))
        if known is None:
            password = base64.b64encode(hmac_of(token_id, self._secret)).decode()
            known = self._known[mechanism, token_id] = new_credential(mechanism, password)
        return known, token.owner, token.expiry_ms - now_ms
