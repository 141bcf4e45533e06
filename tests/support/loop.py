"""Turns of the event loop: until something holds, or until nothing is left to do. No test counts them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.wait import DEADLINE_S

_POLLS = 3  # a poll finds what sockets of this process hold, whose handling may write to another one
_BLIND_POLLS = 100  # uvloop does not say whether a callback is ready


async def until(probe: Callable[[], Any]) -> Any:
    """Lets the loop turn until the result of `probe` is true, and returns it."""
    async with asyncio.timeout(DEADLINE_S):
        while not (found := probe()):  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
    return found


async def idle() -> None:
    """Lets the loop turn until no callback is ready: the rest waits for time, another thread or another process."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    quiet = 0
    while quiet < (_BLIND_POLLS if ready is None else _POLLS):
        await asyncio.sleep(0)
        quiet = 0 if ready else quiet + 1
