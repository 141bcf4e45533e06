"""MetricsData of clients: values and attributes, and nothing but values or `Malformed` for any bytes."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.api.request.metrics_data import MetricPoint, read_points
from kafkalite.common.errors import Malformed
from tests.support.otlp import field, metrics_data, number_point, string_attribute


def test_gauges_and_sums_are_read_with_their_attributes() -> None:
    gauge = (
        field(1, b"lag") + field(3, b"records") + field(5, field(1, number_point(2.5, string_attribute("topic", "t"))))
    )
    counts = field(1, number_point(7)) + field(2, 1) + field(3, 1)
    whole = field(1, b"sent") + field(7, counts)
    exponential = field(1, b"times") + field(10, field(1, b""))
    assert list(read_points(metrics_data(gauge, whole, exponential))) == [
        MetricPoint("lag", "topic=t", 2.5),
        MetricPoint("sent", "", 7.0, is_sum=True, is_delta=True, is_monotonic=True),
    ]


def test_attributes_of_every_kind_are_shown_in_order() -> None:
    attributes = [
        string_attribute("b", "x"),
        field(1, b"a") + field(2, field(2, 1)),
        field(1, b"c") + field(2, field(3, (1 << 64) - 5)),
        field(1, b"d") + field(2, field(4, struct.pack("<d", 0.5), kind=1)),
    ]
    (point,) = read_points(metrics_data(field(1, b"m") + field(5, field(1, number_point(1, *attributes)))))
    assert point.attributes == "a=true,b=x,c=-5,d=0.5"


@pytest.mark.parametrize("data", [b"\x0a\x05\x00", b"\x0a", b"\x0b", b"\xff" * 11, b"\x0a\x04\x12\x02\x12\x05"])
def test_bytes_that_are_no_metrics_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        list(read_points(data))


@given(st.binary(max_size=60))
def test_noise_ends_in_values_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        assert all(isinstance(point.value, float) for point in read_points(data))
