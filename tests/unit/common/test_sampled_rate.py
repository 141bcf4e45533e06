"""Rates as Kafka measures them: a plain version of its Rate and SampledStat beside ours, and numbers by hand."""

from __future__ import annotations

from math import floor, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.sampled_rate import WAIT_MS_MAX, SampledRate


class PlainRate:
    """org.apache.kafka.common.metrics.stats.Rate over WindowedSum, step by step, with its ring of samples."""

    def __init__(self, count: int, window_ms: int, limit: float) -> None:
        self.count, self.window_ms, self.limit = count, window_ms, limit
        self.samples: list[list[float]] = []  # start, last event, value
        self.current = 0

    def record(self, value: float, now_ms: int) -> int:
        if not self.samples:
            self.samples.append([now_ms, now_ms, 0.0])
        if now_ms - self.samples[self.current][0] >= self.window_ms:
            self.current = (self.current + 1) % (self.count + 1)
            if self.current >= len(self.samples):
                self.samples.append([now_ms, now_ms, 0.0])
            else:
                self.samples[self.current] = [now_ms, now_ms, 0.0]
        self.samples[self.current][2] += value
        self.samples[self.current][1] = now_ms
        total, over_ms = self.measure(now_ms)
        rate = total * 1000 / over_ms
        return max(0, floor((rate - self.limit) / self.limit * over_ms + 0.5)) if rate > self.limit else 0

    def measure(self, now_ms: int) -> tuple[float, int]:
        for at, sample in enumerate(self.samples):
            if now_ms - sample[1] >= self.count * self.window_ms:
                self.samples[at] = [now_ms, now_ms, 0.0]
        over_ms = now_ms - int(min(sample[0] for sample in self.samples))
        full = over_ms // self.window_ms
        if full < self.count - 1:
            over_ms += (self.count - 1 - full) * self.window_ms
        return sum(sample[2] for sample in self.samples), max(over_ms, 1)


steps = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 2_000)), max_size=60)


@given(count=st.integers(1, 11), limit=st.integers(1, 500), script=steps)
def test_waits_are_kafkas_to_the_millisecond(count: int, limit: int, script: list[tuple[int, int]]) -> None:
    ours, plain, now_ms = SampledRate(count, 1_000, limit), PlainRate(count, 1_000, limit), 5_000
    for pause_ms, value in script:
        now_ms += pause_ms
        assert ours.record(value, now_ms) == plain.record(value, now_ms)
        total, over_ms = plain.measure(now_ms)
        assert ours.per_second(now_ms) == pytest.approx(total * 1000 / over_ms)


@given(limit=st.integers(1, 500), script=steps)
def test_what_is_admitted_stays_within_the_limit(limit: int, script: list[tuple[int, int]]) -> None:
    rate, now_ms = SampledRate(11, 1_000, limit), 0
    for pause_ms, value in script:
        now_ms += pause_ms
        before = rate.per_second(now_ms)
        wait_ms = rate.admit(value, now_ms)
        assert rate.per_second(now_ms) <= max(limit, before) + 1e-9
        assert wait_ms == 0 or rate.per_second(now_ms) == pytest.approx(before)


def test_a_burst_is_spread_over_ten_windows() -> None:
    rate = SampledRate(11, 1_000, 100)
    assert rate.record(1_000, 0) == 0  # all of ten seconds at once
    assert rate.record(500, 1) == 5_000 - 1  # 1500 over 10.001 s, until they are over 15 s
    assert rate.per_second(1) == pytest.approx(149.985, abs=1e-3)
    assert rate.record(0, 5_000) == 5_000  # the oldest second still counts as the first of ten
    assert rate.is_idle(16_000) and rate.per_second(16_000) == 0


def test_a_limit_that_changes_keeps_what_was_counted() -> None:
    rate = SampledRate(11, 1_000, 100)
    assert rate.record(900, 0) == 0
    rate.limit = 10
    assert rate.record(0, 0) == 80_000
    rate.limit = inf
    assert rate.record(1e12, 0) == 0


def test_nothing_passes_a_limit_of_zero_and_everything_a_negative_one() -> None:
    assert SampledRate(11, 1_000, 0).record(1, 0) == WAIT_MS_MAX
    assert SampledRate(11, 1_000, -1).record(1e9, 0) == 0
    assert SampledRate(11, 1_000, 1e-9).record(1e9, 0) == WAIT_MS_MAX
