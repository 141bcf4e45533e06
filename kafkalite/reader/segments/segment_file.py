"""A segment for a reader beside the broker: its size now, where batches begin, where the last whole one ends.

The offset index tells places where a batch begins; it is a hint (a crash may have left it short or wrong), so the batch
there is read and its checksum compared before the place is used. From there on headers lead from batch to batch. Files
are read with pread only: a mapping would die with SIGBUS if a broker cut them.
Source: org.apache.kafka.storage.internals.log.OffsetIndex, LogSegment.recover.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkalite.common.errors import Malformed
from kafkalite.log.storage.file_names import LOG, OFFSET_INDEX, segment_stem
from kafkalite.reader.segments.sparse_index import SparseIndex, open_offset_index
from kafkalite.record import message_set
from kafkalite.record.batch import HEADER_BYTES, MAGIC, MAGIC_AT, BatchHeader, compute_crc, parse_header
from kafkalite.record.compression import NONE

_HEADERS_READ_BYTES = 8 << 10  # two index intervals: of many small batches, most headers come with one read


class Place(NamedTuple):
    """A batch in a segment, by its position and its header.

    The header of a message of v0 or v1 is `message_set.entry_header`'s: its base offset is its last one.
    """

    position: int
    header: BatchHeader

    @property
    def end_position(self) -> int:
        return self.position + self.header.size_bytes

    @property
    def begins_at(self) -> int | None:
        """The first offset; None for a wrapper of v0 or v1, where only decompression tells."""
        header = self.header
        return header.base_offset if header.magic == MAGIC or header.codec == NONE else None


class SegmentFile:
    """The segment of `directory` that begins at `base_offset`, open for reading. FileNotFoundError if it is gone.

    `size_bytes` is the file's size when it was opened; nothing behind it is looked at. `file_id` is its inode.
    """

    __slots__ = ("_index", "base_offset", "fd", "file_id", "path", "size_bytes")

    def __init__(self, directory: str, base_offset: int) -> None:
        self.path = os.path.join(directory, segment_stem(base_offset) + LOG)
        self.base_offset = base_offset
        self._index: SparseIndex | None = None
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
    def index(self) -> SparseIndex:
        """The offset index, opened when it is first needed."""
        if self._index is None:
            self._index = open_offset_index(self.path.removesuffix(LOG) + OFFSET_INDEX)
        return self._index

    def head(self, position: int) -> bytes:
        """The first bytes of the batch at `position`, as many as a header has, or as the file still has."""
        return os.pread(self.fd, HEADER_BYTES, position)

    def places(self, position: int, end: int) -> Iterator[Place]:
        """The batches from `position` on that lie wholly before `end`, up to bytes that are none."""
        start, data = position, b""
        while position < end:
            at = position - start
            if at + HEADER_BYTES > len(data):
                start, at = position, 0
                data = os.pread(self.fd, min(_HEADERS_READ_BYTES, end - position), position)
            header = _header(data, at)
            if header is None or position + header.size_bytes > end:
                return
            yield Place(position, header)
            position += header.size_bytes

    def locate(self, offset: int, end: int) -> Place | None:
        """The first batch before the position `end` that reaches `offset`; None if there is none."""
        wanted = offset - self.base_offset
        start = self._checked(lambda entry: entry[0] <= wanted)
        for place in self.places(start, end):
            if place.header.last_offset >= offset:
                return place
        return None

    def batch_from(self, position: int, end: int) -> Place | None:
        """The first batch that begins at `position` or behind it, and before `end`; None if there is none."""
        start = self._checked(lambda entry: entry[1] <= position)
        for place in self.places(start, end):
            if place.position >= position:
                return place
        return None

    def _checked(self, holds: Callable[[tuple[int, int]], bool]) -> int:
        """The position of the last index entry for which `holds`, if a batch as the entry says is there; else 0."""
        entry = self.index.last_where(holds)
        return entry[1] if entry is not None and self._begins(entry) else 0

    def _begins(self, entry: tuple[int, int]) -> bool:
        offset, position = entry[0] + self.base_offset, entry[1]
        if not 0 < position < self.size_bytes:
            return False
        header = _header(self.head(position), 0)
        return (
            header is not None
            and self.base_offset <= header.base_offset <= offset
            and position + header.size_bytes <= self.size_bytes
            and self._is_intact(position, header)
        )

    def _is_intact(self, position: int, header: BatchHeader) -> bool:
        batch = os.pread(self.fd, header.size_bytes, position)
        if len(batch) != header.size_bytes:
            return False
        return header.crc == (compute_crc(batch) if header.magic == MAGIC else message_set.compute_crc(batch))

    def end(self) -> tuple[int, int]:
        """(position, offset) behind the last whole batch. Bytes behind it are torn, or just being written.

        Raises Malformed for a broken batch that is not the last one: batches behind it must not be left out silently.
        """
        position, offset = self._checked(lambda _: True), self.base_offset
        magic = -1
        while position + message_set.HEAD_BYTES <= self.size_bytes:
            head = self.head(position)
            if not any(head):
                break
            header = _header(head, 0)
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


def _header(data: bytes, at: int) -> BatchHeader | None:
    """The header at `at` if a batch of any format can begin there."""
    if len(data) - at <= MAGIC_AT:
        return None
    try:
        if data[at + MAGIC_AT] != MAGIC:
            return message_set.entry_header(data.ljust(at + message_set.HEAD_BYTES, b"\0"), at)
        header = parse_header(data, at)
    except Malformed:
        return None
    return header if header.size_bytes >= HEADER_BYTES and header.last_offset_delta >= 0 else None
