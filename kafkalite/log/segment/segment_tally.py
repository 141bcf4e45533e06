"""The record count of one segment, as far as it is known."""

from __future__ import annotations

from kafkalite.log.segment.record_count_file import Identity
from kafkalite.log.segment.record_counting import Tally
from kafkalite.record.batch import BatchHeader


class SegmentTally:
    """Fields: `record_count` records, `control_record_count` transaction markers among them, follow the first
    `uncounted_bytes`, whose records are unknown. `identity` is the file's from before anything was appended to those
    bytes. `is_noted`: the record count file has the count.
    """

    __slots__ = ("control_record_count", "identity", "is_noted", "record_count", "uncounted_bytes")

    def __init__(self, uncounted_bytes: int) -> None:
        self.forget(uncounted_bytes)

    def forget(self, size_bytes: int) -> None:
        """Makes the records of all `size_bytes` unknown."""
        self.record_count = self.control_record_count = 0
        self.uncounted_bytes = size_bytes
        self.identity: Identity | None = None
        self.is_noted = False

    def add_counted(self, record_count: int, control_record_count: int) -> None:
        """Adds the records of the bytes that were uncounted until now."""
        self.record_count += record_count
        self.control_record_count += control_record_count
        self.uncounted_bytes = 0
        self.identity = None

    def add_unusual(self, header: BatchHeader) -> None:
        """Corrects the count, which expects a data record for each offset, for a marker or a batch with gaps."""
        self.record_count += header.record_count - header.last_offset_delta - 1
        if header.is_control:
            self.control_record_count += header.record_count

    @property
    def counted(self) -> Tally:
        """Data records and control records, without those in the uncounted bytes."""
        return Tally(self.record_count - self.control_record_count, self.control_record_count)
