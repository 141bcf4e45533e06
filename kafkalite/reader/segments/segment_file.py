"""A segment for a reader beside the broker: its size now, where batches begin, where the last whole one ends.

The offset index tells places where a batch begins; it is a hint (a crash may have left it short or wrong), so a place
is looked at before it is used. Files are read with pread only: a mapping would die with SIGBUS if a broker cut them.
Source: org.apache.kafka.storage.internals.log.OffsetIndex, LogSegment.recover.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from kafkalite.common.errors import Malformed
from kafkalite.log.storage.file_names import LOG, OFFSET_INDEX, segment_stem
from kafkalite.record.batch import HEADER_BYTES, MAGIC, BatchHeader, compute_crc, parse_header
from kafkalite.record.message_set import compute_crc as compute_old_crc
from kafkalite.record.message_set import entry_header

Array = npt.NDArray[np.int64]

_INDEX_PIECE_BYTES = 64 << 10


class SegmentFile:
    """The segment of `directory` that begins at `base_offset`, open for reading. FileNotFoundError if it is gone.

    `size_bytes` is the file's size when it was opened; nothing behind it is looked at.
    """

    __slots__ = ("base_offset", "fd", "path", "size_bytes")

    def __init__(self, directory: str, base_offset: int) -> None:
        self.path = os.path.join(directory, segment_stem(base_offset) + LOG)
        self.base_offset = base_offset
        self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self.fd).st_size

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def header_at(self, position: int) -> BatchHeader | None:
        """The header at `position`; None if too few bytes are left for one."""
        if position + HEADER_BYTES > self.size_bytes:
            return None
        data = os.pread(self.fd, HEADER_BYTES, position)
        return parse_header(data) if len(data) == HEADER_BYTES else None

    def index(self) -> tuple[Array, Array]:
        """Offsets and positions of the entries that make sense: at each position a batch begins that holds no offset
        above the entry's and the batches behind it only greater ones. Empty without an index."""
        data = _read_index(self.path.removesuffix(LOG) + OFFSET_INDEX)
        entries = np.frombuffer(data, ">i4").reshape(-1, 2).astype(np.int64)
        offsets = entries[:, 0] + self.base_offset
        positions = entries[:, 1]
        wrong = (np.diff(positions, prepend=0) <= 0) | (np.diff(offsets, prepend=self.base_offset) < 0)
        wrong |= positions >= self.size_bytes
        count = int(np.argmax(wrong)) if wrong.any() else len(entries)
        return offsets[:count], positions[:count]

    def begins(self, position: int, offset: int) -> bool:
        """Whether a batch begins at `position` as an index entry with `offset` has it."""
        header = self.header_at(position)
        return header is not None and header.magic == MAGIC and self.base_offset <= header.base_offset <= offset

    def end(self) -> tuple[int, int]:
        """(position, offset) behind the last whole batch. Bytes behind it are torn, or just being written.

        Raises Malformed for a broken batch that is not the last one: batches behind it must not be left out silently.
        """
        offsets, positions = self.index()
        position, offset = 0, self.base_offset
        if len(positions) and self.begins(int(positions[-1]), int(offsets[-1])):
            position = int(positions[-1])
        while (header := self.header_at(position)) is not None:
            if header == _ZEROS:
                break
            end = position + header.size_bytes
            if header.magic in (0, 1) and self._is_message_of_old(position, header.size_bytes):
                raise old_format(self.path, position)
            if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
                raise Malformed(f"{self.path} has no v2 record batch at position {position} (magic {header.magic})")
            if end > self.size_bytes:
                break
            if compute_crc(os.pread(self.fd, header.size_bytes, position)) != header.crc:
                if end == self.size_bytes:
                    break
                raise Malformed(
                    f"the batch at offset {header.base_offset} in {self.path} is corrupt: its checksum is wrong; "
                    "if the broker was killed, start it once so that it recovers"
                )
            position, offset = end, header.last_offset + 1
        return position, offset

    def _is_message_of_old(self, position: int, size_bytes: int) -> bool:
        if not 26 <= size_bytes <= self.size_bytes - position:
            return False
        entry = os.pread(self.fd, size_bytes, position)
        return entry_header(entry).crc == compute_old_crc(entry)


def old_format(path: str, position: int) -> Malformed:
    """The error for a segment with messages from before Kafka 0.11, which have no columns."""
    return Malformed(
        f"{path} has messages of an old format (v0 or v1, from before Kafka 0.11) at position {position}, and this "
        "data source reads format v2 only. Begin behind the old segments (startingOffsets), or read this topic through "
        'the broker, with Spark\'s format("kafka")'
    )


_ZEROS = parse_header(bytes(HEADER_BYTES))


def _read_index(path: str) -> bytes:
    """The entries in front of the zeros that an active segment's index is padded with."""
    pieces = []
    try:
        with open(path, "rb") as file:
            while piece := file.read(_INDEX_PIECE_BYTES):
                pieces.append(piece)
                if piece.endswith(bytes(8)):
                    break
    except FileNotFoundError:
        return b""
    data = b"".join(pieces)
    return data[: len(data) - len(data) % 8]
