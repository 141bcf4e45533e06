"""An event loop in a thread of its own, for programs without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any


class LoopThread:
    """Runs coroutines for other threads, until it is closed."""

    def __init__(self) -> None:
        import uvloop

        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafkalite", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Any]) -> None:
        """Run the coroutine of `work` there and wait until it is done. Raises its exception."""
        asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
