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

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kafkalite.common.errors import StorageError
from kafkalite.log.storage.file_names import FAILED_SYNC
from kafkalite.log.storage.files import Background, Files, SyncFailed

if TYPE_CHECKING:
    from kafkalite.log.segment.segment import Segment

logger = logging.getLogger(__name__)


class Flusher:
    """Fields: everything below `recovery_point` is on the disk. `failure` says why the log takes no more records and
    its recovery point stays where it is; None for one in good health. `on_failure` is called when that ends.
    `is_under_way`: a `flush_soon` is. Segments that begin at or before `named_point` have their names on the disk.

    `owed` are paths of files and directories that changed and that the next flush must take along.
    """

    __slots__ = (
        "_background", "_directory", "_files", "_handed_out", "_hear", "_name", "_round", "_sealed_point", "_taken",
        "_wall_ms", "failure", "is_under_way", "last_flush_ms", "named_point", "on_failure", "owed", "recovery_point",
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
        active_base: int,
        owed: Iterable[str],
    ) -> None:
        """`active_base` is where the active segment begins. `hear` has the outcomes of slow work told that nobody was
        told of yet."""
        self.recovery_point = recovery_point
        self.failure: str | None = None
        self.on_failure: Callable[[], None] = _nobody
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
        # after an unclean stop nobody knows whether anyone waited for the names
        self.named_point = -1 if directory in self.owed else active_base
        self._sealed_point = min(recovery_point, active_base)  # segments that end here or before need no look at start
        self._taken: list[dict[str, None]] = []  # what jobs that nobody has heard of yet bring to the disk

    def owe(self, *paths: str) -> None:
        """These have changed, or are new."""
        self.owed.update(dict.fromkeys(paths))

    @property
    def kept_recovery_point(self) -> int:
        """What the checkpoint is to say. A start does not look at segments that end there or before, so one behind it
        for an active segment: when it is rolled its indexes are not on the disk yet."""
        point = self.recovery_point
        return point if point <= self._sealed_point else point - 1

    def refuse_if_failed(self) -> None:
        """Raises StorageError."""
        if self.failure is not None:
            raise StorageError(self.failure)

    def begin_anew(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: what flushes under way are going to say no longer holds."""
        self._round += 1
        self._handed_out = 0
        self.recovery_point = min(self.recovery_point, end_offset)
        self._sealed_point = min(self._sealed_point, end_offset)
        self.named_point = min(self.named_point, end_offset)

    def unflushed(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """The sealed ones of `segments` that hold something at or past the recovery point."""
        return segments[_index_of(segments, self.recovery_point) : -1]

    def flush(self, segments: Sequence[Segment], end_offset: int) -> None:
        """Wait until everything appended is on the disk. Raises StorageError."""
        self.last_flush_ms = self._wall_ms()
        self.refuse_if_failed()
        if self.recovery_point >= end_offset and not self.owed:
            return
        job, owed = self._job(segments, *self._taken)
        try:
            job()
        except OSError as error:
            raise self._did_not_flush(error, owed) from error
        self._hear()  # did another hand meet an fsync that failed? Then ours says nothing
        self.refuse_if_failed()
        self._reached(end_offset, segments[-1].base_offset)

    def flush_soon(
        self, segments: Sequence[Segment], end_offset: int, done: Callable[[StorageError | None], None]
    ) -> None:
        """As `flush`, by another hand; `done` is called on the owner's thread when `recovery_point` has moved, or with
        the reason why it has not. There must be none under way."""
        assert not self.is_under_way
        self.last_flush_ms = self._wall_ms()
        job, owed = self._job(segments)
        round_ = self._round
        sealed_point = segments[-1].base_offset
        self.is_under_way = True
        self._taken.append(owed)

        def flushed(error: Exception | None) -> None:
            self.is_under_way = False
            self._taken.remove(owed)
            if error is not None:
                fault = error if isinstance(error, OSError) else OSError(str(error))
                done(self._did_not_flush(fault, owed))
                return
            if self.failure is None and round_ == self._round:
                self._reached(end_offset, sealed_point)
            done(None if self.failure is None else StorageError(self.failure))

        self._background(job, flushed)

    def _job(self, segments: Sequence[Segment], *taken: dict[str, None]) -> tuple[Callable[[], None], dict[str, None]]:
        """What brings all of `segments` to the disk, and what was owed until now, which it takes along. With `taken`
        it does not rely on the jobs that were to bring that.

        First the names, then the sealed segments, the active one last: whatever a crash leaves has no hole. The active
        one's indexes are made again after a crash: its batches are enough.
        """
        files = self._files
        active = segments[-1]
        owed, self.owed = self.owed, {}
        paths = owed.copy()
        for others in taken:
            paths |= others
        paths |= dict.fromkeys(path for segment in self.unflushed(segments) for path in segment.files())
        file = active.file
        if file is None:
            paths[active.path] = None

        def job() -> None:
            files.sync_all(paths)
            if file is not None:  # and it is held open until here
                files.sync_open(file.fd, file.path)

        return job, owed

    def _did_not_flush(self, error: OSError, owed: dict[str, None]) -> StorageError:
        self.owed = owed | self.owed
        if isinstance(error, SyncFailed):
            self._fail(error)
        if self.failure is not None:
            return StorageError(self.failure)
        return self._files.report_io_error(f"cannot flush {self._name}", self._directory, error)

    def flush_sealed(self, segments: Sequence[Segment]) -> None:
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
        self._taken.append(taken)

        def flushed(error: Exception | None) -> None:
            self._taken.remove(taken)
            if isinstance(error, SyncFailed):
                self._fail(error)
            elif error is not None:
                if isinstance(error, OSError):
                    self._files.on_io_error(self._directory, error)
                logger.error("cannot flush %s up to offset %d: %s", self._directory, upto, error)
                self.owed = taken | self.owed
                self._round += 1
                self._handed_out = 0
            elif round_ == self._round:
                self._reached(upto, upto)

        self._background(lambda: self._files.sync_all(taken), flushed)

    def sync_names(self, done: Callable[[StorageError | None], None], tidy: Callable[[], None] | None = None) -> None:
        """Have another hand wait until all names in the directory as it is now are on the disk; `tidy` comes first."""

        def synced(error: Exception | None) -> None:
            if isinstance(error, SyncFailed):
                self._fail(error)
            if error is not None and self.failure is None:
                fault = error if isinstance(error, OSError) else OSError(str(error))
                done(self._files.report_io_error(f"cannot flush {self._name}", self._directory, fault))
            else:
                done(None if self.failure is None else StorageError(self.failure))

        def sync() -> None:
            if tidy is not None:
                tidy()
            self._files.sync(self._directory)

        self._background(sync, synced)

    def _reached(self, recovery_point: int, sealed_point: int) -> None:
        self.recovery_point = max(self.recovery_point, recovery_point)
        self._sealed_point = max(self._sealed_point, sealed_point)
        self.named_point = max(self.named_point, sealed_point)

    def _fail(self, error: SyncFailed) -> None:
        """Take no more records: what the system could not write it may have forgotten, and nothing tells it again."""
        if self.failure is None:
            fault = self._files.report_io_error(f"cannot flush {self._name}", self._directory, error)
            self.failure = f"{fault}; it takes no more records until the broker is started again"
            logger.error("%s", self.failure)
            remember_failed_sync(self._files, self._directory)
            self.on_failure()
        self._round += 1
        self._handed_out = 0


def remember_failed_sync(files: Files, directory: str) -> None:
    """An fsync has failed in a log's directory. What the system forgot it still shows to readers; the next start has to
    write it again (see `recovery`). Should the machine go down instead, this mark may be lost, but so is what the
    system shows."""
    with contextlib.suppress(OSError):
        files.create_empty(f"{directory}/{FAILED_SYNC}")


def _nobody() -> None:
    """Has nothing to do when a log fails."""


def _index_of(segments: Sequence[Segment], offset: int) -> int:
    """Which segment `offset` belongs to; the first one for what lies before it."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
