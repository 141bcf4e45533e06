"""Quantiles of the latest values."""

from __future__ import annotations

from kafkalite.common.latest_values import LatestValues


def test_the_latest_hundred_have_quantiles() -> None:
    rounds = LatestValues()
    assert rounds.quantile(0.5) is rounds.average() is None
    for duration_ms in range(1, 1001):
        rounds.add(duration_ms)
    assert rounds.count == 1000 and rounds.average() == 950.5
    assert [rounds.quantile(quantile) for quantile in (0.5, 0.95, 0.99, 1)] == [950, 995, 999, 1000]
