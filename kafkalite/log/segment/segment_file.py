"""The `.log` file of a segment: its batches by their headers alone, or whole, and where one with an offset begins.

The functions read an open file, up to an end that the caller knows. They raise Malformed at a position without a whole
batch; the caller decides on the cause (a torn end after a crash, a wrong index entry, a damaged disk). Old files may
hold messages of formats v0 and v1 among the batches, each with the header of `message_set.entry_header`.
A `SegmentFile` reads a segment beside the broker. There the offset index is a hint (a crash may have left it short or
wrong), so the batch to which it points is read and its checksum compared before the place is used.
Nothing here has an event loop or changes a file, so threads, worker processes and Spark use it. Files are read with
pread only: a mapping would die with SIGBUS if a broker cut them.
Source: org.apache.kafka.common.record.FileLogInputStream; org.apache.kafka.storage.internals.log.LogSegment.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

from kafkalite.common.errors import Malformed
from kafkalite.log.index.sparse_index import OFFSET_ENTRY, IndexFile
from kafkalite.log.storage.file_names import LOG, OFFSET_INDEX, segment_stem
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import (
    BATCH_LENGTH_MIN,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    PREFIX_BYTES,
    BatchHeader,
    parse_header,
)
from kafkalite.record.batches import find_bounds, is_intact, read_header
from kafkalite.record.message_set import HEAD_BYTES, entry_header


class CutOff(Malformed):
    """The file ends inside a batch."""


Place = tuple[int, BatchHeader]
"""A batch in a file, by its position and its header."""

_HEADERS_READ_BYTES = 8192  # per read by `iter_headers`, two index intervals; of larger batches only the header
_SMALL_BATCH_BYTES = 2048
_BATCHES_READ_BYTES = 1 << 20  # per read by `iter_batches`
_unpack = struct.Struct(">qiibIhiqqqhii").unpack_from
_make = tuple.__new__
_unpack_span = struct.Struct(">qi4xb6xi").unpack_from  # base offset, length, magic, last offset delta


def first_timestamp_ms(fd: int, size_bytes: int) -> int:
    """The largest timestamp of the first batch of a file of `size_bytes`; -1 without one. Raises OSError."""
    try:
        return read_header(os.pread(fd, min(HEADER_BYTES, size_bytes), 0)).max_timestamp
    except Malformed:
        return -1


def first_timestamp_of(files: Files, path: str, size_bytes: int) -> int:
    """As `first_timestamp_ms`, of a closed file: it is not worth a place in the descriptor cache. Raises OSError."""
    fd = files.open(path, os.O_RDONLY)
    try:
        return first_timestamp_ms(fd, size_bytes)
    finally:
        files.close(fd)


def iter_headers(fd: int, position: int, end: int, read_bytes: int = _HEADERS_READ_BYTES) -> Iterator[Place]:
    """(position, header) of every batch in [position, end). Raises Malformed, CutOff at the end; OSError."""
    unpack, make = _unpack, _make
    data = b""
    start = size = 0
    last = -1  # a whole header fits into `data` up to this position
    while position < end:
        if position > last:
            data = os.pread(fd, read_bytes if size < _SMALL_BATCH_BYTES else HEADER_BYTES, position)
            if len(data) < HEADER_BYTES:
                data = data.ljust(HEADER_BYTES, b"\0")  # a message of v0 or v1 may be shorter
            start, last = position, position + len(data) - HEADER_BYTES
        header: BatchHeader = make(BatchHeader, unpack(data, position - start))
        if header[3] != MAGIC or header[1] < BATCH_LENGTH_MIN or header[6] < 0:
            try:
                header = entry_header(data, position - start)
            except Malformed:
                raise Malformed(f"no batch at position {position}") from None
        size = header[1] + PREFIX_BYTES
        if header[0] < 0:
            raise Malformed(f"no batch at position {position}")
        if position + size > end:
            raise CutOff(f"the batch at position {position} is cut off after {end - position} bytes")
        yield position, header
        position += size


def find_header(fd: int, position: int, end: int, offset: int) -> Place | None:
    """The first batch in [position, end) whose last offset is at or past `offset`; None if no batch reaches it. Raises
    Malformed, OSError."""
    # every cold fetch begins here: 12 us for the 47 batches of an index interval, with `iter_headers` alone 25 us
    data = os.pread(fd, min(_HEADERS_READ_BYTES, end - position), position)
    unpack, last, at = _unpack_span, len(data) - HEADER_BYTES, 0
    while at <= last:
        base_offset, length, magic, delta = unpack(data, at)
        size = length + PREFIX_BYTES
        if magic != MAGIC or size < HEADER_BYTES or delta < 0 or base_offset < 0 or position + at + size > end:
            break
        if base_offset + delta >= offset:
            return position + at, parse_header(data, at)
        at += size
    for place in iter_headers(fd, position + at, end):
        if place[1].last_offset >= offset:
            return place
    return None


def end_offset(fd: int, position: int, end: int) -> int:
    """The offset behind the last batch in [position, end), which must hold one. Raises Malformed, OSError."""
    last = -1
    for _, header in iter_headers(fd, position, end):
        last = header.last_offset
    return last + 1


def iter_batches(fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, whole batch) of every batch in [position, end). Raises Malformed, OSError.

    Checksums are not verified.
    """
    want = _BATCHES_READ_BYTES
    while position < end:
        asked = min(want, end - position)
        data = memoryview(os.pread(fd, asked, position))
        if len(data) < asked:
            raise Malformed(f"the file ends {asked - len(data)} bytes before position {position + asked}")
        at = 0
        while True:
            size = HEAD_BYTES
            if asked - at < size:
                break
            if data[at + MAGIC_AT] == MAGIC:
                size = HEADER_BYTES
                if asked - at < size:
                    break
                header = parse_header(data, at)
                if header.batch_length < BATCH_LENGTH_MIN or header.last_offset_delta < 0:
                    raise Malformed(f"no v2 batch at position {position + at}")
            else:
                header = entry_header(data, at)
            size = header.size_bytes
            if asked - at < size:
                break
            yield position + at, header, data[at : at + size]
            at += size
        position += at
        if position < end < position + size:
            raise CutOff(f"the batch at position {position} is cut off after {end - position} bytes")
        want = max(_BATCHES_READ_BYTES, size)


def iter_pieces(fd: int, position: int, end: int, read_bytes: int) -> Iterator[tuple[memoryview, list[int]]]:
    """Whole batches in pieces of about `read_bytes`, and the begins of the batches in the piece with the end of the
    last: 0.1 us a batch instead of 1.3 with `iter_batches`. Headers are not checked. Raises Malformed, OSError."""
    want = read_bytes
    while position < end:
        asked = min(want, end - position)
        data = memoryview(os.pread(fd, asked, position))
        if len(data) < asked:
            raise Malformed(f"the file ends {asked - len(data)} bytes before position {position + asked}")
        bounds, length = find_bounds(data)
        whole = bounds[-1]
        if whole:
            yield data, bounds
        position += whole
        if length is not None:
            raise Malformed(f"no batch at position {position}: its length says {length}")
        size = HEAD_BYTES
        if asked - whole >= size:
            size = int.from_bytes(data[whole + 8 : whole + PREFIX_BYTES]) + PREFIX_BYTES
        if position < end < position + size:
            raise CutOff(f"the batch at position {position} is cut off after {end - position} bytes")
        want = max(read_bytes, size)


class SegmentFile:
    """The segment of `directory` that begins at `base_offset`, open for reading. FileNotFoundError if it is gone.

    `size_bytes` is the file's size when it was opened; nothing behind it is read. `file_id` is its inode.
    """

    __slots__ = ("_index", "base_offset", "fd", "file_id", "path", "size_bytes")

    def __init__(self, directory: str, base_offset: int) -> None:
        self.path = os.path.join(directory, segment_stem(base_offset) + LOG)
        self.base_offset = base_offset
        self._index: IndexFile | None = None
        self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(self.fd)
        self.size_bytes, self.file_id = status.st_size, status.st_ino

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if self._index is not None:
            self._index.close()

    @property
    def index(self) -> IndexFile:
        """The offset index, opened when it is first needed."""
        if self._index is None:
            self._index = IndexFile(self.path.removesuffix(LOG) + OFFSET_INDEX, OFFSET_ENTRY)
        return self._index

    def head(self, position: int) -> bytes:
        """The first bytes of the batch at `position`, as many as a header has, or as the file still has."""
        return os.pread(self.fd, HEADER_BYTES, position)

    def headers(self, position: int, end: int) -> Iterator[Place]:
        """The batches from `position` on that lie wholly before `end`, up to bytes that are none."""
        with suppress(Malformed):
            yield from iter_headers(self.fd, position, end)

    def locate(self, offset: int, end: int) -> Place | None:
        """The first batch before the position `end` that reaches `offset`; None if there is none."""
        relative = offset - self.base_offset
        start = self._checked(lambda entry: entry[0] <= relative)
        return next((place for place in self.headers(start, end) if place[1].last_offset >= offset), None)

    def batch_from(self, position: int, end: int) -> Place | None:
        """The first batch that begins at `position` or behind it, and before `end`; None if there is none."""
        start = self._checked(lambda entry: entry[1] <= position)
        return next((place for place in self.headers(start, end) if place[0] >= position), None)

    def _checked(self, holds: Callable[[tuple[int, int]], bool]) -> int:
        """The position of the last index entry for which `holds`, if a batch as the entry says is there; else 0."""
        entry = self.index.last_where(holds)
        return entry[1] if entry is not None and self._begins(entry) else 0

    def _begins(self, entry: tuple[int, int]) -> bool:
        offset, position = entry[0] + self.base_offset, entry[1]
        if not 0 < position < self.size_bytes:
            return False
        header = self._header(position)
        return (
            header is not None
            and self.base_offset <= header.base_offset <= offset
            and position + header.size_bytes <= self.size_bytes
            and self._is_intact(position, header)
        )

    def _header(self, position: int) -> BatchHeader | None:
        """The header at `position` if a batch of any format can begin there."""
        with suppress(Malformed):
            header = read_header(self.head(position))
            if header.last_offset_delta >= 0:
                return header
        return None

    def _is_intact(self, position: int, header: BatchHeader) -> bool:
        return is_intact(header, os.pread(self.fd, header.size_bytes, position))

    def end(self) -> tuple[int, int]:
        """(position, offset) behind the last whole batch. Bytes behind it are torn, or just being written.

        Raises Malformed for a broken batch that is not the last one: batches behind it must not be left out silently.
        """
        position, offset = self._checked(lambda _: True), self.base_offset
        magic = -1
        while position + HEAD_BYTES <= self.size_bytes:
            head = self.head(position)
            if not any(head):
                break
            header = self._header(position)
            if header is None and self.size_bytes - position < HEADER_BYTES:
                break
            # a topic whose format was lowered has old messages behind v2: rare enough to believe only if they are right
            is_odd = header is not None and header.magic < magic == MAGIC
            if header is None or (is_odd and not self._is_intact(position, header)):
                raise Malformed(f"{self.path} has no v2 record batch at position {position} (magic {head[MAGIC_AT]})")
            magic = header.magic
            end = position + header.size_bytes
            if end > self.size_bytes:
                break
            if not self._is_intact(position, header):
                if end == self.size_bytes:
                    break
                raise Malformed(
                    f"the batch at offset {header.base_offset} in {self.path} is corrupt: its checksum is wrong; "
                    "if the broker was killed, start it once so that it recovers"
                )
            position, offset = end, header.last_offset + 1
        return position, offset
