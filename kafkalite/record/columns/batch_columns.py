"""The headers of many batches at once, as numpy columns; no record is read.

The batches are found one by one (0.1 us each); then all headers are copied into one structured array, and every check
is one comparison of columns.
Source: org.apache.kafka.common.record.DefaultRecordBatch.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed
from kafkalite.record.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_BYTES,
    Buffer,
)
from kafkalite.record.batches import find_bounds

Array = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

HEAD = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)


class OldFormat(Malformed):
    """There is a message of format v0 or v1 among the batches."""


@dataclass(slots=True)
class Batches:
    """The whole batches of a buffer, one row each. `heads` has the header's fields by name, big-endian as on disk."""

    position: Array
    heads: npt.NDArray[np.void]
    consumed_bytes: int  # the end of the last whole batch; the beginning of one more may follow

    def __len__(self) -> int:
        return len(self.position)

    def first(self, count: int) -> Batches:
        """The first `count` of them."""
        end = int(self.position[count]) if count < len(self) else self.consumed_bytes
        return Batches(self.position[:count], self.heads[:count], end)

    def column(self, name: str) -> Array:
        """The header field `name` of each batch, in native integers."""
        values: Array = self.heads[name].astype(np.int64)
        return values

    def _have(self, bit: int) -> Flags:
        flags: Flags = (self.heads["attributes"] & bit) != 0
        return flags

    @property
    def size_bytes(self) -> Array:
        return self.column("batch_length") + PREFIX_BYTES

    @property
    def base_offset(self) -> Array:
        return self.column("base_offset")

    @property
    def last_offset(self) -> Array:
        return self.base_offset + self.column("last_offset_delta")

    @property
    def is_overfull(self) -> Flags:
        """With more records than offsets: brokers of old took them so from clients that left the last offset
        delta at 0. Consumers read all of them."""
        overfull: Flags = self.record_count > self.column("last_offset_delta") + 1
        return overfull

    @property
    def record_count(self) -> Array:
        return self.column("record_count")

    @property
    def codec(self) -> Array:
        return self.column("attributes") & CODEC_MASK

    @property
    def is_control(self) -> Flags:
        """Transaction markers and the like, whose records `decode` leaves out."""
        return self._have(CONTROL)

    @property
    def is_log_append_time(self) -> Flags:
        return self._have(LOG_APPEND_TIME)

    @property
    def is_empty(self) -> Flags:
        """Without records: a header that compaction keeps for the producer's state."""
        empty: Flags = self.heads["record_count"] == 0
        return empty

    def first_wrong_checksum(self, data: memoryview, rows: Array) -> int | None:
        """The position of the first of the batches `rows` of `data` whose checksum is wrong; None without one."""
        starts = self.position[rows]
        ends, crcs = starts + self.size_bytes[rows], self.heads["crc"][rows]
        for start, end, crc in zip(starts.tolist(), ends.tolist(), crcs.tolist(), strict=True):
            if crc32c(data[start + CRC_FROM : end]) != crc:
                return int(start)
        return None


def scan(data: Buffer, *, check_crc: bool = False) -> Batches:
    """The whole batches in `data`, up to one that is cut off.

    Raises Malformed where no batch can begin and, with `check_crc`, for one whose checksum is wrong; OldFormat for a
    message of format v0 or v1.
    """
    batches, fault = scan_until_fault(data)
    if fault is not None:
        raise fault
    rows = np.arange(len(batches))
    if check_crc and (at := batches.first_wrong_checksum(memoryview(data), rows)) is not None:
        base_offset = int.from_bytes(data[at : at + 8], "big", signed=True)
        raise Malformed(f"the batch at offset {base_offset} is corrupt: its checksum is wrong")
    return batches


def scan_until_fault(data: Buffer) -> tuple[Batches, Malformed | None]:
    """The whole batches in `data` up to one that is cut off, or to a place where none can begin, and why."""
    view = memoryview(data)
    positions, length = find_bounds(view)
    position = positions.pop()
    fault = None if length is None else Malformed(f"no record batch at position {position}: its length says {length}")
    rows = np.array(array("q", positions), dtype=np.int64)
    if not len(rows):
        return Batches(rows, np.empty(0, HEAD), 0), fault
    sizes = np.diff(rows, append=position)
    magics = np.frombuffer(view, np.int8).take(rows + 16)
    wrong = (magics != MAGIC) | (sizes < HEADER_BYTES)
    if wrong.any():
        row = int(np.argmax(wrong))
        position = int(rows[row])
        fault = _fault(position, int(magics[row]))
        rows = rows[:row]
    return Batches(rows, _heads(view, rows), position), fault


def _fault(position: int, magic: int) -> Malformed:
    if magic == MAGIC:
        return Malformed(f"no record batch at position {position}: it is shorter than its header")
    kind = OldFormat if 0 <= magic < MAGIC else Malformed
    return kind(f"the batch at position {position} has magic {magic}: only format v2 can be read in columns")


def _heads(view: memoryview, rows: Array) -> npt.NDArray[np.void]:
    if not len(rows):
        return np.empty(0, HEAD)
    # every position seen as a header, of which those in `rows` are copied: one memcpy of 61 bytes each
    everywhere: npt.NDArray[np.void] = np.ndarray(
        (len(view) - HEADER_BYTES + 1,), f"V{HEADER_BYTES}", view, strides=(1,)
    )
    heads: npt.NDArray[np.void] = everywhere[rows].view(HEAD)
    return heads
