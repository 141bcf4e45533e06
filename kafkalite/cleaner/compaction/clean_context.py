"""What both readings of a pass have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.cleaner.columns.codec_contexts import Codecs
from kafkalite.cleaner.compaction.transaction_metadata import Entries
from kafkalite.cleaner.job.job import CleanJob, CleanStats, SourceSegment
from kafkalite.log.storage.file_names import LOG, segment_stem
from kafkalite.log.storage.files import Files


@dataclass(slots=True)
class CleanContext:
    """`throttle` is told of all bytes that were read and written, and may wait; `progress` of those that were read."""

    job: CleanJob
    files: Files
    aborted: Entries
    throttle: Callable[[int], None]
    progress: Callable[[int], None]
    piece_bytes: int
    stats: CleanStats = field(default_factory=CleanStats)
    codecs: Codecs = field(default_factory=Codecs)

    def path_of(self, segment: SourceSegment) -> str:
        return f"{self.job.directory}/{segment_stem(segment.base_offset)}{LOG}"

    def took(self, read_bytes: int) -> None:
        """A piece was read."""
        self._wait(read_bytes)
        self.progress(read_bytes)

    def gave(self, written_bytes: int) -> None:
        """A piece was written."""
        self._wait(written_bytes)

    def _wait(self, count: int) -> None:
        began = time.monotonic()
        self.throttle(count)
        self.stats.throttled_seconds += time.monotonic() - began
