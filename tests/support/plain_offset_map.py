"""The offset map of Apache Kafka's documents, key by key: the plain version that tests compare SkimpyOffsetMap with.

No pass uses it. A slot is 24 bytes: the key's MD5 and its offset, eight bytes, big-endian; 24 zero bytes are an empty
slot. The first 13 probes take four bytes of the hash each, one byte on from probe to probe; then slot by slot.
Source: org.apache.kafka.storage.internals.log.SkimpyOffsetMap.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from itertools import count, islice

SLOT_BYTES = 24
_HASH_BYTES = 16
_PLACE_MAX = _HASH_BYTES - 4  # the last place in the hash where four bytes can be taken from
_EMPTY = bytes(SLOT_BYTES)


class PlainOffsetMap:
    """The latest offset of each key, in `memory_bytes`. Two keys of the same MD5 are one key.

    Raises ValueError when there is no room for a single key.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.slots = memory_bytes // SLOT_BYTES
        if self.slots < 1:
            raise ValueError(f"{memory_bytes} bytes have no room for a slot of {SLOT_BYTES}")
        self.size = 0
        self.latest_offset = -1
        self._table = bytearray(self.slots * SLOT_BYTES)

    def put(self, key: bytes, offset: int) -> None:
        """Raises ValueError when all slots are taken. That the map stays below its load factor is the caller's care."""
        if self.size >= self.slots:
            raise ValueError(f"all {self.slots} slots are taken")
        digest = _md5(key)
        for position in self._probe(digest):
            slot = self._table[position : position + SLOT_BYTES]
            is_empty = slot == _EMPTY
            if is_empty or slot[:_HASH_BYTES] == digest:
                self._table[position : position + SLOT_BYTES] = digest + struct.pack(">q", offset)
                self.size += is_empty
                self.latest_offset = offset
                return

    def get(self, key: bytes) -> int:
        """The offset that the key was last put with, or -1."""
        digest = _md5(key)
        # when all slots are taken none of them ends the search
        for position in islice(self._probe(digest), self.slots + _PLACE_MAX):
            slot = self._table[position : position + SLOT_BYTES]
            if slot == _EMPTY:
                return -1
            if slot[:_HASH_BYTES] == digest:
                offset: int = struct.unpack(">q", slot[_HASH_BYTES:])[0]
                return offset
        return -1

    def _probe(self, digest: bytes) -> Iterator[int]:
        """Positions in the table, in the order in which they are looked at, without end."""
        for attempt in count():
            place = min(attempt, _PLACE_MAX)
            number = int.from_bytes(digest[place : place + 4], "big") + attempt - place
            # a signed number of 32 bits, which wraps; the least one has no absolute value and counts as 0
            signed = (number + (1 << 31)) % (1 << 32) - (1 << 31)
            yield (0 if signed == -(1 << 31) else abs(signed)) % self.slots * SLOT_BYTES


def _md5(key: bytes) -> bytes:
    return hashlib.md5(key, usedforsecurity=False).digest()
