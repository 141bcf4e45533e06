"""Reader of a split as Arrow record batches: the work of a Spark task, or of any other reader.

Each chunk in order: a window of its file into memory that is used again, the wanted batches decoded to columns, the
columns to Arrow. A batch holds at most a quarter of the settings' batch size; small ones are put together.

No record becomes a Python object: keys and values become Arrow arrays over the buffer that they lie in. Offsets
[start0, end0, start1, end1, ...] describe the values and the gaps between them alternately, and `take` of every other
one copies the values together. The columns are those of Spark's Kafka source: key, value binary; topic string;
partition int; offset long; timestamp timestamp; timestampType int (0 create, 1 log append); headers
array<struct<key string, value binary>>, null if none.
Source: org.apache.spark.sql.kafka010.KafkaRecordToRowConverter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.region import OpenFile
from kafkalite.reader.chunks.chunk_file import ChunkFile, FileGone, SplitFiles
from kafkalite.reader.chunks.chunk_rows import MILLIS_MAX, BatchChoice, ChunkRows
from kafkalite.reader.chunks.rows import Rows
from kafkalite.reader.planning.read_options import ReadOptions
from kafkalite.reader.planning.split import Chunk, Loss, ReadReport, ReadSettings
from kafkalite.reader.planning.splits import Relocation, relocate
from kafkalite.record.codec_contexts import Codecs
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.varint_columns import Bytes

logger = logging.getLogger(__name__)

_DEFAULTS = ReadSettings()
_BUFFER_BYTES_MIN = 64 << 10
_SMALL = 8  # batches below this part of the limit are put together, at the price of one more copy
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


def read_split(
    split: Iterable[Chunk], schema: pa.Schema, settings: ReadSettings = _DEFAULTS, report: ReadReport | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of the chunks of a split, in order, with the columns that `schema` names.

    Read and lost records are added to `report`. Raises StorageError when a file has changed since planning,
    Malformed for a corrupt batch; both name the file. The settings may have these reported instead.
    """
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in _batches(split, schema, settings, report if report is not None else ReadReport()):
        is_small = batch.nbytes * _SMALL < settings.group_bytes
        if pending and (not is_small or size + batch.nbytes > settings.group_bytes):
            yield _joined(pending)
            pending, size = [], 0
        if is_small:
            pending.append(batch)
            size += batch.nbytes
        else:
            yield batch
        del batch
    if pending:
        yield _joined(pending)


def read_as_asked(split: Iterable[Chunk], schema: pa.Schema, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """`read_split` with the settings of the options; losses are logged at the end of the split."""
    report = ReadReport()
    yield from read_split(split, schema, _settings(options), report)
    _log(report.lost)


def read_chunk(
    chunk: Chunk, schema: pa.Schema, settings: ReadSettings = _DEFAULTS, report: ReadReport | None = None
) -> Iterator[pa.RecordBatch]:
    """`read_split` for one chunk."""
    return read_split((chunk,), schema, settings, report)


def count_rows(split: Iterable[Chunk], settings: ReadSettings = _DEFAULTS, report: ReadReport | None = None) -> int:
    """The number of records that `read_split` would give, from the headers of batches where they suffice."""
    return sum(map(len, _rows(split, frozenset(), settings, report if report is not None else ReadReport())))


def count_as_asked(split: Iterable[Chunk], options: ReadOptions) -> int:
    """`count_rows` with the settings of the options; losses are logged at the end of the split."""
    report = ReadReport()
    count = count_rows(split, _settings(options), report)
    _log(report.lost)
    return count


def _settings(options: ReadOptions) -> ReadSettings:
    return ReadSettings(options.batch_bytes, options.fail_on_data_loss, options.permissive)


def _log(losses: Iterable[Loss]) -> None:
    for loss in losses:
        logger.warning(
            "lost: %d bytes at position %d of %s, offsets %s to before %s: %s",
            *(loss.size_bytes, loss.position, loss.path, loss.first_offset, loss.end_offset, loss.reason),
        )


def _batches(
    split: Iterable[Chunk], schema: pa.Schema, settings: ReadSettings, report: ReadReport
) -> Iterator[pa.RecordBatch]:
    for rows in _rows(split, frozenset(schema.names), settings, report):
        for part in _parts(rows, settings.group_bytes):
            yield to_arrow(part, schema)


def _rows(split: Iterable[Chunk], names: frozenset[str], settings: ReadSettings, report: ReadReport) -> Iterator[Rows]:
    """The rows of the chunks in order, none of them empty."""
    chunks = tuple(split)
    files = SplitFiles(chunks)
    largest = max((chunk.size_bytes for chunk in chunks), default=0)
    buffer = np.empty(min(settings.window_bytes, max(largest, _BUFFER_BYTES_MIN)), np.uint8)
    codecs = Codecs()
    for planned in chunks:
        for chunk, opened in _located(planned, files, settings, report):
            file = ChunkFile(opened, chunk, report, buffer)
            try:
                for rows in ChunkRows(file, BatchChoice(chunk, names), settings, report, codecs):
                    if len(rows):
                        report.rows += len(rows)
                        yield rows
            except FileGone as error:  # cut between two reads
                if settings.fail_on_data_loss:
                    raise
                report.lost.append(_loss(chunk, chunk.start_offset, chunk.end_offset, str(error)))
            files.done(chunk)


def _located(
    chunk: Chunk, files: SplitFiles, settings: ReadSettings, report: ReadReport, attempts: int = 3
) -> Iterator[tuple[Chunk, OpenFile]]:
    """The chunk and its file; if that is gone, the chunks where its records are now, each with its file.

    Raises FileGone, which names the offsets that are lost, unless they are to be reported.
    """
    try:
        yield chunk, files.get(chunk)
        return
    except FileGone as error:
        reason = str(error)
    found = relocate(chunk) if attempts else Relocation([], [(chunk.start_offset, chunk.end_offset)])
    for first, end in found.lost:
        if settings.fail_on_data_loss:
            raise FileGone(
                f"{reason}: offsets {first} to {end - 1} of {chunk.topic}-{chunk.partition} are gone; run the query "
                "again, or set failOnDataLoss to false to read what is left"
            )
        report.lost.append(_loss(chunk, first, end, reason))
    for part in found.chunks:
        yield from _located(part, files, settings, report, attempts - 1)


def _parts(rows: Rows, limit_bytes: int) -> Iterator[Rows]:
    """The rows in parts of about `limit_bytes` in Arrow."""
    if rows.most_bytes <= limit_bytes:
        yield rows
        return
    ends = np.cumsum(rows.sizes())
    start = 0
    while start < len(rows):
        behind = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, behind + limit_bytes, "right")))
        yield rows.part(start, stop)
        start = stop


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _loss(chunk: Chunk, first_offset: int, end_offset: int, reason: str) -> Loss:
    where = (chunk.topic, chunk.partition, chunk.path, chunk.position, chunk.size_bytes)
    return Loss(*where, first_offset, end_offset, reason)
