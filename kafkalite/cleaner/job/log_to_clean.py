"""Plans the cleaning of a log: the range that could be cleaned, and whether the log is due. Values in, values out.

    | clean            | dirty                | uncleanable                  |
    log's start        first dirty            first uncleanable              end

The last cleaning ended at the offset in cleaner-offset-checkpoint; later records are dirty. They can be cleaned up to
the last stable offset, the active segment, or the first dirty segment with a record younger than min.compaction.lag.ms,
the first of these, and only in whole segments. A log is due when the share of dirty bytes in its clean and dirty
bytes is above min.cleanable.dirty.ratio, or when a dirty segment is older than max.compaction.lag.ms.
Source: kafka.log.LogCleanerManager (cleanableOffsets, calculateCleanableBytes, maxCompactionDelay),
kafka.log.LogToClean, KIP-58, KIP-354.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.settings import LONG_MAX
from kafkalite.config.topic_config import TopicConfig


class PlannedSegment(Protocol):
    """A segment as a plan uses it. Timestamps may have to be read from the disk (OSError)."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def largest_timestamp_ms(self) -> int:
        """The largest of any record; without one, the file's modification time."""
        ...

    def first_timestamp_ms(self) -> int:
        """The largest of the first batch; -1 without one."""
        ...


class LogFacts(NamedTuple):
    """A log as it is now. The last of `segments` is the active one. `cleaned_to` is the offset in the checkpoint, None
    if it has none."""

    segments: Sequence[PlannedSegment]
    start_offset: int
    end_offset: int
    last_stable_offset: int
    cleaned_to: int | None
    config: TopicConfig


class LogToClean(NamedTuple):
    """`first_uncleanable_offset` is the base offset of a segment. `clean_bytes` and `dirty_bytes` count whole segments:
    one that is half clean counts for both, as in Kafka. `must_reset`: the checkpoint is wrong, and `first_dirty_offset`
    replaces it. `why_not`: why the log is not due; None if it is."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    uncleanable_bytes: int
    dirty_ratio: float
    is_overdue: bool  # max.compaction.lag.ms has passed
    must_reset: bool
    why_not: str | None

    @property
    def is_due(self) -> bool:
        return self.why_not is None


def plan(log: LogFacts, now_ms: int) -> LogToClean:
    """Raises OSError if a timestamp that decides cannot be read."""
    segments, config = log.segments, log.config
    first_dirty_offset, must_reset = first_dirty(log)
    sealed_count = len(segments) - 1
    active_base = segments[-1].base_offset
    dirty_index = _index_of(segments, first_dirty_offset)
    if dirty_index < sealed_count:
        limit_offset, limit = _limit(log, segments[dirty_index:-1], now_ms)
        limit_offset = max(limit_offset, first_dirty_offset)
        end_index = sealed_count if limit_offset >= active_base else _index_of(segments, limit_offset)
    else:  # as for most logs at most times: only the active segment is dirty
        limit, end_index = _ACTIVE, sealed_count
    dirty_bytes = sum(segment.size_bytes for segment in segments[dirty_index:end_index])
    clean_bytes = _clean_bytes(segments, dirty_index, first_dirty_offset)
    total_bytes = clean_bytes + dirty_bytes
    ratio = dirty_bytes / total_bytes if total_bytes else 0.0
    is_overdue = dirty_bytes > 0 and _is_overdue(segments[dirty_index:-1], config, now_ms)
    is_clean = first_dirty_offset >= log.end_offset
    return LogToClean(
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=max(first_dirty_offset, segments[end_index].base_offset),
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        uncleanable_bytes=0 if is_clean else sum(s.size_bytes for s in segments[max(end_index, dirty_index) :]),
        dirty_ratio=ratio,
        is_overdue=is_overdue,
        must_reset=must_reset,
        why_not=_why_not(log, is_clean, dirty_bytes, ratio, is_overdue, limit),
    )


def unknown_plan(start_offset: int, size_bytes: int) -> LogToClean:
    """The plan of a log whose segments cannot be read."""
    return LogToClean(start_offset, start_offset, 0, 0, size_bytes, 0.0, False, False, "it cannot be looked at")


def depends_on_time(config: TopicConfig) -> bool:
    """Whether a plan may change with time alone."""
    return config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < LONG_MAX


def first_dirty(log: LogFacts) -> tuple[int, bool]:
    """The offset, and whether the checkpoint is wrong: before the log's start, which has moved since, or beyond its
    end, for the log was truncated. Then all records are dirty."""
    cleaned_to = log.cleaned_to
    if cleaned_to is None:
        return log.start_offset, False
    if not log.start_offset <= cleaned_to <= log.end_offset:
        return log.start_offset, True
    return cleaned_to, False


_ACTIVE = "all dirty records are in the active segment"


def _limit(log: LogFacts, dirty: Sequence[PlannedSegment], now_ms: int) -> tuple[int, str]:
    """The first offset that cannot be cleaned, and the reason, for people."""
    limit_offset, why = log.segments[-1].base_offset, _ACTIVE
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp_ms() > now_ms - lag_ms:
                limit_offset, why = segment.base_offset, "min.compaction.lag.ms has not passed"
                break
    if log.last_stable_offset < limit_offset:
        limit_offset = log.last_stable_offset
        why = "a transaction is open, or records wait to be committed"
    return limit_offset, why


def _clean_bytes(segments: Sequence[PlannedSegment], dirty_index: int, first_dirty_offset: int) -> int:
    """All of the segments that begin before the first dirty offset."""
    end = dirty_index + 1 if segments[dirty_index].base_offset < first_dirty_offset else dirty_index
    return sum(segment.size_bytes for segment in segments[:end])


def _is_overdue(dirty: Sequence[PlannedSegment], config: TopicConfig, now_ms: int) -> bool:
    limit_ms = now_ms - config.max_compaction_lag_ms
    return limit_ms > 0 and any(0 < segment.first_timestamp_ms() < limit_ms for segment in dirty)


def _why_not(log: LogFacts, is_clean: bool, dirty_bytes: int, ratio: float, is_overdue: bool, limit: str) -> str | None:
    if dirty_bytes:
        if is_overdue or ratio > log.config.min_cleanable_dirty_ratio:
            return None
        least = log.config.min_cleanable_dirty_ratio
        shown = math.floor(ratio * 100) / 100  # rounded it might seem to be enough
        how = "below" if ratio < least else "not above"
        return f"dirty ratio {shown:.2f} is {how} min.cleanable.dirty.ratio {least:g}"
    if is_clean:
        return "the log is empty" if log.start_offset == log.end_offset else "nothing was written since the last run"
    return limit


def _index_of(segments: Sequence[PlannedSegment], offset: int) -> int:
    """The index of the segment with `offset`; 0 for an offset before the first."""
    return max(0, bisect_right(segments, offset, key=attrgetter("base_offset")) - 1)
