"""An event loop in a thread of its own, for programs without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

from kafkalite.common.forks import HomeProcess

_END_S = 1.0


class LoopThread:
    """Runs coroutines for other threads of its process, until it is closed. A forked child has no such thread."""

    def __init__(self) -> None:
        import uvloop

        self.home = HomeProcess()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafkalite", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        """Run the coroutine of `work` there. Raises RuntimeError in a forked child."""
        self.home.require("this broker")
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def run(self, work: Callable[[], Any]) -> Any:
        """Run the coroutine of `work` there, wait until it is done and return its result. Raises its exception, or
        RuntimeError if the loop ends before it, and in a forked child."""
        try:
            return self.begin(work).result()
        except CancelledError:
            raise RuntimeError("the broker has ended in the meantime") from None

    def close(self) -> None:
        """Cancel what still runs: threads that wait for it go on."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(_end_tasks())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _end_tasks() -> None:
    await asyncio.sleep(0)  # what other threads have just handed in becomes tasks
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_END_S)
