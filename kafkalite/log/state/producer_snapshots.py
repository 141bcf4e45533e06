"""The snapshots of the producers of a partition: their files, and the bytes of one.

A snapshot, `<offset>.snapshot`, has one entry per producer of everything below that offset:

    version 1 (i2), CRC-32C of everything behind it (u4), count (i4), then 46 bytes per producer: producer id i8,
    epoch i2, last sequence i4, last offset i8, offset delta i4, timestamp i8, coordinator epoch i4, first offset of
    the open transaction i8 (-1: none)

Source: org.apache.kafka.storage.internals.log.ProducerStateManager (writeSnapshot, readSnapshot, truncateHead).
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.storage.file_names import SNAPSHOT, segment_stem
from kafkalite.log.storage.files import Files

logger = logging.getLogger(__name__)

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1
_CRC_END = 6


class SnapshotEntry(NamedTuple):
    """One producer. Its last batch is `offset_delta` + 1 records long; `last_offset` is -1 without one.

    `txn_first_offset` is -1 without an open transaction.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    txn_first_offset: int


def encode_snapshot(entries: Sequence[SnapshotEntry]) -> bytes:
    """The content of a snapshot file."""
    out = bytearray(_HEAD.pack(_VERSION, 0, len(entries)))
    for entry in entries:
        out += _ENTRY.pack(*entry)
    struct.pack_into(">I", out, 2, crc32c(memoryview(out)[_CRC_END:]))
    return bytes(out)


def decode_snapshot(data: bytes) -> tuple[list[SnapshotEntry], int]:
    """The entries of a snapshot file, and the number of bytes behind the last of them, which should be 0.

    Raises Malformed, in Kafka's words, for a file that Kafka would refuse.
    """
    if len(data) < _HEAD.size:
        raise Malformed(f"Snapshot failed schema validation: {len(data)} bytes are too few")
    version, crc, count = _HEAD.unpack_from(data)
    end = _HEAD.size + count * _ENTRY.size
    if count < 0 or end > len(data):
        raise Malformed(f"Snapshot failed schema validation: {count} producers do not fit into {len(data)} bytes")
    if version != _VERSION:
        raise Malformed(f"Snapshot contained an unknown file version {version}")
    computed = crc32c(data[_CRC_END:])
    if crc != computed:
        raise Malformed(f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}")
    entries = [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size : end])]
    return entries, len(data) - end


class ProducerSnapshots:
    """The snapshot files of a log in its directory. `offsets` are theirs, ascending."""

    __slots__ = ("_directory", "_files", "offsets")

    def __init__(self, directory: str, offsets: Iterable[int], files: Files) -> None:
        self._files = files
        self.move(directory, offsets)

    def move(self, directory: str, offsets: Iterable[int]) -> None:
        """The log continues in another directory, which has these snapshots."""
        self._directory = directory
        self.offsets = sorted(offsets)

    def newest(self, start_offset: int, end_offset: int) -> tuple[int, list[SnapshotEntry]] | None:
        """The offset and the entries of the newest readable snapshot in [start_offset, end_offset]. Those outside and
        corrupt ones are deleted. Raises OSError."""
        for offset in self.offsets.copy():
            if not start_offset <= offset <= end_offset:
                self.drop(offset)
        while self.offsets:
            offset = self.offsets[-1]
            path = self._path(offset)
            try:
                entries, excess_bytes = decode_snapshot(self._files.read(path))
                if excess_bytes:
                    raise Malformed(f"{excess_bytes} bytes behind its last producer")
            except (Malformed, FileNotFoundError) as error:
                logger.warning("%s is unusable (%s); falling back to an older one", path, error)
                self.drop(offset)
                continue
            return offset, entries
        return None

    def write(self, offset: int, entries: Sequence[SnapshotEntry]) -> str:
        """Writes a snapshot; returns the path of its file, for the caller to fsync. Raises OSError."""
        path = self._path(offset)
        self._files.write_new(path, encode_snapshot(entries))
        insort(self.offsets, offset)
        return path

    def keep_useful(self, base_offsets: list[int]) -> None:
        """Deletes the snapshots at offsets where no segment begins, except the newest in the last segment.

        Raises OSError.
        """
        bases = set(base_offsets)
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and strays[-1] >= base_offsets[-1]:
            strays.pop()
        for offset in strays:
            self.drop(offset)

    def drop_all(self) -> None:
        """Deletes every snapshot. Raises OSError."""
        for offset in self.offsets.copy():
            self.drop(offset)

    def drop(self, offset: int) -> None:
        """Deletes the snapshot at `offset`, if there is one. Raises OSError."""
        if self.forget(offset):
            self._files.unlink_if_exists(self._path(offset))

    def forget(self, offset: int) -> bool:
        """Returns whether there was a snapshot at `offset`; its file is deleted elsewhere."""
        at = bisect_left(self.offsets, offset)
        if at == len(self.offsets) or self.offsets[at] != offset:
            return False
        del self.offsets[at]
        return True

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{segment_stem(offset)}{SNAPSHOT}"
