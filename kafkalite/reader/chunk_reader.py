"""Reader of a chunk of a segment as Arrow record batches, for a Spark task.

A few megabytes at a time into one buffer that is used again, whole batches of it decoded to columns, the columns to
Arrow. Between planning and reading, retention may have renamed the file (it is found under its new name for a while)
or compaction may have put another in its place (the chunk's first header tells).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from kafkalite.common.errors import Malformed, StorageError
from kafkalite.common.region import OpenFile
from kafkalite.log.storage.file_names import DELETED
from kafkalite.reader.arrow import Rows, to_arrow
from kafkalite.reader.planning.split import Chunk, Split
from kafkalite.reader.segments.segment_file import old_format
from kafkalite.reader.segments.transactions import is_aborted
from kafkalite.record.batch import HEADER_BYTES, parse_header
from kafkalite.record.columns.batch_columns import OldFormat, scan
from kafkalite.record.columns.record_columns import Columns, decode_rows, refuse_impossible

READ_BYTES = 16 << 20
"""Also about what compressed batches may unpack to before they become an Arrow batch."""


def read_split(split: Split, schema: pa.Schema, read_bytes: int = READ_BYTES) -> Iterator[pa.RecordBatch]:
    """The records of the chunks of a split, in order. Raises as `read_chunk`."""
    for chunk in split:
        yield from read_chunk(chunk, schema, read_bytes)


def read_chunk(chunk: Chunk, schema: pa.Schema, read_bytes: int = READ_BYTES) -> Iterator[pa.RecordBatch]:
    """The records of `chunk` with the columns that `schema` names.

    Raises StorageError when the file is not what it was at planning, Malformed for a corrupt batch; both name the file.
    """
    file = _open(chunk)
    buffer = np.empty(min(read_bytes, chunk.size_bytes), np.uint8)
    position = chunk.position
    end = chunk.position + chunk.size_bytes
    while position < end:
        data = buffer.data[: min(len(buffer), end - position)]
        _read(file, data, position, chunk)
        if position == chunk.position and data[:HEADER_BYTES] != chunk.head:
            raise _changed(chunk)
        consumed_bytes = 0
        try:
            batches = scan(data, check_crc=True)
            refuse_impossible(batches)
            consumed_bytes = batches.consumed_bytes
            with_records = np.flatnonzero((batches.record_count > 0) & ~batches.is_control)
            headers = "headers" in schema.names
            for columns in decode_rows(data, batches, with_records, headers=headers, group_bytes=read_bytes):
                rows = _wanted(columns, chunk)
                if len(rows):
                    yield _filtered(to_arrow(rows, schema), rows, chunk)
        except OldFormat:
            raise old_format(chunk.path, position) from None
        except Malformed as error:
            raise Malformed(f"{chunk.path}: {error}") from None
        if not consumed_bytes:  # one batch larger than the buffer
            if len(data) == end - position:
                raise _changed(chunk)
            buffer = np.empty(min(parse_header(data).size_bytes, end - position), np.uint8)
        position += consumed_bytes


def _wanted(columns: Columns, chunk: Chunk) -> Rows:
    """Offsets only ascend in a log, so the wanted ones are one run."""
    first = max(chunk.start_offset, chunk.row_filter.min_offset)
    end = min(chunk.end_offset, chunk.row_filter.max_offset + 1)
    start, stop = np.searchsorted(columns.offset, [first, max(first, end)]).tolist()
    return Rows(columns, start, stop, chunk.topic, chunk.partition)


def _filtered(batch: pa.RecordBatch, rows: Rows, chunk: Chunk) -> pa.RecordBatch:
    """Without the records of aborted transactions and those whose timestamps are not wanted."""
    kept = np.ones(len(rows), np.bool_)
    if chunk.aborted:
        kept &= ~is_aborted(rows.columns.batches, chunk.aborted)[rows.columns.batch[rows.rows]]
    if chunk.row_filter.bounds_time:
        timestamp = rows.columns.timestamp[rows.rows]
        kept &= (timestamp >= chunk.row_filter.min_timestamp) & (timestamp <= chunk.row_filter.max_timestamp)
    return batch if kept.all() else batch.filter(pa.array(kept))


def _open(chunk: Chunk) -> OpenFile:
    for path in (chunk.path, chunk.path + DELETED):
        try:
            return OpenFile(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"cannot open {path}: {error.strerror}") from error
    raise StorageError(f"{chunk.path} was deleted by retention or compaction after planning; run the query again")


def _read(file: OpenFile, data: memoryview, position: int, chunk: Chunk) -> None:
    done = 0
    while done < len(data):
        count = os.preadv(file.fd, [data[done:]], position + done)
        if not count:
            raise _changed(chunk)
        done += count


def _changed(chunk: Chunk) -> StorageError:
    return StorageError(f"{chunk.path} was changed by compaction or recovery after planning; run the query again")
