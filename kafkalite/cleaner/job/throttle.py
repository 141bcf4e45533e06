"""How fast a pass may read and write: log.cleaner.io.max.bytes.per.second, shared by all who are at work.

Every so many bytes are told here (`take`), and whoever is too fast sleeps. Time that was not used pays for the piece
that follows it and is not saved up beyond that. Short waits add up until a sleep is worth it.
Source: org.apache.kafka.storage.internals.utils.Throttler.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_LEAST_SLEEP_S = 0.02


class Throttle:
    """`bytes_per_second` may be changed at any time. `slept_seconds` in all. `sleep` may end early: it is called again.

    `clock` shows seconds since some moment.
    """

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.slept_seconds = 0.0
        self._clock = clock
        self._sleep = sleep
        self._owed_bytes = 0.0  # of what was taken at `_at_s`, so much the rate has not covered yet
        self._at_s = clock()

    def take(self, count: int) -> None:
        """`count` bytes were read or written; returns when the next may be."""
        self._owed_bytes += count
        while (wait_s := self._wait_s()) >= _LEAST_SLEEP_S:
            before_s = self._clock()
            self._sleep(wait_s)
            self.slept_seconds += self._clock() - before_s

    def _wait_s(self) -> float:
        now_s = self._clock()
        passed_s, self._at_s = now_s - self._at_s, now_s
        rate = self.bytes_per_second
        self._owed_bytes = max(0.0, self._owed_bytes - passed_s * rate) if math.isfinite(rate) else 0.0
        return self._owed_bytes / rate if self._owed_bytes else 0.0


def share(bytes_per_second: float, busy: int) -> float:
    """What each of `busy` workers may have of the whole."""
    return bytes_per_second / max(1, busy)
