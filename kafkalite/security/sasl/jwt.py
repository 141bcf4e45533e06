"""Bearer tokens that are JSON Web Tokens: signed by one of some keys, or unsecured, for trials.

The algorithm has to be one of those with a public key, so that neither a token without a signature passes nor one that
is signed with the public key as if that were a secret. The types of claims are checked, too, and a token with an
audience is refused where no audience is configured. Names of settings are Kafka's.
Source: org.apache.kafka.common.security.oauthbearer.internals.secured.{ValidatorAccessTokenValidator,
ClaimValidationUtils} over org.jose4j.jwt.consumer.JwtConsumer, ..internals.unsecured.{OAuthBearerUnsecuredJws,
OAuthBearerValidationUtils}, KIP-255, KIP-768, RFC 7515, RFC 7517, RFC 7519.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import java_trim
from kafkalite.common.text import read_json

_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_ALGORITHMS = frozenset([*(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)), "EdDSA"])
_CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
_KEYS_MAX = 1_000
_RSA_BITS_MIN = 2048  # RFC 7518, 3.3
_NAME_CHARS_MAX = 10_000
_LIFETIME_MS_MAX = 100 * 365 * 86_400_000
"""Of a session. Clients count in nanoseconds, of which 64 bits hold 292 years."""
_LONG_MAX = (1 << 63) - 1
_COMPACT = re.compile(r"[-_A-Za-z0-9]+\.[-_A-Za-z0-9]+\.[-_A-Za-z0-9]+\Z", re.ASCII)


class TokenRefused(Exception):
    """The reason, for the operator alone."""


class BearerToken(NamedTuple):
    """An accepted token: the user, and its expiry."""

    name: str
    expires_ms: float


class TokenRules(NamedTuple):
    """The settings about tokens. Without an `issuer` a token may name any; without an `audience` it may name none.
    `scope` is required of unsecured tokens alone.
    """

    issuer: str | None = None
    audience: Sequence[str] = ()
    skew_ms: int = 30_000
    name_claim: str = "sub"
    scope_claim: str = "scope"
    scope: Sequence[str] = ()


class _Key(NamedTuple):
    """`algorithm` is the only one that the key is for; None if it may be any for its kind. `thumbprints` are x5t and
    x5t#S256; None where there is none. A weak key has no `key`, and no token by it is good."""

    kid: str | None
    kind: str
    algorithm: str | None
    thumbprints: tuple[str | None, str | None]
    key: Any

    @property
    def curve(self) -> str | None:
        return self.key.curve.name if self.kind == "EC" else None


class Keys:
    """The public keys of a JWKS (RFC 7517), by their ids."""

    def __init__(self, text: str) -> None:
        """Raises ValueError if it is none, or no key in it serves."""
        parsed = read_json(text)
        if not isinstance(parsed, dict) or not isinstance(parsed.get("keys"), list):
            raise ValueError('is no JWKS: it has no list "keys"')
        found = (_read_key(one) for one in parsed["keys"][:_KEYS_MAX] if isinstance(one, dict))
        self._keys = [each for each in found if each is not None]
        if not any(each.key for each in self._keys):
            raise ValueError(
                "is a JWKS without a public key for signatures, of an elliptic curve or of RSA with "
                f"{_RSA_BITS_MIN} bits or more"
            )

    def has(self, kid: str) -> bool:
        return any(each.kid == kid for each in self._keys)

    def find(self, algorithm: str, header: Mapping[str, str | None]) -> Any:
        """The first of those that fit, as Kafka's. Raises TokenRefused."""
        kid, thumbprints = header["kid"], (header["x5t"], header["x5t#S256"])
        fitting = [
            each
            for each in self._keys
            if each.kind == _KINDS[algorithm[:2]]
            and kid in (None, each.kid)
            and all(None in both or both[0] == both[1] for both in zip(thumbprints, each.thumbprints, strict=True))
        ]
        if len(fitting) > 1:
            fitting = [each for each in fitting if each.algorithm in (None, algorithm)]
        if len(fitting) > 1 and algorithm in _CURVES:
            fitting = [each for each in fitting if each.curve == _CURVES[algorithm]]
        if not fitting:
            raise TokenRefused("no key has its kid and algorithm")
        found = fitting[0]
        if found.key is None or found.algorithm not in (None, algorithm) or found.curve != _CURVES.get(algorithm):
            raise TokenRefused("its key is not for its algorithm")
        return found.key


def _read_key(parsed: Mapping[str, Any]) -> _Key | None:
    """The key; None if it is not for signatures, or invalid."""
    import jwt

    kid, kind, algorithm = (parsed.get(name) for name in ("kid", "kty", "alg"))
    if kind not in _KINDS.values() or parsed.get("use") not in (None, "sig"):
        return None
    if "verify" not in (parsed.get("key_ops") or ["verify"]):
        return None
    if not all(one is None or isinstance(one, str) for one in (kid, algorithm)):
        return None
    try:
        key = jwt.PyJWK(dict(parsed)).key
        thumbprints = (
            parsed.get("x5t") or _thumbprint(parsed, "sha1"),
            parsed.get("x5t#S256") or _thumbprint(parsed, "sha256"),
        )
    except (jwt.PyJWTError, ValueError, TypeError, LookupError):
        return None
    if kind == "EC" and key.curve.name not in _CURVES.values():
        return None
    return _Key(kid, str(kind), algorithm, thumbprints, None if kind == "RSA" and key.key_size < _RSA_BITS_MIN else key)


def _thumbprint(parsed: Mapping[str, Any], algorithm: str) -> str | None:
    """That of the first certificate of a key. Raises ValueError, TypeError, LookupError."""
    if parsed.get("x5c") is None:
        return None
    digest = hashlib.new(algorithm, base64.b64decode(parsed["x5c"][0]), usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def key_id(token: str) -> str | None:
    """The kid in the header of a token; None without one. Raises TokenRefused."""
    return _text(_part(token.split(".")[0]), "kid")


def claims_of(token: str) -> Mapping[str, Any]:
    """The claims of a token, which are not verified. Raises TokenRefused."""
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("it is no JWT in the compact form")
    return _part(parts[1])


def verify_signed(token: str, keys: Keys, rules: TokenRules, now_ms: float) -> BearerToken:
    """Raises TokenRefused."""
    if not _COMPACT.match(token):
        raise TokenRefused("it is no signed JWT in the compact form")
    signed, _, signature = token.rpartition(".")
    head, _, claims = signed.partition(".")
    header = _part(head)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise TokenRefused(f"its algorithm is {ascii(algorithm)[:20]}")
    if "crit" in header:  # RFC 7515, 4.1.11: what it names must be understood, and none of that is
        raise TokenRefused("its header has crit, which asks for extensions")
    if header.get("b64") is False or (_text(header, "cty") or "").lower() in ("jwt", "application/jwt"):
        raise TokenRefused("its header says that its claims are in another form")
    key = keys.find(algorithm, {name: _text(header, name) for name in ("kid", "x5t", "x5t#S256")})
    if not _is_signed_by(key, algorithm, signed.encode(), _decoded(signature)):
        raise TokenRefused("its signature is not by its key")
    return _accepted(_part(claims), rules, now_ms)


def _is_signed_by(key: Any, algorithm: str, signed: bytes, signature: bytes) -> bool:
    import jwt

    try:
        return bool(_algorithms()[algorithm].verify(signed, key, signature))
    except (jwt.PyJWTError, ValueError, TypeError):
        return False


@functools.cache
def _algorithms() -> Mapping[str, Any]:
    import jwt

    return jwt.algorithms.get_default_algorithms()


def _accepted(claims: Mapping[str, Any], rules: TokenRules, now_ms: float) -> BearerToken:
    """Validate the claims of a token whose signature is good. Times are whole seconds, as in Kafka."""
    for name in ("iss", "sub", "jti"):
        _text(claims, name)
    _judge_audience(claims.get("aud"), rules.audience)
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused("its iss is another, or missing")
    expires, issued, not_before = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None or issued is None:
        raise TokenRefused("it has no exp, or no iat")
    now, skew = int(now_ms // 1000), rules.skew_ms // 1000
    if now - skew >= expires:
        raise TokenRefused("it has expired")
    if expires < issued or (not_before is not None and expires < not_before):
        raise TokenRefused("it ends before it begins")
    if not_before is not None and now + skew < not_before:
        raise TokenRefused("it is of the future")
    if not 0 <= issued <= expires <= _LONG_MAX // 1000:
        raise TokenRefused("its exp or iat is no time of this world")
    _judge_scopes(claims.get(rules.scope_claim), rules.scope_claim)
    name = java_trim(_text(claims, rules.name_claim) or "")
    return BearerToken(_good_name(name, rules), min(expires * 1000, now_ms + _LIFETIME_MS_MAX))


def _judge_audience(claim: object, expected: Sequence[str]) -> None:
    """Raises TokenRefused."""
    audience = claim if isinstance(claim, list) else [claim]
    if not all(one is None or isinstance(one, str) for one in audience):
        raise TokenRefused("its aud is neither a text nor a list of texts")
    if (claim is not None or expected) and not set(audience) & set(expected):
        raise TokenRefused("its aud is for others, or missing")


def _judge_scopes(claim: object, name: str) -> None:
    """Raises TokenRefused."""
    scopes = claim if isinstance(claim, list) else [claim] if isinstance(claim, str) else []
    found = [java_trim(one) for one in scopes if isinstance(one, str)]
    if len(found) < len(scopes) or not all(found) or len(set(found)) < len(found):
        raise TokenRefused(f"its claim {name} has an empty scope, one that is no text, or one twice")


def _good_name(name: str, rules: TokenRules) -> str:
    if not java_trim(name) or len(name) > _NAME_CHARS_MAX or any("\ud800" <= char <= "\udfff" for char in name):
        raise TokenRefused(f"its claim {rules.name_claim} names no user")
    return name


def _text(parsed: Mapping[str, Any], name: str) -> str | None:
    """A text, or None without one. Raises TokenRefused."""
    value = parsed.get(name)
    if value is not None and not isinstance(value, str):
        raise TokenRefused(f"its {name} is no text")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    """A time in whole seconds since 1970, within 64 bits; None without one. Raises TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    if not _is_number(value) or (isinstance(value, int) and not -_LONG_MAX - 1 <= value <= _LONG_MAX):
        raise TokenRefused(f"its claim {name} is no time")
    return int(max(-_LONG_MAX - 1, min(value, _LONG_MAX)))


def verify_unsecured(token: str, rules: TokenRules, now_ms: float) -> BearerToken:
    """An unsigned token, which any client can make. Raises TokenRefused."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise TokenRefused("it is no unsecured JWT: header and claims, and nothing behind the second dot")
    if _part(parts[0]).get("alg") != "none":
        raise TokenRefused("it is no unsecured JWT: its algorithm is not none")
    claims = _part(parts[1])
    name = _text(claims, rules.name_claim) or ""
    expires_ms, issued_ms, not_before_ms = (_milliseconds(claims, each) for each in ("exp", "iat", "nbf"))
    if expires_ms is None:
        raise TokenRefused("it has no exp")
    if int(now_ms) - rules.skew_ms >= expires_ms:
        raise TokenRefused("it has expired")
    if max(issued_ms or -math.inf, not_before_ms or -math.inf) > int(now_ms) + rules.skew_ms:
        raise TokenRefused("it is of the future")
    if issued_ms is not None and expires_ms <= issued_ms:
        raise TokenRefused("it was issued at its end, or behind it")
    if not set(rules.scope) <= _scopes(claims, rules.scope_claim):
        raise TokenRefused(f"its claim {rules.scope_claim} lacks one of {', '.join(rules.scope)}")
    ends_ms = math.floor(min(expires_ms, now_ms + _LIFETIME_MS_MAX) + 0.5)
    return BearerToken(_good_name(name, rules), ends_ms)


def _milliseconds(claims: Mapping[str, Any], name: str) -> float | None:
    """A time in ms since 1970; None without one, but null is no time. Raises TokenRefused."""
    if name not in claims:
        return None
    value = claims[name]
    if not _is_number(value):
        raise TokenRefused(f"its claim {name} is no time")
    try:
        return 1000 * float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _scopes(claims: Mapping[str, Any], name: str) -> set[str]:
    """A text is one scope. Raises TokenRefused."""
    claim = claims.get(name)
    if _is_number(claim):
        raise TokenRefused(f"its claim {name} is no scope")
    scopes = claim if isinstance(claim, list) else [claim]
    return {java_trim(one) for one in scopes if isinstance(one, str)}


def _part(text: str) -> dict[str, Any]:
    """The JSON object in a part of a token. Raises TokenRefused."""
    try:
        parsed = read_json(_decoded(text).decode(), strict=True, distinct=True)
    except ValueError:
        raise TokenRefused("it is no JWT") from None
    if not isinstance(parsed, dict):
        raise TokenRefused("it is no JWT")
    return parsed


def _decoded(text: str) -> bytes:
    """Raises TokenRefused."""
    try:
        return base64.b64decode(text.translate(_FROM_URL) + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise TokenRefused("it is no JWT") from None


_FROM_URL = str.maketrans("-_", "+/")
