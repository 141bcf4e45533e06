"""What is wrong with the cleaner as a whole, for whoever asks: one line, None while all is well.

Processes that cannot begin are one trouble: it lasts until one has spoken, and there is a growing pause between two
tries. A fault of the cleaner's own is the other: it is logged with its trace, nothing stops for it, and it is over when
a whole look at the logs has passed without one.
"""

from __future__ import annotations

import logging

from kafkalite.cleaner.manager.cleaner_state import PAUSE_MS_MAX
from kafkalite.common.clock import Clock

logger = logging.getLogger(__name__)


class CleanerHealth:
    """`may_begin`: no pause speaks against beginning a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._why_none_begins: str | None = None
        self._fault: str | None = None
        self._fault_count = self._faults_before = 0
        self._pause_ms = self._begin_after_ms = 0

    @property
    def text(self) -> str | None:
        return self._why_none_begins or self._fault

    @property
    def may_begin(self) -> bool:
        return self._clock.monotonic_ms() >= self._begin_after_ms

    def cannot_begin(self, why: str, backoff_ms: int) -> None:
        """A process could not begin, or ended before it spoke."""
        self._pause_ms = min(2 * self._pause_ms or backoff_ms, max(backoff_ms, PAUSE_MS_MAX))
        self._begin_after_ms = self._clock.monotonic_ms() + self._pause_ms
        self._why_none_begins = why
        logger.error("%s; nothing is compacted; the next try is in %d ms", why, self._pause_ms)

    def has_begun(self) -> None:
        """One has spoken."""
        if self._why_none_begins is not None:
            logger.info("cleaner processes can begin again")
        self._why_none_begins = None
        self._pause_ms = 0

    def try_again(self) -> None:
        """Somebody asks: the pause is over."""
        self._begin_after_ms = 0

    def fault(self, what: str, error: Exception) -> None:
        """Ours."""
        self._fault_count += 1
        self._fault = f"{what} failed: {error!r}"
        logger.error("%s failed in the cleaner, which goes on", what, exc_info=error)

    def look_begins(self) -> None:
        self._faults_before = self._fault_count

    def look_ended(self) -> None:
        if self._fault_count == self._faults_before:
            self._fault = None
