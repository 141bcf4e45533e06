"""Compact fields of flexible requests and answers (KIP-482), for the few APIs that the bench sends in such versions."""

from __future__ import annotations

import struct

from bench.wire import CLIENT_ID

_HEAD = struct.Struct(">ihhih")


def flexible_frame(api_key: int, version: int, body: bytes) -> bytes:
    """A whole frame, size first, with request header v2."""
    head = _HEAD.pack(10 + len(CLIENT_ID) + 1 + len(body), api_key, version, 0, len(CLIENT_ID)) + CLIENT_ID
    return head + b"\0" + body


def compact(text: str) -> bytes:
    """A compact string of less than 127 bytes."""
    data = text.encode()
    return bytes([len(data) + 1]) + data


def uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def partitions_by_topic(owned: dict[bytes, list[int]]) -> bytes:
    """A compact array of topic ids, each with its partitions."""
    rows = (
        topic + uvarint(len(some) + 1) + struct.pack(f">{len(some)}i", *some) + b"\0" for topic, some in owned.items()
    )
    return b"".join((uvarint(len(owned) + 1), *rows))


def read_uvarint(data: memoryview, at: int) -> tuple[int, int]:
    """The number, and the position behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def read_compact(data: memoryview, at: int) -> tuple[bytes, int]:
    """The bytes of a compact string (none of null), and the position behind it."""
    size, at = read_uvarint(data, at)
    end = at + max(0, size - 1)
    return bytes(data[at:end]), end


def read_assignment(data: memoryview, at: int) -> dict[bytes, list[int]]:
    """The partitions of an assignment by topic id."""
    count, at = read_uvarint(data, at)
    assigned: dict[bytes, list[int]] = {}
    for _ in range(count - 1):
        topic = bytes(data[at : at + 16])
        size, at = read_uvarint(data, at + 16)
        assigned[topic] = list(struct.unpack_from(f">{size - 1}i", data, at))
        at += 4 * (size - 1) + 1
    return assigned
