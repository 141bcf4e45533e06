"""An event loop in a thread of its own, for programs without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import wraps
from inspect import isawaitable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from kafkalite.common.forks import HomeProcess

_END_S = 1.0

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class OnLoop(Protocol[A_co]):
    """An object for other threads: `run` runs a coroutine on the loop that `asynchronous` belongs to."""

    @property
    def asynchronous(self) -> A_co: ...
    def run(self, work: Callable[[], Awaitable[R]]) -> R: ...


@overload
def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[OnLoop[A], P], R]: ...
@overload
def blocking(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[OnLoop[A], P], R]: ...
def blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same method for other threads, with its documentation: runs it on the loop, and returns its result."""

    @wraps(method)
    def call(self: OnLoop[Any], *arguments: Any, **named: Any) -> Any:
        async def work() -> Any:
            result = method(self.asynchronous, *arguments, **named)
            return await result if isawaitable(result) else result

        return self.run(work)

    return call


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
