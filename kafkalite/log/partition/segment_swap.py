"""Hands the sealed segments of a log to the cleaner, and puts compacted segments in their place.

    clean_sources    returns the segments that may be compacted
    replace          puts a compacted segment in the place of one or more of them (`segment_replacement`)

Records keep their offsets, so a compacted log may have offset gaps, and segments without records. Every log has a swap;
the modules for replacements are imported with the first cleaning, when the broker is ready.
Source: kafka.log.UnifiedLog.replaceSegments, kafka.log.LogCleaner.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalite.common.errors import StorageError
from kafkalite.log.partition.segment_list import SegmentList
from kafkalite.log.segment.segment import NEVER, Segment
from kafkalite.log.storage.files import Done, storage_error

if TYPE_CHECKING:
    from kafkalite.log.partition.segment_replacement import SegmentReplacement
    from kafkalite.log.segment.cleaned_segment import CleanedSegment, SourceSegment


class SegmentSwap:
    """Fields: `_handed_out` are the segments of the last `clean_sources`, by base offset. `_replacement` is in
    progress.

    Invariant: at most one replacement is in progress.
    """

    __slots__ = ("_handed_out", "_is_closed", "_replacement", "_segments")

    def __init__(self, segments: SegmentList) -> None:
        self._segments = segments
        self._handed_out: dict[int, Segment] = {}
        self._replacement: SegmentReplacement | None = None
        self._is_closed = False

    @property
    def is_under_way(self) -> bool:
        """Whether a replacement is not over yet: the cleaner's files must stay until then."""
        return self._replacement is not None

    def clean_sources(self, upto: int) -> tuple[SourceSegment, ...]:
        """The sealed segments that end at or below `upto`, for a pass of the cleaner that begins now; `replace` accepts
        only segments of the latest call.

        Raises StorageError, also while a replacement is in progress: while .swap files may exist on the disk, a
        .cleaned file beside them would make recovery delete them.
        """
        from kafkalite.log.segment.cleaned_segment import SourceSegment

        location = self._segments.location
        try:
            self._retry_if_stuck()
            if self._replacement is not None:
                raise StorageError(f"a replacement in {location.directory} is not over yet")
            listed = self._segments
            segments = listed.segments[: listed.index_of(upto)]
            sources = tuple(
                SourceSegment(
                    segment.base_offset, end_offset, segment.size_bytes, _size_of(segment.offset_index.path),
                    _size_of(segment.time_index.path), os.stat(segment.path).st_mtime_ns,
                )
                for segment, end_offset in zip(segments, listed.bases[1:], strict=False)
            )  # fmt: skip
        except OSError as error:
            raise storage_error(f"cannot read {location.name}", location.directory, error) from error
        self._handed_out = {segment.base_offset: segment for segment in segments}
        return sources

    def replace(self, cleaned: CleanedSegment, done: Done) -> None:
        """Puts a compacted segment in the place of its sources, which `clean_sources` has returned.

        Calls `done`, possibly before it returns: with None when the new segment is fsynced under its final names, else
        with ReplacementRefused (the log has changed, or is closed) or StorageError. The cleaner's files stay after an
        immediate refusal, and when the log is closed; any other failure removes them.
        """
        from kafkalite.log.partition.segment_replacement import ReplacementRefused, SegmentReplacement, find_fault

        directory = self._segments.location.directory
        if self._replacement is not None:
            with contextlib.suppress(OSError):  # reported at the first failure
                self._retry_if_stuck()
            done(ReplacementRefused(f"a replacement in {directory} is not over yet"))
            return
        listed = self._segments
        at = listed.index_of(cleaned.base_offset)
        sources = listed.segments[at : at + len(cleaned.sources)]
        fault = self._refusal(sources)
        if fault is None and (what := find_fault(cleaned, listed.segments, sources, directory)):
            fault = ReplacementRefused(f"{directory}: {what}")
        if fault is not None:
            done(fault)
            return

        self._replacement = SegmentReplacement(
            listed,
            cleaned,
            sources,
            listed.bases[at + len(sources)],
            lambda: self._refusal(sources),
            self._forget,
            done,
        )
        self._replacement.begin()

    def complete(self) -> None:
        """Gives a compacted segment that is visible to readers its final names. Raises OSError."""
        if self._replacement is not None:
            self._replacement.complete()

    def cancel_for_truncation(self, offset: int) -> None:
        """Completes or undoes a replacement before a truncation to `offset`. Raises OSError; then the log must not be
        truncated."""
        if self._replacement is not None:
            self._replacement.cancel_for_truncation(offset)
        first_cut = self._segments.bases[self._segments.index_of(offset)]
        self._handed_out = {base: segment for base, segment in self._handed_out.items() if base < first_cut}

    def close(self) -> None:
        """Leaves every file as it is."""
        self._is_closed = True
        if self._replacement is not None:
            self._replacement.close()

    def _refusal(self, sources: Sequence[Segment]) -> Exception | None:
        """The reason why these segments may not be replaced now, or None."""
        from kafkalite.log.partition.segment_replacement import ReplacementRefused

        if self._is_closed:
            return ReplacementRefused(f"{self._segments.location.directory} is closed")
        if self._segments.flusher.failure is not None:
            return StorageError(self._segments.flusher.failure)
        for segment in sources:
            if self._handed_out.get(segment.base_offset) is not segment or segment not in self._segments.segments:
                return ReplacementRefused(f"{segment.path} has changed, or is gone")
        return None

    def pinned_from(self) -> int:
        """The offset from which on retention must not remove segments. Raises OSError."""
        self._retry_if_stuck()
        replacement = self._replacement
        return replacement.base_offset if replacement is not None and replacement.pins_sources else NEVER

    def _retry_if_stuck(self) -> None:
        if self._replacement is not None and self._replacement.is_stuck:
            self._replacement.retry()

    def _forget(self) -> None:
        self._replacement = None


def _size_of(path: str) -> int:
    """The size in bytes of an index file; 0 without one. Raises OSError."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
