"""Record batches (v2) and whole Produce frames made ahead of time, CRC and all, so that sending them costs nothing.

Source: KIP-98's record batch; the CRC-32C covers everything from the attributes to the end.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass

import crc32c

from bench import wire

_PREFIX = struct.Struct(">qiibI")
_FROM_ATTRIBUTES = struct.Struct(">hiqqqhii")
HEADER_BYTES = _PREFIX.size + _FROM_ATTRIBUTES.size
_ALPHABET = bytes(range(32, 127))


def varint(value: int) -> bytes:
    """Zigzag, then seven bits at a time, lowest first."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def payload(value_bytes: int) -> bytes:
    """Printable bytes of a given length, not all alike."""
    return (_ALPHABET * (value_bytes // len(_ALPHABET) + 1))[:value_bytes]


def record_batch(record_count: int, value_bytes: int, timestamp_ms: int | None = None) -> bytes:
    """An uncompressed batch of `record_count` records: no key, no headers, one value."""
    timestamp = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    value = payload(value_bytes)
    tail = varint(-1) + varint(value_bytes) + value + varint(0)
    body = bytearray()
    for delta in range(record_count):
        record = b"\0" + varint(0) + varint(delta) + tail
        body += varint(len(record)) + record
    checked = _FROM_ATTRIBUTES.pack(0, record_count - 1, timestamp, timestamp, -1, -1, -1, record_count) + body
    return _PREFIX.pack(0, HEADER_BYTES - 12 + len(body), -1, 2, crc32c.crc32c(checked)) + checked


@dataclass(frozen=True, slots=True)
class FrameCycle:
    """Produce frames of one size, to be sent round and round."""

    data: bytes
    """All frames in order, and the first `window` of them again, so that no slice has to wrap."""
    frame_bytes: int
    frame_count: int
    window: int
    record_count: int
    """Records in one frame."""
    value_bytes: int
    """Bytes of value in one record."""
    batch_bytes: int
    topic: str


def frame_cycle(
    topic: str, record_count: int, value_bytes: int, *, window: int = 5, acks: int = 1, partitions: int = 1
) -> FrameCycle:
    """One frame per partition, in order."""
    batch = record_batch(record_count, value_bytes)
    frames = [wire.produce_frame(topic, partition, batch, acks=acks) for partition in range(partitions)]
    frame_bytes = len(frames[0])
    again = [frames[index % partitions] for index in range(window)]
    data = b"".join(frames + again)
    return FrameCycle(data, frame_bytes, partitions, window, record_count, value_bytes, len(batch), topic)
