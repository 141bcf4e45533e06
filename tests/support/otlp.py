"""MetricsData of OpenTelemetry, made by hand."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def field(number: int, value: int | bytes, kind: int = 2) -> bytes:
    """A varint, a message or text, or with `kind` 1 eight bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | kind) + (varint(len(value)) if kind == 2 else b"") + value


def string_attribute(key: str, text: str) -> bytes:
    return field(1, key.encode()) + field(2, field(1, text.encode()))


def number_point(value: float, *attributes: bytes) -> bytes:
    """A data point: an int or a double."""
    of_int = isinstance(value, int)
    packed = struct.pack("<q", value) if of_int else struct.pack("<d", value)
    return b"".join(field(7, each) for each in attributes) + field(6 if of_int else 4, packed, kind=1)


def metrics_data(*metrics: bytes) -> bytes:
    return field(1, field(2, b"".join(field(2, each) for each in metrics)))


def histogram(name: str, bounds: list[float], counts: list[int], total: float, *attributes: bytes) -> bytes:
    """Counts since the last push; there is one more than bounds."""
    point = field(4, struct.pack("<Q", sum(counts)), kind=1) + field(5, struct.pack("<d", total), kind=1)
    point += field(6, struct.pack(f"<{len(counts)}Q", *counts)) + field(7, struct.pack(f"<{len(bounds)}d", *bounds))
    point += b"".join(field(9, each) for each in attributes)
    return metrics_data(field(1, name.encode()) + field(9, field(1, point) + field(2, 1)))


def gauge(name: str, value: float) -> bytes:
    return metrics_data(field(1, name.encode()) + field(5, field(1, number_point(value))))


def delta(name: str, value: float) -> bytes:
    """A monotonic sum since the last push."""
    return metrics_data(field(1, name.encode()) + field(7, field(1, number_point(value)) + field(2, 1) + field(3, 1)))
