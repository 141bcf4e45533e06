"""Reader of a `.log` file from front to back, by nothing but the lengths of batches, and the records in a window.

As in Kafka's own tools, a batch of any format begins where the one before it ends by its length. So bytes that recovery
would cut off can be inspected, up to the first impossible length. A window of the file is in memory at a time;
a larger batch makes it grow, never beyond the file.
Records are one row each. Batches of format v2 that are in order go through `record_columns` all at once. Control
batches, which the columns leave out, message sets of formats v0 and v1, and windows with a batch whose records
contradict its header, are read batch by batch; a damaged batch has the reason in the place of its rows.
A batch may hold a million records, whose rows would take a gigabyte: they come in blocks of `BLOCK_RECORDS`.
Source: org.apache.kafka.common.record.FileLogInputStream, kafka.tools.DumpLogSegments.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import TypeVar

import numpy as np

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.inspection.files.directory_listing import open_regular
from kafkalite.record.batch import (
    CRC_FROM,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    SEQUENCE_MAX,
    BatchHeader,
    parse_header,
    sequence_at,
)
from kafkalite.record.batches import find_bounds
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.header_columns import HeaderColumns
from kafkalite.record.columns.record_columns import Columns, decode
from kafkalite.record.compression import UNPACKED_BYTES_MAX
from kafkalite.record.message_set import Message, build_message, entry_header, read_inner, resolve
from kafkalite.record.record import read_records

WINDOW_BYTES = 4 << 20  # 0.43 s for 1 GiB of batches of 16 KiB, with 1 MiB 0.9 s
SIZE_MIN = 14  # bytes after the length field: an empty message of format v0
HEAD_BYTES = 17  # up to the magic, which is at the same position in all formats

_PREFIX = struct.Struct(">qi")
_CRC = struct.Struct(">I")
_LEGACY_CRC_FROM = 16
_LEGACY_BYTES_MIN = SIZE_MIN + PREFIX_BYTES


class Window(NamedTuple):
    """Whole batches: `data` begins at position `start` of the file, batch i is `data[bounds[i]:bounds[i + 1]]`."""

    data: memoryview
    start: int
    bounds: list[int]


BoundsOf = Callable[[memoryview], tuple[list[int], int | None]]


class LogFile:
    """A `.log` open for reading; `size_bytes` is its size when it was opened. Raises OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = open_regular(path)
        self.size_bytes = os.fstat(self.fd).st_size

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def read(self, position: int, count: int) -> bytes:
        """Up to `count` bytes from `position` on; fewer only at the end."""
        return os.pread(self.fd, count, position)

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the whole batches from `position` on; in v0 and v1 only fields up to the magic count.

        Ends where a length is too small or leads past the end. Raises OSError.
        """
        while self.size_bytes - position > HEAD_BYTES:
            header = parse_header(self.read(position, HEADER_BYTES).ljust(HEADER_BYTES, b"\0"))
            if header.batch_length < SIZE_MIN or position + header.size_bytes > self.size_bytes:
                return
            yield position, header
            position += header.size_bytes

    def windows(self, position: int = 0, end: int | None = None, bounds_of: BoundsOf | None = None) -> Iterator[Window]:
        """The batches in [position, end), a window at a time; each window's memory is only good until the next.

        `bounds_of` takes the place of `window_bounds`. Ends quietly at a batch that is cut off. Raises Malformed where
        a length is too small to be one, OSError.
        """
        end = self.size_bytes if end is None else min(end, self.size_bytes)
        buffer = bytearray(min(WINDOW_BYTES, max(0, end - position)))
        while end - position > HEAD_BYTES:
            wanted = min(len(buffer), end - position)
            count = os.preadv(self.fd, [memoryview(buffer)[:wanted]], position)
            data = memoryview(buffer)[:count]
            bounds, fault = (bounds_of or window_bounds)(data)
            if len(bounds) > 1:
                yield Window(data[: bounds[-1]], position, bounds)
                position += bounds[-1]
            if fault is not None:
                raise Malformed(f"Found record size {fault} smaller than minimum record overhead ({SIZE_MIN})")
            if count < wanted:
                return
            if len(bounds) == 1:
                size = _PREFIX.unpack_from(data)[1] + PREFIX_BYTES
                if size > end - position:
                    return
                del data
                buffer = bytearray(max(size, WINDOW_BYTES))


def window_bounds(data: memoryview) -> tuple[list[int], int | None]:
    """As `find_bounds`, up to the last bytes that have a magic: Kafka's tool names a wrong length there, too."""
    return find_bounds(data, HEAD_BYTES)


def is_valid(batch: memoryview) -> bool:
    """Whether a whole batch of any format is as long as its header and has the right checksum."""
    if MAGIC <= batch[16] < 128:
        return len(batch) >= HEADER_BYTES and crc32c(batch[CRC_FROM:]) == _CRC.unpack_from(batch, 17)[0]
    return len(batch) >= _LEGACY_BYTES_MIN and zlib.crc32(batch[_LEGACY_CRC_FROM:]) == _CRC.unpack_from(batch, 12)[0]


BLOCK_RECORDS = 8192
_RECORDS_MAX = 1 << 31  # of one batch: it was accepted once, so it is printed; its bytes are bounded


class Row(NamedTuple):
    """One record. `sequence` is -1 without a producer; `crc` and `crc_is_right` are for formats v0 and v1 only."""

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    crc: int = -1
    crc_is_right: bool = True


Rows = list[Row] | Malformed
T = TypeVar("T")


def rows_of_window(window: Window) -> Iterator[Iterable[list[Row]] | Malformed]:
    """The rows of each batch, in blocks that are valid until the next batch, or the reason why it has none."""
    columns = columns_of_window(window)
    if columns is None:
        for start, end in pairwise(window.bounds):
            yield _in_blocks(rows_of_batch(window.data[start:end]))
        return
    rows = chain.from_iterable(map(_rows, blocks_of(columns)))
    counts = np.bincount(columns.batch, minlength=len(columns.batches)).tolist()
    is_control = columns.batches.is_control.tolist()
    for i, count in enumerate(counts):
        if is_control[i]:
            yield _in_blocks(rows_of_batch(window.data[window.bounds[i] : window.bounds[i + 1]]))
        else:
            blocks = take_blocks(rows, count)
            yield blocks
            for _ in blocks:  # skip rows that the caller left
                pass


def _in_blocks(rows: Rows) -> Iterable[list[Row]] | Malformed:
    return rows if isinstance(rows, Malformed) else take_blocks(iter(rows), len(rows))


def take_blocks(items: Iterator[T], count: int) -> Iterator[list[T]]:
    """The next `count` items, `BLOCK_RECORDS` at a time."""
    for at in range(0, count, BLOCK_RECORDS):
        yield list(islice(items, min(BLOCK_RECORDS, count - at)))


def blocks_of(columns: Columns) -> Iterator[Columns]:
    """Slices of the columns, `BLOCK_RECORDS` at a time, each with its part of the data."""
    found = columns.headers
    for first in range(0, len(columns), BLOCK_RECORDS):
        rows = slice(first, first + BLOCK_RECORDS)
        start = int(columns.record_start[first])
        block = Columns(
            data=columns.data[start : int(columns.record_end[rows][-1])],
            batches=columns.batches,
            batch=columns.batch[rows],
            offset=columns.offset[rows],
            timestamp=columns.timestamp[rows],
            record_start=columns.record_start[rows] - start,
            record_end=columns.record_end[rows] - start,
            key_start=columns.key_start[rows] - start,
            key_end=columns.key_end[rows] - start,
            value_start=columns.value_start[rows] - start,
            value_end=columns.value_end[rows] - start,
            header_start=columns.header_start[rows] - start,
            header_count=columns.header_count[rows],
        )
        if found is not None:
            firsts = found.first[first : first + BLOCK_RECORDS + 1]
            these = slice(int(firsts[0]), int(firsts[-1]))
            places = found.key_start, found.key_end, found.value_start, found.value_end
            block.headers = HeaderColumns(firsts - firsts[0], *[place[these] - start for place in places])
        yield block


def rows_of_batch(batch: memoryview) -> Rows:
    """The rows of one whole batch of any format, or the reason why it has none."""
    try:
        if batch[16] < MAGIC:
            return _legacy_rows(batch)
        header = parse_header(batch)
        records = read_records(batch, UNPACKED_BYTES_MAX, _RECORDS_MAX)
    except Malformed as error:
        return error
    base = header.base_offset
    return [
        Row(offset, timestamp, sequence_at(header.base_sequence, offset - base), key, value, headers)
        for offset, timestamp, key, value, headers in records
    ]


def columns_of_window(window: Window) -> Columns | None:
    """None where something in the window is not a whole and sane batch of v2."""
    try:
        columns = decode(window.data, headers=True)
    except Malformed:
        return None
    return columns if columns.batches.consumed_bytes == window.bounds[-1] else None


def _rows(columns: Columns) -> list[Row]:
    data = columns.data.tobytes()
    sequence = sequences(columns)
    keys = fields(data, columns.key_start, columns.key_end)
    values = fields(data, columns.value_start, columns.value_end)
    offset, timestamp = columns.offset.tolist(), columns.timestamp.tolist()
    counts = columns.header_count
    if not counts.any():
        return list(map(Row, offset, timestamp, sequence.tolist(), keys, values))
    return list(map(Row, offset, timestamp, sequence.tolist(), keys, values, _headers(columns, data)))


def sequences(columns: Columns) -> Array:
    """The sequence of every record; see `sequence_at`."""
    base_sequence = columns.batches.column("base_sequence")[columns.batch]
    delta = columns.offset - columns.batches.base_offset[columns.batch]
    return np.where(base_sequence >= 0, (base_sequence + delta) & SEQUENCE_MAX, -1)


def header_names(columns: Columns) -> list[str]:
    """The names of every record's headers, with a comma between two."""
    if not columns.header_count.any():
        return [""] * len(columns)
    return [",".join([name for name, _ in headers]) for headers in _headers(columns, columns.data.tobytes())]


def fields(data: bytes, start: Array, end: Array) -> list[bytes | None]:
    return [
        data[first:behind] if behind >= first else None
        for first, behind in zip(start.tolist(), end.tolist(), strict=True)
    ]


def _headers(columns: Columns, data: bytes) -> Iterator[tuple[tuple[str, bytes | None], ...]]:
    found = columns.headers
    assert found is not None
    keys = fields(data, found.key_start, found.key_end)
    values = fields(data, found.value_start, found.value_end)
    pairs = [((key or b"").decode(errors="replace"), value) for key, value in zip(keys, values, strict=True)]
    first = found.first.tolist()
    for start, end in pairwise(first):
        yield tuple(pairs[start:end])


def _legacy_rows(entry: memoryview) -> list[Row]:
    messages = read_inner(entry, UNPACKED_BYTES_MAX, _RECORDS_MAX)
    records = resolve(entry_header(entry), messages)
    return [
        Row(offset, timestamp, -1, key, value, (), message.crc, message.crc == _crc_of(message))
        for message, (offset, timestamp, key, value, _) in zip(messages, records, strict=True)
    ]


def _crc_of(message: Message) -> int:
    """The checksum of the same message built again."""
    built = build_message(
        message.offset, message.key, message.value, message.timestamp,
        magic=message.magic, attributes=message.attributes,
    )  # fmt: skip
    return int.from_bytes(built[12:16], "big")
