"""Functions that the broker calls again and again, on its loop. Source: kafka.utils.KafkaScheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkalite.common.clock import Clock, Timer

logger = logging.getLogger(__name__)


class PeriodicTasks:
    """Runs from `add` to `stop`. A task that fails is logged, and runs again at its time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[str, Timer] = {}

    def add(
        self, name: str, interval_ms: int, work: Callable[[], object], *, first_after_ms: int | None = None
    ) -> None:
        """Call `work` every `interval_ms`, for the first time after `first_after_ms` if that is given. An interval of 0
        means once."""

        def run() -> None:
            if interval_ms > 0:
                self._timers[name] = self._clock.call_later(interval_ms, run)
            try:
                work()
            except Exception:
                logger.exception("%s failed; it will be tried again in %d ms", name, interval_ms)

        first_ms = interval_ms if first_after_ms is None else first_after_ms
        self._timers[name] = self._clock.call_later(first_ms, run)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
