"""Reader of one `.log` file from front to back, by nothing but the lengths of batches.

As in Kafka's own tools, a batch of any format begins where the one before it ends by its length. So bytes that recovery
would cut off can be inspected, up to the first impossible length. A window of the file is in memory at a time;
a larger batch makes it grow, never beyond the file.
Source: org.apache.kafka.common.record.FileLogInputStream.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed
from kafkalite.inspection.files.regular_file import open_regular
from kafkalite.record.batch import CRC_FROM, HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader, parse_header

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
    """A `.log` open for reading; `size_bytes` is what it had when it was opened. Raises OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = open_regular(path)
        self.size_bytes = os.fstat(self._fd).st_size

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, position: int, count: int) -> bytes:
        """Up to `count` bytes from `position` on; fewer only at the end."""
        return os.pread(self._fd, count, position)

    def headers(self, position: int, read_bytes: int = HEADER_BYTES) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the whole batches from `position` on; in v0 and v1 only fields up to the magic count.

        Ends where a length is too small or leads past the end. `read_bytes` are read at once. Raises OSError.
        """
        data, start = b"", position
        while self.size_bytes - position > HEAD_BYTES:
            if position - start + HEADER_BYTES > len(data):
                start = position
                data = self.read(position, read_bytes).ljust(HEADER_BYTES, b"\0")
            header = parse_header(data, position - start)
            if header.batch_length < SIZE_MIN or position + header.size_bytes > self.size_bytes:
                return
            yield position, header
            position += header.size_bytes

    def windows(self, position: int = 0, end: int | None = None, bounds_of: BoundsOf | None = None) -> Iterator[Window]:
        """The batches in [position, end), a window at a time; each window's memory is only good until the next.

        `bounds_of` takes the place of `find_bounds`. Ends quietly at a batch that is cut off. Raises Malformed where a
        length is too small to be one, OSError.
        """
        end = self.size_bytes if end is None else min(end, self.size_bytes)
        buffer = bytearray(min(WINDOW_BYTES, max(0, end - position)))
        while end - position > HEAD_BYTES:
            wanted = min(len(buffer), end - position)
            count = os.preadv(self._fd, [memoryview(buffer)[:wanted]], position)
            data = memoryview(buffer)[:count]
            bounds, fault = (bounds_of or find_bounds)(data)
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


def find_bounds(data: memoryview) -> tuple[list[int], int | None]:
    """Begins of the whole batches in `data` and the end of the last; the length that stopped the search, if any."""
    bounds = [0]
    append = bounds.append
    unpack = _PREFIX.unpack_from
    position = 0
    size = len(data)
    last = size - HEAD_BYTES
    while position <= last:
        length = unpack(data, position)[1]
        if length < SIZE_MIN:
            return bounds, length
        position += length + PREFIX_BYTES
        if position > size:
            break
        append(position)
    return bounds, None


def is_valid(batch: memoryview) -> bool:
    """Whether a whole batch of any format is as long as its header and has the right checksum."""
    if MAGIC <= batch[16] < 128:
        return len(batch) >= HEADER_BYTES and crc32c(batch[CRC_FROM:]) == _CRC.unpack_from(batch, 17)[0]
    return len(batch) >= _LEGACY_BYTES_MIN and zlib.crc32(batch[_LEGACY_CRC_FROM:]) == _CRC.unpack_from(batch, 12)[0]
