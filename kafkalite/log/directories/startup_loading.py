"""Opening all logs at start: those of an orderly stop here and now, the others on threads, with a word on the way.

After an orderly stop a log costs 70 us and no look into its files, so threads would only be in the way. After another
one everything above the recovery points is read, and each directory has num.recovery.threads.per.data.dir hands for
it: reading and checksums run outside the interpreter's lock. Who waits is told every few seconds how far it is. In a
start that takes long, a log that took some reading is brought to the disk at once and the checkpoints say so: should
the start be killed, the next one need not read that log again.
Source: kafka.log.LogManager.loadLogs (KAFKA-10471, KIP-831).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from kafkalite.common.errors import StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.directories.offset_checkpoints import LogOffsets
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.storage.files import is_full

logger = logging.getLogger(__name__)

TELL_EVERY_S = 5.0
_WORTH_A_SYNC_BYTES = 1 << 20  # to read less again is quicker than to have the disk sync the files of a log


class Found(NamedTuple):
    """A log that is to be opened."""

    directory: LogDirectory
    key: TopicPartition
    config: TopicConfig
    options: LoadOptions


class _Stopped(Exception):
    """Nobody waits for this any more."""


class Loading:
    """One start. Every log that was opened stands in its directory's `logs` afterwards; a directory whose disk failed
    meanwhile is handed to `fail` with the reason."""

    def __init__(
        self,
        found: Sequence[Found],
        checkpoints: dict[str, LogOffsets],
        services: LogContext,
        threads_per_directory: int,
        fail: Callable[[LogDirectory, OSError], None],
        tell_every_s: float = TELL_EVERY_S,
    ) -> None:
        self._found = found
        self._checkpoints = checkpoints
        self._services = services
        self._threads = threads_per_directory
        self._fail = fail
        self._tell_every_s = tell_every_s
        self._began_s = time.monotonic()
        self._is_stopped = False
        self._sizes: list[int] = []  # of what was read again; threads only append, here and to `_done`
        self._done: deque[tuple[Found, PartitionLog | StorageError]] = deque()  # what became of logs, to be settled

    @property
    def read_bytes(self) -> int:
        """What had to be read again so far."""
        return sum(self._sizes)

    async def run(self) -> None:
        """Raises StorageError for a log that cannot be opened although its disk works."""
        unclean = [one for one in self._found if not one.options.clean]
        for one in self._found:
            if one.options.clean and one.directory.is_online:
                self._settle(one, self._open_here(one))
        if unclean:
            await self._recover(unclean)

    def _open_here(self, one: Found) -> PartitionLog | StorageError:
        try:
            return self._open(one)
        except StorageError as error:
            return error

    def _open(self, one: Found) -> PartitionLog:
        topic, partition = one.key
        path = one.directory.log_path(one.key)
        return PartitionLog.open(topic, partition, path, one.config, one.options, self._services)

    def _settle(self, one: Found, outcome: PartitionLog | StorageError) -> None:
        """On the owner's thread: what became of one log."""
        directory = one.directory
        if isinstance(outcome, PartitionLog):
            if directory.is_online:
                directory.logs[one.key] = outcome
            else:
                outcome.abandon()
            return
        if not _is_of_the_disk(outcome, directory):
            raise outcome
        if directory.is_online:
            assert isinstance(outcome.__cause__, OSError)
            self._fail(directory, outcome.__cause__)

    # after a stop that was not orderly

    async def _recover(self, unclean: list[Found]) -> None:
        """Each directory's hands take from its line. The owner's thread is not woken for every single log."""
        lines: dict[str, deque[Found]] = {}
        for one in unclean:
            lines.setdefault(one.directory.path, deque()).append(one)
        pools = [ThreadPoolExecutor(self._threads, thread_name_prefix="kafkalite-recovery") for _ in lines]
        hands: set[asyncio.Future[None]] = set()
        try:
            for pool, line in zip(pools, lines.values(), strict=True):
                for _ in range(self._threads):
                    hand = asyncio.wrap_future(pool.submit(self._recover_all, line))
                    hand.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # seen in any case
                    hands.add(hand)
            await self._see_through(hands, unclean)
        finally:
            self._is_stopped = True  # and those that are under way end at the next segment
            for pool in pools:
                pool.shutdown(cancel_futures=True)

    async def _see_through(self, hands: set[asyncio.Future[None]], unclean: list[Found]) -> None:
        count = 0
        while hands:
            ended, hands = await asyncio.wait(hands, timeout=self._tell_every_s, return_when=asyncio.FIRST_EXCEPTION)
            while self._done:
                count += 1
                self._settle(*self._done.popleft())
            for hand in ended:
                hand.result()
            if hands:
                logger.info(
                    "recovering after an unclean stop: %d of %d logs done, %.1f MiB read so far",
                    count,
                    len(unclean),
                    self.read_bytes / (1 << 20),
                )
                self._write_down({one.directory.path: one.directory for one in unclean})

    def _recover_all(self, line: deque[Found]) -> None:
        """On a thread, beside others that take from the same line."""
        while True:
            try:
                one = line.popleft()
            except IndexError:
                return
            self._done.append((one, self._recover_one(one)))

    def _recover_one(self, one: Found) -> PartitionLog | StorageError:
        """On a thread. An error of the disk is returned; any other ends the start."""
        if self._is_stopped:
            raise _Stopped
        sizes: list[int] = []

        def on_read(size_bytes: int) -> None:
            sizes.append(size_bytes)
            self._sizes.append(size_bytes)
            if self._is_stopped:
                raise _Stopped

        try:
            log = self._open(one._replace(options=one.options._replace(on_segment_read=on_read)))
        except StorageError as error:
            if _is_of_the_disk(error, one.directory):
                return error
            raise
        if sum(sizes) >= _WORTH_A_SYNC_BYTES and time.monotonic() - self._began_s > self._tell_every_s:
            try:
                log.flush()
            except StorageError as error:
                if _is_of_the_disk(error, one.directory):
                    log.abandon()
                    return error
                logger.warning("%s", error)
        return log

    def _write_down(self, directories: dict[str, LogDirectory]) -> None:
        """Move the recovery points of the logs that are done; all else stays as it was found."""
        for path, directory in directories.items():
            before = self._checkpoints[path]
            if directory.is_online and directory.logs:
                points = dict(before.recovery_points) | directory.recovery_points()
                try:
                    directory.checkpoints.write(before._replace(recovery_points=points))
                except OSError as error:
                    logger.warning("cannot write down how far the recovery of %s is: %s", path, error)


def _is_of_the_disk(error: StorageError, directory: LogDirectory) -> bool:
    """Here a full disk is as bad as a failed one: what cannot be recovered cannot be served."""
    cause = error.__cause__
    return isinstance(cause, OSError) and (is_full(cause) or directory.is_failed_by(cause))
