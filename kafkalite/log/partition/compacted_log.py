"""A log of which the cleaner rewrites segments: what it is told of them, and how its work takes their place.

    clean_sources    the segments that may be compacted, as they are now
    replace          one of its making in the place of several of them (`segment_replacement`)

Offsets stay as they are, so there may be holes afterwards, and segments that hold nothing.
Source: kafka.log.UnifiedLog.replaceSegments, kafka.log.LogCleaner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from kafkalite.common.errors import StorageError
from kafkalite.log.partition.segment_replacement import ReplacementRefused, SegmentReplacement, find_fault
from kafkalite.log.partition.segmented_log import SegmentedLog
from kafkalite.log.segment.cleaned_segment import CleanedSegment, SourceSegment
from kafkalite.log.segment.segment import Segment
from kafkalite.log.storage.file_names import SWAP
from kafkalite.log.storage.files import Done, storage_error


class CompactedLog(SegmentedLog):
    """What is not for the cleaner is for the replacement that is under way."""

    __slots__ = ()

    def clean_sources(self, upto: int) -> tuple[SourceSegment, ...]:
        """The sealed segments that end at or below `upto`, for a pass of the cleaner that begins now: `replace` takes
        none but these, as they are now. Raises StorageError, also while an earlier replacement is not over: as long as
        the disk may know it by its .swap names only, a .cleaned beside them would make a start throw them away.
        """
        try:
            if self._replacement is not None and self._replacement.is_stuck:
                self._replacement.retry()
            if self._replacement is not None:
                raise StorageError(f"a replacement in {self.directory} is not over yet")
            segments = self.segments[: max(0, self._index_of(upto))]
            found = tuple(
                SourceSegment(
                    segment.base_offset, end_offset, segment.size_bytes, segment.index_bytes(),
                    segment.time_index_bytes(), segment.modified_ns(),
                )
                for segment, end_offset in zip(segments, self._bases[1:], strict=False)
            )  # fmt: skip
        except OSError as error:
            raise storage_error(f"cannot read {self.topic}-{self.partition}", self.directory, error) from error
        self._given_out = {segment.base_offset: segment for segment in segments}
        return found

    def replace(self, cleaned: CleanedSegment, done: Done) -> None:
        """Put a compacted segment in the place of its sources, which `clean_sources` has told of.

        `done` hears None when it is on the disk under its own names, else why it is not: ReplacementRefused when the
        log has changed or closes, StorageError. It may be called before this returns. What was written for a
        replacement that was refused at once stays; it goes with any other end that is not the log's own.
        """
        if self._replacement is not None:
            with contextlib.suppress(OSError):  # what is said then was said before
                if self._replacement.is_stuck:
                    self._replacement.retry()
            done(ReplacementRefused(f"a replacement in {self.directory} is not over yet"))
            return
        at = self._index_of(cleaned.base_offset)
        sources = self.segments[at : at + len(cleaned.sources)]
        fault: Exception | None = self.why_not_replace(sources)
        if fault is None and (what := find_fault(cleaned, self.segments, sources, self.directory)):
            fault = ReplacementRefused(f"{self.directory}: {what}")
        if fault is not None:
            done(fault)
            return
        end_offset = self._bases[at + len(sources)]
        self._replacement = SegmentReplacement(self, cleaned, sources, end_offset, done)
        self._replacement.begin()

    @property
    def is_replacing(self) -> bool:
        """Whether a replacement is not over yet: what the cleaner has written for it must stay."""
        return self._replacement is not None

    def why_not_replace(self, sources: Sequence[Segment]) -> Exception | None:
        """Why these segments may not be replaced now, if so."""
        if self._is_closed:
            return ReplacementRefused(f"{self.directory} is closed")
        if self.failure is not None:
            return StorageError(self.failure)
        for segment in sources:
            if self._given_out.get(segment.base_offset) is not segment or segment not in self.segments:
                return ReplacementRefused(f"{segment.path} has changed, or is gone")
        return None

    def new_segment(self, cleaned: CleanedSegment) -> Segment:
        """What the cleaner has made, as long as it bears its .swap names."""
        config, now_ms = self._config, self._services.clock.wall_ms()
        segment = Segment(
            self.directory, cleaned.base_offset, cleaned.size_bytes, config, now_ms, self.files, leftover=SWAP
        )
        segment.max_timestamp_ms = cleaned.max_timestamp_ms
        segment.max_timestamp_offset = cleaned.max_timestamp_offset
        segment.add_counted(cleaned.record_count, cleaned.control_record_count)
        return segment

    def switch(self, sources: Sequence[Segment], new: Segment) -> None:
        """From now on readers see `new` instead of `sources`."""
        at = self._index_of(new.base_offset)
        self.segments = (*self.segments[:at], new, *self.segments[at + len(sources) :])
        self._take_stock()

    def went_live(self, sources: Sequence[Segment], renamed: list[str]) -> None:
        """What replaced `sources` bears its own names, and the old files are `renamed`."""
        self.flusher.owe(self.directory)
        self._unlink_later(renamed, sources)
        self._counts.replaced(sources)
        self._counts.note(self.segments)

    def forget_replacement(self) -> None:
        self._replacement = None
