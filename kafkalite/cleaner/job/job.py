"""A cleaning of one log as values: the job, its statistics and result, and the messages between broker and worker.

    broker                                     worker
                                               Ready              it can be given a job
    Clean(job, rate)                           Progress           from time to time, while it works
                                               CleanedSegment     the files of a group are on the disk
    Swapped(True)                              ...                they are in place: it cleans the next group
                                               Outcome            the job has ended
    Abort, Rate                                                   at any time

The end of the stream means that the other side has exited. Offsets are absolute, times are milliseconds since 1970,
sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.settings import INT_MAX
from kafkalite.log.segment.cleaned_segment import CleanedSegment, SourceSegment


class LastRecord(NamedTuple):
    """The last record of an active producer. Its batch must be retained, since the header has the producer's sequence.
    `last_data_offset` is -1 if the log has no data of the producer. Source: kafka.log.LastRecord."""

    last_data_offset: int
    producer_epoch: int


class CleanJob(NamedTuple):
    """Builds the offset map of [first_dirty_offset, first_uncleanable_offset), then cleans `segments` from the first
    one up to the end of the map.

    `segments` are all sealed segments of the log up to `first_uncleanable_offset`, which is a segment's base offset.
    """

    topic: str
    partition: int
    directory: str
    segments: tuple[SourceSegment, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    last_records: Mapping[int, LastRecord]  # by producer id
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int  # the largest size of an index
    index_interval_bytes: int
    dedupe_buffer_bytes: int  # of one worker
    io_buffer_bytes: int
    load_factor: float
    segment_bytes_max: int = INT_MAX  # of a cleaned segment, regardless of segment.bytes: a position has 31 bits


@dataclass(slots=True)
class CleanStats:
    """Statistics of one cleaning. `seconds` includes `map_seconds`, the time to build the offset map. `unread_batches`
    could not be read, and were kept as they are."""

    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0
    records_kept: int = 0
    tombstones_dropped: int = 0
    keyless_dropped: int = 0
    aborted_dropped: int = 0
    markers_dropped: int = 0
    map_keys: int = 0
    map_bytes_read: int = 0
    map_records_read: int = 0
    map_utilization: float = 0.0
    map_seconds: float = 0.0
    seconds: float = 0.0
    throttled_seconds: float = 0.0
    unread_batches: int = 0
    first_unread: str = ""  # file, position and reason

    @property
    def unread(self) -> str | None:
        """The text for the operator about batches that cannot be read."""
        if not self.unread_batches:
            return None
        what = "1 batch is" if self.unread_batches == 1 else f"{self.unread_batches:,} batches are"
        return f"{what} kept unread, the first: {self.first_unread}"


@dataclass(slots=True)
class CleanResult:
    """`end_offset`: the log is clean below it. `is_complete` is False if the map was full before the end of the dirty
    range, or if `swap` ended the cleaning; the next cleaning continues from there."""

    end_offset: int
    is_complete: bool
    stats: CleanStats = field(default_factory=CleanStats)

    def summary(self) -> str:
        """The predicate of a sentence about the log."""
        stats = self.stats
        return (
            f"is compacted up to offset {self.end_offset}: {stats.bytes_read / (1 << 20):.1f} MiB are "
            f"{stats.bytes_kept / (1 << 20):.1f} MiB now, {stats.records_read} records are {stats.records_kept}, in "
            f"{stats.seconds:.1f} s"
        )


class CleaningFailed(Exception):
    """The log's data cannot be cleaned, and a retry would not help. The message names file, position and reason."""


class Clean(NamedTuple):
    job: CleanJob
    bytes_per_second: float


class Swapped(NamedTuple):
    """The answer to a CleanedSegment. False: abort the job."""

    may_continue: bool


class Abort(NamedTuple):
    """Abort the job, and remove the files that it has written."""


class Rate(NamedTuple):
    """The throttle's new rate."""

    bytes_per_second: float


class Ready(NamedTuple):
    """Everything is imported."""


class Progress(NamedTuple):
    """The worker is alive."""


class Ending(Enum):
    """How a cleaning ended."""

    DONE = "done"
    ABORTED = "aborted"  # the log is no longer to be cleaned, or no longer the same
    FAILED = "failed"  # its data cannot be cleaned, or the cleaner has a bug
    REFUSED = "refused"  # by the system: no space, no memory, a disk; a retry may help
    DIED = "died"  # the worker


class Outcome(NamedTuple):
    """`reason` in words for all endings but DONE, `result` for DONE. `errno` is 0 unless the system refused."""

    ending: Ending
    reason: str = ""
    errno: int = 0
    result: CleanResult | None = None


def own_fault(error: Exception) -> Outcome:
    """The outcome of a cleaning that failed by an exception of the cleaner itself."""
    return Outcome(Ending.FAILED, f"the cleaner has a fault of its own: {error!r}")


class LogLine(NamedTuple):
    """A line for the broker's log. `level` is logging's number."""

    level: int
    logger: str
    text: str


ToWorker = Clean | Swapped | Abort | Rate
FromWorker = Ready | Progress | CleanedSegment | Outcome | LogLine
