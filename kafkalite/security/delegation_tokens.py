"""Delegation tokens: temporary logins that an authenticated user issues for other clients (KIP-48, KIP-373).

A client logs in with a token by SCRAM: its id is the name, and the base64 of its HMAC the password. Only the id is
stored: all brokers with the same secret get the same HMAC from it. Owner and renewers are principals, TYPE:NAME.
Source: kafka.server.DelegationTokenManager, DelegationTokenManagerZk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple

_SPARE = 100  # HMACs of removed tokens, before they are dropped
Tokens = Callable[[], Mapping[str, "DelegationToken"]]
"""All tokens of the cluster by their ids, as they are now."""


class DelegationToken(NamedTuple):
    """A token: its owner, its renewers, and the wall-clock times between which it is valid."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def is_of(self, principal: str) -> bool:
        """Whether that is its owner, or may renew it."""
        return principal == self.owner or principal in self.renewers


class Lifetimes(NamedTuple):
    """Settings of a broker: the longest life of a token, and how long it lives without being renewed."""

    max_ms: int
    default_ms: int


def issued(
    token_id: str, owner: str, requester: str, renewers: tuple[str, ...], wanted_ms: int, now_ms: int, limits: Lifetimes
) -> DelegationToken:
    """A new token that may be renewed for `wanted_ms`; 0 and less is as long as possible."""
    max_ms = now_ms + (limits.max_ms if wanted_ms <= 0 else min(wanted_ms, limits.max_ms))
    return DelegationToken(
        token_id, owner, requester, renewers, now_ms, max_ms, min(max_ms, now_ms + limits.default_ms)
    )


def renewed(token: DelegationToken, by: str, period_ms: int, now_ms: int, limits: Lifetimes) -> DelegationToken:
    """The token with a later end. Raises KafkaError."""
    _check(token, by)
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _ending(token, now_ms + (limits.default_ms if period_ms < 0 else period_ms))


def ended(token: DelegationToken, by: str, period_ms: int, now_ms: int) -> DelegationToken | None:
    """The token with an end after that period; None if it ends now. Raises KafkaError."""
    _check(token, by)
    if period_ms < 0:
        return None
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _ending(token, now_ms + period_ms)


def _check(token: DelegationToken, by: str) -> None:
    if not token.is_of(by):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _ending(token: DelegationToken, expiry_ms: int) -> DelegationToken:
    return token._replace(expiry_ms=min(token.max_ms, expiry_ms))


def hmac_of(token_id: str, secret: str) -> bytes:
    import hmac  # takes 1.5 ms of OpenSSL's names, and a start needs none

    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


class TokenHmacs:
    """Finds tokens by their HMACs, each of which is computed once."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._secret = ""
        self._known: set[str] = set()
        self._ids: dict[bytes, str] = {}

    def find(self, wanted: bytes, secret: str) -> DelegationToken | None:
        tokens = self._tokens()
        if secret != self._secret or len(self._known) > len(tokens) + _SPARE:
            self._secret, self._known, self._ids = secret, set(), {}
        for token_id in tokens.keys() - self._known:
            self._ids[hmac_of(token_id, secret)] = token_id
            self._known.add(token_id)
        return tokens.get(self._ids.get(wanted, ""))
