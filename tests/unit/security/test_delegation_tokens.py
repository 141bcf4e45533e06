"""Lifetimes of delegation tokens, who may change them, and how they are found."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.security.delegation_tokens import (
    DelegationToken,
    Lifetimes,
    TokenHmacs,
    ended,
    hmac_of,
    issued,
    renewed,
)

LIMITS = Lifetimes(max_ms=1_000, default_ms=100)
ALICE, BOB, EVE = "User:alice", "User:bob", "User:eve"


def token(wanted_ms: int = -1, limits: Lifetimes = LIMITS, token_id: str = "id") -> DelegationToken:
    return issued(token_id, ALICE, ALICE, (BOB,), wanted_ms, 5_000, limits)


def code_of(change: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        change()
    return refusal.value.code


@pytest.mark.parametrize(
    ("wanted_ms", "max_ms", "expiry_ms"),
    [(-1, 6_000, 5_100), (0, 6_000, 5_100), (500, 5_500, 5_100), (50, 5_050, 5_050), (9_999, 6_000, 5_100)],
)
def test_a_new_token_lives_as_long_as_it_may(wanted_ms: int, max_ms: int, expiry_ms: int) -> None:
    made = token(wanted_ms)
    assert (made.issued_ms, made.max_ms, made.expiry_ms) == (5_000, max_ms, expiry_ms)


def test_owner_and_renewers_renew_it_up_to_its_longest_life() -> None:
    assert renewed(token(), ALICE, -1, 5_050, LIMITS).expiry_ms == 5_150
    assert renewed(token(), BOB, 300, 5_050, LIMITS).expiry_ms == 5_350
    assert renewed(token(), BOB, 9_999, 5_100, LIMITS).expiry_ms == 6_000
    assert code_of(lambda: renewed(token(), EVE, -1, 5_050, LIMITS)) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert code_of(lambda: renewed(token(), BOB, -1, 5_101, LIMITS)) == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_it_ends_now_or_later() -> None:
    later = ended(token(), BOB, 20, 5_050)
    assert later is not None and later.expiry_ms == 5_070
    assert ended(token(), ALICE, -1, 9_999) is None, "also one that has expired"
    assert code_of(lambda: ended(token(), ALICE, 0, 5_101)) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert code_of(lambda: ended(token(), EVE, -1, 5_050)) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


@given(st.lists(st.tuples(st.booleans(), st.integers(-1, 1 << 62), st.integers(0, 300)), max_size=8))
def test_no_renewal_outlives_the_longest_life(steps: list[tuple[bool, int, int]]) -> None:
    now_ms, there = 5_000, token()
    for renews, period_ms, passed_ms in steps:
        now_ms += passed_ms
        if there.is_expired(now_ms):
            break
        after = renewed(there, BOB, period_ms, now_ms, LIMITS) if renews else ended(there, BOB, period_ms, now_ms)
        if after is None:
            break
        there = after
        assert there.expiry_ms <= there.max_ms == 6_000


def test_tokens_are_found_by_their_hmacs() -> None:
    tokens = {"a": token(token_id="a")}
    known = TokenHmacs(lambda: tokens)
    assert hmac_of("a", "s") == hmac.new(b"s", b"a", hashlib.sha512).digest()
    assert known.find(hmac_of("a", "s"), "s") is tokens["a"]
    tokens["b"] = token(token_id="b")
    assert known.find(hmac_of("b", "s"), "s") is tokens["b"]
    del tokens["a"]
    assert known.find(hmac_of("a", "s"), "s") is None
    assert known.find(b"", "s") is None
    assert known.find(hmac_of("b", "t"), "t") is tokens["b"] and known.find(hmac_of("b", "s"), "t") is None
