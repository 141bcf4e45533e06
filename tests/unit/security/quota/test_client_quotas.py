"""Precedence of quotas, consumption that is counted together, and buckets of tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.quota.client_quotas import (
    COUNTED_MAX,
    ClientQuotaManager,
    QuotaLimits,
    QuotaWindows,
    Sharers,
    TokenBucket,
)

ORDER = (
    ("alice", "app"),
    ("alice", "<default>"),
    ("alice", ""),
    ("<default>", "app"),
    ("<default>", "<default>"),
    ("<default>", ""),
    ("", "app"),
    ("", "<default>"),
)
SHARERS = (*[("alice", "app")] * 2, ("alice", ""), *[("alice", "app")] * 2, ("alice", ""), *[("", "app")] * 2)


@given(st.sets(st.integers(0, 7), min_size=1))
def test_the_most_specific_entity_wins(there: set[int]) -> None:
    limits = QuotaLimits()
    for number in there:
        limits.put(*ORDER[number], float(number))
    sharers = limits.sharers("alice", "app")
    assert sharers == Sharers(*SHARERS[min(there)])
    assert limits.of(sharers) == min(there)


def test_a_user_without_a_client_id_has_the_limits_of_users() -> None:
    limits = QuotaLimits()
    limits.put("alice", "<default>", 1.0)
    limits.put("<default>", "", 2.0)
    limits.put("", "<default>", 3.0)
    assert limits.of(limits.sharers("alice", "")) == 2.0
    assert limits.of(limits.sharers("bob", "")) == 2.0


def manager(*paths: str) -> ClientQuotaManager:
    made = ClientQuotaManager(QuotaWindows(11, 1_000), QuotaWindows(11, 1_000))
    for path in paths:
        assert made.put(path, {"producer_byte_rate": "100"})
    return made


def test_clients_of_a_user_share_and_those_of_a_default_do_not() -> None:
    quotas = manager("users/a%2Ab")
    one, two = quotas.resolve("a*b", "one", 0), quotas.resolve("a*b", "two", 0)
    assert one.produce is two.produce is not None
    assert one.fetch is one.request is one.mutation is None
    assert not quotas.resolve("carol", "one", 0).is_limited
    quotas = manager("clients/<default>")
    one, two = quotas.resolve("alice", "one", 0), quotas.resolve("alice", "two", 0)
    assert one.produce is not two.produce
    assert quotas.resolve("bob", "one", 0).produce is one.produce


def test_what_was_used_outlives_a_change_and_ends_with_the_quota() -> None:
    quotas = manager("users/alice")
    counted = quotas.resolve("alice", "app", 0).produce
    assert counted is not None and counted.rate.record(900, 0) == 0
    generation = quotas.generation
    assert not quotas.put("users/alice", {"producer_byte_rate": "100", "SCRAM-SHA-256": "..."})
    assert quotas.generation is generation
    assert quotas.put("users/alice", {"producer_byte_rate": "50"})
    assert quotas.generation is not generation
    assert quotas.resolve("alice", "app", 0).produce is counted and counted.rate.record(0, 0) == 8_000
    assert quotas.put("users/alice", {}) and not quotas.has_limits
    assert counted.rate.record(1, 0) == 0
    assert not quotas.resolve("alice", "app", 0).is_limited


def test_client_ids_that_change_for_ever_take_bounded_memory() -> None:
    quotas = manager("clients/<default>")
    for number in range(3 * COUNTED_MAX):
        resolved = quotas.resolve("alice", str(number), number)
        assert resolved.produce is not None
        resolved.produce.rate.record(1, number)
    assert len(list(quotas.counted("producer_byte_rate"))) <= COUNTED_MAX


def test_nonsense_in_a_node_is_no_quota() -> None:
    quotas = ClientQuotaManager(QuotaWindows(11, 1_000), QuotaWindows(11, 1_000))
    for path in ("users", "users/", "topics/t", "users/a/b/c", "users/a/clients", "ips/10.0.0.1"):
        assert not quotas.put(path, {"producer_byte_rate": "100", "connection_creation_rate": "1"})
    for text in ("many", "", "NaN", "Infinity"):
        assert not quotas.put("users/a", {"producer_byte_rate": text, "controller_mutation_rate": text})
    assert not quotas.has_limits


def test_a_full_bucket_allows_a_burst_and_one_debt() -> None:
    bucket = TokenBucket(11, 2, 0)
    assert bucket.tokens(0) == 22 and bucket.is_idle(0)
    bucket.take(30, 0)
    assert bucket.tokens(0) == -8 and bucket.wait_ms(0) == 4_000
    assert bucket.wait_ms(3_500) == 500
    assert bucket.wait_ms(4_000) == 0 and not bucket.is_idle(4_000)
    assert bucket.tokens(100_000) == 22 and bucket.is_idle(100_000)


def test_a_limit_that_changes_changes_what_the_bucket_holds() -> None:
    bucket = TokenBucket(11, 2, 0)
    bucket.limit = 1
    assert bucket.tokens(0) == 11
    bucket.limit = 0
    bucket.take(1, 0)
    assert bucket.wait_ms(0) == 0  # it would never end


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 40)), max_size=50))
def test_the_rate_is_kept_in_the_long_run(script: list[tuple[int, int]]) -> None:
    bucket, now_ms, taken = TokenBucket(11, 2, 0), 0, 0
    for pause_ms, count in script:
        now_ms += pause_ms
        if bucket.tokens(now_ms) >= 0:
            bucket.take(count, now_ms)
            taken += count
    assert taken <= 22 + 2 * now_ms / 1000 + 40
