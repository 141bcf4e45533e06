"""Offsets of a stream: JSON, shares, delay, lag."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

from kafkalite.spark.stream_reader import (
    TriggerDelay,
    from_json,
    offsets_behind_latest,
    share_out,
    to_json,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


def test_the_json_is_that_of_spark_s_kafka_source() -> None:
    offsets = {B0: 7, ("a", 10): 3, ("a", 2): 5}
    assert json.dumps(to_json(offsets)) == '{"a": {"2": 5, "10": 3}, "b": {"0": 7}}'
    assert from_json(to_json(offsets)) == offsets


def test_a_limit_is_shared_out_in_proportion_and_none_starves() -> None:
    start, latest = {A0: 100, A1: 0, B0: 50}, {A0: 1100, A1: 9000, B0: 51}
    assert share_out(1000, start, latest) == {A0: 100 + 99, A1: 899, B0: 51}
    assert share_out(10**9, start, latest) == latest
    assert share_out(1, start, start) == start
    assert share_out(10, {A0: 5}, {A0: 5, A1: 40}) == {A0: 5, A1: 10}, "a new partition begins at 0"


@given(
    st.integers(1, 10**6), st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=30)
)
def test_shares_go_on_until_all_is_read(limit: int, bounds: list[tuple[int, int]]) -> None:
    start = {("t", index): low for index, (low, _) in enumerate(bounds)}
    latest = {("t", index): low + size for index, (low, size) in enumerate(bounds)}
    ends = share_out(limit, start, latest)
    assert all(start[of] <= ends[of] <= latest[of] for of in latest)
    assert sum(ends.values()) - sum(start.values()) <= limit + len(bounds)
    assert ends != start or start == latest


def test_a_micro_batch_waits_for_enough_offsets_but_not_for_ever() -> None:
    delay = TriggerDelay(min_offsets=100, max_delay_ms=1000)
    assert not delay.waits(1, now_ms=5_000), "the first one does not"
    assert delay.waits(99, now_ms=5_500)
    assert not delay.waits(100, now_ms=5_600)
    assert delay.waits(99, now_ms=6_599)
    assert not delay.waits(1, now_ms=6_600)


def test_how_far_a_source_is_behind() -> None:
    end, latest = '{"a": {"0": 10, "1": 20}}', '{"a": {"0": 15, "1": 20}, "b": {"0": 4}}'
    for report in ({"endOffset": end, "latestOffset": latest}, SimpleNamespace(endOffset=end, latestOffset=latest)):
        behind = offsets_behind_latest(report)
        assert behind is not None and behind == (0, 5, 3.0)
        assert behind._fields == ("minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest")
    assert offsets_behind_latest({"endOffset": end, "latestOffset": None}) is None
