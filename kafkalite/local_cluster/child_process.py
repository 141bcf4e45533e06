"""A process of the local cluster, from its start to its end. Its kinds are BrokerProcess and ZooKeeperProcess."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence

logger = logging.getLogger(__name__)


class ChildProcess:
    """Started and stopped by one event loop, as often as wanted. `keep_open` are descriptors that the process holds,
    too, such as the lock on the directory. A process that does not stop within `stop_limit_s` is killed."""

    name: str
    stop_limit_s: float

    def __init__(self, keep_open: Sequence[int] = ()) -> None:
        self._keep_open = tuple(keep_open)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Returns when the process serves. Raises ConfigError, OSError."""
        raise NotImplementedError

    async def ended(self) -> str | None:
        """Waits until the process has ended; returns how. None: in order, after a request to stop."""
        assert self._process is not None
        code = await self._process.wait()
        return None if code == 0 else describe_exit(code)

    async def stop(self) -> None:
        """Stop in order. Does nothing when the process does not run."""
        await self._end(signal.SIGTERM)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        try:
            async with asyncio.timeout(self.stop_limit_s):
                await self._process.wait()
        except TimeoutError:
            limit_s = self.stop_limit_s
            logger.warning("%s (process %d) did not stop within %g s, and is killed", self.name, self.pid, limit_s)
            self.kill()
            await self._process.wait()


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"
