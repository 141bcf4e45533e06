"""Filters of a query against rows: what is narrowed exactly leaves the rows that pass, the rest never one too few."""

from __future__ import annotations

import operator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.reader.options import parse_options
from kafkalite.reader.planning.read_options import Comparison, ReadOptions, is_exact, narrow

OPTIONS = parse_options({"path": "/data", "subscribe": "orders"})
COMPARE: dict[str, Any] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, values: value in values,
}

numbers = st.integers(-3, 6)
micros = st.integers(-3000, 6000) | numbers.map(lambda ms: ms * 1000)
operators = st.sampled_from(sorted(COMPARE))
topics = st.sampled_from(["a", "b", "c"])


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    column = draw(st.sampled_from(["topic", "partition", "offset", "timestamp", "value"]))
    values: st.SearchStrategy[Any] = {"topic": topics, "timestamp": micros, "value": topics}.get(column, numbers)
    sign = draw(operators)
    return Comparison(column, sign, tuple(draw(st.lists(values, max_size=3))) if sign == "in" else draw(values))


def passes(options: ReadOptions, topic: str, partition: int, offset: int, timestamp_ms: int) -> bool:
    rows = options.row_filter
    return (
        options.selection.has(topic, partition)
        and rows.min_offset <= offset <= rows.max_offset
        and rows.min_timestamp <= timestamp_ms <= rows.max_timestamp
    )


@given(st.lists(comparisons(), max_size=4), topics, st.integers(0, 5), st.integers(0, 5), st.integers(-1, 5))
def test_rows_that_pass_stay_and_exact_filters_leave_no_other(
    filters: list[Comparison], topic: str, partition: int, offset: int, timestamp_ms: int
) -> None:
    row = {"topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp_ms * 1000, "value": "b"}

    def holds(chosen: list[Comparison]) -> bool:
        return all(COMPARE[sign](row[column], value) for column, sign, value in chosen)

    found = passes(narrow(OPTIONS, filters), topic, partition, offset, timestamp_ms)
    assert found or not holds(filters)
    assert not found or holds([one for one in filters if is_exact(one)])
