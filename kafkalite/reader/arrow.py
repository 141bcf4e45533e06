"""Columns of records as Arrow record batches in the shape that Spark wants, without a Python object per record.

Keys and values become Arrow arrays over the buffer that they lie in: offsets [start0, end0, start1, end1, ...] describe
the values and the gaps between them alternately, and `take` of every other one copies the values together.
The columns are those of Spark's Kafka source: key, value binary; topic string; partition int; offset long; timestamp
timestamp; timestampType int (0 create, 1 log append); headers array<struct<key string, value binary>>, null if none.
Source: org.apache.spark.sql.kafka010.KafkaRecordToRowConverter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.reader.chunks.chunk_rows import MILLIS_MAX
from kafkalite.reader.chunks.rows import Rows
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.varint_columns import Bytes

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
_TIMESTAMP = pa.timestamp("us", tz="UTC")


def to_arrow(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """One record batch with the columns that `schema` names, a selection of COLUMNS, or none: then it only counts."""
    if not schema.names:
        nothing = pa.struct([])
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(nothing, len(rows), [None]))
    return pa.RecordBatch.from_arrays([COLUMNS[name].values(rows) for name in schema.names], schema=schema)


def _key(rows: Rows) -> pa.Array:
    assert rows.key is not None and rows.data is not None
    return _binary(rows.data, *rows.key)


def _value(rows: Rows) -> pa.Array:
    assert rows.value is not None and rows.data is not None
    return _binary(rows.data, *rows.value)


def _binary(data: Bytes, starts: Array, ends: Array) -> pa.Array:
    """Pieces of `data` as binary values; an end before its start is a null. Starts and ends must ascend."""
    count = len(starts)
    null = ends < starts
    if count == 0 or null.all():
        return pa.nulls(count, pa.binary())
    assert len(data) < 1 << 31, "Arrow's binary has offsets of 32 bits"
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = np.maximum(starts, ends)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    with_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers, 0)
    wanted = np.arange(0, 2 * count, 2, dtype=np.int32)
    return with_gaps.take(pa.array(wanted, mask=null) if null.any() else pa.array(wanted))


def _topic(rows: Rows) -> pa.Array:
    return pa.repeat(pa.scalar(rows.topic, pa.string()), len(rows))


def _partition(rows: Rows) -> pa.Array:
    return pa.repeat(pa.scalar(rows.partition, pa.int32()), len(rows))


def _offset(rows: Rows) -> pa.Array:
    return pa.array(rows.offset)


def _timestamp(rows: Rows) -> pa.Array:
    """Microseconds. A time that they cannot express (such as nanoseconds sent as milliseconds) is null."""
    millis = rows.timestamp
    assert millis is not None
    beyond = (millis > MILLIS_MAX) | (millis < -MILLIS_MAX)
    micros = pa.array(millis * 1000, mask=beyond) if beyond.any() else pa.array(millis * 1000)
    return micros.view(_TIMESTAMP)


def _timestamp_type(rows: Rows) -> pa.Array:
    return pa.array(rows.timestamp_type)


def _headers(rows: Rows) -> pa.Array:
    headers = rows.headers
    assert headers is not None and rows.data is not None
    first = headers.first
    none = first[1:] == first[:-1]
    lists = (first - first[0]).astype(np.int32)
    used = slice(int(first[0]), int(first[-1]))
    entries = pa.StructArray.from_arrays(
        [_header_keys(rows.data, headers.key_start[used], headers.key_end[used]),
         _binary(rows.data, headers.value_start[used], headers.value_end[used])],
        fields=list(_HEADER),
    )  # fmt: skip
    # the last slot is not a list but where the last one ends
    offsets = pa.array(lists, mask=np.append(none, False)) if none.any() else pa.array(lists)
    return pa.ListArray.from_arrays(offsets, entries, type=_HEADERS)


def _header_keys(data: Bytes, starts: Array, ends: Array) -> pa.Array:
    keys = _binary(data, starts, ends)
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:  # not all are UTF-8; as Java does, read on with replacement characters
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())


class Column(NamedTuple):
    """A column by its type in Spark's DDL, its Arrow type, and the function that makes its values."""

    ddl: str
    arrow: Any
    values: Callable[[Rows], pa.Array]


COLUMNS: Mapping[str, Column] = {
    "key": Column("binary", pa.binary(), _key),
    "value": Column("binary", pa.binary(), _value),
    "topic": Column("string", pa.string(), _topic),
    "partition": Column("int", pa.int32(), _partition),
    "offset": Column("bigint", pa.int64(), _offset),
    "timestamp": Column("timestamp", _TIMESTAMP, _timestamp),
    "timestampType": Column("int", pa.int32(), _timestamp_type),
    "headers": Column("array<struct<key:string,value:binary>>", _HEADERS, _headers),
}
