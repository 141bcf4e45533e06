"""Credentials of nobody: the same wherever and whenever somebody asks, and no other than those of users."""

from __future__ import annotations

import base64
import re

from kafkalite.security.sasl.decoys import Decoys
from kafkalite.security.sasl.exchange import AuthenticationFailed
from kafkalite.security.sasl.scram import ScramCredential, ScramExchange, new_credential

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
