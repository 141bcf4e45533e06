"""A reader that is too fast sleeps; unused time is hardly saved up."""

from __future__ import annotations

import sys

from kafkalite.cleaner.workers.worker_main import Throttle


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.sleeps: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds

    def throttle(self, bytes_per_second: float) -> Throttle:
        return Throttle(bytes_per_second, self.clock, self.sleep)


def test_what_is_read_takes_as_long_as_the_rate_says() -> None:
    time = Time()
    throttle = time.throttle(1000)
    for _ in range(100):
        throttle.take(500)
    assert time.now_s == 150 and throttle.slept_seconds == 50


def test_time_spent_at_work_counts() -> None:
    time = Time()
    throttle = time.throttle(1000)
    for _ in range(100):
        time.now_s += 0.3
        throttle.take(500)
    assert round(time.now_s, 6) == 150
    for _ in range(100):
        time.now_s += 0.7
        throttle.take(500)
    assert round(time.now_s) == 220, "slower than the rate: no sleep"


def test_a_pause_pays_for_one_piece_and_is_not_saved_up() -> None:
    time = Time()
    throttle = time.throttle(1000)
    time.now_s += 3600
    throttle.take(5000)
    assert time.sleeps == []
    throttle.take(5000)
    assert time.sleeps == [5.0]


def test_small_steps_add_up_to_one_sleep() -> None:
    time = Time()
    throttle = time.throttle(1_000_000)
    for _ in range(1000):
        throttle.take(1000)
    assert len(time.sleeps) == 50 and round(time.now_s, 6) == 101


def test_a_sleep_may_be_cut_short_and_the_rate_changed_meanwhile() -> None:
    time = Time()

    def wake(seconds: float) -> None:
        time.sleep(min(seconds, 1.0))
        throttle.bytes_per_second = 2000

    throttle = Throttle(1000, time.clock, wake)
    throttle.take(11_000)
    assert time.sleeps == [1.0] * 5 + [0.5]  # all but the first second's worth at twice the rate


def test_without_a_limit_nobody_waits() -> None:
    time = Time()
    for rate in (sys.float_info.max, float("inf")):
        throttle = time.throttle(rate)
        throttle.take(1 << 60)
    assert time.sleeps == []
