"""Filters of a query that leave out topics, partitions and records before they are read.

A comparison of topic or partition leaves out partitions. One of offset or timestamp becomes bounds: planning leaves out
segments and parts of segments by them, the reader batches and then records. Of timestamps, planning uses the lower
bound only: an index tells up to where all records are earlier, and nothing tells from where on all are later, since
timestamps need not ascend. Where they are known to do so, set startingTimestamp and endingTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from kafkalite.reader.planning.read_options import ReadOptions, Selection
from kafkalite.reader.planning.split import HIGHEST, LOWEST, RowFilter

Value = int | str | tuple[int, ...] | tuple[str, ...]

_COMPARED = ("=", "<", "<=", ">", ">=")


class Comparison(NamedTuple):
    """`column operator value`: the column is topic, partition, offset or timestamp, the operator one of = < <= > >= in.

    A timestamp is in microseconds since 1970, as Spark has it. The value for "in" is a tuple.
    """

    column: str
    operator: str
    value: Value


def is_exact(comparison: Comparison) -> bool:
    """Whether no row comes that the comparison rules out, once options are narrowed by it.

    The query must look again at the others, though they may leave something out.
    """
    column, operator, _ = comparison
    if column == "topic":
        return operator in ("=", "in")
    if column == "partition":
        return operator in _COMPARED or operator == "in"
    return column in ("offset", "timestamp") and operator in _COMPARED


def narrow(options: ReadOptions, comparisons: Iterable[Comparison]) -> ReadOptions:
    """The options of a read of those rows that all of the comparisons let pass, or of more where one is not exact.

    Checks and errors stay those of the whole read: a filter hides no offset that is missing.
    """
    selection, rows = options.selection, options.row_filter
    for comparison in comparisons:
        column, operator, value = comparison
        if column == "topic" and is_exact(comparison):
            selection = _narrow_topics(selection, value)
        elif (bounds := _bounds(comparison)) is not None:
            low, high = bounds
            if column == "partition":
                selection = _narrow_partitions(selection, operator, value, low, high)
            elif column == "offset":
                rows = rows._replace(min_offset=max(rows.min_offset, low), max_offset=min(rows.max_offset, high))
            elif column == "timestamp":
                rows = _narrow_times(rows, low, high)
    return replace(options, selection=selection, row_filter=rows)


def _bounds(comparison: Comparison) -> tuple[int, int] | None:
    """The smallest and the largest value that may pass; None for values that are no integers."""
    _, operator, value = comparison
    values = value if isinstance(value, tuple) else (value,)
    numbers = [one for one in values if isinstance(one, int)]
    if len(numbers) < len(values) or (operator not in _COMPARED and operator != "in"):
        return None
    if not numbers:
        return HIGHEST, LOWEST
    low, high = min(numbers), max(numbers)
    if operator in ("<", "<="):
        return LOWEST, high - (operator == "<")
    if operator in (">", ">="):
        return low + (operator == ">"), HIGHEST
    return low, high


def _narrow_topics(selection: Selection, value: Value) -> Selection:
    topics = frozenset(str(one) for one in (value if isinstance(value, tuple) else (value,)))
    return selection._replace(topics=topics if selection.topics is None else selection.topics & topics)


def _narrow_partitions(selection: Selection, operator: str, value: Value, low: int, high: int) -> Selection:
    if operator == "in" and isinstance(value, tuple):
        partitions = frozenset(int(one) for one in value)
        return selection._replace(
            partitions=partitions if selection.partitions is None else selection.partitions & partitions
        )
    return selection._replace(
        min_partition=max(selection.min_partition, low), max_partition=min(selection.max_partition, high)
    )


def _narrow_times(rows: RowFilter, low_us: int, high_us: int) -> RowFilter:
    """The bounds in milliseconds: a record's time is a whole number of them."""
    low = LOWEST if low_us == LOWEST else -(-low_us // 1000)
    high = HIGHEST if high_us == HIGHEST else high_us // 1000
    return rows._replace(min_timestamp=max(rows.min_timestamp, low), max_timestamp=min(rows.max_timestamp, high))
