"""Going through a file of batches: by their headers alone (`hop`), or batch by batch (`walk`).

Both stop with Malformed where no whole batch is; what that means is the caller's to say (a torn end after a crash, a
lying index, a damaged disk). `hop` also passes over formats v0 and v1, which may stand in old files.
Source: org.apache.kafka.common.record.FileLogInputStream.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator

from kafkalite.errors import Malformed
from kafkalite.log.batch import HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader, parse_header

_HOP_BYTES = 8192  # read at once when only headers are wanted: two index intervals
_WALK_BYTES = 1 << 20  # read at once when whole batches are wanted
_HEAD = struct.Struct(">qiibIhi")  # the first 27 bytes of a header, up to the last offset delta
_unpack = _HEAD.unpack_from
_BATCH_LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES
_LEGACY_LENGTH_MIN = 14  # an empty message of format v0
_LEGACY_CRC_FROM = 16


def hop(fd: int, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(position, base offset, last offset, size) of every batch in [position, end). Raises Malformed, OSError.

    For v0 and v1, which do not tell their first offset, the base offset is the last one too.
    """
    start = position
    data = b""
    while position < end:
        at = position - start
        if at + _HEAD.size > len(data):
            start, at = position, 0
            data = os.pread(fd, _HOP_BYTES, position)
            if len(data) < _HEAD.size:
                data = data.ljust(_HEAD.size, b"\0")  # an empty v0 message is one byte shorter
        base_offset, length, _, magic, _, _, delta = _unpack(data, at)
        if magic == MAGIC:
            last_offset = base_offset + delta
            fits = length >= _BATCH_LENGTH_MIN and delta >= 0
        else:
            last_offset = base_offset
            fits = 0 <= magic < MAGIC and length >= _LEGACY_LENGTH_MIN
        size = length + PREFIX_BYTES
        if not fits or base_offset < 0 or position + size > end:
            raise Malformed(f"no batch at position {position}")
        yield position, base_offset, last_offset, size
        position += size


def walk(fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, whole batch) of every v2 batch in [position, end). Raises Malformed, OSError.

    Checksums are the caller's business.
    """
    want = _WALK_BYTES
    while position < end:
        asked = min(want, end - position)
        data = memoryview(os.pread(fd, asked, position))
        if len(data) < asked:
            raise Malformed(f"the file ends {asked - len(data)} bytes before position {position + asked}")
        at = 0
        while True:
            size = HEADER_BYTES
            if asked - at < size:
                break
            header = parse_header(data, at)
            if header.magic != MAGIC or header.batch_length < _BATCH_LENGTH_MIN or header.last_offset_delta < 0:
                raise Malformed(f"no v2 batch at position {position + at}")
            size = header.size_bytes
            if asked - at < size:
                break
            yield position + at, header, data[at : at + size]
            at += size
        position += at
        if position < end < position + size:
            raise Malformed(f"the batch at position {position} is cut off after {end - position} bytes")
        want = max(_WALK_BYTES, size)


def is_legacy(fd: int, position: int, end: int) -> bool:
    """Whether a whole and undamaged message of format v0 or v1 stands at `position`. Raises OSError."""
    head = os.pread(fd, 17, position)
    if len(head) < 17 or head[16] not in (0, 1):
        return False
    size = int.from_bytes(head[8:12], "big", signed=True) + PREFIX_BYTES
    if size < _LEGACY_LENGTH_MIN + PREFIX_BYTES or position + size > end:
        return False
    data = os.pread(fd, size, position)
    return len(data) == size and zlib.crc32(data[_LEGACY_CRC_FROM:]) == int.from_bytes(data[12:16], "big")
