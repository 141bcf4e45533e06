"""Producer snapshots read from files that nobody vouches for."""

from __future__ import annotations

import struct

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed

TXN_ENTRY = struct.Struct(">hqqqq")


SNAPSHOT_HEAD = struct.Struct(">hIi")


SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


_SNAPSHOT_VERSION = 1


_SNAPSHOT_CRC_END = 6


def read_snapshot(data: bytes) -> list[tuple[int, ...]]:
    """The entries of a producer snapshot. Malformed, in Kafka's words, for one that it would not take."""
    if len(data) < SNAPSHOT_HEAD.size:
        raise Malformed(f"Snapshot failed schema validation: {len(data)} bytes are too few")
    version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
    if count < 0 or SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size > len(data):
        raise Malformed(f"Snapshot failed schema validation: {count} producers do not fit into {len(data)} bytes")
    if version != _SNAPSHOT_VERSION:
        raise Malformed(f"Snapshot contained an unknown file version {version}")
    computed = crc32c(data[_SNAPSHOT_CRC_END:])
    if crc != computed:
        raise Malformed(f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {computed}")
    entries = memoryview(data)[SNAPSHOT_HEAD.size : SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size]
    return list(SNAPSHOT_ENTRY.iter_unpack(entries))
