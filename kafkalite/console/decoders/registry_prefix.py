"""The bytes in front of data of a schema registry: 0, then the id of a schema; for Protobuf the indexes of the message.

Source: the wire format of Confluent's Schema Registry.
"""

from __future__ import annotations

_MAGIC = 0
_BYTES = 5
_INDEXES_MAX = 100


def without_prefix(data: bytes) -> bytes:
    is_of_registry = len(data) >= _BYTES and data[0] == _MAGIC
    return data[_BYTES:] if is_of_registry else data


def without_indexes(data: bytes) -> bytes:
    """Without the five bytes and the zig-zag varints behind them: how many indexes, then each."""
    rest = without_prefix(data)
    if len(rest) == len(data) or not rest:
        return data
    count, position = _varint(rest, 0)
    for _ in range(min(count, _INDEXES_MAX)):
        _, position = _varint(rest, position)
    return rest[position:]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if not byte & 0x80:
            break
    return (value >> 1) ^ -(value & 1), position
