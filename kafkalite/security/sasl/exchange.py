"""One authentication by one SASL mechanism on the server, as a conversation of tokens; and the simplest, PLAIN: a name
and a password in one token, which only TLS protects.

Source: javax.security.sasl.SaslServer, RFC 4422; org.apache.kafka.common.security.plain.internals.PlainSaslServer,
RFC 4616.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Protocol

from kafkalite.common.named_tuple import NamedTuple


class AuthenticationFailed(Exception):
    """The text is for the client. It does not reveal which users exist."""


class Step(NamedTuple):
    """The server's token, None for none; at the end of the exchange also the user, the time until which the
    authentication is valid (None: no limit), and whether it was by a delegation token.
    """

    token: bytes | None
    name: str | None = None
    lifetime_ms: int | None = None
    is_by_token: bool = False


class Exchange(Protocol):
    """Lives for one authentication."""

    def evaluate(self, token: bytes) -> Step:
        """The answer to a token of the client. Raises AuthenticationFailed."""
        ...


PLAIN = "PLAIN"
_PARTS = 3
_FAILED = "Authentication failed: Invalid username or password"
_OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class PlainExchange:
    """`passwords` are those of all users."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def evaluate(self, token: bytes) -> Step:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("Authentication failed: the token is not UTF-8") from None
        if len(parts) != _PARTS:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        known = self._passwords.get(name)
        # constant time, also for an unknown user, so that timing does not reveal which users exist
        is_equal = hmac.compare_digest((known or "").encode(), password.encode())
        if known is None or not is_equal:
            raise AuthenticationFailed(_FAILED)
        if authorization_id not in ("", name):
            raise AuthenticationFailed(_OTHER_ID)
        return Step(b"", name)
