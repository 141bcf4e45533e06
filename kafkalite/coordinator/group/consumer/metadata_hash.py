"""Hashes by which a group notices a change of its topics: one of each topic, and one of all topics of the group.

Only equality matters, but the group's hash stands in its record, so it is computed as Kafka does: a group that changes
hands between the two keeps its epoch.
Source: KIP-1101; org.apache.kafka.coordinator.group.Utils (computeTopicHash, computeGroupHash).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection, Mapping, Sequence

from kafkalite.common.text import java_order
from kafkalite.common.xxh3 import xxh3_64

_LAYOUT_VERSION = b"\0"
_pack_count = struct.Struct("<i").pack
_pack_hash = struct.Struct("<q").pack
_SIGN = 1 << 63


def topic_hash(name: str, topic_id: uuid.UUID, racks: Sequence[Collection[str]]) -> int:
    """The hash of one topic, as a signed 64-bit integer. `racks` has, by partition, the racks of its replicas (those
    brokers only that have one)."""
    parts = [_LAYOUT_VERSION, topic_id.bytes[7::-1], topic_id.bytes[:7:-1], *_text(name), _pack_count(len(racks))]
    for partition, racks_of_one in enumerate(racks):
        parts.append(_pack_count(partition))
        for rack in sorted(racks_of_one, key=java_order):
            units, count = _text(rack)
            parts += (count, units, count)
    return _signed(xxh3_64(b"".join(parts)))


def group_hash(topic_hashes: Mapping[str, int]) -> int:
    """The hash of all topics, by name, that a group is subscribed to and that exist; 0 without any."""
    if not topic_hashes:
        return 0
    return _signed(xxh3_64(b"".join(_pack_hash(topic_hashes[name]) for name in sorted(topic_hashes))))


def _text(text: str) -> tuple[bytes, bytes]:
    """The UTF-16 code units, and their count."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units, _pack_count(len(units) // 2)


def _signed(value: int) -> int:
    return value - 2 * _SIGN if value >= _SIGN else value
