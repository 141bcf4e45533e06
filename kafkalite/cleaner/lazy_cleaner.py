"""Creates the log cleaner when a log is compacted, or at its first use.

This saves most starts 10 ms of imports and a timer.
Source: kafka.log.LogManager.startup, which always starts one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.common.names import TopicPartition

if TYPE_CHECKING:
    from kafkalite.cleaner.job.worker_messages import FromWorker
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.cleaner.workers.worker_process import StartWorker, Worker
    from kafkalite.common.clock import Clock, Timer
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.log.directories.log_manager import LogManager

logger = logging.getLogger(__name__)

_BACKOFF_MS_MIN = 100


class LazyLogCleaner:
    """`released` is called with each log whose cleaning has ended. `start_worker` starts a worker; None: a process."""

    def __init__(
        self,
        logs: LogManager,
        config: BrokerConfig,
        clock: Clock,
        released: Callable[[TopicPartition], object],
        start_worker: StartWorker | None = None,
    ) -> None:
        self._logs = logs
        self._config = config
        self._clock = clock
        self._released = released
        self._start_worker: StartWorker = start_worker or _start_process
        self._cleaner: LogCleaner | None = None
        self._timer: Timer | None = None

    @property
    def cleaner(self) -> LogCleaner:
        """Created and started on first access."""
        if self._cleaner is None:
            from kafkalite.cleaner.log_cleaner import LogCleaner

            cleaner = LogCleaner(self._logs, self._config, self._clock, self._start_worker, released=self._released)
            cleaner.start()
            self._cleaner = cleaner
        return self._cleaner

    def start(self) -> None:
        if not self._config.log_cleaner_enable:
            self.cleaner  # noqa: B018  its start warns
        self._schedule_check()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._cleaner is not None:
            await self._cleaner.stop()

    def kill(self) -> None:
        """Kill the worker processes, without waiting for anything."""
        if self._cleaner is not None:
            self._cleaner.kill()

    def reconfigure(self, config: BrokerConfig) -> None:
        self._config = config
        if self._cleaner is not None:
            self._cleaner.reconfigure(config)

    def is_busy(self, key: TopicPartition) -> bool:
        """Whether the log is being cleaned."""
        return self._cleaner is not None and self._cleaner.is_busy(key)

    @property
    def is_at_work(self) -> bool:
        """Whether any log is being cleaned, or a scan is under way."""
        return self._cleaner is not None and self._cleaner.is_at_work

    def _schedule_check(self) -> None:
        delay_ms = max(_BACKOFF_MS_MIN, self._config.log_cleaner_backoff_ms)
        self._timer = self._clock.call_later(delay_ms, self._check)

    def _check(self) -> None:
        """Every back-off, until there is a cleaner, which then schedules its scans itself."""
        if self._cleaner is not None:
            return
        try:
            if any("compact" in log.config.cleanup_policy for log in self._logs.logs.values()):
                self.cleaner.scan()
                return
        except Exception:
            logger.exception("the cleaner cannot start; it is tried again after log.cleaner.backoff.ms")
        self._schedule_check()


def _start_process(on_message: Callable[[FromWorker], None], on_end: Callable[[str], None]) -> Worker:
    """In the running loop. Raises OSError."""
    from kafkalite.cleaner.workers.worker_process import WorkerProcess  # most starts need none

    return WorkerProcess(asyncio.get_running_loop(), on_message, on_end)
