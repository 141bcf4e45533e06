"""Rebuilds batches with their retained records, and assembles the cleaned batches of a piece.

A cleaned batch is unchanged, rebuilt, or a header without records.

Source: org.apache.kafka.common.record.MemoryRecords.buildRetainedRecordsInto, MemoryRecordsBuilder,
DefaultRecordBatch (writeHeader, writeEmptyHeader); KIP-534.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import numpy as np

from kafkalite.cleaner.compaction.segment_reader import BatchPiece
from kafkalite.common.checksum import crc32c
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    PREFIX_BYTES,
    TRANSACTIONAL,
)
from kafkalite.record.codec_contexts import Codecs
from kafkalite.record.columns.batch_columns import Array, Batches, Flags
from kafkalite.record.columns.varint_columns import (
    Bytes,
    read_varints,
    skip_varints,
    varint_width,
    write_varints,
    zigzag,
)
from kafkalite.record.compression import Buffer

_CRC_AT = 17
_CRC = Struct(">I")
_KNOWN = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
_NO_TIMESTAMP = -1
_CELL_BYTES = 16  # length, attributes and timestamp delta of a record: 5 + 1 + 10 bytes at most


class Rebuilt(NamedTuple):
    """Batches with fewer or other records, ascending: the bytes after their headers, and their new header fields."""

    rows: Array
    body: list[bytes]
    base_timestamp: Array
    max_timestamp: Array
    delete_horizon: Array  # -1: none


def rebuild(
    batches: Batches, rows: Array, count: Array, horizon: Array, data: Bytes, begin: Array, end: Array, codecs: Codecs
) -> Rebuilt:
    """The batches `rows` with the records from `begin` to `end` of `data`, `count` for each batch, at least one.
    `horizon` is the delete horizon of each batch, -1 for none. Raises Corrupt.

    Offset deltas stay, since the base offset stays. Timestamp deltas have a new base: the timestamp of the first
    retained record, or the delete horizon. If that is the old base, the records' bytes are unchanged; otherwise each
    record gets a new length and timestamp delta, and its other bytes are unchanged. A batch with LogAppendTime has that
    time as its base, and zeros.
    """
    if not len(rows):
        return Rebuilt(rows, [], rows, rows, rows)
    is_append_time = batches.is_log_append_time[rows]
    append_time = batches.column("max_timestamp")[rows]
    first = np.cumsum(count) - count
    behind_length = skip_varints(data, begin)
    delta, behind_time = read_varints(data, behind_length + 1, 64)
    batch = np.repeat(np.arange(len(count)), count)
    timestamp = batches.column("base_timestamp")[rows][batch] + delta
    np.copyto(timestamp, append_time[batch], where=is_append_time[batch])
    base = np.where(horizon >= 0, horizon, timestamp[first])
    latest = np.maximum(np.maximum.reduceat(timestamp, first), _NO_TIMESTAMP)
    latest = np.where(is_append_time, append_time, latest)
    new_delta = timestamp - base[batch]
    view = data.data
    if (new_delta == delta).all():
        # neighbours are one piece
        goes_on = np.zeros(len(begin), np.bool_)
        goes_on[1:] = begin[1:] == end[:-1]
        goes_on[first] = False
        starts = np.flatnonzero(~goes_on)
        ends = end[np.append(starts[1:], len(end)) - 1]
        pieces: list[memoryview | bytes] = [
            view[a:b] for a, b in zip(begin[starts].tolist(), ends.tolist(), strict=True)
        ]
        first_piece = np.append(np.searchsorted(starts, first), len(starts)).tolist()
    else:
        cells, cell_end = _cells(end - behind_time, new_delta)
        pieces = [b""] * (2 * len(begin))
        pieces[0::2] = [cells[i * _CELL_BYTES : stop] for i, stop in enumerate(cell_end.tolist())]
        pieces[1::2] = [view[a:b] for a, b in zip(behind_time.tolist(), end.tolist(), strict=True)]
        first_piece = np.append(2 * first, len(pieces)).tolist()
    bodies = []
    for i, codec in enumerate(batches.codec[rows].tolist()):
        body = b"".join(pieces[first_piece[i] : first_piece[i + 1]])
        bodies.append(codecs.compress(codec, body) if codec else body)
    return Rebuilt(rows, bodies, base, latest, horizon)


def _cells(rest_bytes: Array, delta: Array) -> tuple[bytes, Array]:
    """Length, attributes (none are in use) and timestamp delta of each record, in cells of 16 bytes, and where each
    ends. `rest_bytes` is the size of the rest of the record."""
    time = zigzag(delta)
    length = zigzag(rest_bytes + 1 + varint_width(time))
    cells = np.zeros(len(delta) * _CELL_BYTES, np.uint8)
    begin = np.arange(0, len(cells), _CELL_BYTES)
    end = write_varints(cells, write_varints(cells, begin, length) + 1, time)
    return cells.tobytes(), end


def assemble(
    piece: BatchPiece, kept: Array, stays_empty: Flags, rebuilt: Sequence[Rebuilt]
) -> tuple[memoryview, Array, Array, Array]:
    """The cleaned data, and size, last offset and largest timestamp of each batch in it.

    `kept` is the number of retained records of each batch of the piece. A batch that retains records and is not
    `rebuilt` stays as it is; one that `stays_empty` becomes a header.
    """
    batches = piece.batches
    built = np.concatenate([c.rows for c in rebuilt] or [np.empty(0, np.int64)])
    is_new = stays_empty.copy()
    is_new[built] = True
    rows = np.flatnonzero((kept > 0) | stays_empty)
    size, latest = batches.size_bytes, batches.column("max_timestamp")
    if len(rows) == len(batches) and not is_new.any():
        return piece.data, size, batches.last_offset, latest
    if not len(rows):
        return piece.data[:0], rows, rows, rows
    bodies: list[Buffer] = [b""] * len(batches)
    heads = batches.heads[is_new]
    place = np.cumsum(is_new) - 1  # of a batch among the new ones
    _clear_records(heads)
    for c in rebuilt:
        for row, body in zip(c.rows.tolist(), c.body, strict=True):
            bodies[row] = body
        at = place[c.rows]
        heads["attributes"][at] = batches.heads["attributes"][c.rows] & _KNOWN
        heads["attributes"][at] |= np.where(c.delete_horizon >= 0, DELETE_HORIZON, 0).astype(np.int16)
        heads["batch_length"][at] += np.array([len(body) for body in c.body], np.int64)
        heads["base_timestamp"][at] = c.base_timestamp
        heads["max_timestamp"][at] = c.max_timestamp
        heads["record_count"][at] = kept[c.rows]
    size[is_new] = heads["batch_length"].astype(np.int64) + PREFIX_BYTES
    latest[is_new] = heads["max_timestamp"]
    out = _join(piece, rows, is_new, heads, bodies)
    end = np.cumsum(size[rows])
    _write_checksums(out, (end - size[rows])[is_new[rows]], end[is_new[rows]])
    return memoryview(out), size[rows], batches.last_offset[rows], latest[rows]


def _clear_records(heads: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
    """Turn them into headers without records. The producer's fields and the largest timestamp stay."""
    heads["batch_length"] = HEADER_BYTES - PREFIX_BYTES
    heads["attributes"] &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    heads["base_timestamp"] = _NO_TIMESTAMP
    heads["record_count"] = 0


def _join(
    piece: BatchPiece,
    rows: Array,
    is_new: Flags,
    heads: np.ndarray[tuple[int], np.dtype[np.void]],
    bodies: list[Buffer],
) -> bytearray:
    """The batches `rows`, concatenated; neighbouring unchanged batches are copied as one piece."""
    batches = piece.batches
    headers = heads.tobytes()
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (np.diff(rows) != 1) | is_new[rows[1:]] | is_new[rows[:-1]]
    starts = np.flatnonzero(begins)
    stops = np.append(starts[1:], len(rows)) - 1
    position = batches.position
    end = position + batches.heads["batch_length"] + PREFIX_BYTES
    parts: list[Buffer] = []
    number = 0
    for row, new, a, b in zip(
        rows[starts].tolist(),
        is_new[rows[starts]].tolist(),
        position[rows[starts]].tolist(),
        end[rows[stops]].tolist(),
        strict=True,
    ):
        if new:
            parts.append(headers[number : number + HEADER_BYTES])
            parts.append(bodies[row])
            number += HEADER_BYTES
        else:
            parts.append(piece.data[a:b])
    return bytearray().join(parts)


def _write_checksums(out: bytearray, start: Array, end: Array) -> None:
    view = memoryview(out)
    for a, b in zip(start.tolist(), end.tolist(), strict=True):
        _CRC.pack_into(out, a + _CRC_AT, crc32c(view[a + CRC_FROM : b]))
