"""A rate that is measured over samples of fixed length, and the throttle time of a client that exceeds its limit.

The rate is the sum of the samples that are not obsolete, over the time since the oldest one began, but at least over
all samples except the current one: a client that begins with a burst is not judged by its first milliseconds. Beyond
the limit the wait is as long as the rate needs, if nothing more is recorded, to fall back to it.

Recording costs an addition as long as the limit cannot be reached: `_room` is how much may be recorded in the current
sample before the rate over the shortest time that counts exceeds the limit. Only then is it measured.
Source: org.apache.kafka.common.metrics.stats.{Rate, SampledStat}, kafka.server.QuotaUtils.
"""

from __future__ import annotations

from math import floor, inf

WAIT_MS_MAX = 2**31 - 1
_NONE = -1.0  # of room


class SampledRate:
    """Units per second. Times are monotonic milliseconds; the current sample ends at `ends_ms`. A negative limit
    limits nothing, as in Kafka, and with 0 everything has to wait for `WAIT_MS_MAX`.

    Invariant: the current sample lacks `_passed`, which was recorded without a measurement.
    """

    __slots__ = ("_last_ms", "_limit", "_passed", "_room", "_sample_count", "_samples", "_window_ms", "ends_ms")

    def __init__(self, sample_count: int, window_ms: int, limit: float = inf) -> None:
        self._sample_count = sample_count
        self._window_ms = window_ms
        self._limit = limit if limit >= 0 else inf
        self._samples: list[_Sample] = []  # the latest one is the last
        self.ends_ms = -inf  # of the current sample
        self._room = _NONE
        self._passed = 0.0
        self._last_ms = 0

    @property
    def limit(self) -> float:
        """Infinite without a limit."""
        return self._limit

    @limit.setter
    def limit(self, limit: float) -> None:
        self._settle()
        self._limit = limit if limit >= 0 else inf
        self._room = _NONE

    def record(self, value: float, now_ms: int) -> int:
        """Count `value`, and return for how many milliseconds its client is to wait; 0 within the limit."""
        passed = self._passed + value
        if passed <= self._room and now_ms < self.ends_ms:
            self._passed = passed
            self._last_ms = now_ms
            return 0
        self.add(value, now_ms)
        return self.wait_ms(now_ms)

    def record_in_passing(self, value: float) -> bool:
        """Count `value` and return True if that is possible without measuring. Only for the current sample, which
        ends at `ends_ms`."""
        passed = self._passed + value
        if passed <= self._room:
            self._passed = passed
            return True
        return False

    def add(self, value: float, now_ms: int) -> None:
        """Count `value`, which may be negative, without regard to the limit."""
        self._settle()
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
            del samples[: -self._sample_count - 1]
        current = samples[-1]
        current.value += value
        current.last_ms = now_ms
        self._room -= value
        self.ends_ms = current.start_ms + self._window_ms

    def wait_ms(self, now_ms: int, more: float = 0.0) -> int:
        """For how long to wait now, or if `more` were counted."""
        self._settle()
        total, over_ms = self._measure(now_ms)
        shortest_ms = (self._sample_count - 1) * self._window_ms
        self._room = self._limit * shortest_ms / 1000 - total if self._samples else _NONE
        excess = (total + more) * 1000 / over_ms - self._limit
        if excess <= 0:
            return 0
        if self._limit == 0:
            return WAIT_MS_MAX
        return min(WAIT_MS_MAX, floor(excess / self._limit * over_ms + 0.5))

    def admit(self, value: float, now_ms: int) -> int:
        """As `record`, but `value` counts only if there is no need to wait."""
        if self._passed + value > self._room or now_ms >= self.ends_ms:
            wait_ms = self.wait_ms(now_ms, value)
            if wait_ms > 0:
                return wait_ms
        self.record(value, now_ms)
        return 0

    def per_second(self, now_ms: int) -> float:
        self._settle()
        total, over_ms = self._measure(now_ms)
        return total * 1000 / over_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether no counted value is in the samples any more."""
        return now_ms - self._last_counted_ms() >= self._sample_count * self._window_ms

    def _last_counted_ms(self) -> float:
        self._settle()
        return max((sample.last_ms for sample in self._samples), default=-inf)

    def _settle(self) -> None:
        """Add the values that were recorded in passing to the current sample."""
        if self._passed:
            current = self._samples[-1]
            current.value += self._passed
            current.last_ms = max(current.last_ms, self._last_ms)
            self._room -= self._passed
            self._passed = 0.0

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """The sum, and over how many milliseconds."""
        expiry_ms = self._sample_count * self._window_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= expiry_ms:
                sample.reset(now_ms)
        oldest_ms = min((sample.start_ms for sample in self._samples), default=now_ms)
        over_ms = now_ms - oldest_ms
        missing = self._sample_count - 1 - over_ms // self._window_ms
        if missing > 0:
            over_ms += missing * self._window_ms
        return sum(sample.value for sample in self._samples), max(1, over_ms)


class _Sample:
    __slots__ = ("ends_ms", "last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


_SAMPLE_MS = 30_000


class ThrottleTimes:
    """The average of a client's latest throttle times, for the metrics. Times are monotonic milliseconds.

    Source: org.apache.kafka.common.metrics.stats.Avg, as ClientQuotaManager has it: two samples of half a minute.
    """

    __slots__ = ("_began_ms", "_now", "_previous")

    def __init__(self) -> None:
        self._began_ms = 0
        self._now = (0, 0)  # the sum of the sample, and the count
        self._previous = (0, 0)

    def add(self, throttle_ms: int, now_ms: int) -> None:
        self._roll(now_ms)
        total, count = self._now
        self._now = (total + throttle_ms, count + 1)

    def average_ms(self, now_ms: int) -> float:
        """0 if there was none lately."""
        self._roll(now_ms)
        count = self._now[1] + self._previous[1]
        return (self._now[0] + self._previous[0]) / count if count else 0.0

    def _roll(self, now_ms: int) -> None:
        age_ms = now_ms - self._began_ms
        if age_ms >= _SAMPLE_MS:
            self._previous = self._now if age_ms < 2 * _SAMPLE_MS else (0, 0)
            self._now = (0, 0)
            self._began_ms = now_ms
