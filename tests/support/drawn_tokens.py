"""Draws tokens of OAUTHBEARER: good ones, and such as differ from them in a claim, the header, the key or the form."""

from __future__ import annotations

import base64
import functools
import json
from random import Random
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from kafkalite.security.sasl.jwt import TokenRules
from tests.support.tokens import TokenAuthority

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000 + 500
ISSUER = "https://issuer"
AWAY = "away"  # a claim that is left out


class TokenCase(NamedTuple):
    """A token and the settings by which it is judged: `kind` is signed or unsecured."""

    kind: str
    settings: tuple[str, str, str, str]
    token: str

    @property
    def rules(self) -> TokenRules:
        first, second, third, fourth = self.settings
        if self.kind == "signed":
            audience = tuple(first.split(",")) if first else ()
            return TokenRules(second or None, audience, 30_000, third, fourth)
        scope = tuple(third.split())
        return TokenRules(
            skew_ms=int(fourth or 0), name_claim=first or "sub", scope_claim=second or "scope", scope=scope
        )


class Keyring:
    """The private keys of an authority, and what it tells of them. `jwks` are its public keys."""

    def __init__(self) -> None:
        first, second, weak = (
            rsa.generate_private_key(public_exponent=65537, key_size=bits) for bits in (2048, 2048, 1024)
        )
        self.keys: dict[str, Any] = {
            "first": first,
            "second": second,
            "for-rs512": second,
            "encrypts": second,
            "only-signs": second,
            "printed": second,
            "weak": weak,
            "curve": ec.generate_private_key(ec.SECP256R1()),
            "curve-384": ec.generate_private_key(ec.SECP384R1()),
            "curve-521": ec.generate_private_key(ec.SECP521R1()),
            "edwards": ed25519.Ed25519PrivateKey.generate(),
            "stranger": TokenAuthority().keys["first"],
        }
        more: dict[str, dict[str, Any]] = {
            "for-rs512": {"alg": "RS512"},
            "encrypts": {"use": "enc"},
            "only-signs": {"key_ops": ["sign"]},
            "first": {"key_ops": ["verify"], "use": "sig"},
            "printed": {"x5t": "AAAA", "x5t#S256": "BBBB"},
        }
        told = [
            {**_public(key), "kid": kid, **more.get(kid, {})} for kid, key in self.keys.items() if kid != "stranger"
        ]
        self.jwks = json.dumps({"keys": told})

    def sign(self, kid: str, algorithm: str, signed: str) -> bytes:
        """Raises Exception where key and algorithm do not fit each other."""
        return _algorithms()[algorithm].sign(signed.encode(), self.keys[kid])  # type: ignore[no-any-return]


@functools.cache
def _algorithms() -> Any:
    return jwt.algorithms.get_default_algorithms()


def _public(key: Any) -> dict[str, Any]:
    if isinstance(key, rsa.RSAPrivateKey):
        algorithm: Any = jwt.algorithms.RSAAlgorithm
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        algorithm = jwt.algorithms.ECAlgorithm
    else:
        algorithm = jwt.algorithms.OKPAlgorithm
    return json.loads(algorithm.to_jwk(key.public_key()))  # type: ignore[no-any-return]


BY_ALGORITHM = {
    "RS256": ("first", "second", "for-rs512", "encrypts", "only-signs", "printed", "weak", "stranger"),
    "RS512": ("first", "for-rs512"),
    "PS384": ("first", "for-rs512", "printed"),
    "ES256": ("curve",),
    "ES384": ("curve-384",),
    "ES512": ("curve-521",),
    "EdDSA": ("edwards",),
}
TIMES: list[Any] = [
    *(NOW_S + away for away in (-100, -31, -30, -29, -1, 0, 1, 29, 30, 31, 100)),
    *(float(NOW_S + away) + part for away in (-31, -30, 0, 30) for part in (0.25, 0.5, 0.75)),
    *(
        0,
        1,
        -1,
        -0.5,
        -5,
        1.5,
        2**31,
        2**53,
        2**62,
        2**63 - 1,
        2**63,
        -(2**63),
        2**64,
        10**15,
        10**16,
        10**30,
        10**400,
        -(10**30),
    ),
    *(
        1e300,
        -1e300,
        1.7e9,
        True,
        False,
        None,
        AWAY,
        "",
        str(NOW_S + 60),
        "soon",
        [NOW_S + 60],
        {},
        {"$numberLong": "1"},
    ),
]
TEXTS: list[Any] = [
    AWAY,
    None,
    "",
    " ",
    "\t\n",
    "\u00a0",
    " alice ",
    "alice\u00a0",
    "ALICE",
    "ünï",
    "a" * 300,
    5,
    1.5,
    True,
    [],
    ["alice"],
    {},
    "a\0",
]
AUDIENCES: list[Any] = [
    *(
        AWAY,
        None,
        "kafka",
        "other",
        "",
        [],
        ["kafka"],
        ["other"],
        ["x", "kafka"],
        ["kafka", None],
        ["kafka", 5],
        [None],
        [[]],
    ),
    *(5, True, {}, {"kafka": 1}, "kafka,other", "KAFKA", ["kafka", "kafka"]),
]
ISSUERS: list[Any] = [
    AWAY,
    None,
    ISSUER,
    ISSUER,
    "",
    "https://other",
    [ISSUER],
    5,
    True,
    {},
    f"{ISSUER}/",
    f" {ISSUER}",
]
SCOPES: list[Any] = [
    *(AWAY, None, "", " ", "read", "read write", " read ", "write", [], ["read"], ["read", "write"], ["read", "read"]),
    *(
        ["read", " read"],
        [""],
        ["read", None],
        ["read", 5],
        [["read"]],
        5,
        1.5,
        True,
        {},
        {"read": 1},
        [" read ", "write"],
    ),
]
HEADERS: list[dict[str, Any]] = [
    *({"typ": typ} for typ in ("JWT", "at+jwt", "", None, 5, [])),
    *({"cty": cty} for cty in ("JWT", "application/jwt", "Jwt", "json", "", None, 5)),
    *({"crit": crit} for crit in ([], ["exp"], ["b64"], None, "b64", {})),
    *({"b64": b64} for b64 in (True, False, None, "false")),
    *({"x5t": print} for print in ("AAAA", "CCCC", None, 5)),
    *({"x5t#S256": print} for print in ("BBBB", "CCCC", "")),
    *({"kid": kid} for kid in (None, "", "first", "no such", 5, ["first"], "curve", AWAY)),
    *(
        {"alg": alg}
        for alg in ("none", "None", "HS256", "RS384", "ES256", "", None, 5, ["RS256"], "rs256", "ES256K", AWAY)
    ),
    *({"jku": "https://evil"}, {"jwk": {}}, {"x5u": "https://evil"}, {"zip": "DEF"}, {"x5c": ["AAAA"]}),
]


class DrawnToken:
    """The token of one seed."""

    def __init__(self, keyring: Keyring, seed: int) -> None:
        self._keyring = keyring
        self._chance = Random(seed)

    def _one(self, values: Any) -> Any:
        return self._chance.choice(values)

    def case(self) -> TokenCase:
        return self._signed() if self._chance.random() < 0.65 else self._unsecured()

    def _claims(self, good: dict[str, Any], others: dict[str, list[Any]]) -> str:
        """As JSON. Most differ from good ones in one claim, or in two."""
        claims = dict(good) | self._one([{}, {}, {"x": "?>~\x7f"}])
        for _ in range(self._one([0, 1, 1, 1, 2, 2])):
            name = self._one([*others])
            claims[name] = self._one(others[name])
        text = json.dumps(
            {name: value for name, value in claims.items() if value is not AWAY}, ensure_ascii=self._one([False, True])
        )
        if self._chance.random() < 0.08:
            text = self._one(
                [
                    text[:-1] + ', "sub": "admin"}',
                    text[:-1] + ', "a": {"b": 1, "b": 2}}',
                    text[:-1] + ', "exp": 1e400}'
                    if "exp" not in claims
                    else text.replace('"exp"', '"exp": 1e400, "_"'),
                    text[:-1] + ', "n": NaN}',
                    text[:-1] + ', "n": Infinity}',
                    text[:-1] + ', "n": 01}',
                    text[:-1] + ', "n": "\t"}',
                    text[:-1] + ",}",
                    text + " x",
                    "\ufeff" + text,
                    f"[{text}]",
                    " " + text + "\n",
                    text[:-1],
                    "null",
                    "",
                    text[:-1] + f', "n": {"[" * 50}{"]" * 50}}}',
                    text[:-1] + ', "\\u0073ub": "admin"}',
                ]
            )
        return text

    def _encoded(self, text: str | bytes, *, is_standard: bool = False) -> str:
        data = (
            text.encode(*self._one([("utf-8",)] * 40 + [("utf-16",), ("utf-32",)])) if isinstance(text, str) else text
        )
        encode = base64.b64encode if is_standard else base64.urlsafe_b64encode
        return encode(data).decode().rstrip("=")

    def _odd(self, token: str) -> str:
        """Now and then in another form."""
        if self._chance.random() > 0.06:
            return token
        at = self._chance.randrange(len(token))
        head, _, rest = token.partition(".")
        return str(
            self._one(
                [
                    token[:at] + token[at + 1 :],
                    token[:at] + self._one("A-_+/~.=é") + token[at:],
                    token[:at] + self._one("A-_+/~") + token[at + 1 :],
                    token + ".",
                    "." + token,
                    token + "=",
                    token + "==",
                    f"{head}.{rest}.a.b",
                    f"{head}=.{rest}",
                    f"{head}~.{rest}",
                    f"{head}..{rest}",
                    head,
                    "",
                ]
            )
        )

    def _signed(self) -> TokenCase:
        name_claim, scope_claim = self._one(["sub", "sub", "sub", "user"]), self._one(["scope", "scope", "scp"])
        issuer, audience = self._one(["", ISSUER]), self._one(["", "", "kafka", "kafka,both"])
        good = {"iat": NOW_S - 10, "exp": NOW_S + 60, name_claim: "alice", scope_claim: "read"}
        good |= ({"iss": ISSUER} if issuer else {}) | ({"aud": "kafka"} if audience else {})
        claims = self._claims(
            good,
            {
                "exp": TIMES,
                "iat": TIMES,
                "nbf": TIMES,
                name_claim: TEXTS,
                "sub": TEXTS,
                "jti": TEXTS,
                "aud": AUDIENCES,
                "iss": ISSUERS,
                scope_claim: SCOPES,
            },
        )
        algorithm = self._one(["RS256", "RS256", *BY_ALGORITHM])
        kid = self._one(BY_ALGORITHM[algorithm]) if self._chance.random() < 0.3 else BY_ALGORITHM[algorithm][0]
        header = {"alg": algorithm, "kid": kid}
        if self._chance.random() < 0.35:
            header |= self._one(HEADERS)
        head = self._encoded(json.dumps({name: value for name, value in header.items() if value is not AWAY}))
        signed = f"{head}.{self._encoded(claims)}"
        signature = self._encoded(self._keyring.sign(kid, algorithm, signed))
        if self._chance.random() < 0.03:
            signature = self._one(["", "AAAA", signature[:-4], signature[4:], "A" * len(signature)])
        return TokenCase("signed", (audience, issuer, name_claim, scope_claim), self._odd(f"{signed}.{signature}"))

    def _unsecured(self) -> TokenCase:
        name_claim, scope_claim = self._one(["", "", "user"]), self._one(["", "scp"])
        required, skew = self._one(["", "", "read", "read write"]), self._one(["", "0", "30000"])
        good = {
            "iat": NOW_S - 10,
            "exp": NOW_S + 60,
            name_claim or "sub": "alice",
            scope_claim or "scope": ["read", "write"],
        }
        claims = self._claims(
            good,
            {
                "exp": TIMES,
                "iat": TIMES,
                "nbf": [NOW_S - 5, AWAY],
                name_claim or "sub": TEXTS,
                "aud": AUDIENCES,
                "iss": ISSUERS,
                scope_claim or "scope": SCOPES,
            },
        )
        header = {"alg": "none"} | (self._one(HEADERS) if self._chance.random() < 0.2 else {})
        is_standard = self._chance.random() < 0.8
        head = self._encoded(json.dumps({name: value for name, value in header.items() if value is not AWAY}))
        token = f"{head}.{self._encoded(claims, is_standard=is_standard)}.{self._one([''] * 20 + ['AAAA', '='])}"
        return TokenCase("unsecured", (name_claim, scope_claim, required, skew), self._odd(token))
