"""The client's side against the server's: every mechanism, wrong passwords, and servers that lie."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.sasl.client_exchange import (
    ITERATIONS_MAX,
    ClientExchange,
    SaltedPassword,
    ScramClient,
    login_of,
)
from kafkalite.security.sasl.exchange import AuthenticationFailed, Exchange, PlainExchange
from kafkalite.security.sasl.scram import MECHANISMS, Decoys, ScramExchange, new_credential


def talk(client: ClientExchange, server: Exchange) -> str | None:
    """The name that the server has believed."""
    token: bytes | None = client.first()
    step = None
    while token is not None:
        step = server.evaluate(token)
        token = client.answer(step.token)
    return None if step is None else step.name


def exchange(mechanism: str, name: str, password: str) -> ClientExchange:
    return login_of(mechanism, {"username": name, "password": password}).exchange("host")


@pytest.mark.parametrize("name", ["broker", "a,b=c", "Jürgen"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_both_sides_are_content(mechanism: str, name: str) -> None:
    known = {name: new_credential(mechanism, "pencil", 5000)}
    assert (
        talk(exchange(mechanism, name, "pencil"), ScramExchange(mechanism, known.get, Decoys(b"").credential)) == name
    )
    with pytest.raises(AuthenticationFailed):
        talk(exchange(mechanism, name, "pen"), ScramExchange(mechanism, known.get, Decoys(b"").credential))


def test_plain() -> None:
    assert talk(exchange("PLAIN", "broker", "secret"), PlainExchange({"broker": "secret"})) == "broker"
    with pytest.raises(AuthenticationFailed):
        talk(exchange("PLAIN", "broker", "wrong"), PlainExchange({"broker": "secret"}))
    with pytest.raises(ValueError, match="asks on after PLAIN"):
        exchange("PLAIN", "broker", "secret").answer(b"more")


def begun() -> tuple[ScramClient, str]:
    """A client that has said its first token, and its nonce."""
    client = ScramClient("SCRAM-SHA-256", "u", SaltedPassword("sha256", "pencil"))
    found = re.search(r"r=(.*)", client.first().decode())
    assert found is not None
    return client, found[1]


@pytest.mark.parametrize(
    ("challenge", "fault"),
    [
        ("r={nonce}x,s=QSXCR+Q6sek8bf92,i=4095", "wants 4095 iterations"),
        (f"r={{nonce}}x,s=QSXCR+Q6sek8bf92,i={ITERATIONS_MAX + 1}", "4096 to 100000 are accepted"),
        ("r={nonce}x,s=QSXCR+Q6sek8bf92,i=99999999999999", "is no valid SCRAM"),
        ("r={nonce},s=QSXCR+Q6sek8bf92,i=4096", "no nonce of its own"),
        ("r=another,s=QSXCR+Q6sek8bf92,i=4096", "no nonce of its own"),
        ("m=ext,r={nonce}x,s=QSXCR+Q6sek8bf92,i=4096", "is no valid SCRAM"),
        ("r={nonce}x,s=A,i=4096", "not base64"),
        ("e=other-error", "is no valid SCRAM"),
        ("r={nonce}" + "x" * 5000 + ",s=QSXCR+Q6sek8bf92,i=4096", "more than belongs"),
    ],
)
def test_a_server_that_begins_badly(challenge: str, fault: str) -> None:
    client, nonce = begun()
    with pytest.raises(ValueError, match=fault):
        client.answer(challenge.format(nonce=nonce).encode())


@pytest.mark.parametrize("last", ["v=AAAA", "e=invalid-proof", "", "v=" + base64.b64encode(bytes(32)).decode()])
def test_a_server_that_does_not_know_the_password_is_not_believed(last: str) -> None:
    client, nonce = begun()
    assert client.answer(f"r={nonce}x,s=QSXCR+Q6sek8bf92,i=4096".encode())
    with pytest.raises(ValueError, match="does not prove"):
        client.answer(last.encode())


@given(st.binary(max_size=200))
def test_whatever_a_server_says(challenge: bytes) -> None:
    client, _ = begun()
    with pytest.raises(ValueError):
        client.answer(challenge)


def test_the_salted_password_is_computed_once() -> None:
    salted = SaltedPassword("sha512", "pencil")
    first = salted.of(b"salt", 4096)
    assert salted.of(b"salt", 4096) is first and salted.of(b"pepper", 4096) != first


def test_a_module_without_a_login_is_no_login() -> None:
    with pytest.raises(ValueError, match=r'has no username="\.\.\." and password='):
        login_of("PLAIN", {"user_a": "b"})
    with pytest.raises(ValueError, match="is for the mechanism 'GSSAPI'"):
        login_of("GSSAPI", {})
    login = login_of("PLAIN", {"username": "a", "password": "hidden"})
    assert "hidden" not in repr(login)
