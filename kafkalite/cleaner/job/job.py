"""What the cleaner is asked to do with one log, and what it tells of it: plain values, which also travel to a process.

Offsets are absolute, times are milliseconds since 1970, sizes are bytes. `base` of a segment is its first offset, by
which its files are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A sealed segment: `end_offset` is the next segment's base. `index_bytes` and `time_index_bytes` are the sizes of
    its index files; `modified_ns` is when its .log was last written."""

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class LastOfProducer:
    """The last batch with data of a producer that the log still remembers: its batch must not vanish, for its header
    keeps the producer's sequence. `last_data_offset` is -1 if the log has none. Source: kafka.log.LastRecord."""

    last_data_offset: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleanJob:
    """Compact one log: read [first_dirty_offset, first_uncleanable_offset), then rewrite `segments` from the first one
    up to where the map came.

    `segments` are all sealed segments from the log's first one up to `first_uncleanable_offset`, a segment's border.
    """

    topic: str
    partition: int
    directory: str
    segments: tuple[SourceSegment, ...]
    start_offset: int  # the log's: what lies before it may not be read any more
    first_dirty_offset: int
    first_uncleanable_offset: int
    last_of_producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int  # the most that an index may have
    index_interval_bytes: int
    max_message_bytes: int
    dedupe_buffer_bytes: int  # of one worker
    io_buffer_bytes: int
    load_factor: float


@dataclass(frozen=True, slots=True)
class CleanedSegment:
    """One segment that is complete as `<base_offset>.log.cleaned` with its indexes, and replaces those in `sources`.

    It may hold nothing at all. `max_timestamp_offset` is the last offset of the first batch that has the largest
    timestamp; -1 and `base_offset` when there is none.
    """

    base_offset: int
    sources: tuple[int, ...]
    size_bytes: int
    record_count: int  # control records too
    control_record_count: int
    max_timestamp_ms: int
    max_timestamp_offset: int


@dataclass(slots=True)
class CleanStats:
    """What a pass did. `seconds` are of the whole, of which `map_seconds` for the first reading."""

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


@dataclass(slots=True)
class CleanResult:
    """`end_offset`: the log is clean below it now. `is_complete` is False when the map was full before the dirty range
    ended, or `swap` said to give up; the next pass goes on from there."""

    end_offset: int
    is_complete: bool
    stats: CleanStats = field(default_factory=CleanStats)


class CleaningFailed(Exception):
    """The log's data cannot be compacted, and trying again would not help. The message names file, place and reason."""
