"""Values of rows decoded in a task: typed columns, and dead letters with the reasons why the others are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from spark_jobs.partitioned_files import Layout, file_schema
from spark_jobs.values.value_format import Decode

REASON = "reason"
DEAD_SCHEMA = file_schema(["topic", "partition", "offset", "timestamp", "key", "value"]).append(
    pa.field(REASON, pa.string())
)
_REASON_CHARS_MAX = 500


class DeadLetters(NamedTuple):
    """Where the undecodable rows of a run go. Those below `offsets` are in the table already: the run that wrote them
    ended between the two commits."""

    directory: str
    layout: Layout
    offsets: Mapping[TopicPartition, int]


def with_decoded(rows: pa.RecordBatch, decode: Decode, kind: pa.DataType) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows with decoded values, and those that have none, with their reasons. Null stays null."""
    data = rows.column("value").to_pylist()
    values: list[Any] = []
    reasons: dict[int, str] = {}
    for row, one in enumerate(data):
        try:
            values.append(None if one is None else decode(one))
        except ConfigError:  # no fault of the value
            raise
        except Exception as fault:  # libraries and values of all kinds
            values.append(None)
            reasons[row] = (str(fault) or type(fault).__name__)[:_REASON_CHARS_MAX]
    column = _column(values, kind, reasons)
    at = rows.schema.get_field_index("value")
    good = rows.set_column(at, pa.field("value", kind), column)
    if not reasons:
        return good, rows.slice(0, 0).append_column(REASON, pa.array([], pa.string()))
    is_dead = pa.array([row in reasons for row in range(len(data))])
    texts = pa.array([reasons[row] for row in sorted(reasons)], pa.string())
    return good.filter(pc.invert(is_dead)), rows.filter(is_dead).append_column(REASON, texts)


def _column(values: Sequence[Any], kind: pa.DataType, reasons: dict[int, str]) -> pa.Array:
    """The values in a column; one that does not fit becomes null and has a reason."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        fitting = list(values)
        for row, value in enumerate(values):
            try:
                pa.array([value], kind)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as fault:
                fitting[row] = None
                reasons[row] = str(fault)[:_REASON_CHARS_MAX]
        return pa.array(fitting, kind)
