"""A compacted segment takes the place of the segments that it was made of.

    written    the cleaner has made <base>.log.cleaned and its indexes, and waited for the disk. Another hand waits for
               their names, and for that of the segment behind them, so that the log cannot end here after a crash
    ready      .cleaned -> .swap, the .log last, and another hand waits for the disk: from then on a start finishes it
    switched   readers see the new segment, under its .swap names. The sources' files become .deleted, the first source
               first and some at a time; then .swap -> live, the .log first
    live       another hand waits for the disk once more, and it is over; the old files are unlinked later

Whatever a crash leaves, a start makes the old content or the new one of it (`leftovers`). The order among the sources
matters: the last of them may be left beside the new segment, where they lie behind its last batch. What they hold was
superseded, but by what follows it, so they must not go before what lies in front of them: a tombstone would be gone
and the value back. Names are changed on the loop alone, so nothing needs a lock; other hands only wait for the disk.
Who removes segments from the front waits until it is live (`is_holding`), and a truncation makes it `give_way` first: a
.swap that outlived the segments it covers would bring old records back.
Source: org.apache.kafka.storage.internals.log.LocalLog.replaceSegments, kafka.log.UnifiedLog.replaceSegments.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from kafkalite.common.errors import StorageError
from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.retention_policy import SEGMENTS_PER_TURN
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.segment.segment import Segment
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.log.storage.file_names import (
    CLEANED,
    DELETED,
    LOG,
    SEGMENT_FILES,
    SNAPSHOT,
    SWAP,
    TXN_INDEX,
    parse_segment_file,
    segment_stem,
)
from kafkalite.log.storage.files import Background, Done, Files

logger = logging.getLogger(__name__)


class ReplacementRefused(Exception):
    """The log is not what the cleaner has read any more, or it is closed: nothing was replaced."""


class ReplacedLog(Protocol):
    """The log as a replacement uses it."""

    background: Background
    directory: str
    files: Files
    flusher: Flusher
    producers: ProducerState

    def why_not_replace(self, sources: Sequence[Segment]) -> Exception | None: ...

    def refusal(self, what: str, error: OSError) -> StorageError: ...

    def new_segment(self, cleaned: CleanedSegment) -> Segment: ...

    def switch(self, sources: Sequence[Segment], new: Segment) -> None: ...

    def went_live(self, sources: Sequence[Segment], renamed: list[str]) -> None: ...

    def forget_replacement(self) -> None: ...


class _Stage(IntEnum):
    WRITTEN = 1
    READY = 2
    SWITCHED = 3
    LIVE = 4
    OVER = 5


class SegmentReplacement:
    """One that is under way; it belongs to the log's owner. `end_offset`: the segment behind the sources begins there.
    `is_stuck`: the disk refused a step, whoever asked was told, and `retry` tries again; until then it holds the log's
    segments as before."""

    def __init__(
        self, log: ReplacedLog, cleaned: CleanedSegment, sources: Sequence[Segment], end_offset: int, done: Done
    ) -> None:
        self.base_offset = cleaned.base_offset
        self.end_offset = end_offset
        self.is_stuck = False
        self._log = log
        self._files = log.files
        self._cleaned = cleaned
        self._sources = tuple(sources)
        self._left = list(sources)  # of which files still bear their names
        self._renamed: list[str] = []
        self._done: Done | None = done
        self._stage = _Stage.WRITTEN
        self._stem = f"{log.directory}/{segment_stem(cleaned.base_offset)}"
        self._new: Segment | None = None

    @property
    def is_holding(self) -> bool:
        """Whether the sources, or what replaced them, must stay where they are."""
        return self._stage < _Stage.LIVE

    # step by step

    def begin(self) -> None:
        self._log.flusher.sync_names(self._named, self._tidy)

    def _tidy(self) -> None:
        """What a cleaner that came to no good end has left: a start would think of the .swap as belonging to it."""
        for name in self._files.listdir(self._log.directory):
            found = parse_segment_file(name)
            if found is not None and found[2] == CLEANED and found[0] < self.base_offset:
                self._files.unlink_if_exists(f"{self._log.directory}/{name}")

    def _named(self, error: Exception | None) -> None:
        """The .cleaned names are on the disk."""
        if self._stage is not _Stage.WRITTEN:
            return
        error = error or self._log.why_not_replace(self._sources)
        if error is None:
            try:
                for suffix in reversed(SEGMENT_FILES):
                    self._rename(suffix, CLEANED, SWAP)
            except OSError as fault:
                error = self._log.refusal("cannot replace segments", fault)
        if error is not None:
            self._give_up(error)
            return
        self._stage = _Stage.READY
        self._log.flusher.sync_names(self._swapped)

    def _swapped(self, error: Exception | None) -> None:
        """The .swap names are on the disk."""
        if self._stage is not _Stage.READY:
            return
        error = error or self._log.why_not_replace(self._sources)
        if error is not None:
            try:
                self._step_back()
            except OSError as fault:
                self._stick(fault)
            else:
                self._give_up(error)
            return
        self._new = self._log.new_segment(self._cleaned)
        self._log.switch(self._sources, self._new)
        self._stage = _Stage.SWITCHED
        self._go_on(None)

    def _go_on(self, error: Exception | None) -> None:
        """Some more of the sources; then the new one takes its names."""
        if self._stage is not _Stage.SWITCHED or self.is_stuck:
            return
        try:
            self._retire(SEGMENTS_PER_TURN)
            if self._left:
                self._log.background(_nothing, self._go_on)  # others have their turn
                return
            self._go_live()
        except OSError as fault:
            self._stick(fault)

    def _retire(self, most: int) -> None:
        for segment in self._left[:most]:
            self._renamed += segment.rename("", DELETED)
            if segment.base_offset != self.base_offset:
                snapshot = f"{self._log.directory}/{segment_stem(segment.base_offset)}{SNAPSHOT}"
                with contextlib.suppress(FileNotFoundError):
                    self._files.rename(snapshot, snapshot + DELETED)
                    self._renamed.append(snapshot + DELETED)
                self._log.producers.forget_snapshot(segment.base_offset)
            self._left.remove(segment)

    def _go_live(self) -> None:
        assert self._new is not None and not self._left
        self._new.rename(SWAP, "")
        self.is_stuck = False
        self._stage = _Stage.LIVE
        self._log.went_live(self._sources, self._renamed)
        self._log.flusher.sync_names(self._end)

    def _end(self, error: Exception | None) -> None:
        if self._stage is not _Stage.OVER:
            self._stage = _Stage.OVER
            self._log.forget_replacement()
            self._tell(error)

    # what may come between

    def settle(self) -> None:
        """If readers see the new segment already, give it its names now. Raises OSError; then `retry` may help."""
        if self._stage is _Stage.SWITCHED:
            self._retire(len(self._left))
            self._go_live()

    def give_way(self, offset: int) -> None:
        """The log is about to be cut at `offset`: nothing may bring back what lies behind. Raises OSError; then it must
        not be cut."""
        self.settle()
        if self._stage < _Stage.SWITCHED and offset < self.end_offset:
            if self._stage is _Stage.READY:
                self._step_back()
            self._give_up(ReplacementRefused(f"{self._log.directory} is truncated to offset {offset}"))

    def retry(self) -> None:
        """Try again what the disk refused. Raises OSError when it does so again."""
        if self._stage is _Stage.READY:
            self._step_back()
            self._give_up(ReplacementRefused("the disk had refused it"))
        else:
            self.settle()

    def abandon(self) -> None:
        """The log is closed: every file stays as it is. The next start finishes it, or undoes it."""
        if self._stage is not _Stage.OVER:
            self._stage = _Stage.OVER
            for segment in self._sources:
                segment.abandon()
            self._tell(ReplacementRefused(f"{self._log.directory} is closed"))

    # the ways out

    def _step_back(self) -> None:
        """A start must not finish it any more. Raises OSError."""
        self._rename(LOG, SWAP, CLEANED)
        self._stage = _Stage.WRITTEN
        self._files.sync(self._log.directory)

    def _give_up(self, error: Exception) -> None:
        """Remove what the cleaner has written, so that no .swap is left without a .cleaned beside it."""
        self._stage = _Stage.OVER
        swaps = [f"{self._stem}{suffix}{SWAP}" for suffix in SEGMENT_FILES]
        others = [f"{self._stem}{suffix}{CLEANED}" for suffix in SEGMENT_FILES]

        def remove() -> None:
            for path in swaps:
                self._files.unlink_if_exists(path)
            self._files.sync(self._log.directory)
            for path in others:
                self._files.unlink_if_exists(path)

        def removed(fault: Exception | None) -> None:
            if fault is not None:
                logger.warning("cannot remove %s.*: %s; the next start does it", self._stem, fault)
            self._log.forget_replacement()
            self._tell(error)

        self._log.background(remove, removed)

    def _stick(self, fault: OSError) -> None:
        self.is_stuck = True
        self._tell(self._log.refusal("cannot replace segments", fault))

    def _tell(self, error: Exception | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(error)

    def _rename(self, suffix: str, before: str, after: str) -> None:
        path = self._stem + suffix
        try:
            self._files.rename(path + before, path + after)
        except FileNotFoundError:
            if suffix != TXN_INDEX:  # which there may not be
                raise


def find_fault(cleaned: CleanedSegment, segments: Sequence[Segment], sources: Sequence[Segment], directory: str) -> str:
    """What is wrong with replacing `sources`, which lie one behind the other in `segments`; "" for nothing."""
    if not sources or tuple(source.base_offset for source in sources) != cleaned.sources:
        return "its segments are not those that were compacted"
    if cleaned.base_offset != sources[0].base_offset:
        return f"what replaces them begins at {cleaned.base_offset}"
    if sources[-1] is segments[-1]:
        return "the last segment is being written"
    try:
        size_bytes = os.stat(f"{directory}/{segment_stem(cleaned.base_offset)}{LOG}{CLEANED}").st_size
    except OSError as error:
        return f"what was compacted is not there: {error}"
    if size_bytes != cleaned.size_bytes:
        return f"what was compacted has {size_bytes} bytes, not {cleaned.size_bytes}"
    return ""


def _nothing() -> None:
    """A turn of the lane."""
