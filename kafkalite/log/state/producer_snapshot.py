"""The bytes of a producer snapshot, `<offset>.snapshot`: one entry per producer of everything below that offset.

    version 1 (i2), CRC-32C of everything behind it (u4), count (i4), then 46 bytes per producer: producer id i8,
    epoch i2, last sequence i4, last offset i8, offset delta i4, timestamp i8, coordinator epoch i4, first offset of
    the open transaction i8 (-1: none)

Source: org.apache.kafka.storage.internals.log.ProducerStateManager (writeSnapshot, readSnapshot).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed

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
