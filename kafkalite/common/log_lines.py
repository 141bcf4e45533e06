"""Lines of the log: each message is one line, and clients cannot flood it.

Names of groups, topics and users come from clients, and may contain a line break, which would forge a line, or
characters that move the cursor of a terminal: these are escaped. Only tracebacks keep their line breaks.
A client with a wrong port or a wrong protocol reconnects many times a second, and so do clients with requests that the
broker cannot serve: there is one line per minute for each client and reason, not one for each attempt. And a client may
have as many reasons as it likes, such as the names of 100,000 topics that it may not see: about one host there are at
most `LINES_MAX` in a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

from kafkalite.common.clock import Clock
from kafkalite.common.text import printable

MESSAGE_CHARS_MAX = 4_000

_Fault = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LogLines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        text = record.message
        if len(text) > MESSAGE_CHARS_MAX:
            text = f"{text[:MESSAGE_CHARS_MAX]}... ({len(text)} characters)"
        record.message = printable(text)
        return super().formatMessage(record)

    def formatException(self, ei: _Fault) -> str:
        return printable(super().formatException(ei), keep="\n")


SILENCE_MS = 60_000
REMEMBERED_MAX = 1000
LINES_MAX = 100

_log = logging.getLogger("kafkalite.network")


class RateLimitedLogger:
    """Logs a line with `write`, unless one of the same kind about the same host was logged less than `SILENCE_MS`
    ago."""

    __slots__ = ("_clock", "_hosts", "_last", "_write")

    def __init__(self, clock: Clock, write: Callable[..., object] = _log.warning) -> None:
        self._clock = clock
        self._write = write
        self._last: dict[tuple[str, str], tuple[int, int]] = {}  # -> (when written, how many suppressed since)
        self._hosts: dict[str, tuple[int, int]] = {}  # -> (since when, how many lines, also those that were left out)

    def about(self, host: str, kind: str, message: str) -> None:
        """Messages of one `kind` count as the same; the text of `message` may differ, for instance in a number."""
        now_ms = self._clock.monotonic_ms()
        key = (host, kind)
        written_ms, silent_count = self._last.pop(key, (0, 0))
        if written_ms and now_ms - written_ms < SILENCE_MS:
            self._last[key] = (written_ms, silent_count + 1)
            return
        if not self._has_room(host, now_ms):
            return
        if len(self._last) >= REMEMBERED_MAX:
            self._last.pop(next(iter(self._last)))
        self._last[key] = (now_ms, 0)
        self._write("%s: %s%s", host, message, f" ({silent_count} more times before)" if silent_count else "")

    def _has_room(self, host: str, now_ms: int) -> bool:
        """Whether there may be one more line about this host now."""
        began_ms, count = self._hosts.pop(host, (now_ms, 0))
        if now_ms - began_ms >= SILENCE_MS:
            if count > LINES_MAX:
                self._write("%s: %d more lines about it were left out", host, count - LINES_MAX)
            began_ms, count = now_ms, 0
        if len(self._hosts) >= REMEMBERED_MAX:
            self._hosts.pop(next(iter(self._hosts)))
        self._hosts[host] = began_ms, count + 1
        if count == LINES_MAX:
            self._write("%s: there are too many lines about it, and no more for a minute", host)
        return count < LINES_MAX
