"""How many records a consumer at an offset would still get, exactly: a plan made by the log's owner, carried out by any
thread.

Whole segments are counted already. In the segment of the offset, and in that of the limit, the smaller side is read,
headers only. Records of aborted transactions, which read_committed consumers skip, are found by the headers between the
first and the last of them. A count that would take too long is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.region import OpenFile
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.segment.record_counting import count
from kafkalite.log.segment.segment import Segment
from kafkalite.record.batch import BatchHeader
from kafkalite.replication.partition import Partition

SCANNED_BYTES_MAX = 512 << 20  # of one plan; headers of small batches take a second for 200 MiB


class _Piece(NamedTuple):
    """Bytes to read: the data records in [position, end) with offsets in [from_offset, limit) count by `sign`."""

    file: OpenFile
    position: int
    end: int
    from_offset: int
    limit: int
    sign: int
    only_aborted: bool = False


class CountPlan:
    """The part of the count that is known, and the pieces that are still to be read."""

    def __init__(self, partition: Partition, offset: int, *, committed_only: bool) -> None:
        """Belongs to the log's owner. Raises OSError, StorageError."""
        log = partition.log
        self._known = 0
        self._pieces: list[_Piece] = []
        self._aborted: list[AbortedTxn] = []
        start = max(offset, log.start_offset)
        limit = partition.last_stable_offset if committed_only else partition.high_watermark
        if start >= limit:
            return
        log.record_counts.current()  # brings the count of the active segment up to date, and has unknown ones counted
        segments = log.segments
        for segment, end_offset in _overlapping(segments, log.end_offset, start, limit):
            self._plan(segment, end_offset, start, limit)
        self._aborted = partition.log.transactions.aborted(start, limit) if committed_only else []
        if self._aborted:
            first = max(start, min(one.first_offset for one in self._aborted))
            last = min(limit, max(one.last_offset for one in self._aborted) + 1)
            for segment, _ in _overlapping(segments, last, first, last):
                found = segment.find(first) if segment.base_offset < first else (0, 0)
                behind = segment.find(last)
                if found is not None:
                    end = segment.size_bytes if behind is None else behind[0] + behind[1]
                    self._pieces.append(_Piece(segment.open_file(), found[0], end, start, limit, -1, True))

    @property
    def bytes_to_read(self) -> int:
        return sum(piece.end - piece.position for piece in self._pieces)

    def _plan(self, segment: Segment, end_offset: int, start: int, limit: int) -> None:
        """Count a whole segment and subtract its smaller sides, unless the wanted part itself is smaller to read."""
        first = segment.find(start) if segment.base_offset < start else (0, 0)
        if first is None:
            return
        behind = segment.find(limit) if end_offset > limit else None
        position, last = first[0], segment.size_bytes
        file = segment.open_file()
        wanted_end = last if behind is None else behind[0] + behind[1]
        if segment.tally.uncounted_bytes or wanted_end - position < position + first[1] + last - wanted_end:
            self._pieces.append(_Piece(file, position, wanted_end, start, limit, 1))
            return
        self._known += segment.tally.counted.records
        if segment.base_offset < start:
            self._pieces.append(_Piece(file, 0, position + first[1], -1, start, -1))
        if behind is not None:
            self._pieces.append(_Piece(file, behind[0], last, limit, end_offset, -1))

    def count(self) -> int | None:
        """The number; None if too much must be read, or a read fails. Only reads files."""
        if self.bytes_to_read > SCANNED_BYTES_MAX:
            return None
        try:
            return self._known + sum(piece.sign * self._records_in(piece) for piece in self._pieces)
        except (OSError, Malformed):
            return None

    def _is_aborted(self, header: BatchHeader) -> bool:
        return (
            header.is_transactional
            and not header.is_control
            and any(
                header.producer_id == one.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                for one in self._aborted
            )
        )

    def _records_in(self, piece: _Piece) -> int:
        counts = self._is_aborted if piece.only_aborted else None
        return count(piece.file.fd, piece.position, piece.end, piece.limit, piece.from_offset, counts).records


def _overlapping(segments: Sequence[Segment], end_offset: int, first: int, limit: int) -> Iterator[tuple[Segment, int]]:
    """The segments with records in [first, limit), each with its end offset; `end_offset` is that of the last one."""
    for at, segment in enumerate(segments):
        end = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        if end > first and segment.base_offset < limit and segment.size_bytes:
            yield segment, end
