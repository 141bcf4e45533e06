"""Delegation tokens as nodes: read back as written, and refused if they make no sense."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.delegation_tokens import DelegationToken
from kafkalite.zk.znodes.token_nodes import parse_token, path_of, token_json, token_of

TOKEN = DelegationToken("id", "User:a b*", "User:é:x", ("User:b",), 1, 3, 2)
PRINCIPALS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).map(lambda name: f"User:{name}")
TIMES = st.integers(0, (1 << 63) - 1)


@given(PRINCIPALS, PRINCIPALS, st.lists(PRINCIPALS, max_size=3), TIMES, TIMES, TIMES)
def test_what_is_written_is_read(
    owner: str, requester: str, renewers: list[str], issued_ms: int, max_ms: int, expiry_ms: int
) -> None:
    token = DelegationToken("id", owner, requester, tuple(renewers), issued_ms, max_ms, expiry_ms)
    assert parse_token(token_json(token), "id") == token


def test_names_are_sanitized() -> None:
    written = json.loads(token_json(TOKEN))
    assert (written["owner"], written["tokenRequester"]) == ("User%3Aa%20b%2A", "User%3A%C3%A9%3Ax")


def test_before_version_3_the_owner_is_the_requester() -> None:
    source = json.loads(token_json(TOKEN)) | {"version": 2}
    del source["tokenRequester"]
    assert parse_token(json.dumps(source).encode(), "id").requester == TOKEN.owner


@pytest.mark.parametrize(
    "change",
    [{"version": 4}, {"version": 0}, {"owner": "alice"}, {"owner": None}, {"renewers": "x"}, {"renewers": [1]},
     {"tokenId": "other"}, {"maxTimestamp": "1"}, {"expiryTimestamp": -1}, {"issueTimestamp": 1 << 63}],
)  # fmt: skip
def test_nodes_that_make_no_sense(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        parse_token(json.dumps(json.loads(token_json(TOKEN)) | change).encode(), "id")


def test_paths() -> None:
    assert token_of(path_of("id")) == "id"
    for path in ("/delegation_token/tokens", "/delegation_token/tokens/", "/delegation_token/tokens/a/b", "/brokers/a"):
        assert token_of(path) is None
