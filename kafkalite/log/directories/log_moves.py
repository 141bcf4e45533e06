"""Moves logs to other directories of this broker, while they are served (KIP-113).

A copy, <topic>-<partition>.<uuid>-future, gets the batches as they are, as a follower does, piece by piece. When it has
all of them, and they are on the disk, it takes the place of the log in one turn of the loop: the old directory is
renamed to <topic>-<partition>.<uuid>-delete, the copy gets its name. A broker that dies in between finds the two names
with the same uuid, and completes the move (`LogDirectories.list_logs`); one that dies earlier begins the copy again.
Compaction leaves a log alone that is on the move: a copy with records that were removed meanwhile, but without the
tombstone that had removed them, would bring them back.
Source: kafka.server.ReplicaAlterLogDirsThread, kafka.log.LogManager (replaceCurrentWithFutureLog),
kafka.cluster.Partition (maybeReplaceCurrentWithFutureReplica).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping

from kafkalite.common.clock import Clock, TimerGroup
from kafkalite.common.errors import KafkaError, StorageError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import ZERO_UUID, TopicPartition
from kafkalite.common.region import FileRegion
from kafkalite.log.directories.log_directory import LogDirectory
from kafkalite.log.directories.offset_checkpoints import LogOffsets
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.log_creation import create_log
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.segment.segment import NEVER
from kafkalite.log.storage.files import Background

logger = logging.getLogger(__name__)

_PIECE_BYTES = 256 * 1024  # of which the append takes the loop for about half a millisecond
_LAST_BYTES = 64 * 1024  # are copied in the loop, all at once
_BUSY_PAUSE_MS = 100


class CopyingLog(NamedTuple):
    """A copy in progress: its directory, its size, and how many offsets it lacks."""

    directory: LogDirectory
    size_bytes: int
    offset_lag: int


class _Move:
    """One move. `copy` is None until the cleaner has left the log alone. `is_flushed`: most is on disk."""

    def __init__(self, key: TopicPartition, log: PartitionLog, source: LogDirectory, target: LogDirectory) -> None:
        self.key = key
        self.log = log
        self.source = source
        self.target = target
        self.name = target.partitions.new_future(key)
        self.copy: PartitionLog | None = None
        self.is_flushed = False
        self.is_over = False

    @property
    def path(self) -> str:
        return self.target.path_of(self.name)


class LogMoves:
    """The moves of a broker. Logs `being_cleaned` wait. Fields: `rate` are the bytes per
    second of all moves together, `at_once` the number of them; the others wait."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        directory_of: dict[TopicPartition, LogDirectory],
        being_cleaned: Collection[TopicPartition],
        context: LogContext,
        clock: Clock,
        background: Callable[[], Background],
        write_soon: Callable[[LogDirectory], None],
    ) -> None:
        self.rate = NEVER
        self.at_once = 1
        self._logs = logs
        self._directory_of = directory_of
        self._being_cleaned = being_cleaned
        # a copy has no checkpoints, and its failure is not that of the log
        self._context = LogContext(
            clock, context.serial_queue, context.files, context.producer_expiration_ms, context.run_completions,
            record_validation=context.record_validation,
        )  # fmt: skip
        self._clock = clock
        self._timers = TimerGroup(clock)
        self._background = background
        self._write_soon = write_soon
        self._moves: dict[TopicPartition, _Move] = {}
        self._waiting: dict[TopicPartition, LogDirectory] = {}
        self._next_ms = 0.0  # when the next piece may be read

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._moves

    def target_of(self, key: TopicPartition) -> LogDirectory | None:
        """The directory that a log moves to."""
        move = self._moves.get(key)
        return self._waiting.get(key) if move is None else move.target

    def copies(self) -> Mapping[TopicPartition, CopyingLog]:
        """The copies as they are now."""
        return {
            key: CopyingLog(move.target, move.copy.size_bytes, max(0, move.log.end_offset - move.copy.end_offset))
            for key, move in self._moves.items()
            if move.copy is not None
        }

    def begin(self, key: TopicPartition, target: LogDirectory) -> None:
        """Moves a log, which is another way than before if it is on the move already. To the directory where it is:
        it stays."""
        if self.target_of(key) is target:
            return
        self.cancel(key)
        if self._directory_of[key] is not target:
            self._waiting[key] = target
            self._begin_next()

    def begin_unfinished(self, online: Iterable[LogDirectory]) -> None:
        """Deletes unfinished copies of an earlier run, and begins them again."""
        for directory in online:
            for key in directory.partitions.unfinished:
                if key in self._logs:
                    try:
                        paths = directory.partitions.rename_futures(key)
                    except OSError as error:
                        directory.on_io_error(error)
                        continue
                    for path in paths:
                        directory.partitions.remove_later(path, 0)
                    self.begin(key, directory)

    def cancel(self, key: TopicPartition) -> None:
        """Ends the move of a log, if there is one, and removes the copy."""
        self._waiting.pop(key, None)
        move = self._moves.get(key)
        if move is not None:
            self._end(move)

    def close(self) -> None:
        """Leaves all copies as they are; the next start begins them again."""
        self._waiting.clear()
        self._timers.cancel()
        for move in self._moves.values():
            move.is_over = True
            if move.copy is not None:
                move.copy.abandon()
        self._moves.clear()

    # one move

    def _begin_next(self) -> None:
        for key in list(self._waiting):
            if len(self._moves) >= self.at_once:
                return
            target, log = self._waiting.pop(key), self._logs.get(key)
            if log is None or not target.is_online:
                continue
            move = self._moves[key] = _Move(key, log, self._directory_of[key], target)
            logger.info("%s-%d is on the move from %s to %s", *key, move.source.path, target.path)
            self._timers.call_later(0, lambda move=move: self._continue(move))  # type: ignore[misc]

    def _continue(self, move: _Move) -> None:
        """The next step, in a turn of its own."""
        if move.is_over:
            return
        if self._logs.get(move.key) is not move.log or not move.target.is_online:
            self._end(move)  # it was deleted, or one of the disks has failed
            return
        try:
            self._step(move)
        except (KafkaError, OSError) as error:  # among them StorageError
            self._give_up(move, error)

    def _step(self, move: _Move) -> None:
        if move.copy is None:
            if move.key in self._being_cleaned:
                self._timers.call_later(_BUSY_PAUSE_MS, lambda: self._continue(move))
                return
            move.copy = self._create(move)
        log, copy = move.log, move.copy
        if log.truncated_to < copy.end_offset:
            copy.truncate_to(log.truncated_to)
        log.truncated_to = NEVER
        region = self._remaining(move, copy)
        if region is not None and move.is_flushed and region.size < _LAST_BYTES:
            self._append(move, region.read())  # without another turn, in which there might come more
            region = self._remaining(move, copy)
        if region is not None:
            self._read(move, region)
        elif not move.is_flushed:
            self._flush(move, copy)
        else:
            self._replace_log(move, copy)

    @staticmethod
    def _remaining(move: _Move, copy: PartitionLog) -> FileRegion | None:
        log = move.log
        return log.read(max(copy.end_offset, log.start_offset), _PIECE_BYTES, log.end_offset)

    def _create(self, move: _Move) -> PartitionLog:
        move.log.truncated_to = NEVER
        log = move.log
        copy = create_log(*move.key, move.path, log.metadata.topic_id or ZERO_UUID, log.config, self._context)
        if log.metadata.topic_id is None:  # from before topic ids
            self._context.files.unlink_if_exists(copy.metadata.path)
        return copy

    def _read(self, move: _Move, region: FileRegion) -> None:
        """Reads the piece on another thread: the disk may take its time."""
        found: list[bytes] = []

        def done(error: Exception | None) -> None:
            if move.is_over:
                return
            if error is not None:
                self._give_up(move, error)
                return
            now_ms = self._clock.monotonic_ms()
            self._next_ms = max(self._next_ms, now_ms) + len(found[0]) * 1000 / self.rate
            try:
                self._append(move, found[0])
            except (KafkaError, OSError) as fault:
                self._give_up(move, fault)
                return
            self._timers.call_later(max(0.0, self._next_ms - now_ms), lambda: self._continue(move))

        self._background()(lambda: found.append(region.read()), done)

    def _append(self, move: _Move, data: bytes) -> None:
        log, copy = move.log, move.copy
        assert copy is not None
        if log.truncated_to < NEVER or self._logs.get(move.key) is not log or len(data) < 8:
            return  # read again: the log may have another one by now
        base_offset = int.from_bytes(data[:8], "big")
        if not copy.size_bytes or copy.end_offset < log.start_offset:
            start_offset = min(base_offset, log.start_offset)
            if copy.end_offset != start_offset:
                copy.restart_at(start_offset)
        copy.append_as_follower(memoryview(data), self._clock.wall_ms())

    def _flush(self, move: _Move, copy: PartitionLog) -> None:
        """Fsyncs the present records on another thread, so that little is left for the loop."""
        move.is_flushed = True
        copy.flusher.on_ack = lambda error: None
        copy.flusher.flush_soon()
        copy.segment_list.background(lambda: None, lambda error: self._continue(move))

    # the end

    def _replace_log(self, move: _Move, copy: PartitionLog) -> None:
        """In this turn. Until the first rename an error leaves the log where it is."""
        key, log, source, target = move.key, move.log, move.source, move.target
        copy.config = log.config
        if not copy.size_bytes:
            copy.restart_at(log.end_offset)
        elif copy.end_offset < log.end_offset:  # the last records are gone: only the name of a segment says the end
            copy.segment_list.roll(log.end_offset, self._clock.wall_ms())
            copy.end_offset = log.end_offset
        copy.delete_records_before(log.start_offset)
        copy.close()
        self._write_checkpoints(move, copy)
        old_path = source.partitions.replace(key, move.name)
        try:
            target.partitions.put_future(move.name, key)
        except OSError:
            source.partitions.restore(os.path.basename(old_path), key)
            raise
        log.reopen(target.partitions.log_path(key))
        del source.logs[key], self._moves[key]
        target.logs[key] = log
        self._directory_of[key] = target
        move.is_over = True
        self._write_soon(source)
        source.partitions.remove_later(old_path, log.config.file_delete_delay_ms)
        logger.info("%s-%d has moved from %s to %s", *key, source.path, target.path)
        self._begin_next()

    def _write_checkpoints(self, move: _Move, copy: PartitionLog) -> None:
        """The target's, with the log, before it is there: its start offset may stand nowhere else. Raises OSError."""
        key, log, target = move.key, move.log, move.target
        cleaned_to = move.source.checkpoints.cleaner_offsets.get(key)
        if cleaned_to is not None:
            job, written = target.checkpoints.write_cleaner_offset_later(key, cleaned_to)
            job()
            written(None)
        points = target.recovery_points()
        points[key] = copy.end_offset
        offsets = target.offsets(points)
        high_watermark = min(log.end_offset, log.replicated_offset)
        starts, high_watermarks = dict(offsets.log_starts), dict(offsets.high_watermarks)
        starts[key], high_watermarks[key] = log.start_offset, high_watermark
        target.checkpoints.write(LogOffsets(points, starts, high_watermarks))

    def _give_up(self, move: _Move, error: Exception) -> None:
        places = move.source.path, move.target.path
        logger.error("%s-%d stays in %s, and is not moved to %s: %s", *move.key, *places, error)
        cause = error.__cause__ if isinstance(error, StorageError) else error
        self._end(move)
        if isinstance(cause, OSError):
            move.target.on_io_error(cause)

    def _end(self, move: _Move) -> None:
        move.is_over = True
        if self._moves.get(move.key) is move:
            del self._moves[move.key]
        if move.copy is not None:
            move.copy.abandon()
        if move.target.is_online:
            try:
                for path in move.target.partitions.rename_futures(move.key):
                    move.target.partitions.remove_later(path, 0)
            except OSError as error:
                logger.warning("cannot remove %s: %s; the next start tries again", move.path, error)
        self._begin_next()
