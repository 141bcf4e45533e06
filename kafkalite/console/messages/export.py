"""Records as a file: JSON lines, written while they are read, or Parquet, which is put together first."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Iterator
from typing import Any

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.console.messages.payload import available
from kafkalite.console.request.parameters import ApiError
from kafkalite.record.json_lines import json_of

EXPORTED_MAX = 1_000_000
NEWEST_MAX = 10_000  # the newest ones come first, so they are all held before the first is written
PARQUET_BYTES_MAX = 512 << 20
_LINES_PER_PIECE = 200
_ROWS_PER_GROUP = 20_000


def json_lines(records: Iterator[ScannedRecord]) -> Iterator[bytes]:
    """A JSON object a line, as `kafkalite consume --json` writes it and `kafkalite produce --json` reads it. An
    "error", which the latter refuses, stands for a batch that cannot be read."""
    lines: list[bytes] = []
    for one in records:
        lines.append(_line(one))
        if len(lines) >= _LINES_PER_PIECE:
            yield b"".join(lines)
            lines.clear()
    yield b"".join(lines)


def _line(one: ScannedRecord) -> bytes:
    if one.fault is not None:
        fault = {"topic": one.topic, "partition": one.partition, "offset": one.offset, "error": _unreadable(one)}
        return json.dumps(fault, separators=(",", ":")).encode() + b"\n"
    return json_of(one.shown())


def _unreadable(one: ScannedRecord) -> str:
    return f"the batch at offset {one.offset} of partition {one.partition} cannot be read: {one.fault}"


def parquet(records: Iterator[ScannedRecord]) -> bytes:
    """Keys and values as binary columns. Raises ApiError if it is too much for the memory, a batch
    cannot be read, or pyarrow is missing."""
    if not available()["parquet"]:
        raise ApiError(409, "REFUSED", "Parquet needs the package pyarrow: pip install kafkalite[arrow]")
    pyarrow: Any = importlib.import_module("pyarrow")
    writer_module: Any = importlib.import_module("pyarrow.parquet")
    header = pyarrow.struct([("name", pyarrow.string()), ("value", pyarrow.binary())])
    schema = pyarrow.schema(
        [
            ("partition", pyarrow.int32()),
            ("offset", pyarrow.int64()),
            ("timestamp", pyarrow.timestamp("ms", "UTC")),
            ("key", pyarrow.binary()),
            ("value", pyarrow.binary()),
            ("headers", pyarrow.list_(header)),
        ]
    )
    out = io.BytesIO()
    with writer_module.ParquetWriter(out, schema, compression="zstd") as writer:
        for rows in _groups(records):
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            if out.tell() > PARQUET_BYTES_MAX:
                raise ApiError(413, "TOO_LARGE", f"more than {PARQUET_BYTES_MAX >> 20} MiB; export it as JSON lines")
    return out.getvalue()


def _groups(records: Iterator[ScannedRecord]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for one in records:
        if one.fault is not None:
            raise ApiError(409, "REFUSED", _unreadable(one))
        headers = [{"name": name, "value": value} for name, value in one.headers]
        rows.append(
            {
                "partition": one.partition,
                "offset": one.offset,
                "timestamp": one.timestamp,
                "key": one.key,
                "value": one.value,
                "headers": headers,
            }
        )
        size += len(one.value or b"")
        if len(rows) >= _ROWS_PER_GROUP or size > PARQUET_BYTES_MAX // 8:
            yield rows
            rows, size = [], 0
    yield rows
