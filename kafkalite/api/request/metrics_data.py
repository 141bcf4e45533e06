"""Metrics in OpenTelemetry's MetricsData, as clients push them: gauges, sums and histograms with their attributes.

The bytes are Protocol Buffers. Only the fields that are used are read, others are passed over. A histogram becomes a
point for each bound, as Prometheus counts: of all values up to it; and one for the sum and the count of all values.
Exponential histograms and summaries are left out; no client of Kafka sends any. Reading ends at a number of points, so
that the work is bounded.
Source: opentelemetry-proto, metrics/v1/metrics.proto and common/v1/common.proto; KIP-714.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import accumulate

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA = 1
_TEXT_MAX = 300  # characters of a name, or of all attributes of a point
_GAUGE, _SUM, _HISTOGRAM = 5, 7, 9
_BUCKETS_MAX = 250  # a histogram with more is left out
SUM, COUNT = "sum", "count"

Value = int | memoryview


class MetricPoint(NamedTuple):
    """One value. `is_sum`: it adds up, `is_delta`: to the values before it; else it replaces them. A monotonic sum only
    grows. `part` of a histogram: SUM, COUNT, or the upper bound of the values that are counted, as a number."""

    name: str
    attributes: str  # key=value, by key, with commas between them
    value: float
    is_sum: bool = False
    is_delta: bool = False
    is_monotonic: bool = False
    part: str = ""


def read_points(data: bytes) -> Iterator[MetricPoint]:
    """The points of gauges, sums and histograms. Raises Malformed."""
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
        elif number in (_GAUGE, _SUM, _HISTOGRAM) and isinstance(value, memoryview):
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
        if kind == _HISTOGRAM:
            yield from _parts(name, point, is_delta)
            continue
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


def _parts(name: str, point: memoryview, is_delta: bool) -> Iterator[MetricPoint]:
    """The points of one histogram. Its counts are of the values between two bounds, the last of those above all."""
    attributes, total, count = [], None, 0
    counts: list[int] = []
    bounds: list[float] = []
    for number, value in _fields(point):
        if not isinstance(value, memoryview):
            continue
        if number == 4:
            (count,) = struct.unpack("<Q", value)
        elif number == 5:
            (total,) = struct.unpack("<d", value)
        elif number == 6:
            counts += (each for (each,) in struct.iter_unpack("<Q", value))
        elif number == 7:
            bounds += (each for (each,) in struct.iter_unpack("<d", value))
        elif number == 9:
            attributes.append(_attribute(value))
    if len(bounds) > _BUCKETS_MAX:
        return
    shown = ",".join(sorted(attributes))[:_TEXT_MAX]
    up_to = list(zip(map(_bound, bounds), accumulate(counts), strict=False))
    for part, each in (*up_to, ("+Inf", count), (COUNT, count), (SUM, total)):
        if each is not None:
            yield MetricPoint(name, shown, each, True, is_delta, True, part)


def _bound(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


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
