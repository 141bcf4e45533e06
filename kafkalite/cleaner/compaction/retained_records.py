"""Which records outlive a pass, once the first reading is done.

In the dirty range the map has said it already: its offsets are those of the last record of each key, and no other
record there survives. They are sorted once, in the place of the map, and a batch finds its survivors by two searches,
without being unpacked. Only records from before the dirty range, and those that were read with them, are looked up by
key: one survives unless a later one of its key is in the map.
Records past the end of the map survive as they are.
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
    """The map becomes its offsets when a piece of the dirty range comes, for no key is looked up from there on."""

    def __init__(self, offset_map: SkimpyOffsetMap, first_dirty_offset: int, latest_offset: int) -> None:
        self._map: SkimpyOffsetMap | None = offset_map
        self.first_dirty_offset = first_dirty_offset
        self.latest_offset = latest_offset
        self._offsets: Array = np.empty(0, np.int64)
        self._tombstones: Array = np.empty(0, np.int64)

    def reach(self, base_offset: int) -> None:
        """From `base_offset` on nothing is asked about offsets below it."""
        if self._map is not None and base_offset >= self.first_dirty_offset:
            self._offsets, self._tombstones = self._map.turn_into_latest()
            self._map = None

    def covers(self, base_offset: Array, last_offset: Array) -> Flags:
        """Whether all offsets of each batch are in the range of the map, and its offsets are sorted."""
        inside: Flags = (base_offset >= self.first_dirty_offset) & (last_offset <= self.latest_offset)
        if self._map is not None:
            inside[:] = False
        return inside

    def between(self, base_offset: Array, last_offset: Array) -> tuple[Array, Array]:
        """How many records of each batch that is covered survive, tombstones too, and how many tombstones."""
        return tuple(  # type: ignore[return-value]
            np.searchsorted(offsets, last_offset, "right") - np.searchsorted(offsets, base_offset)
            for offsets in (self._offsets, self._tombstones)
        )

    def offsets_between(self, base_offset: Array, last_offset: Array) -> tuple[Array, Array]:
        """(row of the batch, offset) of each of those survivors."""
        offsets = self._offsets
        first = np.searchsorted(offsets, base_offset)
        count = np.searchsorted(offsets, last_offset, "right") - first
        row = np.repeat(np.arange(len(count)), count)
        at = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
        return row, offsets[at]

    def are_tombstones(self, offset: Array) -> Flags:
        """Whether the survivor at each offset of the dirty range is one."""
        return _are_in(offset, self._tombstones)

    def look_up(self, data: Bytes, keys: RecordKeys, offset: Array) -> Flags:
        """Whether each record survives, whatever its value is. Raises CleaningFailed."""
        survive: Flags = offset > self.latest_offset
        rows = np.flatnonzero(~survive & keys.is_there)
        if not len(rows):
            return survive
        asked = offset[rows]
        if self._map is not None:
            survive[rows] = self._map.get(data, keys.start[rows], keys.end[rows]) <= asked
        elif asked.min() < self.first_dirty_offset:
            raise CleaningFailed(f"offset {asked.min()} follows higher ones")
        else:
            survive[rows] = _are_in(asked, self._offsets)
        return survive


def _are_in(offset: Array, among: Array) -> Flags:
    """Whether each offset is among those, which ascend."""
    if not len(among):
        return np.zeros(len(offset), np.bool_)
    at = np.minimum(np.searchsorted(among, offset), len(among) - 1)
    found: Flags = among[at] == offset
    return found
