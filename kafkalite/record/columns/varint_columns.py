"""The beginnings of records, and their varints, for many at once: the first step of `record_columns`.

The length of a record precedes it, so the records of a batch must be found one by one; but batches are independent: the
k-th records of all batches are one numpy step, a lane for each batch. Where too few batches have more (few, huge
ones), a tight loop reads the others. Positions are clipped to the buffer while reading, so malformed data lead to wrong
positions and never to a read outside; the decoder of the records checks that they end where their batch ends.
Several varints side by side in every row, as between the fields of records, are written as a matrix with as many byte
columns as the widest row needs; every byte column is one numpy step, and one selection closes the gaps: 29 ns a row of
five varints, where writing each varint at its own place takes 73.
Source: org.apache.kafka.common.utils.ByteUtils.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import varint
from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.record import RECORD_BYTES_MIN, read_varint

Bytes = npt.NDArray[np.uint8]
Signed = npt.NDArray[Any]  # of a signed integer type

# a lane step costs about 15 us at any width, a record in the loop 0.15 us: below this width the loop is faster
LANES_MIN = 96
_TABLE_LANES_MAX = 6000  # in more lanes the table is slower than arithmetic


class Corrupt(Exception):
    """Malformed data in `row` of the caller's arrays."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row = row
        self.why = why


def refuse(wrong: Flags, why: str) -> None:
    """Raise Corrupt with the first row that is `wrong`, if one is."""
    if wrong.any():
        raise Corrupt(int(np.argmax(wrong)), why)


def find_records(data: Bytes, starts: Array, counts: Array) -> Array:
    """The position of each record's length, in order, for batches with `counts` records, one at least, from `starts`.

    Raises Corrupt with the row of the batch.
    """
    if counts.max() == 1:
        return starts
    first = slots = np.cumsum(counts) - counts
    begins = np.empty(int(counts.sum()), np.int64)
    order = np.argsort(-counts, kind="stable")
    slots, at = slots[order], starts[order]
    begins[slots] = at
    counts_left = (counts[order] - 1).tolist()  # descending: batches with more are always the first `width` lanes
    width = len(counts_left)
    step = 0
    hops: _Hops | None = None
    while True:
        while width and counts_left[width - 1] <= step:
            width -= 1
        if width < LANES_MIN:
            break
        if hops is None or width < len(at):
            slots, at = slots[:width], at[:width]
            hops = _Hops(data, width)
        try:
            at = hops.next(at)
        except Corrupt as error:
            raise Corrupt(int(order[error.row]), error.why) from None
        slots = slots + 1
        begins[slots] = at
        step += 1
    view = data.data
    for lane in range(width):
        slot = int(slots[lane])
        count = counts_left[lane] - step
        begins[slot : slot + count + 1] = array("q", _find_alone(view, int(at[lane]), count))
    if width:
        negative = data.take(begins, mode="clip") & 1 != 0
        if negative.any():
            raise Corrupt(int(np.searchsorted(first, np.argmax(negative), "right") - 1), "a record of negative size")
    return begins


class _Hops:
    """Hops from records to the next ones in `width` lanes. A table has the size of a record by its first two bytes: 4.1
    ms instead of 5.2 for 8 MiB of records of 100 bytes, 100 in a batch. Its buffers are reused."""

    def __init__(self, data: Bytes, width: int) -> None:
        self._data = data
        self._data_behind = data[1:]
        self._first, self._second = np.empty((2, width), np.uint8)
        self._pair = np.empty(width, "<u2")
        self._pair_bytes = self._pair.view(np.uint8).reshape(width, 2)
        self._hop = np.empty(width, np.int16)

    def next(self, at: Array) -> Array:
        """The beginnings of the records after those at `at`. Raises Corrupt."""
        if len(at) < _TABLE_LANES_MAX:
            # "clip" also spares the copy that numpy makes before it writes to `out`
            self._data.take(at, mode="clip", out=self._first)
            self._data_behind.take(at, mode="clip", out=self._second)
            self._pair_bytes[:, 0] = self._first
            self._pair_bytes[:, 1] = self._second
            _hop_table().take(self._pair, mode="clip", out=self._hop)
            if np.count_nonzero(self._hop) == len(at):
                return at + self._hop
        size, behind = read_varints(self._data, at)
        following: Array = behind + size
        return following


@cache
def _hop_table() -> npt.NDArray[np.int16]:
    """The distance to the next record by the first two bytes of a record; 0 where the length has more bytes."""
    pair = np.arange(1 << 16)
    first, second = pair & 0xFF, pair >> 8
    size = np.where(first < 0x80, first, first & 0x7F | second << 7)
    is_known = ((first < 0x80) | (second < 0x80)) & (size & 1 == 0)
    return np.where(is_known, (size >> 1) + np.where(first < 0x80, 1, 2), 0).astype(np.int16)


def _find_alone(data: memoryview, position: int, count: int) -> list[int]:
    """`position`, and the beginnings of the `count` records behind the one there.

    The sign of sizes of one byte or two is left to the caller, which checks all of them at once.
    """
    begins = [position]
    append = begins.append
    try:
        for _ in repeat(None, count):
            size = data[position]
            if size > 0x7F:
                position += 1
                second = data[position]
                if second > 0x7F:
                    size, position = read_varint(data, position - 1)
                    if size < 0:
                        break
                    position += size
                    append(position)
                    continue
                size += (second << 7) - 0x80
            position += 1 + (size >> 1)
            append(position)
    except (IndexError, Malformed):
        pass
    # records past the end do not end where their batch ends, and the decoder refuses them
    begins += [len(data)] * (count + 1 - len(begins))
    return begins


def whole_records(data: bytes, count: int) -> tuple[Array, int]:
    """The positions of the lengths of the whole records at the beginning of `data`, `count` at most, and their end.

    A length that no record can have ends them, too.
    """
    begins = array("q")
    position = 0
    last = len(data)
    try:
        for _ in repeat(None, count):
            size, at = read_varint(data, position)
            end = at + size
            if size < RECORD_BYTES_MIN - 1 or end > last:
                break
            begins.append(position)
            position = end
    except (IndexError, Malformed):
        pass
    return np.array(begins, np.int64), position


def read_varints(data: Bytes, at: Array, bits: int = 32) -> tuple[Signed, Array]:
    """The zig-zag varints at `at`, in the narrowest type that holds them, and their ends.

    Most have one byte or two, so the function may return after each byte. A byte that a shorter varint does not have is
    gathered all the same, and multiplied by zero.
    """
    first = data.take(at, mode="clip")
    at = at + 1
    more = first >> 7
    if not more.any():
        return _unzigzag(first, np.int8), at
    second = data.take(at, mode="clip") * more
    at += more
    first &= 0x7F
    more = second >> 7
    if not more.any():
        return _unzigzag(first | second.astype(np.uint16) << 7, np.int16), at
    value = first.astype(np.uint64)
    byte = second
    shift = 7
    while True:
        value |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        more = byte >> 7
        if not more.any():
            break
        shift += 7
        if shift >= bits:
            refuse(more != 0, f"a varint of more than {bits} bits")
        byte = data.take(at, mode="clip") * more
        at += more
    if bits == 32:
        value &= np.uint64(0xFFFFFFFF)
    return _unzigzag(value, np.int64), at


def skip_varints(data: Bytes, at: Array, bits: int = 64) -> Array:
    """The ends of the varints at `at`, whose values are not wanted: half the work of reading them."""
    byte = data.take(at, mode="clip")
    at = at + 1
    more = byte >> 7
    shift = 0
    while more.any():
        shift += 7
        if shift >= bits:
            refuse(more != 0, f"a varint of more than {bits} bits")
        byte = data.take(at, mode="clip")
        at += more
        more &= byte >> 7
    return at


def _unzigzag(value: npt.NDArray[Any], signed: type[np.signedinteger[Any]]) -> Signed:
    result: Signed = (value >> 1).view(signed) ^ -(value & 1).view(signed)
    return result


def read_fields(data: Bytes, at: Array) -> tuple[Array, Array, Array]:
    """Starts and ends of the length-prefixed fields at `at`, and the positions behind them. Length -1 is null, and
    so is less for Java."""
    size, start = read_varints(data, at)
    if (size < 0).any():
        end = start + np.maximum(size, -1)
        return start, end, np.maximum(start, end)
    end = start + size
    return start, end, end


def zigzag(value: Array) -> npt.NDArray[np.uint64]:
    result: npt.NDArray[np.uint64] = (value << 1 ^ value >> 63).view(np.uint64)
    return result


def varint_width(value: npt.NDArray[np.uint64]) -> Array:
    """The number of bytes of each varint."""
    width = np.ones(len(value), np.int64)
    rest: npt.NDArray[Any] = value >> np.uint64(7)
    while rest.any():
        width += rest != 0
        rest = rest >> np.uint64(7)
    return width


def write_varints(out: Bytes, at: Array, value: npt.NDArray[np.uint64]) -> Array:
    """Write each varint at its position; returns their ends."""
    end = at.copy()
    rows = np.arange(len(value))
    while len(rows):
        rest = value >> np.uint64(7)
        more = rest != 0
        out[end[rows]] = (value & np.uint64(0x7F)).astype(np.uint8) | more.astype(np.uint8) << 7
        end[rows] += 1
        rows, value = rows[more], rest[more]
    return end


Offsets = npt.NDArray[np.int32]


def varint_sizes(value: Array) -> Array:
    """The number of bytes of each value as a zig-zag varint."""
    # a magnitude of six bits and the sign fill the first byte; each further byte has seven more
    magnitude = value ^ (value >> 63) if value.min(initial=0) < 0 else value
    size = np.ones(len(value), np.int64)
    limit = int(magnitude.max(initial=0))
    shift = 6
    while limit >> shift:
        size += magnitude >= 1 << shift
        shift += 7
    return size


def encode_varint_rows(columns: Sequence[Array]) -> tuple[Bytes, Offsets]:
    """The values of all columns as zig-zag varints, row after row, and where each row begins; the last offset is the
    end. All columns have the same length."""
    rows = len(columns[0])
    unsigned = [_zigzag(column) for column in columns]
    widths = [max(1, -(-int(value.max(initial=0)).bit_length() // 7)) for value in unsigned]
    matrix = np.empty((rows, sum(widths)), np.uint8)
    used = np.ones((rows, sum(widths)), np.bool_)
    sizes = np.full(rows, len(columns), np.int32)
    at = 0
    for column, value, width in zip(columns, unsigned, widths, strict=True):
        if rows and value[0] == value[-1] and (value == value[0]).all():  # such as the deltas of equal times
            matrix[:, at : at + width] = np.frombuffer(varint(int(column[0])), np.uint8)
            sizes += width - 1
            at += width
            continue
        rest = value
        for byte in range(width):
            if byte:
                more = rest != 0
                used[:, at + byte] = more
                sizes += more
            following = rest >> 7
            low = rest.astype(np.uint8)
            matrix[:, at + byte] = np.where(following != 0, low | 0x80, low & 0x7F)
            rest = following
        at += width
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return matrix[used] if offsets[-1] < matrix.size else matrix.reshape(-1), offsets


def _zigzag(value: Array) -> npt.NDArray[Any]:
    """In 32 bits where they hold it: half the bytes to pass through."""
    low, high = int(value.min(initial=0)), int(value.max(initial=0))
    if low >= -(1 << 30) and high < 1 << 30:
        narrow = value.astype(np.int32)
        narrow = narrow << 1 ^ narrow >> 31 if low < 0 else narrow << 1
        return narrow.view(np.uint32)
    return zigzag(value)
