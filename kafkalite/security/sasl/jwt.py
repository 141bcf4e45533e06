"""Bearer tokens that are JSON Web Tokens: signed by one of some keys, or unsecured, for trials.

The algorithm has to be one of those with a public key, so that neither a token without a signature passes nor one that
is signed with the public key as if that were a secret. Names of settings are Kafka's.
Source: org.apache.kafka.common.security.oauthbearer.{BrokerJwtValidator, internals.unsecured.OAuthBearerUnsecuredJws},
KIP-255, KIP-768, RFC 7519.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_ALGORITHMS = frozenset(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512))
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC"}
_KEYS_MAX = 1_000
_RSA_BITS_MIN = 2048  # RFC 7518, 3.3
_NAME_CHARS_MAX = 10_000
_LIFETIME_MS_MAX = 100 * 365 * 86_400_000
"""Of a session. Clients count in nanoseconds, of which 64 bits hold 292 years."""


class TokenRefused(Exception):
    """The reason, for the operator alone."""


class BearerToken(NamedTuple):
    """A token that was accepted: the user, and until when."""

    name: str
    expires_ms: float


class TokenRules(NamedTuple):
    """The settings about tokens; None where everything may be. Without a `scope` none is required."""

    issuer: str | None = None
    audience: Sequence[str] = ()
    skew_ms: int = 30_000
    name_claim: str = "sub"
    scope_claim: str = "scope"
    scope: Sequence[str] = ()


class _Key(NamedTuple):
    """`algorithm` is the only one that the key is for; None if it may be any for its kind."""

    kid: object
    kind: str
    algorithm: object
    key: Any


class Keys:
    """The public keys of a JWKS (RFC 7517), by their ids."""

    def __init__(self, text: str) -> None:
        """Raises ValueError if it is none, or no key in it serves."""
        import jwt

        told = json.loads(text)
        if not isinstance(told, dict) or not isinstance(told.get("keys"), list):
            raise ValueError('is no JWKS: it has no list "keys"')
        self._keys: list[_Key] = []
        for one in told["keys"][:_KEYS_MAX]:
            if isinstance(one, dict) and one.get("use", "sig") == "sig" and one.get("kty") in ("RSA", "EC"):
                try:
                    key = jwt.PyJWK(one).key
                except jwt.PyJWTError:
                    continue
                if one["kty"] != "RSA" or key.key_size >= _RSA_BITS_MIN:
                    self._keys.append(_Key(one.get("kid"), one["kty"], one.get("alg"), key))
        if not self._keys:
            raise ValueError(
                f"is a JWKS without a public key for signatures, of EC or of RSA with {_RSA_BITS_MIN} bits or more"
            )

    def has(self, kid: object) -> bool:
        return any(each.kid == kid for each in self._keys)

    def find(self, algorithm: str, kid: object) -> Any:
        """Raises TokenRefused."""
        wanted = _KEY_TYPES[algorithm[:2]]
        found = [
            each.key
            for each in self._keys
            if each.kind == wanted and each.algorithm in (None, algorithm) and (kid is None or each.kid == kid)
        ]
        if len(found) != 1:
            raise TokenRefused(
                "no key has its kid and algorithm" if kid is not None else "it has no kid, and not one key might do"
            )
        return found[0]


def key_id(token: str) -> object:
    """The kid in the header of a token; None without one. Raises TokenRefused."""
    return _part(token.split(".")[0]).get("kid")


def claims_of(token: str) -> Mapping[str, Any]:
    """The claims of a token, which nobody has judged. Raises TokenRefused."""
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("it is no JWT in the compact form")
    return _part(parts[1])


def verify_signed(token: str, keys: Keys, rules: TokenRules, now_ms: float) -> BearerToken:
    """Raises TokenRefused."""
    import jwt

    if token.count(".") != 2:
        raise TokenRefused("it is no JWT in the compact form")
    header = _part(token.split(".")[0])
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise TokenRefused(f"its algorithm is {ascii(algorithm)[:20]}")
    if "crit" in header:  # RFC 7515, 4.1.11: what it names must be understood, and none of that is
        raise TokenRefused("its header has crit, which asks for extensions")
    options: Any = {
        "verify_exp": False,  # times are judged below, by the broker's clock
        "verify_nbf": False,
        "verify_iat": False,
        "verify_aud": bool(rules.audience),
        "verify_iss": rules.issuer is not None,
        "require": ["exp", "iat"],
    }
    try:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            keys.find(algorithm, header.get("kid")),
            algorithms=[algorithm],
            issuer=rules.issuer,
            audience=list(rules.audience) or None,
            options=options,
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as fault:
        raise TokenRefused(f"{type(fault).__name__}: {ascii(str(fault)[:200])[1:-1]}") from None
    return _accepted(claims, rules, now_ms)


def verify_unsecured(token: str, rules: TokenRules, now_ms: float) -> BearerToken:
    """A token without a signature, which anybody can make. Raises TokenRefused."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise TokenRefused("it is no unsecured JWT: header and claims, and nothing behind the second dot")
    if _part(parts[0]).get("alg") != "none":
        raise TokenRefused("it is no unsecured JWT: its algorithm is not none")
    return _accepted(_part(parts[1]), rules, now_ms)


def _accepted(claims: Mapping[str, Any], rules: TokenRules, now_ms: float) -> BearerToken:
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not name.strip() or len(name) > _NAME_CHARS_MAX:
        raise TokenRefused(f"its claim {rules.name_claim} names nobody")
    expires_ms = time_ms(claims, "exp")
    if expires_ms is None:
        raise TokenRefused("it has no exp")
    if expires_ms + rules.skew_ms <= now_ms:
        raise TokenRefused("it has expired")
    issued_ms, not_before_ms = time_ms(claims, "iat"), time_ms(claims, "nbf")
    if max(issued_ms or 0, not_before_ms or 0) - rules.skew_ms > now_ms:
        raise TokenRefused("it is of the future")
    if issued_ms is not None and issued_ms > expires_ms:
        raise TokenRefused("it was issued after its end")
    if rules.scope and not set(rules.scope) <= _scopes(claims.get(rules.scope_claim)):
        raise TokenRefused(f"its claim {rules.scope_claim} lacks one of {', '.join(rules.scope)}")
    return BearerToken(name.strip(), min(expires_ms, now_ms + _LIFETIME_MS_MAX))


def time_ms(claims: Mapping[str, Any], name: str) -> float | None:
    """The time of a claim, in ms since 1970; None without one. Raises TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise TokenRefused(f"its claim {name} is no time")
    return round(value * 1000)  # as Kafka: else a token of this very millisecond would be of the future


def _scopes(claim: object) -> set[str]:
    if isinstance(claim, str):
        return set(claim.split())
    return {each for each in claim if isinstance(each, str)} if isinstance(claim, list) else set()


def _part(text: str) -> dict[str, Any]:
    """The JSON object in a part of a token. Raises TokenRefused."""
    try:
        told = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused("it is no JWT") from None
    if not isinstance(told, dict):
        raise TokenRefused("it is no JWT")
    return told
