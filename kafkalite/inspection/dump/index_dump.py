"""Dump of the small files of a segment in the words of kafka-dump-log: indexes, aborted transactions, producers.

An index is printed as far as it has entries (zeros at its end are preallocated room) and every entry is compared with
the log: a batch with that last offset must begin at that position, and the timestamp must be the latest in the batch
that ends with the offset. `--index-sanity-check` makes only the checks that Kafka makes before it uses an index.
Source: kafka.tools.DumpLogSegments (dumpIndex, dumpTimeIndex, dumpTxnIndex, dumpProducerIdSnapshot), AbstractIndex,
OffsetIndex, TimeIndex, TransactionIndex, ProducerStateManager.readSnapshot.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping

from kafkalite.common.errors import Malformed
from kafkalite.inspection.files.directory_listing import read_file
from kafkalite.inspection.files.log_file import LogFile, rows_of_batch
from kafkalite.inspection.files.printer import (
    OFFSET_MISMATCH,
    OFFSET_NOT_FOUND,
    TIME_DISORDER,
    TIME_MISMATCH,
    DumpOptions,
    Printer,
)
from kafkalite.log.index.sparse_index import OFFSET_ENTRY, TIME_ENTRY
from kafkalite.log.index.transaction_index import ENTRY as TXN_ENTRY
from kafkalite.log.state.producer_snapshots import decode_snapshot
from kafkalite.record.batch import MAGIC, SEQUENCE_MAX, BatchHeader

_WARM_BYTES = 8192  # an index is searched in its last two pages first


def dump_offset_index(path: str, options: DumpOptions, printer: Printer) -> None:
    """Raises OSError when the index or its log cannot be read."""
    base, data = _base_offset(path), read_file(path)
    entries = [(base + relative, position) for relative, position in _whole(OFFSET_ENTRY, data)]
    with LogFile(_sibling(path, ".log")) as log:
        if not entries:
            printer.show("check", f"{path} is empty.", path=path, result="empty")
            return
        if options.sanity_only:
            _print_check(path, _offset_index_fault(path, base, entries, len(data)), printer)
            return
        mismatches: list[str] = []
        is_fault = False
        for i, (offset, position) in enumerate(entries):
            if offset == base and i:
                break
            found = _batch_at(log, position)
            if found is None:
                printer.complain(f"{path}: no batch begins at position {position}, where offset {offset} should end")
            elif (there := _last_offset(found[1])) != offset:
                mismatches.append(f"  Index offset: {offset}, log offset: {there}")
                is_fault |= (
                    there > offset
                )  # an entry of several batches that were appended at once has their last offset
            if not options.verify_only:
                printer.show("index", f"offset: {offset} position: {position}", offset=offset, position=position)
    printer.complain_of(f"Mismatches in :{os.path.abspath(path)}", mismatches[::-1], OFFSET_MISMATCH, is_fault=is_fault)


def dump_time_index(path: str, options: DumpOptions, printer: Printer) -> None:
    """Raises OSError when the index or its log cannot be read."""
    base, data = _base_offset(path), read_file(path)
    entries = [(timestamp, base + relative) for timestamp, relative in _whole(TIME_ENTRY, data)]
    if options.sanity_only:
        _print_check(path, _time_index_fault(path, base, entries, len(data)), printer)
        return
    try:
        offsets = [(base + r, p) for r, p in _whole(OFFSET_ENTRY, read_file(_sibling(path, ".index")))]
    except FileNotFoundError:
        offsets = []
    wrong_times: list[str] = []
    out_of_order: list[str] = []
    not_found: list[str] = []
    is_lost = False
    previous = -1
    with LogFile(_sibling(path, ".log")) as log:
        for i, (timestamp, offset) in enumerate(entries):
            if offset == base and i:
                break
            found = _batch_up_to(log, _look_up(offsets, offset), offset)
            there = -1 if found is None else _last_offset(found[1])
            if found is None or there != offset:
                not_found.append(f"Indexed offset: {offset}, found log offset: {there}")
                is_lost |= found is None or found[1].base_offset > offset  # brokers before 3.6 name a record in a batch
            else:
                latest = _latest(log, *found)
                if latest != timestamp:
                    wrong_times.append(f"  Index timestamp: {timestamp}, log timestamp: {latest}")
                if previous >= timestamp:
                    out_of_order.append(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}")
            if not options.verify_only:
                text = f"timestamp: {timestamp} offset: {offset}"
                printer.show("timeindex", text, timestamp=timestamp, offset=offset)
            previous = timestamp
    whole_path = os.path.abspath(path)
    printer.complain_of(f"Found timestamp mismatch in :{whole_path}", wrong_times, TIME_MISMATCH)
    printer.complain_of(f"Found out of order timestamp in :{whole_path}", out_of_order, TIME_DISORDER)
    title = "The following indexed offsets are not found in the log."
    printer.complain_of(title, not_found, OFFSET_NOT_FOUND, is_fault=is_lost)


def dump_txn_index(path: str, printer: Printer) -> None:
    """Raises OSError."""
    for version, producer_id, first, last, stable in _whole(TXN_ENTRY, read_file(path)):
        if version > 0:
            printer.complain(
                f"Unexpected aborted transaction version {version} in transaction index {os.path.abspath(path)}, "
                "current version is 0"
            )
            return
        members = {
            "version": version, "producerId": producer_id, "firstOffset": first, "lastOffset": last,
            "lastStableOffset": stable,
        }  # fmt: skip
        printer.show("aborted", _text(members), **members)


def dump_snapshot(path: str, printer: Printer) -> None:
    """Raises OSError."""
    try:
        entries, _ = decode_snapshot(read_file(path))
    except Malformed as error:
        printer.complain(str(error))
        return
    for entry in entries:
        txn = entry.txn_first_offset
        members = {
            "producerId": entry.producer_id, "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch, "currentTxnFirstOffset": txn if txn >= 0 else None,
            "lastTimestamp": entry.timestamp_ms,
        }  # fmt: skip
        batch = {
            "firstSequence": (entry.last_sequence - entry.offset_delta) & SEQUENCE_MAX,
            "lastSequence": entry.last_sequence, "lastOffset": entry.last_offset, "offsetDelta": entry.offset_delta,
            "timestamp": entry.timestamp_ms,
        } if entry.last_offset >= 0 else {}  # fmt: skip
        first_offset = f"OptionalLong[{txn}]" if txn >= 0 else "OptionalLong.empty"
        text = f"{_text({**members, 'currentTxnFirstOffset': first_offset})} {_text(batch)}"
        printer.show("producer", text, **members, **batch)


def _text(members: Mapping[str, object]) -> str:
    return " ".join(f"{name}: {value}" for name, value in members.items())


def _base_offset(path: str) -> int:
    name = os.path.basename(path).split(".")[0]
    if not (name.isascii() and name.isdigit()):
        raise ValueError("its name does not begin with an offset")
    return int(name)


def _sibling(path: str, suffix: str) -> str:
    return os.path.join(os.path.dirname(path), os.path.basename(path).split(".")[0] + suffix)


def _whole(entry: struct.Struct, data: bytes) -> list[tuple[int, ...]]:
    return list(entry.iter_unpack(data[: len(data) // entry.size * entry.size]))


def _print_check(path: str, fault: str | None, printer: Printer) -> None:
    if fault is None:
        printer.show("check", f"{path} passed sanity check.", path=path, result="passed")
    else:
        printer.complain(fault)


def _offset_index_fault(path: str, base: int, entries: list[tuple[int, int]], size: int) -> str | None:
    path = os.path.abspath(path)
    if entries[-1][0] < base:
        return (
            f"Corrupt index found, index file ({path}) has non-zero size but the last offset is {entries[-1][0]} "
            f"which is less than the base offset {base}"
        )
    if size % OFFSET_ENTRY.size:
        return f"Index file {path} is corrupt, found {size} bytes which is neither positive nor a multiple of 8"
    return None


def _time_index_fault(path: str, base: int, entries: list[tuple[int, int]], size: int) -> str | None:
    path = os.path.abspath(path)
    start = f"Corrupt time index found, time index file ({path}) has non-zero size but the last"
    if entries and entries[-1][0] < entries[0][0]:
        return f"{start} timestamp is {entries[-1][0]} which is less than the first timestamp {entries[0][0]}"
    if entries and entries[-1][1] < base:
        return f"{start} offset is {entries[-1][1]} which is less than the first offset {base}"
    if size % TIME_ENTRY.size:
        return f"Time index file {path} is corrupt, found {size} bytes which is neither positive nor a multiple of 12"
    return None


def _batch_at(log: LogFile, position: int) -> tuple[int, BatchHeader] | None:
    """(position, header) of the batch at `position`, by its length alone; None where none can begin."""
    return next(log.headers(position), None) if position >= 0 else None


def _batch_up_to(log: LogFile, position: int, offset: int) -> tuple[int, BatchHeader] | None:
    """The first batch from `position` on that ends at or behind `offset`."""
    batches = log.headers(position) if position >= 0 else ()
    return next((found for found in batches if _last_offset(found[1]) >= offset), None)


def _last_offset(header: BatchHeader) -> int:
    return header.last_offset if header.magic >= MAGIC else header.base_offset


def _latest(log: LogFile, position: int, header: BatchHeader) -> int:
    """The latest timestamp of any record in the batch there; -1 without one."""
    rows = rows_of_batch(memoryview(log.read(position, header.size_bytes)))
    return -1 if isinstance(rows, Malformed) else max((row.timestamp for row in rows), default=-1)


def _look_up(entries: list[tuple[int, int]], offset: int) -> int:
    """The position to start from, found as Kafka finds it: also in an index with zeros behind its entries."""
    if not entries:
        return 0
    low, high = 0, max(0, len(entries) - 1 - _WARM_BYTES // OFFSET_ENTRY.size)
    if entries[high][0] < offset:
        low, high = high, len(entries) - 1
    elif entries[0][0] > offset:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        there = entries[middle][0]
        if there == offset:
            return entries[middle][1]
        if there > offset:
            high = middle - 1
        else:
            low = middle
    return entries[low][1]
