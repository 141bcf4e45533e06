"""Values that travel from planning to reading and back: a split with its chunks, settings, and the report of a reading.

A split is the work of one task, a tuple of chunks. A chunk has all that a reader needs to see that the file is still
the one that was planned: the header of its first batch where planning has read it, or the size of a closed segment
that is wanted as a whole, for which planning opens no file. Its offsets are fixed at planning: later retention makes
the read fail, not shrink.
Planning prunes segments by the row filter, the reader prunes batches and then rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.index.transaction_index import AbortedTxn

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


class Chunk(NamedTuple):
    """Whole batches in `[position, position + size_bytes)` of a segment; of their records those in the offset range
    that the filter lets pass."""

    topic: str
    partition: int
    path: str
    position: int
    size_bytes: int
    head: bytes  # of the first batch, up to HEADER_BYTES of it; empty where `file_bytes` suffices
    start_offset: int
    end_offset: int  # exclusive
    aborted: tuple[AbortedTxn, ...] = ()
    row_filter: RowFilter = EVERY_ROW
    file_bytes: int = -1  # the size of the file, which is closed; -1 where `head` suffices
    file_id: int = -1  # the inode of a file that may grow, which compaction would replace; -1 where it is not known


Split = tuple[Chunk, ...]
"""Chunks that one task reads in this order. Those of one partition are neighbours and ascend by offset."""


def overlapping(aborted: Iterable[AbortedTxn], start: int, end: int) -> tuple[AbortedTxn, ...]:
    """The transactions with records in the offsets from `start` to before `end`."""
    return tuple(txn for txn in aborted if txn.first_offset < end and txn.last_offset >= start)


BATCH_BYTES = 64 << 20
_BATCH_BYTES_MIN = 1 << 18


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """`batch_bytes`: the limit of an Arrow batch. A task takes at most three times as much memory, however large a
    segment is or its batches unpack to; but a batch of records is unpacked whole.
    `fail_on_data_loss`: a file that was deleted, cut or replaced since planning is an error; otherwise it is reported.
    `skip_corrupt`: batches that cannot be read are reported and left out; otherwise they are an error.
    `check_crcs`: verify the checksum of every batch whose records are read, as a consumer does (its check.crcs).
    """

    batch_bytes: int = BATCH_BYTES
    fail_on_data_loss: bool = True
    skip_corrupt: bool = False
    check_crcs: bool = True

    # Shares of the batch size: file (1/8) + unpacked (1/4) + columns (about 1/4) + the Arrow batch (1/4), and once more
    # the last two, which the caller may still hold.
    @property
    def window_bytes(self) -> int:
        """The bytes of a file that are read at once."""
        return max(self.batch_bytes, _BATCH_BYTES_MIN) >> 3

    @property
    def group_bytes(self) -> int:
        """Decompressed batches are decoded together up to this size. Also the size of an Arrow batch."""
        return max(self.batch_bytes, _BATCH_BYTES_MIN) >> 2

    @property
    def group_records(self) -> int:
        """Records decoded at once: their columns take up to 100 bytes each."""
        return max(self.batch_bytes, _BATCH_BYTES_MIN) >> 8


class Loss(NamedTuple):
    """Bytes of a file that could not be read, and the offsets that they may have held: from `first_offset` to before
    `end_offset`, None where it is not known."""

    topic: str
    partition: int
    path: str
    position: int
    size_bytes: int
    first_offset: int | None
    end_offset: int | None
    reason: str


@dataclass(slots=True)
class ReadReport:
    """Counts go up while a split is read; several splits may share a report."""

    bytes_read: int = 0  # from files, headers included
    batches_seen: int = 0  # their headers
    batches_read: int = 0  # their records, too
    rows: int = 0
    lost: list[Loss] = field(default_factory=list)
