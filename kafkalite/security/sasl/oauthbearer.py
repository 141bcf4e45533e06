"""SASL OAUTHBEARER, both sides (RFC 7628, KIP-255): a bearer token in the client's first message.

The server has it checked by `verify`. A token that is refused is answered with JSON first, as the RFC has it; the
failure comes with the client's next byte. The client does not check its token but reads from it when it expires, to get
another one before that; unsecured tokens are for trials.
Source: org.apache.kafka.common.security.oauthbearer.internals.{OAuthBearerSaslServer, OAuthBearerSaslClient,
OAuthBearerClientInitialResponse, expiring.ExpiringCredentialRefreshingLogin, secured.LoginAccessTokenValidator},
OAuthBearerUnsecuredLoginCallbackHandler.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import printable
from kafkalite.security.sasl.exchange import AuthenticationFailed, Step
from kafkalite.security.sasl.jwt import BearerToken, TokenRefused, claims_of

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


TOKEN_CHARS_MAX = 256 << 10  # brokers take half a MiB
_FAILURE_CHARS_MAX = 4096
_ACKNOWLEDGED = b"\x01"
_COMPACT = re.compile(r"[-_A-Za-z0-9]+\.[-_A-Za-z0-9]+\.[-_A-Za-z0-9]*\Z", re.ASCII)
_EXTENSION_NAME = re.compile(r"[A-Za-z]+\Z", re.ASCII)
_EXTENSION = re.compile(r"[\x21-\x7e \t\r\n]+\Z", re.ASCII)
_STRING, _NUMBER, _LIST = "unsecuredLoginStringClaim_", "unsecuredLoginNumberClaim_", "unsecuredLoginListClaim_"
_RESERVED = ("exp", "iat")


class OwnToken(NamedTuple):
    """A token of the client: its user, and its lifetime in ms since 1970."""

    text: str
    name: str
    issued_ms: float | None
    expires_ms: float

    def __repr__(self) -> str:  # the text is a credential
        return f"OwnToken({self.name})"


class RefreshRules(NamedTuple):
    """The settings sasl.login.refresh.*: the part of its lifetime, with a random part added, after which a token is
    replaced; the least time that it is kept; and the least time before its expiry, if it lives for long enough.
    """

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_seconds: int = 60
    buffer_seconds: int = 300


class OAuthBearerClient:
    """One authentication. The client acknowledges a refusal, after which the server reports the failure."""

    def __init__(self, token: OwnToken, extensions: Mapping[str, str]) -> None:
        pairs = "".join(f"\x01{name}={value}" for name, value in extensions.items())
        self._first = f"n,,\x01auth=Bearer {token.text}{pairs}\x01\x01".encode()
        self._is_refused = False

    def first(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        if not challenge and not self._is_refused:
            return None
        if self._is_refused or len(challenge) > _FAILURE_CHARS_MAX:
            raise ValueError("it says more than belongs to OAUTHBEARER")
        self._is_refused = True
        return _ACKNOWLEDGED


def read_token(text: str, name_claim: str = "sub") -> OwnToken:
    """The token of an authority. Raises ValueError, which does not repeat it."""
    if len(text) > TOKEN_CHARS_MAX or not _COMPACT.match(text):
        raise ValueError("is no JWT in the compact form")
    try:
        claims = claims_of(text)
        name, expires_ms, issued_ms = claims.get(name_claim), _time_ms(claims, "exp"), _time_ms(claims, "iat")
    except TokenRefused as fault:
        raise ValueError(f"is invalid: {fault}") from None
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"has no claim {name_claim} with a name")
    if expires_ms is None:
        raise ValueError("has no exp, the time of its end")
    return OwnToken(text, name.strip(), issued_ms, expires_ms)


def _time_ms(claims: Mapping[str, Any], name: str) -> float | None:
    """The time of a claim, in ms since 1970; None without one. Raises TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise TokenRefused(f"its claim {name} is no time")
    return round(value * 1000)


def refresh_at_ms(token: OwnToken, now_ms: float, rules: RefreshRules, chance: float) -> float:
    """When to replace a token that is new now. `chance` is from 0 to 1."""
    issued_ms = now_ms if token.issued_ms is None else token.issued_ms
    part = rules.window_factor + rules.window_jitter * chance
    period_ms, buffer_ms = rules.min_period_seconds * 1000, rules.buffer_seconds * 1000
    if now_ms + period_ms + buffer_ms > token.expires_ms:
        return now_ms + max(0.0, token.expires_ms - now_ms) * part
    at_ms = min(issued_ms + (token.expires_ms - issued_ms) * part, token.expires_ms - buffer_ms)
    return max(at_ms, now_ms + period_ms)


def extensions_of(options: Mapping[str, str], beginning: str) -> dict[str, str]:
    """The SASL extensions among the options of a login module. Raises ValueError."""
    found = {}
    for option, value in options.items():
        if option.startswith(beginning):
            name = option.removeprefix(beginning)
            if not _EXTENSION_NAME.match(name) or name == "auth":
                raise ValueError(f"has {option[:60]}, and the name of an extension is of letters, and not auth")
            if not _EXTENSION.match(value):
                raise ValueError(f"has {option[:60]}, whose value must be of printable letters of ASCII")
            found[name] = value
    return found


class UnsecuredTokens:
    """Unsigned tokens, made of the options unsecuredLogin... of a login module."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises ValueError, which repeats no value."""
        self._claims: dict[str, Any] = {}
        for option, value in options.items():
            for beginning, read in ((_STRING, str), (_NUMBER, _number), (_LIST, _list)):
                name = option.removeprefix(beginning)
                if option.startswith(beginning) and name:
                    if name in _RESERVED:
                        raise ValueError(f"has {option}, and the claim {name} is made here")
                    try:
                        self._claims[name] = read(value)
                    except ValueError as fault:
                        raise ValueError(f"has {option[:80]}, which {fault}") from None
        self._name_claim = options.get("unsecuredLoginPrincipalClaimName", "").strip() or "sub"
        seconds = options.get("unsecuredLoginLifetimeSeconds", "3600")
        if not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 12 and int(seconds)):
            raise ValueError("has unsecuredLoginLifetimeSeconds, which must be a number of seconds")
        self._seconds = int(seconds)
        named = self._claims.get(self._name_claim)
        if not isinstance(named, str) or not named.strip():
            raise ValueError(f'has no {_STRING}{self._name_claim}="NAME", the user of an unsecured token')
        self.name = named.strip()

    def make(self, now_ms: float) -> OwnToken:
        now_s = now_ms / 1000
        claims = {"exp": now_s + self._seconds, "iat": now_s, **self._claims}
        text = f"{_part({'alg': 'none'})}.{_part(claims)}."
        return OwnToken(text, self.name, now_ms, now_ms + self._seconds * 1000)


def _number(text: str) -> float:
    try:
        number = float(text[:100])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("must be a number")
    return number


def _list(text: str) -> list[str]:
    """The first character stands between the elements, as in "|a|b"; those at the end that are empty do not count."""
    return text.rstrip(text[0])[1:].split(text[0]) if text.strip(text[:1]) else []


def _part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
