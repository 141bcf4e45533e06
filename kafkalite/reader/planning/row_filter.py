"""Bounds of the rows that a query wants, in offsets and timestamps, inclusive on both sides.

Planning leaves out segments by them, the reader batches and then records, so that each uses what it can see.
"""

from __future__ import annotations

from typing import NamedTuple

LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1


class RowFilter(NamedTuple):
    """Rows with min_offset <= offset <= max_offset and min_timestamp <= timestamp <= max_timestamp, in milliseconds.

    Timestamps are compared as they are in the log, so -1 (none) is below 0. Without bounds every row is wanted.
    """

    min_offset: int = LOWEST
    max_offset: int = HIGHEST
    min_timestamp: int = LOWEST
    max_timestamp: int = HIGHEST

    @property
    def bounds_time(self) -> bool:
        """Whether any timestamp may be left out."""
        return self.min_timestamp > LOWEST or self.max_timestamp < HIGHEST


EVERY_ROW = RowFilter()
