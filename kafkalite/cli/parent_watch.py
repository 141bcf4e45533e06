"""Tells when the process that has started this one is gone, however it ended.

A pidfd says so at once, where there is one (Linux 5.3); elsewhere the id of the parent, which changes then, is looked
at twice a second. Neither needs anything of the parent, as the end of a pipe would: some languages give a child no
standard input, and its end would come at the start. PR_SET_PDEATHSIG is about the parent's thread, which may end while
its process goes on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

LOOK_AGAIN_S = 0.5


def watch_parent(on_end: Callable[[], None], look_again_s: float = LOOK_AGAIN_S) -> None:
    """Call `on_end` once, on the running loop, when the parent has ended. A process that has lost it before this is
    called has another by now, and is told of the end of that one."""
    loop, parent = asyncio.get_running_loop(), os.getppid()
    descriptor = _pidfd(parent)
    if descriptor is None:
        _look(loop, parent, on_end, look_again_s)
        return

    def ended() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        on_end()

    loop.add_reader(descriptor, ended)


def _pidfd(parent: int) -> int | None:
    """None where there are none, and if the parent has just ended."""
    try:
        descriptor = os.pidfd_open(parent)
    except (AttributeError, OSError):
        return None
    if os.getppid() == parent:  # otherwise its id may be another's by now
        return descriptor
    os.close(descriptor)
    return None


def _look(loop: asyncio.AbstractEventLoop, parent: int, on_end: Callable[[], None], look_again_s: float) -> None:
    if os.getppid() != parent:
        on_end()
    else:
        loop.call_later(look_again_s, _look, loop, parent, on_end, look_again_s)
