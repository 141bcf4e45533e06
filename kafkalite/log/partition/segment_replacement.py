"""Replacement of sealed segments by their compacted ones, mostly one, in stages.

    WRITTEN    the cleaner has written <base>.log.cleaned and its indexes, and fsynced them. The background fsyncs their
               directory entries, and that of the segment behind them, so that the log cannot end here after a crash
    READY      .cleaned -> .swap, the last segment first and each .log last, and the background fsyncs the directory:
               from then on a start completes the replacement
    SWITCHED   readers see the new segments, under their .swap names. The sources' files become .deleted, the first
               source first and some at a time; then .swap -> final names, each .log first
    LIVE       the background fsyncs the directory once more; the old files are unlinked later
    OVER       `done` has been called

After a crash a start recovers the old content or the new content (`swap_recovery`). The order among the sources
matters: a crash may leave the last sources beside the new segment, after its last batch. Their records were superseded
by later records of the same segments. So they must not be removed before the earlier sources: a tombstone would be gone
and the value back. Files are renamed on the event loop alone, so no lock is needed; the background only fsyncs.
Retention waits until the replacement is live (`pins_sources`), and a truncation cancels it first: a .swap that outlived
the segments that it covers would bring old records back.
Source: org.apache.kafka.storage.internals.log.LocalLog.replaceSegments, kafka.log.UnifiedLog.replaceSegments.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from kafkalite.log.partition.retention_policy import SEGMENTS_PER_TURN
from kafkalite.log.partition.segment_list import SegmentList
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.segment.segment import Segment
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
from kafkalite.log.storage.files import Done

logger = logging.getLogger(__name__)


class ReplacementRefused(Exception):
    """The log has changed since the cleaner read it, or it is closed: nothing was replaced."""


class Stage(Enum):
    WRITTEN = "written"
    READY = "ready"
    SWITCHED = "switched"
    LIVE = "live"
    OVER = "over"


WRITTEN, READY, SWITCHED, LIVE, OVER = Stage

ENTERED_FROM: Mapping[Stage, frozenset[Stage]] = {
    WRITTEN: frozenset({READY}),  # `_step_back`
    READY: frozenset({WRITTEN}),
    SWITCHED: frozenset({READY}),
    LIVE: frozenset({SWITCHED}),
    OVER: frozenset({WRITTEN, READY, SWITCHED, LIVE}),  # complete, refused, or the log is closed
}


class SegmentReplacement:
    """A replacement in progress. Fields: the segment after the sources begins at `end_offset`. `is_stuck`: the disk
    refused a step and `done` got the error; `retry` repeats the step, and the segments stay pinned until then.
    """

    def __init__(
        self,
        segments: SegmentList,
        cleaned: CleanedSegment,
        sources: Sequence[Segment],
        end_offset: int,
        refusal: Callable[[], Exception | None],
        on_over: Callable[[], None],
        done: Done,
    ) -> None:
        """`refusal` returns the reason why the sources may no longer be replaced, or None. `on_over` is called before
        `done`, unless the log is closed."""
        location = segments.location
        self.base_offset = cleaned.base_offset
        self.end_offset = end_offset
        self.is_stuck = False
        self._segments = segments
        self._location = location
        self._files = location.files
        self._cleaned = cleaned
        self._sources = tuple(sources)
        self._remaining = list(sources)  # the sources that are not renamed yet
        self._renamed: list[str] = []
        self._refusal = refusal
        self._on_over = on_over
        self._done: Done | None = done
        self._stage = WRITTEN
        self._bases = [each.base_offset for each in cleaned.all]
        self._new: list[Segment] = []

    @property
    def pins_sources(self) -> bool:
        """Whether the sources, or the segment that replaces them, must not be removed."""
        return self._stage not in (LIVE, OVER)

    def _enter(self, stage: Stage) -> None:
        assert self._stage in ENTERED_FROM[stage], (self._stage, stage)
        self._stage = stage

    # step by step

    def begin(self) -> None:
        self._segments.flusher.sync_names(self._names_synced, self._tidy)

    def _tidy(self) -> None:
        """Removes the .cleaned files of earlier, failed passes: a start would delete the .swap together with them."""
        for name in self._files.listdir(self._location.directory):
            found = parse_segment_file(name)
            if found is not None and found[2] == CLEANED and found[0] not in self._bases:
                self._files.unlink_if_exists(f"{self._location.directory}/{name}")

    def _names_synced(self, error: Exception | None) -> None:
        """The .cleaned names are fsynced."""
        if self._stage is not WRITTEN:
            return
        error = error or self._refusal()
        if error is None:
            try:
                for base_offset in reversed(self._bases):
                    for suffix in reversed(SEGMENT_FILES):
                        self._rename(base_offset, suffix, CLEANED, SWAP)
            except OSError as fault:
                error = self._location.refusal("cannot replace segments", fault)
        if error is not None:
            self._give_up(error)
            return
        self._enter(READY)
        self._segments.flusher.sync_names(self._swap_synced)

    def _swap_synced(self, error: Exception | None) -> None:
        """The .swap names are fsynced."""
        if self._stage is not READY:
            return
        error = error or self._refusal()
        if error is not None:
            try:
                self._step_back()
            except OSError as fault:
                self._stick(fault)
            else:
                self._give_up(error)
            return
        self._new = [self._new_segment(each) for each in self._cleaned.all]
        self._segments.swap(self._sources, self._new)
        self._enter(SWITCHED)
        self._retire_sources(None)

    def _new_segment(self, cleaned: CleanedSegment) -> Segment:
        """A compacted segment, under its .swap names."""
        segments = self._segments
        now_ms = segments.context.clock.wall_ms()
        segment = segments.new_segment(cleaned.base_offset, now_ms, cleaned.size_bytes, suffix=SWAP)
        segment.max_timestamp_ms = cleaned.max_timestamp_ms
        segment.max_timestamp_offset = cleaned.max_timestamp_offset
        if cleaned.record_count >= 0:
            segment.tally.add_counted(cleaned.record_count, cleaned.control_record_count)
        return segment

    def _retire_sources(self, error: Exception | None) -> None:
        """Renames some more sources; after the last one the new segment gets its final names."""
        if self._stage is not SWITCHED or self.is_stuck:
            return
        try:
            self._rename_sources(SEGMENTS_PER_TURN)
            if self._remaining:
                self._segments.background(_nothing, self._retire_sources)  # let the event loop do other work between
                return
            self._go_live()
        except OSError as fault:
            self._stick(fault)

    def _rename_sources(self, most: int) -> None:
        for segment in self._remaining[:most]:
            self._renamed += segment.files.rename("", DELETED)
            if segment.base_offset not in self._bases:
                snapshot = f"{self._location.directory}/{segment_stem(segment.base_offset)}{SNAPSHOT}"
                with contextlib.suppress(FileNotFoundError):
                    self._files.rename(snapshot, snapshot + DELETED)
                    self._renamed.append(snapshot + DELETED)
                self._segments.producers.snapshots.forget(segment.base_offset)
            self._remaining.remove(segment)

    def _go_live(self) -> None:
        assert self._new and not self._remaining
        for new in self._new:
            new.files.rename(SWAP, "")
        self.is_stuck = False
        self._enter(LIVE)
        self._segments.retire(self._sources, self._renamed)
        self._segments.flusher.sync_names(self._end)

    def _end(self, error: Exception | None) -> None:
        if self._stage is not OVER:
            self._enter(OVER)
            self._on_over()
            self._tell(error)

    # events in between

    def complete(self) -> None:
        """Gives the new segments their final names now if it is SWITCHED. Raises OSError; then `retry` may succeed."""
        if self._stage is SWITCHED:
            self._rename_sources(len(self._remaining))
            self._go_live()

    def cancel_for_truncation(self, offset: int) -> None:
        """Completes or undoes the replacement before the log is truncated to `offset`, so that truncated records cannot
        come back. Raises OSError; then the log must not be truncated."""
        self.complete()
        if self._stage in (WRITTEN, READY) and offset < self.end_offset:
            if self._stage is READY:
                self._step_back()
            self._give_up(ReplacementRefused(f"{self._location.directory} is truncated to offset {offset}"))

    def retry(self) -> None:
        """Repeats the step that the disk refused. Raises OSError if it is refused again."""
        if self._stage is SWITCHED:
            self.complete()
            return
        if self._stage is READY:
            self._step_back()
        else:  # undone, but the disk does not know it yet
            self._files.sync(self._location.directory)
        self._give_up(ReplacementRefused("the disk had refused it"))

    def close(self) -> None:
        """Leaves every file as it is: the next start completes the replacement, or undoes it."""
        if self._stage is not OVER:
            self._enter(OVER)
            for segment in self._sources:
                segment.abandon()
            self._tell(ReplacementRefused(f"{self._location.directory} is closed"))

    # the ways out

    def _step_back(self) -> None:
        """Undoes READY, so that a start does not complete the replacement. Raises OSError."""
        self._rename(self.base_offset, LOG, SWAP, CLEANED)
        self._enter(WRITTEN)
        self._files.sync(self._location.directory)

    def _give_up(self, error: Exception) -> None:
        """Removes the cleaner's files, the .swap files first: without a .cleaned beside it a .swap counts as
        complete."""
        self._enter(OVER)
        directory = self._location.directory
        stems = [f"{directory}/{segment_stem(base)}{suffix}" for base in self._bases for suffix in SEGMENT_FILES]
        swaps = [stem + SWAP for stem in stems]
        others = [stem + CLEANED for stem in stems]

        def remove() -> None:
            for path in swaps:
                self._files.unlink_if_exists(path)
            self._files.sync(self._location.directory)
            for path in others:
                self._files.unlink_if_exists(path)

        def removed(fault: Exception | None) -> None:
            if fault is not None:
                logger.warning("cannot remove .cleaned files in %s: %s; the next start does it", directory, fault)
            self._on_over()
            self._tell(error)

        self._segments.background(remove, removed)

    def _stick(self, fault: OSError) -> None:
        self.is_stuck = True
        self._tell(self._location.refusal("cannot replace segments", fault))

    def _tell(self, error: Exception | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(error)

    def _rename(self, base_offset: int, suffix: str, before: str, after: str) -> None:
        path = f"{self._location.directory}/{segment_stem(base_offset)}{suffix}"
        try:
            self._files.rename(path + before, path + after)
        except FileNotFoundError:
            if suffix != TXN_INDEX:  # only segments with aborted transactions have one
                raise


def find_fault(cleaned: CleanedSegment, segments: Sequence[Segment], sources: Sequence[Segment], directory: str) -> str:
    """The reason why `cleaned` cannot replace `sources`, which are neighbours in `segments`; "" if it can."""
    if not sources or tuple(source.base_offset for source in sources) != cleaned.sources:
        return "its segments are not those that were compacted"
    if cleaned.base_offset != sources[0].base_offset:
        return f"what replaces them begins at {cleaned.base_offset}"
    if sources[-1] is segments[-1]:
        return "the last segment is being written"
    for each in cleaned.all:
        try:
            size_bytes = os.stat(f"{directory}/{segment_stem(each.base_offset)}{LOG}{CLEANED}").st_size
        except OSError as error:
            return f"what was compacted is not there: {error}"
        if size_bytes != each.size_bytes:
            return f"what was compacted has {size_bytes} bytes, not {each.size_bytes}"
    return ""


def _nothing() -> None:
    """An empty background job; its completion runs in a later turn of the event loop."""
