"""The agreement of a broker with the program that starts it: when it is ready, and when it is to stop.

--ready-file FILE       a file with the broker's address, which exists, complete, while clients may connect
--exit-with-parent      the broker stops when the program has ended
--lifeline DESCRIPTOR   likewise, when the other end of a pipe is closed, which the program holds (`local_cluster`)
SIGTERM, SIGINT         the broker stops in order; a second one ends it at once
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError

if TYPE_CHECKING:
    from kafkalite.server.broker import Broker

POLL_S = 0.5


def watch_parent(on_end: Callable[[], None], poll_s: float = POLL_S) -> None:
    """Call `on_end` once, on the running loop, when the parent has ended. If the parent ended before this call, the
    process has been adopted, and the end of its new parent counts."""
    loop, parent = asyncio.get_running_loop(), os.getppid()
    descriptor = _pidfd(parent)
    if descriptor is None:
        _poll_parent(loop, parent, on_end, poll_s)
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


def _poll_parent(loop: asyncio.AbstractEventLoop, parent: int, on_end: Callable[[], None], poll_s: float) -> None:
    if os.getppid() != parent:
        on_end()
    else:
        loop.call_later(poll_s, _poll_parent, loop, parent, on_end, poll_s)


class ReadyFile:
    """The file of --ready-file. One that an earlier broker has left is removed first. Raises ConfigError."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._unfinished = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.unlink(missing_ok=True)
            self._unfinished.touch()
        except OSError as error:
            raise ConfigError(f"--ready-file {path}: {error.strerror}") from None

    def write(self, broker: Broker) -> None:
        """Write the broker's address: clients may connect. Raises OSError."""
        ready = {
            "bootstrap_servers": broker.bootstrap_servers,
            "port": broker.port,
            "pid": os.getpid(),
            "data_dir": str(broker.data_dir.absolute()),
            "metrics": broker.metrics_address,
        }
        self._unfinished.write_text(json.dumps(ready) + "\n", encoding="utf-8")
        self._unfinished.replace(self._path)  # a reader never sees half of it

    def remove(self) -> None:
        """Remove the file: the broker stops."""
        for path in (self._path, self._unfinished):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def stop_event(lifeline: int | None) -> asyncio.Event:
    """An event that is set by SIGTERM, SIGINT, or the end of the process that holds `lifeline` open.

    A second signal ends the process at once. Nothing is ever written to `lifeline`, a pipe.
    """
    import signal

    loop = asyncio.get_running_loop()
    stop_wanted = asyncio.Event()

    def on_signal() -> None:
        stop_wanted.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    if lifeline is not None:

        def on_end() -> None:
            loop.remove_reader(lifeline)
            stop_wanted.set()

        loop.add_reader(lifeline, on_end)
    return stop_wanted
