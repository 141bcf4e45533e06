"""The record count of one segment, and the file of the counts of sealed ones: a restart need not count them again.

The file is `kafkalite-record-counts` in the partition's directory. Apache Kafka ignores files with unknown suffixes,
and renames or deletes them together with the directory.

    an entry: "krc1", base offset i64, size, mtime and ctime in ns, inode, records, control records (i64 each),
    CRC-32C of all that (u4): 64 bytes; the last entry of a segment counts; torn or damaged entries are ignored

An entry is valid while size, mtime, ctime and inode of the .log are unchanged. Size and mtime are not enough, because
Apache Kafka's cleaner gives its file the times of the old one; a ctime cannot be set, and the inode distinguishes files
that changed in the same tick of the clock. A copied directory is counted again, once. The file is not fsynced: if an
entry is lost, the segment is counted again from its batch headers.
Source: none in Apache Kafka. kafka.log.LogLoader (unknown files), LogCleaner (setLastModified).
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Set as AbstractSet

from kafkalite.common.checksum import crc32c
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.segment.record_counting import NEVER, Tally
from kafkalite.log.storage.file_names import RECORD_COUNTS
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import BatchHeader

logger = logging.getLogger(__name__)

_ENTRY = struct.Struct(">4s7q")
_CRC = struct.Struct(">I")
_ENTRY_MAGIC = b"krc1"
ENTRY_BYTES = _ENTRY.size + _CRC.size
_STALE_ENTRIES_MAX = 64  # in addition to one for each segment


class Identity(NamedTuple):
    """Identifies a file with its content."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def identity_of(stat: os.stat_result) -> Identity:
    # a field takes 63 bits, and an inode may have 64
    return Identity(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino & NEVER)


class SegmentTally:
    """Fields: `record_count` records, `control_record_count` transaction markers among them, follow the first
    `uncounted_bytes`, whose records are unknown. `identity` is the file's from before anything was appended to those
    bytes. `is_noted`: the record count file has the count.
    """

    __slots__ = ("control_record_count", "identity", "is_noted", "record_count", "uncounted_bytes")

    def __init__(self, uncounted_bytes: int) -> None:
        self.forget(uncounted_bytes)

    def forget(self, size_bytes: int) -> None:
        """Makes the records of all `size_bytes` unknown."""
        self.record_count = self.control_record_count = 0
        self.uncounted_bytes = size_bytes
        self.identity: Identity | None = None
        self.is_noted = False

    def identify(self, fd: int, size_bytes: int) -> None:
        """The open file is about to be appended to: keeps its identity, if nothing is counted and no append is known
        of."""
        if self.uncounted_bytes and self.uncounted_bytes == size_bytes and self.identity is None:
            self.identity = identity_of(os.fstat(fd))

    def add_counted(self, record_count: int, control_record_count: int) -> None:
        """Adds the records of the bytes that were uncounted until now."""
        self.record_count += record_count
        self.control_record_count += control_record_count
        self.uncounted_bytes = 0
        self.identity = None

    def add_unusual(self, header: BatchHeader) -> None:
        """Corrects the count, which expects a data record for each offset, for a marker or a batch with gaps."""
        self.record_count += header.record_count - header.last_offset_delta - 1
        if header.is_control:
            self.control_record_count += header.record_count

    @property
    def counted(self) -> Tally:
        """Data records and control records, without those in the uncounted bytes."""
        return Tally(self.record_count - self.control_record_count, self.control_record_count)


def encode_entry(base_offset: int, identity: Identity, tally: Tally) -> bytes:
    entry = _ENTRY.pack(_ENTRY_MAGIC, base_offset, *identity, *tally)
    return entry + _CRC.pack(crc32c(entry))


def decode_entries(data: bytes) -> dict[int, tuple[Identity, Tally]]:
    """The noted count of each segment, by base offset. Torn and damaged entries are skipped."""
    found: dict[int, tuple[Identity, Tally]] = {}
    for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        entry = data[at : at + _ENTRY.size]
        magic, base_offset, *numbers = _ENTRY.unpack(entry)
        if magic == _ENTRY_MAGIC and _CRC.unpack_from(data, at + _ENTRY.size)[0] == crc32c(entry):
            found[base_offset] = Identity(*numbers[:4]), Tally(*numbers[4:])
    return found


def read_noted(files: Files, directory: str) -> dict[int, tuple[Identity, Tally]]:
    """The noted counts of a partition's directory; none if the file cannot be read."""
    try:
        return decode_entries(files.read(f"{directory}/{RECORD_COUNTS}"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        logger.warning("cannot read the record counts in %s (%s); counting again", directory, error)
        return {}


def add_entries(files: Files, directory: str, entries: bytes, base_offsets: AbstractSet[int]) -> None:
    """Append `entries`. When too many entries are stale, rewrite the file with the entries of `base_offsets` only.
    Raises OSError."""
    path = f"{directory}/{RECORD_COUNTS}"
    fd = files.open(path, os.O_RDWR | os.O_CREAT)
    try:
        size = os.fstat(fd).st_size // ENTRY_BYTES * ENTRY_BYTES  # a torn entry at the end is overwritten
        if size <= (2 * len(base_offsets) + _STALE_ENTRIES_MAX) * ENTRY_BYTES:
            files.write_fully(fd, entries, size)
            return
    finally:
        files.close(fd)
    noted = decode_entries(files.read(path) + entries)
    kept = [encode_entry(base, *one) for base, one in noted.items() if base in base_offsets]
    files.write_atomically(path, b"".join(kept), durable=False)
