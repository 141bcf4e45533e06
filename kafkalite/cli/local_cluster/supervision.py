"""Restarts of processes that die: at once, unless they die again and again.

A process is restarted without a pause as long as it has died fewer than RESTARTS_MAX times within RESTARTS_S; beyond
that, and when it does not even start, the pauses double up to PAUSE_S_MAX.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from kafkalite.cli.local_cluster.broker_process import ChildProcess
from kafkalite.common.errors import ConfigError

logger = logging.getLogger(__name__)

RESTARTS_MAX, RESTARTS_S = 10, 60.0
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 30.0


class RestartPauses:
    """The pause before each restart of one process. Pure."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=RESTARTS_MAX)
        self._pause_s = PAUSE_S_MIN

    def after_death(self, now_s: float) -> float:
        """The process had served, and has died."""
        is_often = len(self._deaths) == RESTARTS_MAX and now_s - self._deaths[0] < RESTARTS_S
        self._deaths.append(now_s)
        if is_often:
            return self.after_failed_start()
        self._pause_s = PAUSE_S_MIN
        return 0.0

    def after_failed_start(self) -> float:
        pause_s = self._pause_s
        self._pause_s = min(PAUSE_S_MAX, 2 * pause_s)
        return pause_s


class Supervisor:
    """Keeps one process running. `is_up`: it serves. `restarts`: how often it was started again."""

    def __init__(self, process: ChildProcess, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.process = process
        self.is_up = True
        self.restarts = 0
        self._monotonic_s = monotonic_s
        self._pauses = RestartPauses()
        self._wanted: asyncio.Future[None] | None = None  # a restart in order, until the process serves again

    async def run(self) -> None:
        """Restart the process, which has been started, whenever it dies. Returns when it has ended in order, unless
        that was for a restart."""
        try:
            while True:
                pid = self.process.pid
                how = await self.process.ended()
                self.is_up = False
                if how is None and self._wanted is None:
                    return
                pause_s = 0.0 if how is None else self._pauses.after_death(self._monotonic_s())
                await self._restart(how or "has stopped", pid, pause_s, logging.INFO if how is None else logging.ERROR)
                self.is_up = True
                self.restarts += 1
                if self._wanted is not None:
                    self._wanted.set_result(None)
                    self._wanted = None
        finally:
            if self._wanted is not None:
                self._wanted.cancel()

    async def restart(self) -> None:
        """Stop the process in order and start it again; returns when it serves. Does nothing while it is down."""
        if not self.is_up or self._wanted is not None:
            return
        wanted = self._wanted = asyncio.get_running_loop().create_future()
        await self.process.stop()
        await asyncio.wait({wanted})

    async def _restart(self, how: str, pid: int, pause_s: float, level: int) -> None:
        process = self.process
        while True:
            when = f"in {pause_s:g} s" if pause_s else "at once"
            logger.log(level, "%s (process %d) %s; it is restarted %s", process.name, pid, how, when)
            await asyncio.sleep(pause_s)
            try:
                await process.start()
            except (ConfigError, OSError) as error:
                how, pid, level = f"could not start: {error}", process.pid, logging.ERROR
                pause_s = self._pauses.after_failed_start()
                continue
            logger.info("%s (process %d) serves again", process.name, process.pid)
            return
