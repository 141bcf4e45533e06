"""A message set of v0 or v1 with very many messages, as the records of a v2 batch and back, by columns.

A wrapper of some kilobytes may hold tens of thousands of messages, a batch a quarter of a million records. With an
object for each, a message takes 10 us of the loop; here it takes 2 us, for one step of a loop, a checksum and two
copies. Sizes, timestamps and offsets are gathered, and varints and heads written, a column at a time.
The plain versions, with which tests compare, are `read_set` with `encode_records`, and `build_set`.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import CODEC_MASK, LOG_APPEND_TIME, PREFIX_BYTES
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.record_columns import Columns
from kafkalite.record.columns.varint_columns import Bytes, varint_width, write_varints, zigzag
from kafkalite.record.message_set import CRC_FROM, MESSAGE_BYTES_MIN, V0, V1, TooManyMessages, WrongChecksum

_size_and_crc = Struct(">8xiI").unpack_from
_BLOCK_RECORDS = 16384  # written at once: a quarter of a million hold the interpreter for 85 ms, these for 7
_HEAD_BYTES = (18, 26)  # in front of the key's size, by magic
_HEAD_FIELDS = [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", "i1"), ("attributes", "i1")]
_HEADS = (
    np.dtype([*_HEAD_FIELDS, ("key_size", ">i4")]),
    np.dtype([*_HEAD_FIELDS, ("timestamp", ">i8"), ("key_size", ">i4")]),
)  # by magic


class MessageColumns(NamedTuple):
    """The messages of a set, one row each. Starts and ends are positions in `data`; null ends before it starts."""

    data: bytes
    magic: int
    offset: Array  # as stored: in a wrapper of v1 it counts from the wrapper's first
    timestamp: Array  # -1 in v0
    any_append_time: bool
    key_start: Array
    key_end: Array
    value_start: Array
    value_end: Array

    def __len__(self) -> int:
        return len(self.offset)


def read_columns(data: bytes, max_records: int, *, check_crc: bool) -> MessageColumns:
    """The whole messages in `data`, all of one magic and none a wrapper. Raises Malformed, TooManyMessages, with
    `check_crc` WrongChecksum."""
    positions: list[int] = []
    append = positions.append
    at, size_bytes = 0, len(data)
    last = size_bytes - PREFIX_BYTES - MESSAGE_BYTES_MIN
    while at <= last:
        size, crc = _size_and_crc(data, at)
        end = at + size + PREFIX_BYTES
        if size < MESSAGE_BYTES_MIN:
            raise Malformed(f"a message of {size} bytes")
        if end > size_bytes:
            break
        if check_crc and crc32(data[at + CRC_FROM : end]) != crc:  # a copy of a few bytes is faster than a view of them
            raise WrongChecksum(f"the checksum of message {len(positions)} is wrong")
        append(at)
        at = end
        if len(positions) > max_records:
            raise TooManyMessages(max_records)
    rest = data[at + 8 : at + PREFIX_BYTES]
    if len(rest) == 4 and int.from_bytes(rest, "big", signed=True) < MESSAGE_BYTES_MIN:
        raise Malformed("a rest that is not the beginning of a message")
    if not positions:
        raise Malformed("a set without a message")
    start = np.array(positions, np.int64)
    ends = np.append(start[1:], at)
    raw = np.frombuffer(data, np.uint8)
    magics, attributes = raw.take(start + 16), raw.take(start + 17)
    magic = int(magics[0])
    if magic > V1 or (magics != magic).any():
        raise Malformed("messages that are not all of magic 0, or of magic 1")
    if (attributes & CODEC_MASK).any():
        raise Malformed("a wrapper in a wrapper")
    head = _HEAD_BYTES[magic]
    if (ends - start < head + 8).any():
        raise Malformed("a message that ends inside its head")
    timestamp = np.full(len(start), -1, np.int64) if magic == V0 else _gather(raw, start + 18, 8)
    key_start, key_end, after = _field(raw, start + head, ends - 4)
    value_start, value_end, _ = _field(raw, after, ends)
    return MessageColumns(
        data, magic, _gather(raw, start, 8), timestamp, bool((attributes & LOG_APPEND_TIME).any()) and magic == V1,
        key_start, key_end, value_start, value_end,
    )  # fmt: skip


def _field(raw: Bytes, at: Array, ends: Array) -> tuple[Array, Array, Array]:
    """(start, end, position behind) of the fields whose sizes are at `at`, none of them behind `ends`."""
    size = _gather(raw, at, 4)
    start = at + 4
    end = np.where(size < 0, start - 1, start + size)
    after = np.maximum(start, end)
    if (after > ends).any():
        raise Malformed("a message that ends inside its key or value")
    return start, end, after


def _gather(raw: Bytes, at: Array, width: int) -> Array:
    """The big-endian integers of `width` bytes at `at`."""
    value = raw.take(at).view(np.int8).astype(np.int64)
    for i in range(1, width):
        value = value << 8 | raw.take(at + i)
    return value


def encode_columns(found: MessageColumns) -> bytes:
    """The same messages as the records of a v2 batch: offsets count from 0, times from the first."""
    count = len(found)
    timestamp = zigzag(found.timestamp - found.timestamp[0])
    number = zigzag(np.arange(count, dtype=np.int64))
    key_size = found.key_end - found.key_start
    value_size = found.value_end - found.value_start
    key, value = zigzag(np.maximum(key_size, -1)), zigzag(np.maximum(value_size, -1))
    key_size, value_size = np.maximum(key_size, 0), np.maximum(value_size, 0)
    body = 2 + key_size + value_size
    body += varint_width(timestamp) + varint_width(number) + varint_width(key) + varint_width(value)
    length = zigzag(body)
    total = varint_width(length) + body
    ends = np.cumsum(total)
    out = np.zeros(int(ends[-1]), np.uint8)  # attributes and number of headers stay 0
    at = write_varints(out, ends - total, length) + 1
    at = write_varints(out, at, timestamp)
    at = write_varints(out, at, number)
    key_at = write_varints(out, at, key)
    value_at = write_varints(out, key_at + key_size, value)
    target, source = out.data, memoryview(found.data)
    for to, start, size in ((key_at, found.key_start, key_size), (value_at, found.value_start, value_size)):
        rows = np.flatnonzero(size)
        begin, first, many = to[rows].tolist(), start[rows].tolist(), size[rows].tolist()
        for a, b, n in zip(begin, first, many, strict=True):
            target[a : a + n] = source[b : b + n]
    return out.tobytes()


def write_set(found: Columns | MessageColumns, first: int, magic: int, attributes: int, base_offset: int) -> bytes:
    """The records from the row `first` on as messages of format `magic`, their offsets counted from `base_offset`."""
    data = bytes(found.data)
    blocks = [slice(at, at + _BLOCK_RECORDS) for at in range(first, len(found), _BLOCK_RECORDS)]
    return b"".join([_write_block(found, data, rows, magic, attributes, base_offset) for rows in blocks])


def _write_block(
    found: Columns | MessageColumns, data: bytes, rows: slice, magic: int, attributes: int, base_offset: int
) -> bytes:
    key_start, key_end = found.key_start[rows], found.key_end[rows]
    value_start, value_end = found.value_start[rows], found.value_end[rows]
    key_size = np.maximum(key_end - key_start, -1)
    value_size = np.maximum(value_end - value_start, -1)
    count = len(key_size)
    heads = np.zeros(count, _HEADS[magic])
    width = heads.itemsize
    total = width + 4 + np.maximum(key_size, 0) + np.maximum(value_size, 0)
    heads["offset"] = found.offset[rows] - base_offset
    heads["size"] = total - PREFIX_BYTES
    heads["magic"] = magic
    heads["attributes"] = attributes
    heads["key_size"] = key_size
    if magic == V1:
        heads["timestamp"] = found.timestamp[rows]
    in_front, between = heads.tobytes(), value_size.astype(">i4").tobytes()
    pieces = [b""] * (4 * count)
    pieces[0::4] = [in_front[at : at + width] for at in range(0, len(in_front), width)]
    pieces[1::4] = [data[at:end] for at, end in zip(key_start.tolist(), key_end.tolist(), strict=True)]
    pieces[2::4] = [between[at : at + 4] for at in range(0, len(between), 4)]
    pieces[3::4] = [data[at:end] for at, end in zip(value_start.tolist(), value_end.tolist(), strict=True)]
    written = b"".join(pieces)
    ends = np.cumsum(total)
    starts = ends - total
    checked = zip((starts + CRC_FROM).tolist(), ends.tolist(), strict=True)
    out = np.frombuffer(written, np.uint8).copy()
    at_crc: npt.NDArray[np.void] = np.ndarray((len(out) - 3,), "V4", out.data, strides=(1,))
    at_crc[starts + 12] = np.array([crc32(written[at:end]) for at, end in checked], ">u4").view("V4")
    return out.tobytes()
