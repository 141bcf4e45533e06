"""The latest values of something that happens again and again, such as durations in milliseconds, for metrics.

Source: Kafka's histograms keep a sample of all values; the latest hundred say how it is now.
"""

from __future__ import annotations

import math
from collections import deque

_VALUES_MAX = 100  # that are kept


class LatestValues:
    """How often it happened, and the latest hundred values."""

    __slots__ = ("_latest", "count")

    def __init__(self) -> None:
        self.count = 0
        self._latest: deque[int] = deque(maxlen=_VALUES_MAX)

    def add(self, value: int) -> None:
        self.count += 1
        self._latest.append(value)

    def average(self) -> float | None:
        """The mean of the latest values; None if there was none."""
        return sum(self._latest) / len(self._latest) if self._latest else None

    def quantile(self, quantile: float) -> int | None:
        """The value that this share of the latest ones does not exceed; None if there was none."""
        ordered = sorted(self._latest)
        return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)] if ordered else None
