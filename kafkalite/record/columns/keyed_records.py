"""Keys and values of many records as bytes objects: for those that keep the last value of each key in memory.

Fields of one length are copied in one step of numpy, as many lengths as there are: 40 ns a field instead of 120 where a
loop slices the buffer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.record_columns import Fields
from kafkalite.record.columns.varint_columns import Bytes

KEYED = Fields(timestamp=False, offset=False)
"""The fields to decode. Headers are only checked: without them, the end of a record is not."""

_SIZES_MAX = 64  # of more lengths, and of longer fields, each slice by itself is as fast
_SIZE_BYTES_MAX = 4096


def first_two_bytes(data: Bytes, start: Array) -> Array:
    """The first two bytes of each field, as a big-endian number; arbitrary for a field that is shorter."""
    high = data.take(start, mode="clip").astype(np.int64)
    low = data.take(start + 1, mode="clip")
    found: Array = high << 8 | low
    return found


def last_four_bytes(data: Bytes, end: Array) -> list[int]:
    """The last four bytes of each field, which has as many at least, as a big-endian signed number."""
    everywhere: npt.NDArray[np.int32] = np.ndarray((len(data) - 3,), ">i4", data.data, strides=(1,))
    found: list[int] = everywhere[end - 4].tolist()
    return found


def differ(data: Bytes, start: Array, end: Array) -> Flags:
    """Whether each field but the first differs from the one before it; there is one field at least. Short ones count
    as different."""
    size = end - start
    differs: Flags = size[1:] != size[:-1]
    words: npt.NDArray[np.uint64] = np.ndarray((max(0, len(data) - 7),), "<u8", data.data, strides=(1,))
    least, most = int(size.min()), int(size.max())
    if least < 8:  # some are shorter than a word
        return np.ones(len(differs), np.bool_)
    # the words that all fields have, as one copy of each; then words from the end on, which may overlap those
    common = least >> 3
    everywhere: npt.NDArray[np.void] = np.ndarray(
        (len(data) - 8 * common + 1,), f"V{8 * common}", data.data, strides=(1,)
    )
    heads = everywhere[start].view(np.uint64).reshape(-1, common)
    differs |= (heads[1:] != heads[:-1]).any(axis=1)
    for distance in range(8, most - 8 * common + 8, 8):
        word = words[np.maximum(end - distance, 0)]
        differs |= (word[1:] != word[:-1]) & (size[1:] >= distance)  # of a shorter one it begins in the field before
    return differs


def cut(data: Bytes, start: Array, end: Array) -> list[bytes | None]:
    """Each field; None where it is null, its end before its start."""
    size = np.maximum(end - start, -1)  # -1 for null
    if int(size.max(initial=0)) > _SIZE_BYTES_MAX:
        return _slices(data, start, end)
    sizes = (np.flatnonzero(np.bincount(size + 1)) - 1).tolist()
    if len(sizes) == 1:
        return _cut_equal(data, start, sizes[0])
    if len(sizes) > _SIZES_MAX:
        return _slices(data, start, end)
    found = np.empty(len(start), object)
    for each in sizes:
        rows = np.flatnonzero(size == each)
        found[rows] = _cut_equal(data, start[rows], each)
    result: list[bytes | None] = found.tolist()
    return result


def _slices(data: Bytes, start: Array, end: Array) -> list[bytes | None]:
    view = data.data
    fields = zip(start.tolist(), end.tolist(), strict=True)
    return [bytes(view[first:last]) if first <= last else None for first, last in fields]


def _cut_equal(data: Bytes, start: Array, size: int) -> list[bytes | None]:
    if size <= 0:
        return [None if size < 0 else b""] * len(start)
    # every position seen as such a field, of which those at `start` are copied
    everywhere: npt.NDArray[np.void] = np.ndarray((len(data) - size + 1,), f"V{size}", data.data, strides=(1,))
    result: list[bytes | None] = everywhere[start].tolist()
    return result
