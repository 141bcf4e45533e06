"""Logins by delegation tokens: as the owner, until the token ends, and by nothing else."""

from __future__ import annotations

import base64

import pytest

from kafkalite.security.delegation_tokens import DelegationToken, hmac_of
from kafkalite.security.sasl.client_exchange import login_of
from kafkalite.security.sasl.decoys import Decoys
from kafkalite.security.sasl.exchange import AuthenticationFailed, Step
from kafkalite.security.sasl.jaas import LoginModule
from kafkalite.security.sasl.scram import ScramExchange
from kafkalite.security.sasl.token_credentials import TokenCredentials

ALICE = "User:alice"
TOKEN = DelegationToken("id", ALICE, ALICE, (), issued_ms=5_000, max_ms=6_000, expiry_ms=5_100)


def exchange(mechanism: str, name: str, password: str, *, tokenauth: str, now_ms: int = 5_000) -> Step:
    tokens = {"id": TOKEN}
    credentials = TokenCredentials(lambda: tokens, "secret", lambda: now_ms)
    server = ScramExchange(
        mechanism, lambda _: None, Decoys(b"").credential, lambda token_id: credentials.find(mechanism, token_id)
    )
    options = {"username": name, "password": password, "tokenauth": tokenauth}
    client = login_of(mechanism, LoginModule("m", options)).exchange("host")
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
