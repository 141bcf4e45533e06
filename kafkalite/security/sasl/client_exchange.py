"""The client's side of SASL, by which a broker logs in to another and a command to a broker; here by a password.

Source: javax.security.sasl.SaslClient, org.apache.kafka.common.security.scram.internals.ScramSaslClient.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Protocol

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.security.sasl import scram
from kafkalite.security.sasl.exchange import PLAIN

MECHANISMS = (PLAIN, *scram.MECHANISMS)
ITERATIONS_MAX = 100_000
"""More is refused: the iterations are computed here, and 100,000 take 25 to 50 ms."""
_NONCE_BYTES = 24
_CHALLENGE_BYTES_MAX = 4096
_FIRST = re.compile(
    r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,9})(?:,.*)?\Z",
    re.DOTALL,
)
_FINAL = re.compile(r"v=(?P<verifier>[A-Za-z0-9+/=]+)(?:,.*)?\Z", re.DOTALL)


class ClientExchange(Protocol):
    """Lives for one authentication."""

    def first(self) -> bytes:
        """The token to begin with."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The next token; None when the exchange is complete. Raises ValueError if the server has not proven itself."""
        ...


def _nothing() -> None:
    """A login that does not age."""


class Login(NamedTuple):
    """A login that can be repeated. `exchange` is given the name by which the broker was dialled. With
    `may_wait` it, and the exchange, may wait for others on the network, and so are for threads that may; they raise
    OSError without what they need. `refresh` checks whether that should be renewed, and does not wait."""

    mechanism: str
    name: str
    exchange: Callable[[str], ClientExchange]
    may_wait: bool = False
    refresh: Callable[[], None] = _nothing

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.name})"


def login_of(mechanism: str, options: Mapping[str, str]) -> Login:
    """The login of `username` and `password` among the options of a login module; with tokenauth="true" those of a
    delegation token. Raises ValueError, which repeats no secret."""
    if mechanism not in MECHANISMS:
        raise ValueError(f"is for the mechanism {mechanism[:40]!r}, and logins are by {', '.join(MECHANISMS)}")
    name, password = options.get("username", ""), options.get("password", "")
    if not name or not password:
        raise ValueError('has no username="..." and password="...", which are this side\'s own login')
    if mechanism == PLAIN:
        return Login(mechanism, name, lambda _: PlainClient(name, password))
    salted = SaltedPassword(scram.MECHANISMS[mechanism], password)
    is_token = options.get("tokenauth", "").lower() == "true"
    return Login(mechanism, name, lambda _: ScramClient(mechanism, name, salted, is_token=is_token))


class PlainClient:
    """PLAIN: everything is in the first token."""

    def __init__(self, name: str, password: str) -> None:
        self._token = f"\0{name}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise ValueError("it asks on after PLAIN")
        return None


class SaltedPassword:
    """The salted password of the last salt and iterations, which stay the same until the password changes."""

    def __init__(self, digest: str, password: str) -> None:
        self._digest = digest
        self._password = password.encode()
        self._salted: tuple[bytes, int, bytes] = b"", 0, b""

    def of(self, salt: bytes, iterations: int) -> bytes:
        known = self._salted
        if known[:2] != (salt, iterations):
            known = salt, iterations, hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations)
            self._salted = known
        return known[2]


class ScramClient:
    """SCRAM: the server proves as well that it knows the password."""

    def __init__(self, mechanism: str, name: str, password: SaltedPassword, *, is_token: bool = False) -> None:
        self._digest = scram.MECHANISMS[mechanism]
        self._password = password
        self._nonce = secrets.token_urlsafe(_NONCE_BYTES)
        self._bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        if is_token:
            self._bare += f",{scram.TOKEN}"
        self._verifier: bytes | None = None
        self._is_proven = False

    def first(self) -> bytes:
        return b"n,," + self._bare.encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if len(challenge) > _CHALLENGE_BYTES_MAX or self._is_proven:
            raise ValueError("it says more than belongs to SCRAM")
        text = challenge.decode(errors="replace")
        if self._verifier is None:
            return self._final(text)
        found = _FINAL.match(text)
        if found is None or not hmac.compare_digest(scram.decoded(found["verifier"]), self._verifier):
            raise ValueError("it does not prove that it knows the password")
        self._is_proven = True
        return None

    def _final(self, text: str) -> bytes:
        found = _FIRST.match(text)
        if found is None:
            raise ValueError("its first message is no valid SCRAM")
        nonce, iterations = found["nonce"], int(found["iterations"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ValueError("it gives no nonce of its own after ours")
        if not scram.ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ValueError(
                f"it wants {iterations} iterations of the password, and {scram.ITERATIONS_MIN} to {ITERATIONS_MAX} are "
                "accepted: set that user's credentials again"
            )
        salted = self._password.of(scram.decoded(found["salt"]), iterations)
        without = f"c=biws,r={nonce}"
        message = f"{self._bare},{text},{without}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), message, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._verifier = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), message, self._digest)
        return f"{without},p={base64.b64encode(proof).decode()}".encode()
