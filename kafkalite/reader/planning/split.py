"""Values that travel from planning to reading: a split is the work of one task, a tuple of chunks.

A chunk has all that a reader needs to see that the file is still the one that was planned: the header of its first
batch where planning has read it, or the size of a closed segment that is wanted as a whole, for which planning opens
no file. Its offsets are as narrow as planning knows: these records it stands for, whatever becomes of the
files.
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
    head: bytes  # of the first batch, up to HEADER_BYTES of it; empty where `file_bytes` tells
    start_offset: int
    end_offset: int  # exclusive
    aborted: tuple[AbortedTxn, ...] = ()
    row_filter: RowFilter = EVERY_ROW
    file_bytes: int = -1  # the size of the file, which is closed; -1 where `head` tells
    file_id: int = -1  # the inode of a file that may grow, which compaction would replace; -1 where nothing tells


Split = tuple[Chunk, ...]
"""Chunks that one task reads in this order. Those of one partition are neighbours and ascend by offset."""
