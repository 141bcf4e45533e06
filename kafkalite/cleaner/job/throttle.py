"""Throttle of a cleaning: log.cleaner.io.max.bytes.per.second, of which each busy worker has a share.

The cleaning reports every piece that it reads or writes (`take`), and sleeps if it is too fast. Unused time pays for
the piece that follows it and is not saved beyond that. Short waits add up until a sleep is worth it.
Source: org.apache.kafka.storage.internals.utils.Throttler.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from kafkalite.common.clock import monotonic_s

_SLEEP_S_MIN = 0.02


class Throttle:
    """`bytes_per_second` may be changed at any time. `slept_seconds` is the total. `sleep` may return early: it is
    called again. `clock` returns seconds since some moment."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.slept_seconds = 0.0
        self._clock = clock
        self._sleep = sleep
        self._unpaid_bytes = 0.0  # of those taken until `_at_s`, not yet covered by the rate
        self._at_s = clock()

    def take(self, count: int) -> None:
        """`count` bytes were read or written; returns when the next may be."""
        self._unpaid_bytes += count
        while (wait_s := self._wait_s()) >= _SLEEP_S_MIN:
            before_s = self._clock()
            self._sleep(wait_s)
            self.slept_seconds += self._clock() - before_s

    def _wait_s(self) -> float:
        now_s = self._clock()
        passed_s, self._at_s = now_s - self._at_s, now_s
        rate = self.bytes_per_second
        self._unpaid_bytes = max(0.0, self._unpaid_bytes - passed_s * rate) if math.isfinite(rate) else 0.0
        return self._unpaid_bytes / rate if self._unpaid_bytes else 0.0
