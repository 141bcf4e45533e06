"""Reader of a split as Arrow record batches: the work of a Spark task, or of any other reader.

Each chunk in order: a window of its file into memory that is used again, the wanted batches decoded to columns, the
columns to Arrow. A batch holds at most a quarter of the settings' batch size; small ones are put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from kafkalite.reader.arrow import to_arrow
from kafkalite.reader.chunks.batch_choice import BatchChoice
from kafkalite.reader.chunks.chunk_file import ChunkFile
from kafkalite.reader.chunks.chunk_rows import ChunkRows
from kafkalite.reader.chunks.read_report import Loss, ReadReport, ReadSettings
from kafkalite.reader.chunks.rows import Rows
from kafkalite.reader.chunks.split_files import FileGone, SplitFiles
from kafkalite.reader.planning.split import Chunk
from kafkalite.record.codec_contexts import Codecs

_DEFAULTS = ReadSettings()
_BUFFER_BYTES_MIN = 64 << 10
_SMALL = 8  # batches below this part of the limit are put together, at the price of one more copy


def read_split(
    split: Iterable[Chunk], schema: pa.Schema, settings: ReadSettings = _DEFAULTS, report: ReadReport | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of the chunks of a split, in order, with the columns that `schema` names.

    What was read and what was not is added to `report`. Raises StorageError when a file is not what it was at planning,
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


def read_chunk(
    chunk: Chunk, schema: pa.Schema, settings: ReadSettings = _DEFAULTS, report: ReadReport | None = None
) -> Iterator[pa.RecordBatch]:
    """`read_split` for one chunk."""
    return read_split((chunk,), schema, settings, report)


def count_rows(split: Iterable[Chunk], settings: ReadSettings = _DEFAULTS, report: ReadReport | None = None) -> int:
    """The number of records that `read_split` would give, from the headers of batches as far as these tell."""
    return sum(map(len, _rows(split, frozenset(), settings, report if report is not None else ReadReport())))


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
    for chunk in chunks:
        try:
            file = ChunkFile(files.get(chunk), chunk, report, buffer)
            for rows in ChunkRows(file, BatchChoice(chunk, names), settings, report, codecs):
                if len(rows):
                    report.rows += len(rows)
                    yield rows
        except FileGone as error:
            if settings.fail_on_data_loss:
                raise
            report.lost.append(_gone(chunk, str(error)))
        files.done(chunk)


def _parts(rows: Rows, limit_bytes: int) -> Iterator[Rows]:
    """The rows in parts of about `limit_bytes` in Arrow."""
    sizes = rows.sizes()
    if int(sizes.sum()) <= limit_bytes:
        yield rows
        return
    ends = np.cumsum(sizes)
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


def _gone(chunk: Chunk, reason: str) -> Loss:
    where = (chunk.topic, chunk.partition, chunk.path, chunk.position, chunk.size_bytes)
    return Loss(*where, chunk.start_offset, chunk.end_offset, reason)
