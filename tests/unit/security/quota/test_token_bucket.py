from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.quota.token_bucket import TokenBucket


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
