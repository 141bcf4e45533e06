"""Writers of Arrow record batches to a binary stream: Parquet, Arrow IPC as file or stream, CSV, JSON lines.

Parquet and Arrow keep the columns and types as they are. CSV and JSON lines are text, and Kafka's keys and values are
bytes, so an encoding says how bytes become text:

    auto     (default) as text where the bytes are UTF-8, else as "base64:" and their base64. Text that begins with
             "base64:" itself is written in base64, too, so that every value can be read back unchanged
    utf-8    as text; bytes that are not UTF-8 are an error that names the record
    base64   all keys and values in base64, without a prefix

Null is null in JSON, and in CSV an empty field without quotes (an empty value is ""). Timestamps are ISO 8601 in UTC
with milliseconds; a timestamp of -1, which is none, and one beyond microseconds is null, and one outside the years 1 to
9999 its number with the unit, such as "1700000000000000 ms". Headers are a list of {"key", "value"}, in CSV as JSON.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from itertools import chain
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from kafkalite.common.errors import ConfigError
from kafkalite.common.text import base64_pieces, is_text, text_pieces
from kafkalite.common.timestamps import DATE_MS_MAX, DATE_MS_MIN, NO_TIMESTAMP, format_timestamp

_PREFIX = "base64:"
_TO_TEXT, _TO_TEXT_BYTES = 1 << 16, 1 << 20  # records, and bytes of them, that are Python objects at a time
_ROW_GROUP_BYTES = 64 << 20  # of batches in memory; in the file it is less


class BatchWriter(Protocol):
    """Takes batches of one schema; `close` writes the end of the format and leaves the stream open."""

    def write_batch(self, batch: pa.RecordBatch) -> object: ...

    def close(self) -> object: ...


def open_writer(stream: BinaryIO, format_name: str, schema: pa.Schema, encoding: str = "auto") -> BatchWriter:
    """A writer of `parquet`, `arrow` (the file format), `arrow-stream`, `csv` or `jsonl`; the last two heed `encoding`.

    `stream` need not be seekable.
    """
    return _WRITERS[format_name](stream, schema, encoding)


def _sink(stream: BinaryIO) -> Any:
    return pa.PythonFile(_Counted(stream), mode="w")


class _Counted(io.RawIOBase):
    """A stream that knows its position, which a pipe has not."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        count = memoryview(data).nbytes
        self._position += count
        return count

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._stream.flush()


class _ParquetWriter:
    """Small batches, of small segments, share a row group."""

    def __init__(self, stream: BinaryIO, schema: pa.Schema, encoding: str) -> None:
        self._schema = schema
        self._writer = pyarrow.parquet.ParquetWriter(_sink(stream), schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._waiting, self._waiting_bytes = [], 0

    def close(self) -> None:
        self._write()
        self._writer.close()


class _CsvWriter:
    def __init__(self, stream: BinaryIO, schema: pa.Schema, encoding: str) -> None:
        kept = {
            name: schema.field(name).type for name in ("partition", "offset", "timestampType") if name in schema.names
        }
        self._schema = pa.schema([pa.field(name, kept.get(name, pa.string())) for name in schema.names])
        self._stream = stream
        self._writer = pyarrow.csv.CSVWriter(_sink(stream), self._schema)
        self._text = _Text(encoding)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        for part in _parts(batch):
            if _is_large(part):
                self._write_pieces(part)
                continue
            columns = [self._column(part, name) for name in part.schema.names]
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _write_pieces(self, part: pa.RecordBatch) -> None:
        """A large record, as pyarrow writes it."""
        for at, name in enumerate(part.schema.names):
            self._stream.write(b"," if at else b"")
            if self._schema.field(name).type != pa.string():
                value = part.column(name)[0].as_py()
                self._stream.write(b"" if value is None else str(value).encode())
            elif (pieces := self._pieces(part, name)) is not None:
                self._stream.write(b'"')
                for piece in pieces:
                    self._stream.write(piece.replace('"', '""').encode())
                self._stream.write(b'"')
        self._stream.write(b"\n")

    def _pieces(self, part: pa.RecordBatch, name: str) -> Iterator[str] | None:
        if pa.types.is_binary(part.column(name).type):
            return self._text.pieces(part, name)
        value = self._column(part, name)[0].as_py()
        return None if value is None else iter((value,))

    def _column(self, part: pa.RecordBatch, name: str) -> pa.Array:
        if name == "headers":
            return pa.array([each and _dumps(each) for each in self._text.headers(part)], pa.string())
        return self._text.column(part, name)

    def close(self) -> None:
        self._writer.close()


class _JsonLinesWriter:
    def __init__(self, stream: BinaryIO, schema: pa.Schema, encoding: str) -> None:
        self._stream = stream
        self._text = _Text(encoding)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        for part in _parts(batch):
            if _is_large(part):
                self._write_pieces(part)
                continue
            names = part.schema.names
            columns = [self._values(part, name) for name in names]
            rows = zip(*columns, strict=True)
            lines = [_dumps(dict(zip(names, row, strict=True))) for row in rows]
            self._stream.write(("\n".join(lines) + "\n").encode())

    def _write_pieces(self, part: pa.RecordBatch) -> None:
        for at, name in enumerate(part.schema.names):
            self._stream.write(f"{',' if at else '{'}{_dumps(name)}:".encode())
            is_binary = pa.types.is_binary(part.column(name).type)
            pieces = self._text.pieces(part, name) if is_binary else None
            if pieces is None:
                self._stream.write(b"null" if is_binary else _dumps(self._values(part, name)[0]).encode())
                continue
            self._stream.write(b'"')
            for piece in pieces:
                self._stream.write(_dumps(piece)[1:-1].encode())
            self._stream.write(b'"')
        self._stream.write(b"}\n")

    def _values(self, part: pa.RecordBatch, name: str) -> list[Any]:
        if name == "headers":
            return self._text.headers(part)
        values: list[Any] = self._text.column(part, name).to_pylist()
        return values

    def close(self) -> None:
        self._stream.flush()


class _Text:
    """Columns as text: keys, values and the values of headers in the given encoding."""

    def __init__(self, encoding: str) -> None:
        self._of_bytes = _ENCODINGS[encoding]
        self._encoding = encoding

    def column(self, part: pa.RecordBatch, name: str) -> pa.Array:
        """A column as strings, or as it is where it has numbers or text already."""
        column = part.column(name)
        if pa.types.is_timestamp(column.type):
            return _dates(column)
        if not pa.types.is_binary(column.type):
            return column
        if self._encoding != "base64":
            try:
                text = column.cast(pa.string())
            except pa.ArrowInvalid:  # not all are UTF-8
                pass
            else:
                if self._encoding == "utf-8" or not pc.any(pc.starts_with(text, _PREFIX)).as_py():
                    return text
        return pa.array(self._each(part, name, column.to_pylist()), pa.string())

    def pieces(self, part: pa.RecordBatch, name: str) -> Iterator[str] | None:
        """The only value of a column of bytes as text, a piece at a time; None for null."""
        value: bytes | None = part.column(name)[0].as_py()
        if value is None:
            return None
        if self._encoding == "base64":
            return base64_pieces(value)
        if is_text(value):
            if self._encoding == "utf-8" or not value.startswith(_PREFIX.encode()):
                return text_pieces(value)
        elif self._encoding == "utf-8":
            raise _no_text(part, name, 0)
        return chain((_PREFIX,), base64_pieces(value))

    def headers(self, part: pa.RecordBatch) -> list[Any]:
        """A list of keys and values for each record; None where there are none."""
        rows = part.column("headers").to_pylist()
        values = [None if row is None else [header["value"] for header in row] for row in rows]
        texts = self._each(part, "headers", [value for row in values for value in row or ()])
        return [
            None if row is None else [{"key": header["key"], "value": next(texts)} for header in row] for row in rows
        ]

    def _each(self, part: pa.RecordBatch, name: str, values: list[bytes | None]) -> Iterator[str | None]:
        for at, value in enumerate(values):
            try:
                yield None if value is None else self._of_bytes(value)
            except UnicodeDecodeError:
                raise _no_text(part, name, at) from None


def _dates(column: pa.Array) -> pa.Array:
    """As `format_timestamp` writes them in UTC, null where there is none."""
    millis = pc.cast(column, pa.timestamp("ms", tz="UTC"), safe=False)
    numbers = millis.view(pa.int64())
    is_date = pc.and_(pc.greater_equal(numbers, DATE_MS_MIN), pc.less_equal(numbers, DATE_MS_MAX))
    if pc.all(is_date).as_py() and not pc.any(pc.equal(numbers, NO_TIMESTAMP)).as_py():
        return pc.strftime(millis, format="%Y-%m-%dT%H:%M:%SZ")
    texts = [None if one is None else _date(one) for one in numbers.to_pylist()]
    return pa.array(texts, pa.string())


def _date(timestamp_ms: int) -> str | None:
    return format_timestamp(timestamp_ms, UTC, separator="T", absent="") or None


def _no_text(part: pa.RecordBatch, name: str, at: int) -> ConfigError:
    return ConfigError(f"{_place(part, name, at)} is not UTF-8; choose the encoding auto or base64")


def _place(part: pa.RecordBatch, name: str, at: int) -> str:
    """The record of a value, as far as its columns have it."""
    if name == "headers":
        return "the value of a header"
    known = [n for n in ("topic", "partition", "offset") if n in part.schema.names]
    where = ", ".join(f"{n} {part.column(n)[at].as_py()}" for n in known)
    return f"the {name} at {where}" if where else f"a {name}"


def _auto(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return _PREFIX + _base64(value)
    return _PREFIX + _base64(value) if text.startswith(_PREFIX) else text


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts that are small enough to be Python objects; a large record is a part of its own."""
    if batch.nbytes <= _TO_TEXT_BYTES and 0 < batch.num_rows <= _TO_TEXT:
        yield batch
        return
    sizes = _sizes(batch)
    ends = np.cumsum(sizes)
    start = 0
    while start < batch.num_rows:
        before = int(ends[start] - sizes[start])
        stop = int(np.searchsorted(ends, before + _TO_TEXT_BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _TO_TEXT)
        yield batch.slice(start, stop - start)
        start = stop


def _sizes(batch: pa.RecordBatch) -> Any:
    """The bytes of each record, without columns of a fixed size."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_binary(column.type):
            sizes += _lengths(column)
        elif pa.types.is_list(column.type):
            of_values = np.append(0, np.cumsum(_lengths(column.values.field("value"))))
            offsets = column.offsets.to_numpy()
            sizes += of_values[offsets[1:]] - of_values[offsets[:-1]]
    return sizes


def _lengths(column: pa.Array) -> Any:
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)


def _is_large(part: pa.RecordBatch) -> bool:
    return part.num_rows == 1 and int(_sizes(part)[0]) > _TO_TEXT_BYTES


_ENCODINGS: Mapping[str, Callable[[bytes], str]] = {"auto": _auto, "utf-8": bytes.decode, "base64": _base64}

_WRITERS: Mapping[str, Callable[[BinaryIO, pa.Schema, str], BatchWriter]] = {
    "parquet": _ParquetWriter,
    "arrow": lambda stream, schema, _: pa.ipc.new_file(_sink(stream), schema),
    "arrow-stream": lambda stream, schema, _: pa.ipc.new_stream(_sink(stream), schema),
    "csv": _CsvWriter,
    "jsonl": _JsonLinesWriter,
}
