"""Messages of formats v0 and v1: their keys as columns, and message sets without the messages that are not retained.

They are read message by message: logs of that age are few, and none grows any more. A wrapper that loses messages is
compressed again in its own format, with the offset of the last retained message and the largest retained timestamp.
Source: org.apache.kafka.common.record.MemoryRecords.filterTo, MemoryRecordsBuilder, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import numpy as np

from kafkalite.cleaner.compaction.decompressed_batches import RecordKeys
from kafkalite.cleaner.compaction.segment_reader import CleanContext, LegacyPiece
from kafkalite.cleaner.compaction.skimpy_offset_map import RetainedRecords
from kafkalite.cleaner.job.job import CleanStats
from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import BatchHeader
from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.varint_columns import Bytes
from kafkalite.record.compression import UNPACKED_BYTES_MAX, UnpackedTooLarge
from kafkalite.record.message_set import (
    V1,
    TooManyMessages,
    build_set,
    compute_crc,
    entry_header,
    read_inner,
    resolve,
)
from kafkalite.record.record import Record

_RECORDS_MAX = 1 << 21  # of one wrapper: each is some hundred bytes of objects


class Entry(NamedTuple):
    """One entry of a set: a message, or a wrapper with several. `is_mixed`: some have a format of their own."""

    header: BatchHeader
    records: list[Record]
    is_mixed: bool


def read_entry(context: CleanContext, piece: LegacyPiece, start: int, end: int) -> Entry | None:
    """The entry from `start` to `end` of a piece; None if its checksum is right and it cannot be read. Raises
    CleaningFailed."""
    view = piece.data[start:end]
    try:
        header = entry_header(view)
    except Malformed as error:
        raise piece.refuse(start, str(error)) from None
    if compute_crc(view) != header.crc:
        raise piece.refuse(start, "its checksum is wrong")
    try:
        found = read_inner(view, UNPACKED_BYTES_MAX, _RECORDS_MAX, check_crc=True)
        records = resolve(header, found)
    except (TooManyMessages, UnpackedTooLarge) as error:
        raise piece.refuse(start, str(error)) from None
    except Malformed as error:
        context.keep_unread(piece, start, header.base_offset, str(error))
        return None
    return Entry(header, records, any(message.magic != header.magic for message in found))


def last_offset(piece: LegacyPiece, start: int) -> int:
    """Of the entry at `start`, without decompressing it."""
    return int.from_bytes(piece.data[start : start + 8], "big", signed=True)


def keys_of(records: list[Record]) -> tuple[Bytes, Array, Array, Array, Flags]:
    """(data, start, end, offset, is tombstone) of records that all have keys."""
    keys = [record.key or b"" for record in records]
    end = np.cumsum([len(key) for key in keys], dtype=np.int64)
    return (
        np.frombuffer(b"".join(keys), np.uint8),
        end - np.diff(end, prepend=0),
        end,
        np.array([record.offset for record in records], np.int64),
        np.array([record.value is None for record in records], np.bool_),
    )


def rewrite(entry: Entry, kept: list[Record]) -> bytes:
    """A wrapper with its retained messages, at least one. A LogAppendTime stays."""
    header = entry.header
    log_append_time = header.max_timestamp if header.timestamp_type and header.magic == V1 else None
    return build_set(
        [
            (record.offset, record.timestamp if log_append_time is None else log_append_time, record.key, record.value)
            for record in kept
        ],
        header.magic,
        codec=header.codec,
        timestamp_type=header.timestamp_type,
    )


def clean_legacy(
    context: CleanContext, piece: LegacyPiece, retained: RetainedRecords, keeps_tombstones: bool
) -> tuple[memoryview, Array, Array, Array]:
    """The cleaned messages of a piece; size, last offset and largest timestamp of each entry in them.
    `keeps_tombstones`: tombstones of its segment are retained for now. Raises CleaningFailed."""
    stats = context.stats
    parts: list[bytes | memoryview] = []
    headers: list[BatchHeader] = []
    for start, end in piece.entries:
        entry = read_entry(context, piece, start, end)
        if entry is None:
            parts.append(piece.data[start:end])
            headers.append(entry_header(parts[-1]))
            continue
        kept = _keep(entry.records, retained, keeps_tombstones, stats)
        stats.records_read += len(entry.records)
        stats.records_kept += len(kept)
        if not kept:
            continue
        if len(kept) == len(entry.records) and not entry.is_mixed:
            parts.append(piece.data[start:end])
            headers.append(entry.header)
        else:
            parts.append(rewrite(entry, kept))
            headers.append(entry_header(parts[-1]))
    return (
        memoryview(b"".join(parts)),
        np.array([header.size_bytes for header in headers], np.int64),
        np.array([header.base_offset for header in headers], np.int64),
        np.array([header.max_timestamp for header in headers], np.int64),
    )


def _keep(records: list[Record], retained: RetainedRecords, keeps_tombstones: bool, stats: CleanStats) -> list[Record]:
    retained.reach(records[0].offset)
    beyond = [record for record in records if record.offset > retained.latest_offset]
    keyed = [record for record in records if record.offset <= retained.latest_offset and record.key is not None]
    if len(beyond) + len(keyed) < len(records):
        stats.keyless_dropped += sum(
            record.key is None and record.offset < retained.first_dirty_offset for record in records
        )
    if not keyed:
        return beyond
    data, start, end, offset, is_tombstone = keys_of(keyed)
    keep = retained.look_up(data, RecordKeys(start, end, is_tombstone), offset)
    if not keeps_tombstones:
        stats.tombstones_dropped += int(np.count_nonzero(keep & is_tombstone))
        keep &= ~is_tombstone
    return [record for record, stays in zip(keyed, keep.tolist(), strict=True) if stays] + beyond
