"""Retention rules: which of a log's oldest segments are deleted.

    log start         the next segment begins at or below the log's start, so this one may not be read any more. Applies
                      to every log; the other two rules only where cleanup.policy contains "delete"
    retention.bytes   without the segment the log still has at least retention.bytes
    retention.ms      the segment's latest timestamp is older than retention.ms; without timestamps the file's mtime
                      counts. A timestamp in the future keeps its segment and all later ones

The rules apply one after the other, each from the oldest remaining segment up to the first that stays, and never beyond
the high watermark. The active segment is deleted like any other if it is not empty; the log rolls first.
Source: kafka.log.UnifiedLog (deleteOldSegments, deletableSegments).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from itertools import islice

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.topic_config import TopicConfig

SEGMENTS_PER_TURN = 8  # three or four renames each, of 10 to 60 us; a new segment takes 1 ms


class Reason(Enum):
    """The rule that deletes a segment; the value is for the log message."""

    LOG_START = "they lie before the log's start"
    BYTES = "retention.bytes"
    TIME = "retention.ms"


class SegmentFacts(NamedTuple):
    """The facts of a segment. `end_offset` is the next segment's base offset, or the log's end offset.
    `largest_timestamp_ms` is called only if it decides, because it may read the disk (OSError)."""

    end_offset: int
    size_bytes: int
    largest_timestamp_ms: Callable[[], int]


def deletable(
    segments: Iterable[SegmentFacts],
    segment_count: int,
    size_bytes: int,
    start_offset: int,
    high_watermark: int,
    config: TopicConfig,
    now_ms: int,
    most: int,
) -> list[Reason]:
    """The reasons for deleting the first segments of a log: as many reasons as segments to delete, at most `most`.
    `segments` begin with the oldest; they are `segment_count`, with `size_bytes` in total."""
    deletes = "delete" in config.cleanup_policy
    retention_ms = config.retention_ms if deletes else -1
    surplus_bytes = size_bytes - config.retention_bytes if deletes and config.retention_bytes >= 0 else -1
    rule = Reason.LOG_START
    reasons: list[Reason] = []
    for at, (end_offset, segment_bytes, largest_timestamp_ms) in enumerate(islice(segments, most), start=1):
        is_last = at == segment_count
        if end_offset > high_watermark or (is_last and not segment_bytes):
            break
        if rule is Reason.LOG_START and (is_last or end_offset > start_offset):
            rule = Reason.BYTES
        if rule is Reason.BYTES and surplus_bytes < segment_bytes:
            rule = Reason.TIME
        if rule is Reason.TIME and (retention_ms < 0 or now_ms - largest_timestamp_ms() <= retention_ms):
            break
        surplus_bytes -= segment_bytes
        reasons.append(rule)
    return reasons
