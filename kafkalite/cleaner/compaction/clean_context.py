"""The values that both halves of a cleaning share: building the offset map, and cleaning segments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.cleaner.columns.segment_reader import Piece
from kafkalite.cleaner.compaction.transaction_metadata import Entries
from kafkalite.cleaner.job.job import CleaningFailed, CleanJob, CleanStats
from kafkalite.log.segment.cleaned_segment import SourceSegment
from kafkalite.log.storage.file_names import LOG, segment_stem
from kafkalite.log.storage.files import Files
from kafkalite.record.codec_contexts import Codecs

_UNREAD_MAX = 10_000  # each costs a pass over what follows it in 8 MiB


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
    unread: set[int] = field(default_factory=set)  # the first field, their offset, of batches that cannot be read

    def keep_unread(self, piece: Piece, at: int, offset: int, why: str) -> None:
        """The batch at `at` of a piece is kept as it is, and its records supersede none. Raises CleaningFailed where
        there are too many such batches."""
        if offset in self.unread:
            return
        reason = f"{piece.path}: the batch at position {piece.position + at}: {why}"
        if len(self.unread) >= _UNREAD_MAX:
            raise CleaningFailed(f"more than {_UNREAD_MAX} batches cannot be read, the last: {reason}")
        self.unread.add(offset)
        self.stats.unread_batches = len(self.unread)
        self.stats.first_unread = self.stats.first_unread or reason

    def path_of(self, segment: SourceSegment) -> str:
        return f"{self.job.directory}/{segment_stem(segment.base_offset)}{LOG}"
