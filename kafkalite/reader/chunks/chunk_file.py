"""The bytes of one chunk: in windows, or only the headers of its batches.

Where batches are large, each header is read by itself: 1 us each, whatever the size of the batch. Small batches are
read in windows that stay in the second-level cache, which costs 0.1 us per batch and 0.1 us per KiB.
Files are read with pread only: a mapping would die with SIGBUS if a broker cut them.
"""

from __future__ import annotations

import os
from array import array
from struct import Struct

import numpy as np

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import StorageError
from kafkalite.common.region import OpenFile
from kafkalite.reader.chunks.read_report import ReadReport
from kafkalite.reader.planning.split import Chunk
from kafkalite.record.batch import BATCH_LENGTH_MIN, CRC_FROM, HEADER_BYTES, MAGIC, PREFIX_BYTES
from kafkalite.record.columns.batch_columns import HEAD, Batches, scan_until_fault
from kafkalite.record.columns.varint_columns import Bytes

_HOP_BYTES_MIN = 8 << 10  # from this mean size of a batch on, headers are read by themselves
_HOP_BATCHES = 1024
_HEADERS_BYTES = 256 << 10
_LENGTH = Struct(">8xi4xb")


class ChunkFile:
    """The file of one chunk. What is read is counted in the report."""

    def __init__(self, file: OpenFile, chunk: Chunk, report: ReadReport, buffer: Bytes) -> None:
        """`buffer` is the memory to read into; a view of it is valid until the next call."""
        self._file = file
        self._report = report
        self._buffer = buffer
        self.path = chunk.path
        self.end = chunk.position + chunk.size_bytes
        self._whole_end = min(self.end, os.fstat(file.fd).st_size)
        self._mean_bytes = _HOP_BYTES_MIN

    def read(self, position: int, size: int) -> memoryview:
        """`size` bytes from `position` on, or as many as the file has. More than the buffer holds come in memory of
        their own. Raises StorageError."""
        data = self._buffer.data[:size] if size <= len(self._buffer) else memoryview(bytearray(size))
        done = 0
        while done < size:
            try:
                count = os.preadv(self._file.fd, [data[done:]], position + done)
            except OSError as error:
                raise StorageError(f"cannot read {self.path}: {error.strerror}") from error
            if not count:
                break
            done += count
        self._report.bytes_read += done
        return data[:done]

    def size_bytes(self) -> int:
        """The size of the whole file now. Raises StorageError."""
        try:
            return os.fstat(self._file.fd).st_size
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror}") from error

    @property
    def window_bytes(self) -> int:
        return len(self._buffer)

    def window(self, position: int, end: int) -> memoryview:
        """As much from `position` to `end` as is read at once."""
        return self.read(position, min(len(self._buffer), end - position))

    def headers(self, position: int) -> Batches:
        """The headers of some batches from `position` on. Positions are those in the file; `consumed_bytes` is where
        the last one ends, and `position` if no batch of v2 begins there that is whole."""
        if self._mean_bytes >= _HOP_BYTES_MIN:
            found = self._hop(position)
        else:
            data = self.read(position, min(_HEADERS_BYTES, len(self._buffer), self.end - position))
            found, _ = scan_until_fault(data)
            found = Batches(found.position + position, found.heads, found.consumed_bytes + position)
            if not len(found):
                found = self._hop(position)  # it is larger than what was read
        if len(found):
            self._mean_bytes = (found.consumed_bytes - position) // len(found)
        return found

    def _hop(self, position: int) -> Batches:
        positions: list[int] = []
        heads: list[bytes] = []
        last = self.end - HEADER_BYTES
        fd, pread, unpack = self._file.fd, os.pread, _LENGTH.unpack_from
        while position <= last and len(heads) < _HOP_BATCHES:
            head = pread(fd, HEADER_BYTES, position)
            if len(head) < HEADER_BYTES:
                break
            length, magic = unpack(head)
            end = position + length + PREFIX_BYTES
            if magic != MAGIC or length < BATCH_LENGTH_MIN or end > self._whole_end:
                break
            positions.append(position)
            heads.append(head)
            position = end
        self._report.bytes_read += HEADER_BYTES * len(heads)
        rows = np.array(array("q", positions), np.int64)
        return Batches(rows, np.frombuffer(b"".join(heads), HEAD), position)

    def crc(self, position: int, size: int) -> int:
        """The CRC-32C that the batch of `size` bytes at `position` has, without holding all of it."""
        end = position + size
        at = position + CRC_FROM
        value = 0
        while at < end:
            data = self.read(at, min(len(self._buffer), end - at))
            if not data:
                break
            value = crc32c(data, value)
            at += len(data)
        return value
