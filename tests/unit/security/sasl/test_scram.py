"""SCRAM as RFC 5802 and RFC 7677 have it; wrong proofs, odd messages, and users that do not exist."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.sasl.decoys import Decoys
from kafkalite.security.sasl.exchange import AuthenticationFailed
from kafkalite.security.sasl.scram import (
    MECHANISMS,
    ScramCredential,
    ScramExchange,
    credential_of,
    new_credential,
    parse_credential,
)

DECOYS = Decoys(b"secret")


class Client:
    """The other side, for one password."""

    def __init__(self, mechanism: str, name: str, password: str) -> None:
        self._digest = MECHANISMS[mechanism]
        self._password = password
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r=fyko+d2lbbFgONRv9qkxdawL"

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in answer.decode().split(","))
        salt, count = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._digest, self._password.encode(), salt, count)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        without = f"c=biws,r={fields['r']}"
        message = f"{self._bare},{answer.decode()},{without}".encode()
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), message, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self.expected = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), message, self._digest)
        return f"{without},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["user", "a,b=c", "Jürgen"])
def test_a_password_is_proven_to_both_sides(mechanism: str, name: str) -> None:
    known = {name: new_credential(mechanism, "pencil")}
    client, exchange = Client(mechanism, name, "pencil"), ScramExchange(mechanism, known.get, DECOYS.credential)
    last = client.final(exchange.evaluate(client.first()).token)
    step = exchange.evaluate(last)
    assert step.name == name and step.token == b"v=" + base64.b64encode(client.expected)


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    credential = credential_of("SCRAM-SHA-256", salt, salted, 4096)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = hmac.digest(credential.stored_key, message, "sha256")
    client_key = bytes(
        a ^ b for a, b in zip(base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="), signature, strict=True)
    )
    assert hashlib.sha256(client_key).digest() == credential.stored_key
    verifier = base64.b64encode(hmac.digest(credential.server_key, message, "sha256"))
    assert verifier == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def failure(mechanism: str, name: str, password: str, known: dict[str, ScramCredential]) -> tuple[str, bytes, str]:
    """Salt and iterations that were told, and the error."""
    client, exchange = Client(mechanism, name, password), ScramExchange(mechanism, known.get, DECOYS.credential)
    answer = exchange.evaluate(client.first()).token
    with pytest.raises(AuthenticationFailed) as refusal:
        exchange.evaluate(client.final(answer))
    fields = dict(part.split("=", 1) for part in answer.decode().split(","))
    return str(refusal.value), base64.b64decode(fields["s"]), fields["i"]


def test_nobody_learns_who_exists() -> None:
    mechanism = "SCRAM-SHA-256"
    known = {"user": new_credential(mechanism, "pencil")}
    wrong, unknown = failure(mechanism, "user", "pen", known), failure(mechanism, "nobody", "pencil", known)
    assert wrong[0] == unknown[0] and wrong[2] == unknown[2]
    assert len(wrong[1]) == len(unknown[1])
    assert unknown == failure(mechanism, "nobody", "pencil", known), "the same salt again"
    assert unknown[1] != failure(mechanism, "noone", "pencil", known)[1]


def test_credentials_with_few_iterations_are_none() -> None:
    known = {"user": new_credential("SCRAM-SHA-256", "pencil", 100)}
    failure("SCRAM-SHA-256", "user", "pencil", known)


@pytest.mark.parametrize(
    "first",
    [
        b"", b"n,,", b"n,,n=user", b"n,,n=,r=abc", b"y,,n=user,r=abc", b"p=tls-unique,,n=user,r=abc", b"n,,n=user,r=",
        b"n,a=other,n=user,r=abc", b"\xff\xfe", b"n,,n=" + b"x" * 5_000 + b",r=abc", b"n,,n=user,r=a\x00b",
    ],
)  # fmt: skip
def test_first_messages_that_cannot_be(first: bytes) -> None:
    exchange = ScramExchange(
        "SCRAM-SHA-256", {"user": new_credential("SCRAM-SHA-256", "pencil")}.get, DECOYS.credential
    )
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        exchange.evaluate(first)


@given(st.binary(max_size=200))
def test_any_final_message_is_refused(final: bytes) -> None:
    known = {"user": ScramCredential(b"salt", bytes(32), bytes(32), 4096)}
    exchange = ScramExchange("SCRAM-SHA-256", known.get, DECOYS.credential)
    exchange.evaluate(b"n,,n=user,r=abc")
    with pytest.raises(AuthenticationFailed):
        exchange.evaluate(final)


def test_the_nonce_of_somebody_else_is_refused() -> None:
    known = {"user": new_credential("SCRAM-SHA-256", "pencil")}
    one, other = (
        ScramExchange("SCRAM-SHA-256", known.get, DECOYS.credential),
        ScramExchange("SCRAM-SHA-256", known.get, DECOYS.credential),
    )
    client = Client("SCRAM-SHA-256", "user", "pencil")
    last = client.final(one.evaluate(client.first()).token)
    other.evaluate(client.first())
    with pytest.raises(AuthenticationFailed):
        other.evaluate(last)


def test_credentials_are_stored_as_kafka_stores_them() -> None:
    credential = new_credential("SCRAM-SHA-512", "pencil", 8192)
    assert parse_credential(credential.text) == credential
    assert credential.text.startswith("salt=") and credential.text.endswith(",iterations=8192")
    assert "salt" not in repr(credential)
    for text in ("", "salt=a", credential.text + ",more=1", credential.text.replace("8192", "many")):
        with pytest.raises(ValueError, match="SCRAM credentials"):
            parse_credential(text)
