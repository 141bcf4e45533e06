"""The values that both halves of a cleaning share: building the offset map, and cleaning segments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.cleaner.compaction.transaction_metadata import Entries
from kafkalite.cleaner.job.job import CleanJob, CleanStats
from kafkalite.log.segment.cleaned_segment import SourceSegment
from kafkalite.log.storage.file_names import LOG, segment_stem
from kafkalite.log.storage.files import Files
from kafkalite.record.codec_contexts import Codecs


@dataclass(slots=True)
class CleanContext:
    """`throttle` gets the size of every piece that was read or written, and may wait."""

    job: CleanJob
    files: Files
    aborted: Entries
    throttle: Callable[[int], None]
    piece_bytes: int
    stats: CleanStats = field(default_factory=CleanStats)
    codecs: Codecs = field(default_factory=Codecs)

    def path_of(self, segment: SourceSegment) -> str:
        return f"{self.job.directory}/{segment_stem(segment.base_offset)}{LOG}"
