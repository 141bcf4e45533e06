"""The average of the latest waits that were asked of a client, for the metrics.

Source: org.apache.kafka.common.metrics.stats.Avg, as ClientQuotaManager has it: two samples of half a minute.
"""

from __future__ import annotations

SAMPLE_MS = 30_000


class ThrottleTimes:
    """Times are monotonic milliseconds."""

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
        if age_ms >= SAMPLE_MS:
            self._previous = self._now if age_ms < 2 * SAMPLE_MS else (0, 0)
            self._now = (0, 0)
            self._began_ms = now_ms
