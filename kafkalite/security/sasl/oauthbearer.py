"""SASL OAUTHBEARER: a bearer token, which `verify` judges, in the client's first message (RFC 7628, KIP-255).

A token that is refused is answered with JSON first, as the RFC has it; the failure comes with the client's next byte.
Source: org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer,
OAuthBearerClientInitialResponse.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kafkalite.common.printable import printable
from kafkalite.security.sasl.exchange import AuthenticationFailed, Step
from kafkalite.security.sasl.jwt import BearerToken, TokenRefused

MECHANISM = "OAUTHBEARER"
_INVALID = b'{"status":"invalid_token"}'
_ACKNOWLEDGED = b"\x01"
_SHOWN_CHARS = 200
_MESSAGE_BYTES_MAX = 64 * 1024
"""Longer ones are refused unread, since reading them takes time before anything is proven. Tokens have a few KiB."""
_FAILED = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {MECHANISM}"
_FIRST = re.compile(
    r"n,(?:a=(?P<id>(?=[^,])[^=,\0]*(?:=(?:2C|3D)[^=,\0]*)*))?,"
    r"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01){0,100})\x01\Z"
)
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-_.~+/A-Za-z0-9]+=*)\Z")

Verify = Callable[[str], BearerToken]
"""Raises TokenRefused."""


class OAuthBearerExchange:
    """`wall_ms` is the time by which the session ends with its token; `refused` gets the reason, for the operator."""

    def __init__(self, verify: Verify, wall_ms: Callable[[], float], refused: Callable[[str], object]) -> None:
        self._verify = verify
        self._wall_ms = wall_ms
        self._refused = refused
        self._is_refused = False

    def evaluate(self, token: bytes) -> Step:
        if self._is_refused:
            raise AuthenticationFailed(_INVALID.decode() if token == _ACKNOWLEDGED else _FAILED)
        authorization_id, text = _first_message(token)
        try:
            found = self._verify(text)
        except TokenRefused as why:
            self._refused(str(why))
            self._is_refused = True
            return Step(_INVALID)
        if authorization_id not in ("", found.name):
            raise AuthenticationFailed(
                f"Authentication failed: Client requested an authorization id ({_shown(authorization_id)}) that is "
                f"different from the token's principal name ({_shown(found.name)})"
            )
        return Step(b"", found.name, max(1, int(found.expires_ms - self._wall_ms())))


def _shown(name: str) -> str:
    """For an answer, which has room for 32,767 bytes, and a line in the log."""
    return printable(name[:_SHOWN_CHARS])


def _first_message(data: bytes) -> tuple[str, str]:
    """The authorization id, "" without one, and the token. Raises AuthenticationFailed."""
    try:
        message = _FIRST.match(data.decode()) if len(data) <= _MESSAGE_BYTES_MAX else None
    except UnicodeDecodeError:
        message = None
    if message is None:
        raise AuthenticationFailed(_FAILED)
    pairs = dict(pair.split("=", 1) for pair in message["pairs"].split("\x01") if pair)
    found = _BEARER.match(pairs.get("auth", ""))
    if found is None:
        raise AuthenticationFailed(_FAILED)
    return (message["id"] or "").replace("=2C", ",").replace("=3D", "="), found["token"]
