"""The files of a split, the bytes of one chunk in them, and the next batch behind corrupt bytes.

All files are opened before the first is read, so that retention and compaction take none of them meanwhile. Between
planning and opening, retention may have renamed a file: it is found under its new name for a while.
Where batches are large, each header is read by itself: 1 us each, for a batch of any size. Small batches are
read in windows that stay in the second-level cache, which costs 0.1 us per batch and 0.1 us per KiB.
Files are read with pread only: a mapping would die with SIGBUS if a broker cut them.
Behind damage a batch is found by a plausible header and a right checksum, not by lengths that may lie: its offset is
one of those to come, its length fits, and behind it is the end or a header with later offsets. A record may hold the
bytes of a batch; one with offsets to come, followed by another, is taken for a real one.
Source: kafka.log.LocalLog (a deleted segment keeps its file for file.delete.delay.ms).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable
from struct import Struct

import numpy as np

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed, StorageError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.region import OpenFile
from kafkalite.log.storage.file_names import DELETED
from kafkalite.reader.planning.split import Chunk, ReadReport
from kafkalite.record.batch import BATCH_LENGTH_MIN, CRC_FROM, HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader
from kafkalite.record.batches import is_intact, read_header
from kafkalite.record.columns.batch_columns import HEAD, Array, Batches, scan_until_fault
from kafkalite.record.columns.varint_columns import Bytes
from kafkalite.record.message_set import HEAD_BYTES

_HOP_BYTES_MIN = 8 << 10  # from this mean size of a batch on, headers are read by themselves
_HOP_BATCHES = 1024
_HEADERS_BYTES = 256 << 10
_LENGTH = Struct(">8xi4xb")
_PIECE_BYTES = 1 << 20
_OPEN_MAX = 128  # files of one split; of a split with more, the others are opened when they are reached


class ChunkFile:
    """The file of one chunk. Reads are counted in the report."""

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
                found = self._hop(position)  # it is larger than the bytes that were read
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


class Found(NamedTuple):
    """A batch, or the end of the chunk. Offsets before `offset` are not behind it; None if that is not known."""

    position: int
    offset: int | None


def header_at(file: ChunkFile, position: int) -> BatchHeader | None:
    """The header of the batch or old message at `position`; None where there is none that can be whole."""
    try:
        header = read_header(file.read(position, min(HEADER_BYTES, file.end - position)))
    except Malformed:
        return None
    return header if header.size_bytes <= file.end - position else None


def _following(file: ChunkFile, position: int, header: BatchHeader, end_offset: int) -> BatchHeader | None:
    """The header where the length of the batch at `position` leads, if it has greater offsets. A log never goes back to
    an old format."""
    following = header_at(file, position + header.size_bytes)
    if following is None or (following.magic < MAGIC <= header.magic):
        return None
    return following if header.last_offset < following.base_offset < end_offset else None


def behind_corrupt(
    file: ChunkFile, position: int, header: BatchHeader | None, first_offset: int, end_offset: int
) -> Found:
    """The place to continue behind the corrupt batch at `position`, whose `header` is None if it is not legible."""
    if header is None:
        return next_batch(file, position + 1, file.end, first_offset, end_offset)
    behind = position + header.size_bytes
    following = _following(file, position, header, end_offset)
    is_trusted = behind == file.end if following is None else _is_right(file, behind, following)
    if not is_trusted:
        return next_batch(file, position + 1, file.end, first_offset, end_offset)
    expected = header.last_offset + 1
    last = end_offset if following is None else following.base_offset
    if expected < last:  # its length may lead over whole batches
        found = next_batch(file, position + 1, behind, expected, last)
        if found.offset is not None:
            return found
    if following is not None:
        return Found(behind, following.base_offset)
    return Found(behind, expected if _is_right(file, position, header) else None)


def next_batch(file: ChunkFile, position: int, stop: int, first_offset: int, end_offset: int) -> Found:
    """The first batch between `position` and `stop` with an offset from `first_offset` to before `end_offset`; the end
    of the chunk without an offset if there is none."""
    while position < stop:
        data = np.frombuffer(bytes(file.read(position, min(_PIECE_BYTES, file.end - position))), np.uint8)
        for at in _candidates(data, first_offset, end_offset).tolist():
            if position + at >= stop:
                break
            header = header_at(file, position + at)
            if header is None or not first_offset <= header.base_offset < end_offset:
                continue
            ends = position + at + header.size_bytes == file.end
            if _is_right(file, position + at, header) and (
                ends or _following(file, position + at, header, end_offset) is not None
            ):
                return Found(position + at, header.base_offset)
        if len(data) < _PIECE_BYTES:
            break
        position += _PIECE_BYTES - HEADER_BYTES
    return Found(file.end, None)


def _candidates(data: Bytes, first_offset: int, end_offset: int) -> Array:
    """Positions with a known magic, an offset in the range and a length that is not absurd."""
    count = len(data) - HEAD_BYTES + 1
    if count <= 0:
        return np.empty(0, np.int64)
    at = np.flatnonzero((data[16 : 16 + count] <= MAGIC) & (data[:count] == 0) & (data[8 : 8 + count] < 0x80))
    offset = np.zeros(len(at), np.int64)
    for i in range(8):
        offset = offset << 8 | data[at + i]
    return at[(offset >= first_offset) & (offset < end_offset)]


def _is_right(file: ChunkFile, position: int, header: BatchHeader) -> bool:
    if header.magic == MAGIC:
        return file.crc(position, header.size_bytes) == header.crc
    return is_intact(header, file.read(position, header.size_bytes))


class FileGone(StorageError):
    """The file of a chunk is removed, or has changed since planning."""


class SplitFiles:
    """Open files by path, each until the last chunk of its file is done."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        """FileGone is raised when a missing file is asked for, not here."""
        self._left: dict[str, int] = {}
        first: dict[str, Chunk] = {}
        for chunk in chunks:
            self._left[chunk.path] = self._left.get(chunk.path, 0) + 1
            first.setdefault(chunk.path, chunk)
        self._open: dict[str, OpenFile] = {}
        for path in list(first)[:_OPEN_MAX]:
            found = _open(first[path])
            if found is not None:
                self._open[path] = found

    def get(self, chunk: Chunk) -> OpenFile:
        """The file of `chunk`, as it was at planning. Raises FileGone, StorageError."""
        file = self._open.get(chunk.path)
        if file is None or not _is_as_planned(file, chunk):
            file = _open(chunk)
        if file is None:
            what = "changed by compaction or recovery" if os.path.exists(chunk.path) else "deleted by retention"
            raise FileGone(f"{chunk.path} was {what} after planning")
        self._open[chunk.path] = file
        return file

    def done(self, chunk: Chunk) -> None:
        """Closes the file of `chunk` if no other chunk needs it."""
        left = self._left.get(chunk.path, 1) - 1
        self._left[chunk.path] = left
        if left <= 0:
            self._open.pop(chunk.path, None)


def _open(chunk: Chunk) -> OpenFile | None:
    """The file that was planned, under its name or its new one; None if neither is it."""
    for name in (chunk.path, chunk.path + DELETED):
        try:
            file = OpenFile(name, os.O_RDONLY)
            if _is_as_planned(file, chunk):
                return file
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"cannot open {name}: {error.strerror}") from error
    return None


def _is_as_planned(file: OpenFile, chunk: Chunk) -> bool:
    """Whether the size of a closed segment is the same, or the inode of another, and the first header of the chunk, as
    far as they are known. A file that was compacted may begin with the same batch."""
    status = os.fstat(file.fd)
    if chunk.file_bytes not in (-1, status.st_size) or chunk.file_id not in (-1, status.st_ino):
        return False
    return not chunk.head or os.pread(file.fd, len(chunk.head), chunk.position) == chunk.head
