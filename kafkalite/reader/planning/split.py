"""Values that travel from planning to reading: a split is the work of one task, a tuple of chunks.

A chunk carries the header of its first batch, by which the reader sees whether the file is still the same one, and for
read_committed the aborted transactions that it has records of.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.reader.planning.row_filter import EVERY_ROW, RowFilter


class Chunk(NamedTuple):
    """Whole batches in `[position, position + size_bytes)` of a segment; of their records those in the offset range
    that the filter lets pass."""

    topic: str
    partition: int
    path: str
    position: int
    size_bytes: int
    head: bytes  # the header of the first batch, as planning saw it
    start_offset: int
    end_offset: int  # exclusive
    aborted: tuple[AbortedTxn, ...] = ()
    row_filter: RowFilter = EVERY_ROW


Split = tuple[Chunk, ...]
"""Chunks that one task reads in this order. Those of one partition are neighbours and ascend by offset."""
