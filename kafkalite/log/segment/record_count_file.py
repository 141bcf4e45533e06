"""The file of the record counts of sealed segments, which saves a restart from counting them again.

A file of our own in the partition's directory, `kafkalite-record-counts`. Apache Kafka passes over files the suffixes
of which it does not know, and takes them along when it renames or deletes the directory.

    an entry: "krc1", base offset i64, size, mtime and ctime in ns, inode, records, control records (i64 each),
    CRC-32C of all that (u4): 64 bytes; a later entry for a segment counts, one that is torn or damaged does not

An entry is believed while the .log is the very file that was counted. Apache Kafka's cleaner gives its file the times
of the old one, so size and mtime are not enough; nobody can set a ctime, and the inode tells files apart that changed
in the same tick of the clock. A copied directory is counted again, once. Nothing waits for the disk here: an entry that
is lost costs a look at the headers.
Source: none in Apache Kafka. kafka.log.LogLoader (unknown files), LogCleaner (setLastModified).
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from kafkalite.common.checksum import crc32c
from kafkalite.log.segment.record_counting import NEVER, Tally
from kafkalite.log.storage.file_names import RECORD_COUNTS
from kafkalite.log.storage.files import Files

logger = logging.getLogger(__name__)

_ENTRY = struct.Struct(">4s7q")
_CRC = struct.Struct(">I")
_ENTRY_MAGIC = b"krc1"
ENTRY_BYTES = _ENTRY.size + _CRC.size
_STALE_ENTRIES_MAX = 64  # besides as many as there are segments


class Identity(NamedTuple):
    """Identifies a file with its content."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def identity_of(stat: os.stat_result) -> Identity:
    # a field takes 63 bits, and an inode may have 64
    return Identity(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino & NEVER)


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
    """Append `entries`; when too many are stale, write only those of the segments that there are. Raises OSError."""
    path = f"{directory}/{RECORD_COUNTS}"
    fd = files.open(path, os.O_RDWR | os.O_CREAT)
    try:
        size = os.fstat(fd).st_size // ENTRY_BYTES * ENTRY_BYTES  # one that is torn is written over
        if size <= (2 * len(base_offsets) + _STALE_ENTRIES_MAX) * ENTRY_BYTES:
            files.write_fully(fd, entries, size)
            return
    finally:
        files.close(fd)
    noted = decode_entries(files.read(path) + entries)
    kept = [encode_entry(base, *one) for base, one in noted.items() if base in base_offsets]
    files.write_atomically(path, b"".join(kept), durable=False)
