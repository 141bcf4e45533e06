"""Metrics in OpenTelemetry's MetricsData, as clients push them: gauges and sums with their attributes.

The bytes are Protocol Buffers. Only the fields that are used are read, others are passed over; distributions
(histograms, summaries) are left out, since neither Java's clients nor librdkafka send any. Reading ends at a number of
points, so that the work is bounded.
Source: opentelemetry-proto, metrics/v1/metrics.proto and common/v1/common.proto; KIP-714.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA = 1
_TEXT_MAX = 300  # characters of a name, or of all attributes of a point
_GAUGE, _SUM = 5, 7

Value = int | memoryview


class MetricPoint(NamedTuple):
    """One value. `is_sum`: it adds up, `is_delta`: to the values before it; else it replaces them. A monotonic sum only
    grows."""

    name: str
    attributes: str  # key=value, by key, with commas between them
    value: float
    is_sum: bool = False
    is_delta: bool = False
    is_monotonic: bool = False


def read_points(data: bytes) -> Iterator[MetricPoint]:
    """The points of gauges and sums. Raises Malformed."""
    try:
        for resource_metrics in _messages(memoryview(data), 1):
            for scope_metrics in _messages(resource_metrics, 2):
                for metric in _messages(scope_metrics, 2):
                    yield from _points_of(metric)
    except (IndexError, struct.error, UnicodeDecodeError) as fault:
        raise Malformed(f"metrics that are no MetricsData: {fault}") from None


def _points_of(metric: memoryview) -> Iterator[MetricPoint]:
    name, kind, content = "", 0, memoryview(b"")
    for number, value in _fields(metric):
        if number == 1:
            name = _text(value)
        elif number in (_GAUGE, _SUM) and isinstance(value, memoryview):
            kind, content = number, value
    if not kind:
        return
    points, is_delta, is_monotonic = [], False, False
    for number, value in _fields(content):
        if number == 1 and isinstance(value, memoryview):
            points.append(value)
        elif number == 2:
            is_delta = value == _DELTA
        elif number == 3:
            is_monotonic = value == 1
    for point in points:
        attributes, number_of_point = _point(point)
        if number_of_point is not None:
            yield MetricPoint(name, attributes, number_of_point, kind == _SUM, is_delta, is_monotonic)


def _point(point: memoryview) -> tuple[str, float | None]:
    attributes, found = [], None
    for number, value in _fields(point):
        if number == 4 and isinstance(value, memoryview):
            found = struct.unpack("<d", value)[0]
        elif number == 6 and isinstance(value, memoryview):
            found = float(struct.unpack("<q", value)[0])
        elif number == 7 and isinstance(value, memoryview):
            attributes.append(_attribute(value))
    return ",".join(sorted(attributes))[:_TEXT_MAX], found


def _attribute(key_value: memoryview) -> str:
    key = text = ""
    for number, value in _fields(key_value):
        if number == 1:
            key = _text(value)
        elif number == 2 and isinstance(value, memoryview):
            text = next((_shown(which, any_value) for which, any_value in _fields(value)), "")
    return f"{key}={text}"


def _shown(which: int, value: Value) -> str:
    """A value of an attribute; lists and maps are left out."""
    if which == 1:
        return _text(value)
    if which == 2:
        return "true" if value else "false"
    if which == 3 and isinstance(value, int):
        return str(value - (1 << 64) if value >> 63 else value)
    return str(struct.unpack("<d", value)[0]) if which == 4 and isinstance(value, memoryview) else ""


def _text(value: Value) -> str:
    return bytes(value[:_TEXT_MAX]).decode(errors="replace") if isinstance(value, memoryview) else ""


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    return (value for number, value in _fields(data) if number == wanted and isinstance(value, memoryview))


def _fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """(field number, value) of each field: an int for a varint, else its bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            number, position = _varint(data, position)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise Malformed(f"metrics with a field of type {kind}")
        if size > len(data) - position:
            raise Malformed("metrics that end inside a field")
        yield key >> 3, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
        if shift > 63:
            raise Malformed("metrics with a varint of more than 64 bits")
