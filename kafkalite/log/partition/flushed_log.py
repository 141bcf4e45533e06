"""How far a log is on the disk, and how far its records count as committed.

    recovery point     everything below it is on the disk for sure (`flusher`)
    committed offset   everything below it is as safe as the topic's settings ask. Without flush.messages an append
                       commits by itself; with it the append waits for the flush that takes it along

One flush by another hand is under way at a time; what came meanwhile goes with the next.
Source: kafka.log.UnifiedLog (flush, maybeFlush); org.apache.kafka.storage.internals.log.LocalLog (recoveryPoint).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalite.common.errors import StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.segment.segment import NEVER, Segment


class FlushedLog:
    """Fields: `end_offset` is the next record's. Everything below `committed_offset` is as safe as the topic's settings
    ask; that is the end, unless flush.messages makes it wait, and then `on_commit` is called when it moves, or with the
    error for which it will not, or when the log was cut.

    Invariant: segments ascend by base offset. `segments` is never changed in place: whoever goes through it sees the
    log as it was. An append that ends at or behind `_flush_at` asks for a flush.
    """

    __slots__ = ("_config", "_flush_at", "committed_offset", "end_offset", "flusher", "on_commit", "segments")

    _config: TopicConfig
    _flush_at: int
    committed_offset: int
    end_offset: int
    flusher: Flusher
    on_commit: Callable[[StorageError | None], object]
    segments: Sequence[Segment]

    @property
    def recovery_point(self) -> int:
        """Everything below it is on the disk for sure."""
        return self.flusher.recovery_point

    @property
    def kept_recovery_point(self) -> int:
        """What the checkpoint is to say of it."""
        return self.flusher.kept_recovery_point

    @property
    def failure(self) -> str | None:
        """Why the log takes no more records; None for one in good health."""
        return self.flusher.failure

    def flush(self) -> None:
        """Wait until everything appended is on the disk. Raises StorageError."""
        end_offset = self.end_offset  # somebody may append while others are told
        self.flusher.flush(self.segments, end_offset)
        self._mark_flushed()
        if self.committed_offset < end_offset:
            self.committed_offset = end_offset
            self.on_commit(None)

    def flush_if_due(self, now_ms: int) -> None:
        """Have another hand flush what is older than flush.ms. Raises StorageError if it is known at once that this
        cannot be; a log that failed for good said so when it did."""
        flusher = self.flusher
        if now_ms - flusher.last_flush_ms < self._config.flush_ms or flusher.failure is not None:
            return
        if self.recovery_point < self.end_offset or flusher.owed:
            self.flush_soon()

    def flush_soon(self) -> None:
        """See to it that everything appended so far is flushed by another hand and committed then.

        Raises StorageError when it is known at once that this has failed.
        """
        self.flusher.refuse_if_failed()
        if self.flusher.is_under_way:
            return  # what it does not take along goes when it has ended
        fault: list[StorageError] = []

        def flushed(error: StorageError | None) -> None:
            if error is not None:
                fault.append(error)
            else:
                self._mark_flushed()
                # not all that was to be flushed, should the log have been cut meanwhile
                self.committed_offset = max(self.committed_offset, min(self.recovery_point, self.end_offset))
                if self.end_offset <= self._flush_at:
                    self.committed_offset = self.end_offset
                else:
                    self._flush_more(fault)
            self.on_commit(fault[0] if fault else None)

        self.flusher.flush_soon(self.segments, self.end_offset, flushed)
        if fault:
            raise fault[0]

    def _flush_more(self, fault: list[StorageError]) -> None:
        """What came during a flush may need one too."""
        try:
            self.flush_soon()
        except StorageError as error:
            fault.append(error)

    def _mark_flushed(self) -> None:
        self._flush_at = min(NEVER, self.recovery_point + self._config.flush_messages - 1)
