"""The hash of a record's key that tells its partition, one key at a time.

`kafkalite.producer.partitioner` hashes columns of keys, and is tested against this.
Source: org.apache.kafka.common.utils.Utils.murmur2, toPositive.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """The hash, unsigned."""
    value = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition that producers choose for a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
