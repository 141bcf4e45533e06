"""An event loop in a thread of its own, for programs without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class LoopThread:
    """Runs coroutines for other threads, until it is closed."""

    def __init__(self) -> None:
        import uvloop

        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafkalite", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        """Run the coroutine of `work` there."""
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def run(self, work: Callable[[], Any]) -> None:
        """Run the coroutine of `work` there and wait until it is done. Raises its exception."""
        self.begin(work).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
