"""The segments that a cleaning reads and writes, as values that are also sent to worker processes.

Offsets are absolute, sizes are bytes. `base_offset` of a segment is its first offset, by which its files are named.
"""

from __future__ import annotations

from kafkalite.common.named_tuple import NamedTuple


class SourceSegment(NamedTuple):
    """A sealed segment. `end_offset` is the next segment's base; `index_bytes` and `time_index_bytes` are the sizes of
    its index files; `modified_ns` is when its .log was last written."""

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    modified_ns: int


class CleanedSegment(NamedTuple):
    """A segment that is complete as `<base_offset>.log.cleaned` with its indexes, and replaces those that begin at
    `sources`. It may be empty. `record_count` includes control records; -1: it is not known. `max_timestamp_offset` is
    the last offset of the first batch that has the largest timestamp; -1 and `base_offset` where nothing has one.
    `further`: the segments behind it, where one file has no room for all retained records of the sources."""

    base_offset: int
    sources: tuple[int, ...]
    size_bytes: int
    record_count: int
    control_record_count: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    further: tuple[CleanedSegment, ...] = ()

    @property
    def all(self) -> tuple[CleanedSegment, ...]:
        """Itself and the further ones, ascending."""
        return (self, *self.further)
