"""Health of the cleaner as a whole: one line for /health and status, None if healthy.

One problem is that worker processes cannot start: it lasts until one has sent a message, with a growing pause between
attempts. The other is an exception of the cleaner itself: it is logged with its traceback, the cleaner continues, and
the problem ends with a complete scan without one.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from kafkalite.common.clock import Clock

logger = logging.getLogger(__name__)

_PAUSE_MS_MAX = 300_000


class Pause:
    """A pause after a failure. `until_ms` is monotonic; `length_ms` doubles, from the back-off up to five minutes."""

    __slots__ = ("length_ms", "until_ms")

    def __init__(self) -> None:
        self.until_ms = self.length_ms = 0

    def begin(self, now_ms: int, backoff_ms: int) -> None:
        self.length_ms = min(2 * self.length_ms or backoff_ms, max(backoff_ms, _PAUSE_MS_MAX))
        self.until_ms = now_ms + self.length_ms


class CleanerHealth:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_error: str | None = None
        self._fault: str | None = None
        self._has_faulted = False  # since the last scan began
        self._pause = Pause()

    @property
    def text(self) -> str | None:
        return self._start_error or self._fault

    @property
    def may_start(self) -> bool:
        """Whether a worker process may be started now."""
        return self._clock.monotonic_ms() >= self._pause.until_ms

    def cannot_start(self, reason: str, backoff_ms: int) -> None:
        """A process could not start, or ended before its first message."""
        self._pause.begin(self._clock.monotonic_ms(), backoff_ms)
        self._start_error = reason
        logger.error("%s; nothing is compacted; the next try is in %d ms", reason, self._pause.length_ms)

    def has_started(self) -> None:
        """A process has sent a message."""
        if self._start_error is not None:
            logger.info("cleaner processes can start again")
        self._start_error = None
        self._pause.length_ms = 0

    def retry_now(self) -> None:
        """A request ends the pause."""
        self._pause.until_ms = 0

    def fault(self, what: str, error: Exception) -> None:
        """An exception that is a bug of the cleaner."""
        self._has_faulted = True
        self._fault = f"{what} failed: {error!r}"
        logger.error("%s failed in the cleaner, which goes on", what, exc_info=error)

    @contextlib.contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Turns an exception into a `fault`, so that the cleaner continues."""
        try:
            yield
        except Exception as error:
            self.fault(what, error)

    def scan_began(self) -> None:
        self._has_faulted = False

    def scan_ended(self) -> None:
        if not self._has_faulted:
            self._fault = None
