"""Tracks the recovery point and the ack offset of a log, and schedules fsyncs.

    recovery point     everything below it is fsynced
    ack offset         everything below it is as durable as the topic's settings ask. Without flush.messages an append
                       moves it; with flush.messages it follows the fsync that covers the append

    flush_sealed   after a roll: fsyncs the sealed segments in the background; nothing waits for it
    flush_soon     flush.messages and flush.ms: fsyncs everything in the background, while acknowledgements wait. One
                   runs at a time; appends during it are covered by the next one (group commit)
    flush          fsyncs everything before it returns

After a failed fsync the content of the disk is unknown: the log takes no more records until a start has recovered it.
A truncation invalidates the flushes in flight (`lower_to`).
Source: kafka.log.UnifiedLog (flush, maybeFlush), org.apache.kafka.storage.internals.log.LocalLog (recoveryPoint,
markFlushed).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence

from kafkalite.common.errors import StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.log_context import LogContext, LogLocation
from kafkalite.log.recovery.log_loader import LoadedLog
from kafkalite.log.segment.segment import NEVER, Segment
from kafkalite.log.storage.files import Background, Job, SyncFailed

logger = logging.getLogger(__name__)

LogTail = Callable[[], tuple[Sequence[Segment], int]]
"""The segments and the end offset of the log as they are now."""


class Flusher:
    """Fields: everything below `recovery_point` is fsynced. `ack_offset` is the end offset, unless flush.messages holds
    it back. In that case `on_ack(None)` is called when `ack_offset` moves or the log is truncated; `on_ack(error)` is
    called when a flush failed and `ack_offset` does not move. An append that reaches `flush_at` needs a flush.
    `failure` is the reason why the log takes no more records; `on_failure` is called when it is set. `is_under_way`: a
    `flush_soon` runs. The directory entries of the segments that begin at or below `named_point` are fsynced.
    `dirty_paths` are files and directories that changed; the next flush fsyncs them first.

    Invariant: recovery_point <= end offset; ack_offset <= end offset.
    """

    __slots__ = (
        "_background", "_context", "_flush_messages", "_flush_ms", "_handed_out", "_in_flight", "_last_flush_ms",
        "_location", "_on_failure", "_round", "_run_completions", "_sealed_point", "_tail", "_wall_ms", "ack_offset",
        "dirty_paths", "failure", "flush_at", "is_under_way", "named_point", "on_ack", "recovery_point",
    )  # fmt: skip

    def __init__(
        self,
        location: LogLocation,
        tail: LogTail,
        context: LogContext,
        background: Background,
        loaded: LoadedLog,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        active_base = loaded.segments[-1].base_offset
        self.recovery_point = loaded.recovery_point
        self.ack_offset = loaded.end_offset
        self.flush_at = NEVER
        self.on_ack: Callable[[StorageError | None], object] = lambda error: None
        self.failure: str | None = None
        self._on_failure = on_failure
        self.is_under_way = False
        self.dirty_paths = dict.fromkeys(loaded.rewritten)
        self._context = context
        self._location = location
        self._tail = tail
        self._background = background
        self._run_completions = context.run_completions
        self._wall_ms = context.clock.wall_ms
        self._last_flush_ms = self._wall_ms()
        self._flush_messages = self._flush_ms = NEVER
        self._round = 0
        self._handed_out = 0  # the sealed segments below this offset were given to a background flush
        # after an unclean stop it is unknown whether the directory entries were fsynced
        self.named_point = -1 if location.directory in self.dirty_paths else active_base
        self._sealed_point = min(loaded.recovery_point, active_base)  # a start skips segments that end here or below
        self._in_flight: list[dict[str, None]] = []  # the paths of the background jobs that are not over

    def configure(self, config: TopicConfig) -> None:
        """Applies flush.messages and flush.ms."""
        self._flush_messages = config.flush_messages
        self._flush_ms = config.flush_ms
        self._schedule_next()

    def mark_dirty(self, *paths: str) -> None:
        """Adds files and directories that changed, or are new, to those that the next flush fsyncs."""
        self.dirty_paths.update(dict.fromkeys(paths))

    @property
    def kept_recovery_point(self) -> int:
        """The recovery point for the checkpoint file: minus one if it lies in the active segment. A start skips
        segments that end at or below it, and must check this one, whose indexes are fsynced only after its roll."""
        point = self.recovery_point
        return point if point <= self._sealed_point else point - 1

    def refuse_if_failed(self) -> None:
        """Raises StorageError after a failed fsync."""
        if self.failure is not None:
            raise StorageError(self.failure)

    def on_append(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: moves the ack offset, or flushes first. Raises StorageError."""
        if end_offset > self.flush_at:
            self.flush_soon()
        else:
            self.ack_offset = end_offset

    def lower_to(self, end_offset: int) -> None:
        """The log is being truncated: lowers all offsets to `end_offset` at most, and invalidates the flushes in
        flight. Afterwards the owner of the log calls `on_ack(None)`."""
        self._start_round()
        self.recovery_point = min(self.recovery_point, end_offset)
        self._sealed_point = min(self._sealed_point, end_offset)
        self.named_point = min(self.named_point, end_offset)
        self.ack_offset = min(self.ack_offset, end_offset)
        self._schedule_next()

    def restart_at(self, offset: int) -> None:
        """As `lower_to`: the log is empty now, on the disk as well, and begins at `offset`."""
        self._start_round()
        self.recovery_point = self.ack_offset = self.named_point = self._sealed_point = offset
        self._schedule_next()

    def stop(self, fault: StorageError) -> StorageError:
        """Makes the log refuse records until the next start has recovered it, because memory and disk do not agree.
        Returns the error for the caller to raise."""
        if self.failure is None:
            self.failure = f"{fault}; it takes no more records until the broker is started again"
            logger.error("%s", self.failure)
            self._on_failure()
            self._context.on_failure(self._location.key)
        self._start_round()
        return StorageError(self.failure)

    def unflushed(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """The sealed segments with offsets at or past the recovery point."""
        return segments[_index_of(segments, self.recovery_point) : -1]

    # everything

    def flush(self) -> None:
        """Fsyncs everything appended before it returns. Raises StorageError."""
        self._last_flush_ms = self._wall_ms()
        self.refuse_if_failed()
        segments, end_offset = self._tail()  # `run_completions` may let an append in
        if self.recovery_point < end_offset or self.dirty_paths:
            job, dirty = self._job(segments, *self._in_flight)
            try:
                job()
            except OSError as error:
                raise self._flush_error(error, dirty) from error
            self._run_completions()  # a background job whose fsync failed makes the success of this one void
            self.refuse_if_failed()
            self._advance(end_offset, segments[-1].base_offset)
        self._schedule_next()
        if self.ack_offset < end_offset:
            self.ack_offset = end_offset
            self.on_ack(None)

    def flush_if_due(self, now_ms: int) -> None:
        """Starts a background flush if the last one began flush.ms ago. Raises StorageError if it fails at once. Does
        nothing if an earlier fsync failed, which has been reported then."""
        if now_ms - self._last_flush_ms < self._flush_ms or self.failure is not None:
            return
        if self.recovery_point < self._tail()[1] or self.dirty_paths:
            self.flush_soon()

    def flush_soon(self) -> None:
        """Fsyncs everything appended so far in the background, then moves the ack offset and calls `on_ack`.

        Does nothing while another one is in flight, which starts the next one if needed. Raises StorageError if it
        fails at once.
        """
        self.refuse_if_failed()
        if self.is_under_way:
            return
        self._last_flush_ms = self._wall_ms()
        segments, end_offset = self._tail()
        job, dirty = self._job(segments)
        round_ = self._round
        sealed_point = segments[-1].base_offset
        self.is_under_way = True
        self._in_flight.append(dirty)
        faults: list[StorageError] = []

        def flushed(error: Exception | None) -> None:
            self.is_under_way = False
            self._in_flight.remove(dirty)
            if error is not None:
                faults.append(self._flush_error(_as_os_error(error), dirty))
            elif self.failure is not None:
                faults.append(StorageError(self.failure))
            else:
                if round_ == self._round:
                    self._advance(end_offset, sealed_point)
                self._acknowledge(faults)
            self.on_ack(faults[0] if faults else None)

        self._background(job, flushed)
        if faults:
            raise faults[0]

    def _acknowledge(self, faults: list[StorageError]) -> None:
        """Moves the ack offset as far as flush.messages allows; starts the next flush if one is needed."""
        self._schedule_next()
        end_offset = self._tail()[1]
        self.ack_offset = max(self.ack_offset, self.recovery_point)
        if end_offset <= self.flush_at:
            self.ack_offset = end_offset
            return
        try:
            self.flush_soon()
        except StorageError as error:
            faults.append(error)

    def _schedule_next(self) -> None:
        self.flush_at = min(NEVER, self.recovery_point + self._flush_messages - 1)

    def _job(self, segments: Sequence[Segment], *in_flight: dict[str, None]) -> tuple[Job, dict[str, None]]:
        """A job that fsyncs all of `segments`, and the dirty paths that it covers. It also fsyncs the paths of the jobs
        `in_flight`, which may still fail.

        Directory entries come first, then the sealed segments, then the active one, so that a crash leaves no gap. The
        indexes of the active segment are left out: recovery rebuilds them from its batches.
        """
        files = self._location.files
        active = segments[-1]
        dirty, self.dirty_paths = self.dirty_paths, {}
        paths = dirty.copy()
        for others in in_flight:
            paths |= others
        paths |= dict.fromkeys(path for segment in self.unflushed(segments) for path in segment.files.paths())
        file = active.file
        if file is None:
            paths[active.path] = None

        def job() -> None:
            files.sync_all(paths)
            if file is not None:  # the closure keeps it open
                files.sync_open(file.fd, file.path)

        return job, dirty

    def _flush_error(self, error: OSError, dirty: dict[str, None]) -> StorageError:
        self.dirty_paths = dirty | self.dirty_paths
        if isinstance(error, SyncFailed):
            self._fail(error)
        if self.failure is not None:
            return StorageError(self.failure)
        return self._location.refusal(f"cannot flush {self._location.name}", error)

    # parts

    def flush_sealed(self, segments: Sequence[Segment]) -> None:
        """Fsyncs the sealed segments in the background, then moves the recovery point.

        A job covers only segments that no earlier job covers. If a job fails, the results of the jobs after it are
        discarded, since earlier segments may not be fsynced; the next job covers everything again.
        """
        upto = segments[-1].base_offset
        round_ = self._round
        first = _index_of(segments, max(self.recovery_point, self._handed_out))
        paths = self.dirty_paths | dict.fromkeys(
            path for segment in segments[first:-1] for path in segment.files.paths()
        )
        self.dirty_paths = {}
        self._handed_out = upto
        self._in_flight.append(paths)

        def flushed(error: Exception | None) -> None:
            self._in_flight.remove(paths)
            if isinstance(error, SyncFailed):
                self._fail(error)
            elif error is not None:
                location = self._location
                if isinstance(error, OSError):
                    location.files.on_io_error(location.directory, error)
                logger.error("cannot flush %s up to offset %d: %s", location.directory, upto, error)
                self.dirty_paths = paths | self.dirty_paths
                self._start_round()
            elif round_ == self._round:
                self._advance(upto, upto)

        self._background(lambda: self._location.files.sync_all(paths), flushed)
        self._schedule_next()

    def sync_names(self, done: Callable[[StorageError | None], None], tidy: Callable[[], None] | None = None) -> None:
        """Fsyncs the log's directory in the background, after `tidy`."""

        def synced(error: Exception | None) -> None:
            if isinstance(error, SyncFailed):
                self._fail(error)
            if error is not None and self.failure is None:
                done(self._location.refusal(f"cannot flush {self._location.name}", _as_os_error(error)))
            else:
                done(None if self.failure is None else StorageError(self.failure))

        def sync() -> None:
            if tidy is not None:
                tidy()
            self._location.files.sync(self._location.directory)

        self._background(sync, synced)

    def _advance(self, recovery_point: int, sealed_point: int) -> None:
        self.recovery_point = max(self.recovery_point, recovery_point)
        self._sealed_point = max(self._sealed_point, sealed_point)
        self.named_point = max(self.named_point, sealed_point)

    def _start_round(self) -> None:
        self._round += 1
        self._handed_out = 0

    def _fail(self, error: SyncFailed) -> None:
        """Makes the log refuse records from now on: the kernel may have dropped the pages that it could not write, and
        a later fsync does not report that."""
        self.stop(self._location.refusal(f"cannot flush {self._location.name}", error))


def _as_os_error(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else OSError(str(error))


def _index_of(segments: Sequence[Segment], offset: int) -> int:
    """The index of the segment that `offset` belongs to; 0 for an offset before the first one."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
