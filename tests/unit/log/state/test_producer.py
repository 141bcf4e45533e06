from __future__ import annotations

import struct

import pytest

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed
from kafkalite.log.state.producer_snapshots import SnapshotEntry, decode_snapshot, encode_snapshot

ENTRY = SnapshotEntry(7, 2, 14, 104, 4, 1_700_000_000_000, -1, -1)
BODY = bytes.fromhex(
    "000000010000000000000007 0002 0000000e 0000000000000068 00000004 0000018bcfe56800 ffffffff ffffffffffffffff"
)


def test_snapshot_bytes() -> None:
    assert encode_snapshot([]) == bytes.fromhex("0001 48674bc7 00000000")
    data = encode_snapshot([ENTRY])
    assert data[:2] == b"\0\1"
    assert data[6:] == BODY
    assert decode_snapshot(data) == ([ENTRY], 0)


def test_a_damaged_snapshot_is_malformed() -> None:
    data = encode_snapshot([ENTRY])
    for damaged in (data[:-1], data[:5], b"\0\2" + data[2:], data[:-1] + b"\0", data + b"\0"):
        with pytest.raises(Malformed):
            decode_snapshot(damaged)


def test_bytes_behind_the_last_entry_are_counted() -> None:
    body = BODY + b"\0\0\0"
    data = b"\0\1" + struct.pack(">I", crc32c(body)) + body
    assert decode_snapshot(data) == ([ENTRY], 3)
