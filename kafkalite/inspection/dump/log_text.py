"""A stretch of a log in the words of kafka-dump-log, or as JSON: batches, and records if they are asked for.

Batches of any format are shown wherever their lengths lead, sound or not (`isvalid`). Where Kafka's tool would end with
an exception, this one says so among the complaints and goes on with the next batch. Most of the time goes into putting
numbers into words, so what is of v2 and in order goes through in columns, many lines at a time.
Source: kafka.tools.DumpLogSegments.dumpLog; DefaultRecordBatch and AbstractLegacyRecordBatch for what a field means.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed
from kafkalite.inspection.files.control_records import control_text
from kafkalite.inspection.files.log_file import Window, is_valid
from kafkalite.inspection.files.printer import Printer
from kafkalite.inspection.files.record_decoders import RecordDecoder, Shown
from kafkalite.inspection.files.record_rows import (
    Row,
    blocks_of,
    columns_of_window,
    fields,
    header_names,
    rows_of_batch,
    rows_of_window,
    sequence_at,
    sequences,
    take_blocks,
)
from kafkalite.record.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    parse_header,
)
from kafkalite.record.columns.record_columns import Columns
from kafkalite.record.compression import CODEC_NAMES
from kafkalite.record.message_set import entry_header

NO_LIMIT = (1 << 31) - 1
_SEQUENCE_MAX = (1 << 31) - 1
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_LEGACY = struct.Struct(">qiIbb")
_unpack = struct.Struct(">qiibIhiqqqhii").unpack_from
_dumps = json.JSONEncoder(separators=(",", ":")).encode


class LogDump(NamedTuple):
    """How logs are shown: `deep` record by record, `decoder` with their data, without `metadata` the data alone."""

    deep: bool = False
    decoder: RecordDecoder | None = None
    metadata: bool = True
    max_bytes: int = NO_LIMIT


def show_windows(
    windows: Iterable[Window], how: LogDump, printer: Printer, last_offset: int, gaps: list[tuple[int, int]]
) -> int:
    """Show these batches; the offset of the last record. `last_offset` is that of the record in front of them, -1 for
    none; what does not follow the one before goes to `gaps`."""
    for window in windows:
        if how.deep:
            last_offset = _show_deep(window, how, printer, last_offset, gaps)
        else:
            _show_batches(window, printer)
    return last_offset


def _show_batches(window: Window, printer: Printer) -> None:
    if not printer.as_json:
        lines, faults = _lines_of_batches(window)
        printer.lines(lines)
        for fault in faults:
            printer.complain(fault)
        return
    data, start, bounds = window
    for at, end in pairwise(bounds):
        text, fault = _batch_object(data[at:end], start + at)
        printer.line(text)
        if fault:
            printer.complain(fault)


def _show_deep(window: Window, how: LogDump, printer: Printer, last_offset: int, gaps: list[tuple[int, int]]) -> int:
    """The offset of the last record that was shown; what does not follow the one before goes to `gaps`."""
    columns = None if printer.as_json else columns_of_window(window)
    if columns is not None and _is_without_gaps(columns):
        return _show_columns(window, columns, how, printer, last_offset, gaps)
    data, start, bounds = window
    show = _batch_object if printer.as_json else _batch_line
    show_records = _record_objects if printer.as_json else _record_lines
    for at, end, rows in zip(bounds, bounds[1:], rows_of_window(window), strict=False):
        batch = data[at:end]
        text, fault = show(batch, start + at)
        printer.line(text)
        if isinstance(rows, Malformed):
            printer.complain(fault or f"position {start + at}: {rows}")
            continue
        for block in rows:
            for row in block:
                if row[0] != last_offset + 1 and last_offset != -1:
                    gaps.append((last_offset, row[0]))
                last_offset = row[0]
            printer.lines(show_records(batch, block, how))
    return last_offset


def _show_columns(
    window: Window, columns: Columns, how: LogDump, printer: Printer, last_offset: int, gaps: list[tuple[int, int]]
) -> int:
    """As `_show_deep`, for batches of v2 with all their offsets: 1.1 us a record instead of 4.4 us."""
    data, start, bounds = window
    lines = chain.from_iterable(_lines_of_columns(block, how) for block in blocks_of(columns))
    batches = columns.batches
    of_batches, _ = _lines_of_batches(window)
    counts, firsts = batches.record_count.tolist(), batches.base_offset.tolist()
    is_control = batches.is_control.tolist()
    for row, (at, end) in enumerate(pairwise(bounds)):
        batch = data[at:end]
        printer.line(of_batches[row])
        count = counts[row]
        if not count:
            continue
        if last_offset not in (-1, firsts[row] - 1):
            gaps.append((last_offset, firsts[row]))
        last_offset = firsts[row] + count - 1
        if is_control[row]:
            rows = rows_of_batch(batch)
            if isinstance(rows, Malformed):
                printer.complain(f"position {start + at}: {rows}")
            else:
                printer.lines(_record_lines(batch, rows, how))
        else:
            for some in take_blocks(lines, count):
                printer.lines(some)
    return last_offset


def _is_without_gaps(columns: Columns) -> bool:
    """Whether the offsets of every batch begin with its own and count up by one."""
    batches = columns.batches
    if (batches.record_count[batches.is_control] > 1).any():
        return False
    first = np.concatenate([[0], np.cumsum(np.bincount(columns.batch, minlength=len(batches)))])[:-1]
    in_batch = np.arange(len(columns)) - first[columns.batch]
    return bool((columns.offset == batches.base_offset[columns.batch] + in_batch).all())


def _lines_of_columns(columns: Columns, how: LogDump) -> list[str]:
    """What is shown of every data record."""
    shown: list[Shown] = []
    offsets = columns.offset.tolist()
    if how.decoder is not None:
        data = columns.data.tobytes()
        keys = fields(data, columns.key_start, columns.key_end)
        values = fields(data, columns.value_start, columns.value_end)
        shown = list(map(how.decoder, keys, values, offsets))
        if not how.metadata:
            return [_bare(one) for one in shown]
    elif not how.metadata:
        return [""] * len(offsets)
    key_size = np.where(columns.key_is_null, -1, columns.key_end - columns.key_start)
    value_size = np.where(columns.value_is_null, -1, columns.value_end - columns.value_start)
    kinds = [_TIMESTAMP_TYPES[kind] for kind in columns.timestamp_type.tolist()]
    numbers = offsets, kinds, columns.timestamp.tolist(), key_size.tolist(), value_size.tolist()
    names = header_names(columns)
    if names is None:
        parts = zip(*numbers, sequences(columns).tolist(), strict=True)
        line = "| offset: %d %s: %d keySize: %d valueSize: %d sequence: %d headerKeys: []"
    else:
        parts = zip(*numbers, sequences(columns).tolist(), names, strict=True)
        line = "| offset: %d %s: %d keySize: %d valueSize: %d sequence: %d headerKeys: [%s]"
    lines = [line % part for part in parts]
    if how.decoder is None:
        return lines
    return [_with_data(line, one) for line, one in zip(lines, shown, strict=True)]


def _with_data(line: str, shown: Shown) -> str:
    key, value = shown
    return f"{line}{'' if key is None else f' key: {key}'}{'' if value is None else f' payload: {value}'}"


# batches


def _header(batch: memoryview) -> BatchHeader:
    """Of any format, as far as there is one: the fields of what is too short are zero."""
    if not 0 <= batch[16] < 128 or batch[16] >= MAGIC:
        return parse_header(batch if len(batch) >= HEADER_BYTES else bytes(batch).ljust(HEADER_BYTES, b"\0"))
    try:
        return entry_header(batch if len(batch) > 26 else bytes(batch).ljust(27, b"\0"))
    except Malformed:
        offset, size, crc, magic, attributes = _LEGACY.unpack_from(batch)
        return BatchHeader(offset, size, -1, magic, crc, attributes, 0, -1, -1, -1, -1, -1, -1)


def _codec_name(codec: int) -> str:
    return CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"unknown({codec})"


def _batch_line(batch: memoryview, position: int) -> tuple[str, str]:
    """The line of a batch, and what would keep Kafka's tool from showing it, if something would."""
    header = _header(batch)
    (
        base_offset, length, epoch, magic, crc, attributes, delta, base_timestamp, max_timestamp, producer_id,
        producer_epoch, base_sequence, count,
    ) = header  # fmt: skip
    codec = attributes & 7
    valid = "true" if is_valid(batch) else "false"
    fault = f"position {position}: Unknown compression type id: {codec}" if codec > 4 else ""
    name = CODEC_NAMES[codec] if codec <= 4 else f"unknown({codec})"
    if magic < MAGIC:
        kind = "NoTimestampType" if magic == 0 else _TIMESTAMP_TYPES[attributes >> 3 & 1]
        return (
            f"offset: {base_offset} position: {position} {kind}: {max_timestamp} size: {length + 12} magic: {magic} "
            f"compresscodec: {name} crc: {crc} isvalid: {valid}"
        ), fault
    last_sequence = base_sequence if base_sequence < 0 or delta < 0 else base_sequence + delta & _SEQUENCE_MAX
    if base_sequence + delta > _SEQUENCE_MAX:
        last_sequence = sequence_at(base_sequence, delta)
    return (
        f"baseOffset: {base_offset} lastOffset: {base_offset + delta} count: {count} baseSequence: {base_sequence} "
        f"lastSequence: {last_sequence} producerId: {producer_id} producerEpoch: {producer_epoch} "
        f"partitionLeaderEpoch: {epoch} isTransactional: {'true' if attributes & 16 else 'false'} "
        f"isControl: {'true' if attributes & 32 else 'false'} deleteHorizonMs: "
        f"{f'OptionalLong[{base_timestamp}]' if attributes & 64 else 'OptionalLong.empty'} position: {position} "
        f"{'LogAppendTime' if attributes & 8 else 'CreateTime'}: {max_timestamp} size: {length + 12} magic: {magic} "
        f"compresscodec: {name} crc: {crc} isvalid: {valid}"
    ), fault


def _lines_of_batches(window: Window) -> tuple[list[str], list[str]]:
    """As `_batch_line`, for all batches of a window: (their lines, what is wrong with them). 2 us a batch instead of
    6 us: what most of them have in common is put in words once."""
    data, start, bounds = window
    words: dict[tuple[int, ...], tuple[str, str, str]] = {}
    lines = []
    faults = []
    for at, end in pairwise(bounds):
        if end - at < HEADER_BYTES or data[at + 16] != MAGIC:
            line, fault = _batch_line(data[at:end], start + at)
            lines.append(line)
            faults.append(fault)
            continue
        (
            base_offset, length, epoch, _, crc, attributes, delta, base_timestamp, max_timestamp, producer_id,
            producer_epoch, sequence, count,
        ) = _unpack(data, at)  # fmt: skip
        key = producer_id, producer_epoch, epoch, attributes, base_timestamp if attributes & DELETE_HORIZON else 0
        known = words.get(key)
        if known is None or delta < 0:
            line, fault = _batch_line(data[at:end], start + at)
            if fault or delta < 0:
                lines.append(line)
                faults.append(fault)
                continue
            known = words[key] = _words(producer_id, producer_epoch, epoch, attributes, base_timestamp)
        producer, kind, codec = known
        last_sequence = (sequence + delta) & _SEQUENCE_MAX if sequence >= 0 else sequence
        valid = "true" if crc32c(data[at + CRC_FROM : end]) == crc else "false"
        lines.append(
            f"baseOffset: {base_offset} lastOffset: {base_offset + delta} count: {count} baseSequence: {sequence} "
            f"lastSequence: {last_sequence}{producer}{start + at}{kind}{max_timestamp} size: {length + 12}{codec}{crc} "
            f"isvalid: {valid}"
        )
    return lines, [fault for fault in faults if fault]


def _words(
    producer_id: int, epoch: int, leader_epoch: int, attributes: int, base_timestamp: int
) -> tuple[str, str, str]:
    """What stands between the numbers of a batch's line."""
    horizon = f"OptionalLong[{base_timestamp}]" if attributes & DELETE_HORIZON else "OptionalLong.empty"
    return (
        f" producerId: {producer_id} producerEpoch: {epoch} partitionLeaderEpoch: {leader_epoch} "
        f"isTransactional: {'true' if attributes & TRANSACTIONAL else 'false'} "
        f"isControl: {'true' if attributes & CONTROL else 'false'} deleteHorizonMs: {horizon} position: ",
        f" {_TIMESTAMP_TYPES[attributes >> 3 & 1]}: ",
        f" magic: {MAGIC} compresscodec: {CODEC_NAMES[attributes & CODEC_MASK]} crc: ",
    )


def _batch_object(batch: memoryview, position: int) -> tuple[str, str]:
    header = _header(batch)
    legacy = header.magic < MAGIC
    shown: dict[str, Any] = {"type": "batch", "position": position, "size": header.size_bytes, "magic": header.magic}
    if legacy:
        shown["offset"] = header.base_offset
    else:
        shown |= {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.record_count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
        }
    if header.magic:
        shown["timestampType"] = _TIMESTAMP_TYPES[header.timestamp_type]
        shown["maxTimestamp"] = header.max_timestamp
    shown |= {"compresscodec": _codec_name(header.codec), "crc": header.crc, "isvalid": is_valid(batch)}
    fault = f"position {position}: Unknown compression type id: {header.codec}" if header.codec > 4 else ""
    return _dumps(shown), fault


# records


def _record_lines(batch: memoryview, rows: list[Row], how: LogDump) -> list[str]:
    header = _header(batch)
    kind = "NoTimestampType" if not header.magic else _TIMESTAMP_TYPES[header.timestamp_type]
    is_control = header.magic >= MAGIC and header.is_control
    lines = []
    if how.metadata:
        if header.magic < MAGIC:
            lines = [
                f"| offset: {row.offset} {kind}: {row.timestamp} keySize: {_size(row.key)} "
                f"valueSize: {_size(row.value)} isValid: {'true' if row.crc_is_right else 'false'} crc: {row.crc}}}"
                for row in rows
            ]
        else:
            lines = [
                f"| offset: {offset} {kind}: {timestamp} keySize: {-1 if key is None else len(key)} valueSize: "
                f"{-1 if value is None else len(value)} sequence: {sequence} headerKeys: "
                f"[{','.join([name for name, _ in headers]) if headers else ''}]"
                for offset, timestamp, sequence, key, value, headers, _, _ in rows
            ]
        if is_control:
            return [line + control_text(row.key, row.value) for line, row in zip(lines, rows, strict=True)]
    decoder = how.decoder
    if decoder is None or is_control:
        return lines or [""] * len(rows)
    shown = [decoder(row[3], row[4], row[0]) for row in rows]
    if not how.metadata:
        return [_bare(one) for one in shown]
    return [_with_data(line, one) for line, one in zip(lines, shown, strict=True)]


def _bare(shown: Shown) -> str:
    """The data alone. The sign of a record stands before the key; without a key it is left out."""
    key, value = shown
    return f"{'' if key is None else f'| key: {key}'}{'' if value is None else f' payload: {value}'}"


def _record_objects(batch: memoryview, rows: list[Row], how: LogDump) -> list[str]:
    header = _header(batch)
    is_control = header.magic >= MAGIC and header.is_control
    return [_dumps(_record_object(header, row, how, is_control)) for row in rows]


def _record_object(header: BatchHeader, row: Row, how: LogDump, is_control: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": "record", "offset": row.offset}
    if how.metadata:
        shown |= {"timestamp": row.timestamp, "keySize": _size(row.key), "valueSize": _size(row.value)}
        if header.magic >= MAGIC:
            shown |= {"sequence": row.sequence, "headerKeys": [name for name, _ in row.headers]}
        else:
            shown |= {"isValid": row.crc_is_right, "crc": row.crc}
        if is_control:
            shown["control"] = control_text(row.key, row.value).strip()
    if how.decoder is not None and not is_control:
        shown["key"], shown["payload"] = how.decoder(row.key, row.value, row.offset)
        if row.headers:
            shown["headers"] = [
                [name, None if value is None else base64.b64encode(value).decode()] for name, value in row.headers
            ]
    return shown


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
