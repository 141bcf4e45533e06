"""A bucket of tokens: a rate on average, with bursts of what the bucket holds.

Whoever takes more than there is may do so once, and then waits until the bucket is out of debt: a topic with more
partitions than the bucket holds could never be created otherwise.
Source: org.apache.kafka.common.metrics.stats.TokenBucket, kafka.server.ControllerMutationQuotaManager, KIP-599.
"""

from __future__ import annotations

from math import floor

WAIT_MS_MAX = 2**31 - 1


class TokenBucket:
    """Full at first. It holds the tokens of `burst_s` seconds. Times are monotonic milliseconds."""

    __slots__ = ("_burst_s", "_filled_ms", "_tokens", "limit")

    def __init__(self, burst_s: float, limit: float, now_ms: int) -> None:
        """`limit`: tokens per second."""
        self._burst_s = burst_s
        self._tokens = burst_s * limit
        self._filled_ms = now_ms
        self.limit = limit

    def take(self, count: float, now_ms: int) -> None:
        self._tokens = min(self.tokens(now_ms) - count, self._burst_s * self.limit)

    def tokens(self, now_ms: int) -> float:
        """How many there are; negative: how many are owed."""
        filled = self._tokens + self.limit * (now_ms - self._filled_ms) / 1000
        self._tokens = min(filled, self._burst_s * self.limit)
        self._filled_ms = now_ms
        return self._tokens

    def wait_ms(self, now_ms: int) -> int:
        """The time until nothing is owed; 0 if nothing is, and where it never ends, as in Kafka."""
        tokens = self.tokens(now_ms)
        if tokens >= 0 or self.limit <= 0:
            return 0
        return floor(min(WAIT_MS_MAX, -tokens / self.limit * 1000 + 0.5))

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is as full as a new one."""
        return self.tokens(now_ms) >= self._burst_s * self.limit
