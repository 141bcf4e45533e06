"""SCRAM as RFC 5802 and RFC 7677 have it; wrong proofs, odd messages, and users that do not exist."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.delegation_tokens import DelegationToken, hmac_of
from kafkalite.security.sasl.client_exchange import login_of
from kafkalite.security.sasl.exchange import AuthenticationFailed, Step
from kafkalite.security.sasl.scram import (
    MECHANISMS,
    Decoys,
    ScramCredential,
    ScramExchange,
    TokenCredentials,
    credential_of,
    new_credential,
    parse_credential,
    weakness,
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


ALICE = "User:alice"
TOKEN = DelegationToken("id", ALICE, ALICE, (), issued_ms=5_000, max_ms=6_000, expiry_ms=5_100)


def exchange(mechanism: str, name: str, password: str, *, tokenauth: str, now_ms: int = 5_000) -> Step:
    tokens = {"id": TOKEN}
    credentials = TokenCredentials(lambda: tokens, "secret", lambda: now_ms)
    server = ScramExchange(
        mechanism, lambda _: None, Decoys(b"").credential, lambda token_id: credentials.find(mechanism, token_id)
    )
    options = {"username": name, "password": password, "tokenauth": tokenauth}
    client = login_of(mechanism, options).exchange("host")
    first = server.evaluate(client.first()).token
    assert first is not None
    final = client.answer(first)
    assert final is not None
    last = server.evaluate(final)
    assert last.token is not None and client.answer(last.token) is None
    return last


PASSWORD = base64.b64encode(hmac_of("id", "secret")).decode()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_in_as_its_owner_until_it_ends(mechanism: str) -> None:
    proven = exchange(mechanism, "id", PASSWORD, tokenauth="true", now_ms=5_040)
    assert (proven.name, proven.lifetime_ms, proven.is_by_token) == (ALICE, 60, True)


@pytest.mark.parametrize(
    ("name", "password", "tokenauth", "now_ms"),
    [("id", "x", "true", 5_000), ("other", PASSWORD, "true", 5_000), ("id", PASSWORD, "false", 5_000),
     ("alice", PASSWORD, "true", 5_000), ("id", PASSWORD, "true", 5_101)],
)  # fmt: skip
def test_nothing_else_does(name: str, password: str, tokenauth: str, now_ms: int) -> None:
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        exchange("SCRAM-SHA-256", name, password, tokenauth=tokenauth, now_ms=now_ms)


MECHANISM = "SCRAM-SHA-256"
NAMES = [f"nobody-{number}" for number in range(200)]
JAVA_SALT = b"1lv4pdnw4fwq7notcxm0yy1k7q"  # of the example in Kafka's documentation


def stored(salt: bytes, iterations: int, mechanism: str = MECHANISM) -> dict[str, str]:
    return {mechanism: ScramCredential(salt, bytes(32), bytes(32), iterations).text}


def test_two_brokers_with_one_secret_say_the_same_and_strangers_cannot_compute_it() -> None:
    one, other, stranger = Decoys(b"secret"), Decoys(b"secret"), Decoys(b"guess")
    for name in NAMES:
        assert one.credential(MECHANISM, name) == other.credential(MECHANISM, name)
        assert one.credential(MECHANISM, name).salt != stranger.credential(MECHANISM, name).salt
    salts = {one.credential(mechanism, name).salt for name in NAMES for mechanism in (MECHANISM, "SCRAM-SHA-512")}
    assert len(salts) == 2 * len(NAMES)


def test_they_look_like_the_users_there_are() -> None:
    decoys = Decoys(b"secret")
    usual = decoys.credential(MECHANISM, "nobody")
    assert (len(usual.salt), usual.iterations) == (24, 4096)
    decoys.put("users/alice", stored(bytes(64), 8192))
    assert {(len(each.salt), each.iterations) for each in told(decoys)} == {(64, 8192)}
    assert decoys.credential("SCRAM-SHA-512", "nobody").iterations == 4096, "of another mechanism there is nobody"
    decoys.put("users/bob", stored(JAVA_SALT, 4096))
    found = told(decoys)
    assert {each.iterations for each in found} == {4096, 8192}
    assert all(re.fullmatch(rb"[0-9a-z]{24,26}", each.salt) for each in found if each.iterations == 4096)
    decoys.put("users/alice", {})
    assert {each.iterations for each in told(decoys)} == {4096}
    decoys.put("users/bob", {"producer_byte_rate": "1"})
    assert decoys.credential(MECHANISM, "nobody") == usual


def test_a_third_kind_of_user_changes_what_is_told_of_few_names() -> None:
    decoys = Decoys(b"secret")
    for number in range(7):
        decoys.put(f"users/{number}", stored(bytes(20 + number), 4096))
    before = told(decoys)
    decoys.put("users/7", stored(bytes(40), 4096))
    assert sum(one != other for one, other in zip(before, told(decoys), strict=True)) < len(NAMES) / 4


def test_credentials_that_nobody_can_log_in_with_are_no_model() -> None:
    decoys = Decoys(b"secret")
    decoys.put("users/a", stored(bytes(9), 100))
    decoys.put("users/b", {MECHANISM: "nonsense"})
    assert len(decoys.credential(MECHANISM, "nobody").salt) == 24


def test_a_user_and_nobody_are_told_the_same_in_the_same_steps() -> None:
    decoys, credential = Decoys(b"secret"), new_credential(MECHANISM, "pencil", 5000)
    decoys.put("users/alice", {MECHANISM: credential.text})
    answers = []
    for name in ("alice", "nobody"):
        exchange = ScramExchange(MECHANISM, {"alice": credential}.get, decoys.credential)
        first = (exchange.evaluate(f"n,,n={name},r=abc".encode()).token or b"").decode()
        nonce, salt, iterations = first.split(",")
        try:
            exchange.evaluate(f"c=biws,{nonce},p={base64.b64encode(bytes(32)).decode()}".encode())
        except AuthenticationFailed as failure:
            answers.append((len(nonce), len(base64.b64decode(salt[2:])), iterations, str(failure)))
    assert len(answers) == 2 and answers[0] == answers[1]


def told(decoys: Decoys) -> list[ScramCredential]:
    return [decoys.credential(MECHANISM, name) for name in NAMES]


@pytest.mark.parametrize(
    ("password", "fault"),
    [
        ("Password1!", "first that are tried"),
        ("kafka", "first that are tried"),
        ("alice-2024", "user's name"),
        ("wonderland", "shorter than 12"),
        ("correct-horse-battery", None),
        ("alice-and-the-looking-glass", None),
    ],
)
def test_a_weak_password_is_told_why(password: str, fault: str | None) -> None:
    found = weakness("alice", password)
    assert found is None if fault is None else found is not None and fault in found
