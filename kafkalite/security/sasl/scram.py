"""SASL SCRAM-SHA-256 and SCRAM-SHA-512: proof of a password that is neither sent nor stored.

Credentials are stored as Kafka stores them, salt=...,stored_key=...,server_key=...,iterations=4096, in the entity
config of their user. Delegation tokens log in by credentials that are made of their HMACs, each at its first login. A
client gets salt and iterations before it has proven anything. A user without credentials gets those of a decoy, and
fails at the end, as with a wrong password. They are made from the name and a secret, the same each time and on all
brokers with that secret, so that asking twice, elsewhere or after a restart does not reveal which users exist. The
length of the salt and the number of iterations depend on the tool that made a credential, so decoys have those of
existing credentials.
Source: org.apache.kafka.common.security.scram.internals (ScramSaslServer, ScramFormatter, ScramCredentialUtils),
kafka.server.DelegationTokenManager (prepareScramCredentials), RFC 5802, RFC 7677, KIP-84, KIP-48 (tokenauth=true in the
first message); OWASP ASVS 4.0.3, 2.1.1 and 2.1.7 (`weakness`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.security.delegation_tokens import Tokens, hmac_of
from kafkalite.security.sasl.exchange import AuthenticationFailed, Step

MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384  # of credentials that clients may create
_NONCE_BYTES = 24
TOKEN = "tokenauth=true"
_NAME_CHARS_MAX = 1_000
_MESSAGE_BYTES_MAX = 16 * 1024
"""Longer ones are refused unread: half a MiB of commas would take a tenth of a second, before anything is proven."""
SALT_BYTES = 24

_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,(?P<bare>(?:m=[^,]*,)?n=(?P<name>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,(?P<extensions>.*))?)\Z",
    re.DOTALL,
)
_FINAL = re.compile(
    r"(?P<without>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)\Z",
    re.DOTALL,
)


class ScramCredential(NamedTuple):
    """Stored instead of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    @property
    def text(self) -> str:
        """The credential as text in the config of its user."""
        salt, stored, server = (base64.b64encode(each).decode() for each in self[:3])
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """Raises ValueError, which repeats nothing of it."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    if parts.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("SCRAM credentials are salt, stored_key, server_key and iterations")
    try:
        salt, stored, server = (decoded(parts[each]) for each in ("salt", "stored_key", "server_key"))
        return ScramCredential(salt, stored, server, int(parts["iterations"]))
    except ValueError:
        raise ValueError("SCRAM credentials are base64, and the iterations a number") from None


def credential_of(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """The credential to be stored, from the salted password that a client has computed (KIP-554)."""
    digest = MECHANISMS[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    server_key = hmac.digest(salted_password, b"Server Key", digest)
    return ScramCredential(salt, hashlib.new(digest, client_key).digest(), server_key, iterations)


def new_credential(mechanism: str, password: str, iterations: int = ITERATIONS_MIN) -> ScramCredential:
    """The credential of a password, with a new salt. Takes 1 to 2 ms for 4096 iterations."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)
    return credential_of(mechanism, salt, salted, iterations)


Decoy = Callable[[str, str], ScramCredential]
"""The credential of a mechanism for the name of a user that has none."""
FindToken = Callable[[str], "tuple[ScramCredential, str, int] | None"]
"""The credential, the owner's name and the remaining milliseconds of the delegation token of an id."""


class ScramExchange:
    """`find` gives the credential of a user, None if there is none; `decoy` one for an unknown name, `find_token` a
    token's."""

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        decoy: Decoy,
        find_token: FindToken = lambda _: None,
    ) -> None:
        self._mechanism = mechanism
        self._digest = MECHANISMS[mechanism]
        self._find = find
        self._decoy = decoy
        self._find_token = find_token
        self._lifetime_ms: int | None = None
        self._is_by_token = False
        self._name = self._owner = ""
        self._nonce = ""
        self._messages = ""  # the first of the client and the first of the server, as the proof covers them
        self._credential: ScramCredential | None = None
        self._is_known = False

    def evaluate(self, token: bytes) -> Step:
        if len(token) > _MESSAGE_BYTES_MAX:
            raise self._failed()
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise self._failed() from None
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _failed(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )

    def _first(self, text: str) -> Step:
        found = _FIRST.match(text)
        if found is None or len(found["name"]) > _NAME_CHARS_MAX:
            raise self._failed()
        self._name = _unescaped(found["name"])
        if found["authzid"] not in (None, "", found["name"]):
            raise self._failed()
        decoy = self._decoy(self._mechanism, self._name)  # in any case: timing must not reveal which users exist
        known = self._known(found["extensions"] or "")
        self._is_known = known is not None and known.iterations >= ITERATIONS_MIN
        self._credential = known if known is not None and self._is_known else decoy
        self._nonce = found["nonce"] + secrets.token_urlsafe(_NONCE_BYTES)
        salt = base64.b64encode(self._credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._messages = f"{found['bare']},{first}"
        return Step(first.encode())

    def _known(self, extensions: str) -> ScramCredential | None:
        """The credential; of a token also its owner, as whom the client is logged in then."""
        if TOKEN not in extensions.lower().split(","):
            return self._find(self._name)
        token = self._find_token(self._name)
        if token is None:
            return None
        credential, self._owner, self._lifetime_ms = token
        self._is_by_token = True
        return credential

    def _final(self, text: str, credential: ScramCredential) -> Step:
        found = _FINAL.match(text)
        if found is None or not hmac.compare_digest(found["nonce"], self._nonce):
            raise self._failed()
        message = f"{self._messages},{found['without']}".encode()
        signature = hmac.digest(credential.stored_key, message, self._digest)
        try:
            proof = decoded(found["proof"])
        except ValueError:
            raise self._failed() from None
        if len(proof) != len(signature):
            raise self._failed()
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored = hashlib.new(self._digest, client_key).digest()
        if not hmac.compare_digest(stored, credential.stored_key) or not self._is_known:
            raise self._failed()
        verifier = hmac.digest(credential.server_key, message, self._digest)
        name = self._owner if self._is_by_token else self._name
        return Step(b"v=" + base64.b64encode(verifier), name, self._lifetime_ms, self._is_by_token)


def decoded(text: str) -> bytes:
    """The bytes of base64. Raises ValueError."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


_SPARE = 100  # credentials of deleted tokens, before they are dropped


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


_SHAPES_MAX = 16
_SALT_BYTES_MAX = 256
_JAVA_SALT = re.compile(rb"[0-9a-z]{24,26}\Z")
_JAVA_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class _Shape(NamedTuple):
    """`salt_bytes` is 0 for salts as Kafka's tools make them: a number of 130 bits, written with letters."""

    salt_bytes: int
    iterations: int


_USUAL = _Shape(SALT_BYTES, ITERATIONS_MIN)


class Decoys:
    """`put` gets the stored config of each user, and again when it changes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._shapes: dict[str, Counter[_Shape]] = {mechanism: Counter() for mechanism in MECHANISMS}
        self._of_users: dict[tuple[str, str], _Shape] = {}

    def put(self, user: str, config: Mapping[str, str]) -> None:
        for mechanism, counted in self._shapes.items():
            former = self._of_users.pop((user, mechanism), None)
            if former is not None:
                counted[former] -= 1
                if not counted[former]:
                    del counted[former]
            shape = _shape_of(config.get(mechanism))
            if shape is not None:
                self._of_users[user, mechanism] = shape
                counted[shape] += 1

    def credential(self, mechanism: str, name: str) -> ScramCredential:
        """That of a user of this name, if there is none. No password fits it."""
        seed = hmac.digest(self._secret, f"{mechanism} {name}".encode(), "sha256")
        counted = self._shapes[mechanism]
        shapes = (
            [shape for shape, _ in counted.most_common(_SHAPES_MAX)] if len(counted) > 1 else [*counted, _USUAL][:1]
        )
        # of several the one that this name draws: a shape that is added or removed changes the draw of few names
        shape = max(shapes, key=lambda each: hashlib.sha256(seed + repr(each).encode()).digest())
        nothing = bytes(hashlib.new(MECHANISMS[mechanism]).digest_size)
        return ScramCredential(_salt(seed, shape.salt_bytes), nothing, nothing, shape.iterations)


def _shape_of(text: str | None) -> _Shape | None:
    """The shape; None for a credential that cannot be used to log in."""
    try:
        salt, _, _, iterations = parse_credential(text or "")
    except ValueError:
        return None
    if iterations < ITERATIONS_MIN:
        return None
    return _Shape(0 if _JAVA_SALT.match(salt) else min(len(salt), _SALT_BYTES_MAX), iterations)


def _salt(seed: bytes, size: int) -> bytes:
    drawn = hashlib.shake_256(seed).digest(size or 17)
    if size:
        return drawn
    number, text = int.from_bytes(drawn, "big") % (1 << _JAVA_BITS), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text.encode()


PASSWORD_CHARS_MIN = 12
_GUESSED = {"password", "passwd", "secret", "changeme", "change-me", "letmein", "welcome", "qwerty"}
_GUESSED |= {"123456", "12345678", "1234567890", "kafka", "admin", "test"}


def weakness(name: str, password: str) -> str | None:
    """The fault of a user's password, as the end of a sentence about it; None if there is none."""
    plain = password.lower()
    if plain in _GUESSED or plain.strip("0123456789!.-_") in _GUESSED:
        return "is one of the first that are tried"
    if name and name.lower() in plain and len(plain) < len(name) + PASSWORD_CHARS_MIN:
        return "is made of the user's name"
    if len(password) < PASSWORD_CHARS_MIN:
        return f"is shorter than {PASSWORD_CHARS_MIN} characters"
    return None
