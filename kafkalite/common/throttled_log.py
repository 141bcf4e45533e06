"""Rate-limited log lines: one line per minute for each client and reason, not one for each attempt.

A client with a wrong port or a wrong protocol reconnects many times a second. So do clients with requests that the
broker cannot serve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkalite.common.clock import Clock

SILENCE_MS = 60_000
REMEMBERED_MAX = 1000

_log = logging.getLogger("kafkalite.network")


class RateLimitedLogger:
    """Logs a line with `write`, unless one of the same kind about the same host was logged less than `SILENCE_MS`
    ago."""

    __slots__ = ("_clock", "_last", "_write")

    def __init__(self, clock: Clock, write: Callable[..., object] = _log.warning) -> None:
        self._clock = clock
        self._write = write
        self._last: dict[tuple[str, str], tuple[int, int]] = {}  # -> (when written, how many kept silent since)

    def about(self, host: str, kind: str, message: str) -> None:
        """Messages of one `kind` count as the same; the text of `message` may differ, for instance in a number."""
        now_ms = self._clock.monotonic_ms()
        key = (host, kind)
        written_ms, silent_count = self._last.pop(key, (0, 0))
        if written_ms and now_ms - written_ms < SILENCE_MS:
            self._last[key] = (written_ms, silent_count + 1)
            return
        if len(self._last) >= REMEMBERED_MAX:
            self._last.pop(next(iter(self._last)))
        self._last[key] = (now_ms, 0)
        self._write("%s: %s%s", host, message, f" ({silent_count} more times before)" if silent_count else "")
