"""The records that a cleaning retains, once the offset map is built.

In the dirty range the map's offsets say it: they are those of the last record of each key. They are sorted once, in the
memory of the map, and two searches find the retained records of a batch without decompressing it. Records before the
dirty range, and dirty records in the same piece, are looked up by key: a record is retained unless the map has a later
offset of its key. Records past the end of the map are retained.
Source: kafka.log.Cleaner.shouldRetainRecord.
"""

from __future__ import annotations

import numpy as np

from kafkalite.cleaner.columns.record_keys import RecordKeys
from kafkalite.cleaner.compaction.skimpy_offset_map import SkimpyOffsetMap
from kafkalite.cleaner.job.job import CleaningFailed
from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.varint_columns import Bytes


class RetainedRecords:
    """The first piece of the dirty range turns the map into its sorted offsets: no key is looked up from there on."""

    def __init__(self, offset_map: SkimpyOffsetMap, first_dirty_offset: int, latest_offset: int) -> None:
        self._map: SkimpyOffsetMap | None = offset_map
        self.first_dirty_offset = first_dirty_offset
        self.latest_offset = latest_offset
        self._offsets: Array = np.empty(0, np.int64)
        self._tombstones: Array = np.empty(0, np.int64)

    def reach(self, base_offset: int) -> None:
        """The cleaning has reached `base_offset`: no lookup for a lower offset follows."""
        if self._map is not None and base_offset >= self.first_dirty_offset:
            self._offsets, self._tombstones = self._map.into_offsets()
            self._map = None

    def covers(self, base_offset: Array, last_offset: Array) -> Flags:
        """Whether all offsets of each batch are in the range of the map, and its offsets are sorted."""
        if self._map is not None:
            return np.zeros(len(base_offset), np.bool_)
        inside: Flags = (base_offset >= self.first_dirty_offset) & (last_offset <= self.latest_offset)
        return inside

    def count_between(self, base_offset: Array, last_offset: Array) -> tuple[Array, Array]:
        """The number of retained records of each covered batch, tombstones included, and of tombstones."""
        return tuple(  # type: ignore[return-value]
            np.searchsorted(offsets, last_offset, "right") - np.searchsorted(offsets, base_offset)
            for offsets in (self._offsets, self._tombstones)
        )

    def offsets_between(self, base_offset: Array, last_offset: Array) -> tuple[Array, Array]:
        """(row of the batch, offset) of each of these records."""
        offsets = self._offsets
        first = np.searchsorted(offsets, base_offset)
        count = np.searchsorted(offsets, last_offset, "right") - first
        row = np.repeat(np.arange(len(count)), count)
        at = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
        return row, offsets[at]

    def are_tombstones(self, offset: Array) -> Flags:
        """Whether the retained record at each offset of the dirty range is a tombstone."""
        return _are_in(offset, self._tombstones)

    def look_up(self, data: Bytes, keys: RecordKeys, offset: Array) -> Flags:
        """Whether each record is retained, be it a tombstone or not. Raises CleaningFailed."""
        retained: Flags = offset > self.latest_offset
        rows = np.flatnonzero(~retained & keys.is_present)
        if not len(rows):
            return retained
        wanted = offset[rows]
        if self._map is not None:
            retained[rows] = self._map.get(data, keys.start[rows], keys.end[rows]) <= wanted
        elif wanted.min() < self.first_dirty_offset:
            raise CleaningFailed(f"offset {wanted.min()} follows higher ones")
        else:
            retained[rows] = _are_in(wanted, self._offsets)
        return retained


def _are_in(offset: Array, among: Array) -> Flags:
    """Whether each offset is in `among`, which ascends."""
    if not len(among):
        return np.zeros(len(offset), np.bool_)
    at = np.minimum(np.searchsorted(among, offset), len(among) - 1)
    found: Flags = among[at] == offset
    return found
