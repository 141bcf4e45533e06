"""A progress bar on stderr, where stderr is a terminal; else nothing.

[#########.....................] 31%  3.1 of 9.9 GiB  1.4 GiB/s
"""

from __future__ import annotations

import sys
import threading
import time

from kafkalite.common.text import size_text

_WIDTH = 30
_EVERY_SECONDS = 0.1


class Progress:
    """`advance` may be called from several threads; a call costs a lock and an addition."""

    def __init__(self, total_bytes: int, *, shown: bool | None = None) -> None:
        self._total_bytes = max(1, total_bytes)
        self._done_bytes = 0
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._began = time.monotonic()
        self._next = self._began + _EVERY_SECONDS
        self._lock = threading.Lock()
        self._drawn = False

    def advance(self, count_bytes: int) -> None:
        with self._lock:
            self._done_bytes += count_bytes
            if self._shown and time.monotonic() >= self._next:
                self._draw()

    def clear(self) -> None:
        """Removes the bar, before other output and at the end."""
        with self._lock:
            if self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._drawn = False

    def _draw(self) -> None:
        now = time.monotonic()
        self._next = now + _EVERY_SECONDS
        share = min(1.0, self._done_bytes / self._total_bytes)
        bar = "#" * int(share * _WIDTH)
        speed = size_text(int(self._done_bytes / max(1e-3, now - self._began)))
        sizes = f"{size_text(self._done_bytes)} of {size_text(self._total_bytes)}"
        sys.stderr.write(f"\r\x1b[K[{bar:.<{_WIDTH}}] {share:4.0%}  {sizes}  {speed}/s")
        sys.stderr.flush()
        self._drawn = True
