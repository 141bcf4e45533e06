"""What of a log is on the disk for sure, and the work of getting more there.

    flush_sealed   after a roll: the sealed segments, by another hand; nobody waits for it
    flush_soon     flush.messages and flush.ms: everything, by another hand; those who appended wait for their
                   acknowledgements meanwhile. One at a time: what comes during it goes with the next (group commit)
    flush          everything, here and now

An fsync that failed is the end: what the disk has is not known any more, so the log takes no more records until a
start has looked at it. Work under way when the log is cut counts for nothing (`begin_anew`).
Source: kafka.log.UnifiedLog.flush, kafka.log.LocalLog (recoveryPoint, markFlushed).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkalite.errors import StorageError
from kafkalite.log.files import Background, Files, SyncFailed, storage_error

if TYPE_CHECKING:
    from kafkalite.log.segment import Segment

logger = logging.getLogger(__name__)


class Flusher:
    """Fields: everything below `recovery_point` is on the disk. `failure` says why the log takes no more records and
    its recovery point stays where it is; None for one in good health. `is_under_way`: a `flush_soon` is.

    `owed` are paths of files and directories that changed and that the next flush must take along.
    """

    __slots__ = (
        "_background", "_directory", "_files", "_handed_out", "_hear", "_name", "_round", "_wall_ms", "failure",
        "is_under_way", "last_flush_ms", "owed", "recovery_point",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        directory: str,
        files: Files,
        background: Background,
        hear: Callable[[], None],
        wall_ms: Callable[[], int],
        recovery_point: int,
        owed: Iterable[str],
    ) -> None:
        """`hear` has the outcomes of slow work told that nobody was told of yet."""
        self.recovery_point = recovery_point
        self.failure: str | None = None
        self.is_under_way = False
        self.last_flush_ms = wall_ms()
        self.owed = dict.fromkeys(owed)
        self._name = name
        self._directory = directory
        self._files = files
        self._background = background
        self._hear = hear
        self._wall_ms = wall_ms
        self._round = 0
        self._handed_out = 0  # up to here the sealed segments were given to be flushed

    def owe(self, *paths: str) -> None:
        """These have changed, or are new."""
        self.owed.update(dict.fromkeys(paths))

    def refuse_if_failed(self) -> None:
        """Raises StorageError."""
        if self.failure is not None:
            raise StorageError(self.failure)

    def begin_anew(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: what flushes under way are going to say no longer holds."""
        self._round += 1
        self._handed_out = 0
        self.recovery_point = min(self.recovery_point, end_offset)

    def unflushed(self, segments: list[Segment]) -> list[Segment]:
        """The sealed ones of `segments` that hold something at or past the recovery point."""
        return segments[_index_of(segments, self.recovery_point) : -1]

    def flush(self, segments: list[Segment], end_offset: int) -> None:
        """Wait until everything appended is on the disk. Raises StorageError."""
        self.last_flush_ms = self._wall_ms()
        self.refuse_if_failed()
        if self.recovery_point >= end_offset and not self.owed:
            return
        job, owed = self._job(segments)
        try:
            job()
        except OSError as error:
            raise self._did_not_flush(error, owed) from error
        self._hear()  # did another hand meet an fsync that failed? Then ours says nothing
        self.refuse_if_failed()
        self.recovery_point = max(self.recovery_point, end_offset)

    def flush_soon(self, segments: list[Segment], end_offset: int, done: Callable[[StorageError | None], None]) -> None:
        """As `flush`, by another hand; `done` is called on the owner's thread when `recovery_point` has moved, or with
        the reason why it has not. There must be none under way."""
        assert not self.is_under_way
        self.last_flush_ms = self._wall_ms()
        job, owed = self._job(segments)
        round_ = self._round
        self.is_under_way = True

        def flushed(error: Exception | None) -> None:
            self.is_under_way = False
            if error is not None:
                fault = error if isinstance(error, OSError) else OSError(str(error))
                done(self._did_not_flush(fault, owed))
                return
            if self.failure is None and round_ == self._round:
                self.recovery_point = max(self.recovery_point, end_offset)
            done(None if self.failure is None else StorageError(self.failure))

        self._background(job, flushed)

    def _job(self, segments: list[Segment]) -> tuple[Callable[[], None], dict[str, None]]:
        """What brings all of `segments` to the disk, and what was owed until now, which it takes along.

        The active segment's indexes are made again after a crash: its batches are enough.
        """
        files = self._files
        active = segments[-1]
        paths = dict.fromkeys(path for segment in self.unflushed(segments) for path in segment.files())
        file = active.file
        if file is None:
            paths[active.path] = None
        owed, self.owed = self.owed, {}
        paths |= owed

        def job() -> None:
            if file is not None:  # and it is held open until here
                files.sync_open(file.fd, file.path)
            files.sync_all(paths)

        return job, owed

    def _did_not_flush(self, error: OSError, owed: dict[str, None]) -> StorageError:
        self.owed = owed | self.owed
        if isinstance(error, SyncFailed):
            self._fail(error)
        if self.failure is not None:
            return StorageError(self.failure)
        return storage_error(f"cannot flush {self._name}", self._directory, error)

    def flush_sealed(self, segments: list[Segment]) -> None:
        """Have the sealed segments brought to the disk by another hand; the recovery point follows when it is done.

        Each job takes only what no earlier one did. After one that failed, those behind it say nothing of the whole:
        they count for nothing, and the next takes everything again.
        """
        upto = segments[-1].base_offset
        round_ = self._round
        first = _index_of(segments, max(self.recovery_point, self._handed_out))
        taken = self.owed | dict.fromkeys(path for segment in segments[first:-1] for path in segment.files())
        self.owed = {}
        self._handed_out = upto

        def flushed(error: Exception | None) -> None:
            if isinstance(error, SyncFailed):
                self._fail(error)
            elif error is not None:
                logger.error("cannot flush %s up to offset %d: %s", self._directory, upto, error)
                self.owed = taken | self.owed
                self._round += 1
                self._handed_out = 0
            elif round_ == self._round:
                self.recovery_point = max(self.recovery_point, upto)

        self._background(lambda: self._files.sync_all(taken), flushed)

    def _fail(self, error: SyncFailed) -> None:
        """Take no more records: what the system could not write it may have forgotten, and nothing tells it again."""
        if self.failure is None:
            fault = storage_error(f"cannot flush {self._name}", self._directory, error)
            self.failure = f"{fault}; it takes no more records until the broker is started again"
            logger.error("%s", self.failure)
        self._round += 1
        self._handed_out = 0


def _index_of(segments: list[Segment], offset: int) -> int:
    """Which segment `offset` belongs to; the first one for what lies before it."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
