"""What the small files of a segment hold, in the words of kafka-dump-log: indexes, aborted transactions, producers.

An index is shown as far as it has entries (zeros at its end are what was preallocated) and every entry is held against
the log: does a batch with that last offset begin at that position? Is that the latest time in the batch that the offset
ends? `--index-sanity-check` asks only what Kafka asks before it uses an index.
Source: kafka.tools.DumpLogSegments (dumpIndex, dumpTimeIndex, dumpTxnIndex, dumpProducerIdSnapshot), AbstractIndex,
OffsetIndex, TimeIndex, TransactionIndex, ProducerStateManager.readSnapshot.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from kafkalite.common.errors import Malformed
from kafkalite.inspection.files.log_file import LogFile
from kafkalite.inspection.files.printer import OFFSET_MISMATCH, OFFSET_NOT_FOUND, TIME_DISORDER, TIME_MISMATCH, Printer
from kafkalite.inspection.files.record_rows import rows_of_batch
from kafkalite.inspection.files.regular_file import read_file
from kafkalite.log.index.transaction_index import ENTRY as TXN_ENTRY
from kafkalite.log.state.producer_snapshot import decode_snapshot
from kafkalite.record.batch import MAGIC, PREFIX_BYTES

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
_SEQUENCES = 1 << 31
_WARM_BYTES = 8192  # an index is searched in its last two pages first
_HEAD = struct.Struct(">qiibIhi")


class IndexDump(NamedTuple):
    """`sanity_only`: no entries, only whether Kafka would use the index; `verify_only`: hold them against the log."""

    sanity_only: bool = False
    verify_only: bool = False


def dump_offset_index(path: str, how: IndexDump, printer: Printer) -> None:
    """Raises OSError when the index or its log cannot be read."""
    base, data = _base_offset(path), read_file(path)
    entries = [(base + relative, position) for relative, position in _whole(OFFSET_ENTRY, data)]
    with LogFile(_sibling(path, ".log")) as log:
        if not entries:
            _say(printer, path, "empty", f"{path} is empty.")
            return
        if how.sanity_only:
            _tell_sanity(path, _offset_index_fault(path, base, entries, len(data)), printer)
            return
        mismatches = []
        for i, (offset, position) in enumerate(entries):
            if offset == base and i:
                break
            found = _batch_at(log, position)
            if found is None:
                printer.complain(f"{path}: no batch begins at position {position}, where offset {offset} should end")
            elif found[1] != offset:
                mismatches.append((offset, found[1]))
            if not how.verify_only:
                if printer.as_json:
                    printer.object("index", offset=offset, position=position)
                else:
                    printer.line(f"offset: {offset} position: {position}")
    if mismatches:
        mismatches.reverse()
        printer.complain(
            f"Mismatches in :{os.path.abspath(path)}",
            *[f"  Index offset: {offset}, log offset: {there}" for offset, there in mismatches],
            rank=OFFSET_MISMATCH,
        )


def dump_time_index(path: str, how: IndexDump, printer: Printer) -> None:
    """Raises OSError when the index or its log cannot be read."""
    base, data = _base_offset(path), read_file(path)
    entries = [(timestamp, base + relative) for timestamp, relative in _whole(TIME_ENTRY, data)]
    if how.sanity_only:
        _tell_sanity(path, _time_index_fault(path, base, entries, len(data)), printer)
        return
    try:
        offsets = [(base + r, p) for r, p in _whole(OFFSET_ENTRY, read_file(_sibling(path, ".index")))]
    except FileNotFoundError:
        offsets = []
    wrong_times: list[str] = []
    out_of_order: list[str] = []
    not_found: list[str] = []
    previous = -1
    with LogFile(_sibling(path, ".log")) as log:
        for i, (timestamp, offset) in enumerate(entries):
            if offset == base and i:
                break
            found = _batch_up_to(log, _look_up(offsets, offset), offset)
            if found is None or found[1] != offset:
                there = -1 if found is None else found[1]
                not_found.append(f"Indexed offset: {offset}, found log offset: {there}")
            else:
                latest = _latest(log, found[0], found[2])
                if latest != timestamp:
                    wrong_times.append(f"  Index timestamp: {timestamp}, log timestamp: {latest}")
                if previous >= timestamp:
                    out_of_order.append(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}")
            if not how.verify_only:
                if printer.as_json:
                    printer.object("timeindex", timestamp=timestamp, offset=offset)
                else:
                    printer.line(f"timestamp: {timestamp} offset: {offset}")
            previous = timestamp
    whole_path = os.path.abspath(path)
    if wrong_times:
        printer.complain(f"Found timestamp mismatch in :{whole_path}", *wrong_times, rank=TIME_MISMATCH)
    if out_of_order:
        printer.complain(f"Found out of order timestamp in :{whole_path}", *out_of_order, rank=TIME_DISORDER)
    if not_found:
        printer.complain("The following indexed offsets are not found in the log.", *not_found, rank=OFFSET_NOT_FOUND)


def dump_txn_index(path: str, printer: Printer) -> None:
    """Raises OSError."""
    for version, producer_id, first, last, stable in _whole(TXN_ENTRY, read_file(path)):
        if version > 0:
            printer.complain(
                f"Unexpected aborted transaction version {version} in transaction index {os.path.abspath(path)}, "
                "current version is 0"
            )
            return
        if printer.as_json:
            printer.object(
                "aborted", version=version, producerId=producer_id, firstOffset=first, lastOffset=last,
                lastStableOffset=stable,
            )  # fmt: skip
        else:
            printer.line(
                f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
                f"lastStableOffset: {stable}"
            )


def dump_snapshot(path: str, printer: Printer) -> None:
    """Raises OSError."""
    data = read_file(path)
    try:
        entries, _ = decode_snapshot(data)
    except Malformed as error:
        printer.complain(str(error))
        return
    for producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn in entries:
        shown = {
            "producerId": producer_id, "producerEpoch": epoch, "coordinatorEpoch": coordinator_epoch,
            "currentTxnFirstOffset": txn if txn >= 0 else None, "lastTimestamp": timestamp,
        }  # fmt: skip
        if last_offset >= 0:
            shown |= {
                "firstSequence": first_sequence(last_sequence, delta), "lastSequence": last_sequence,
                "lastOffset": last_offset, "offsetDelta": delta, "timestamp": timestamp,
            }  # fmt: skip
        if printer.as_json:
            printer.object("producer", **shown)
            continue
        shown["currentTxnFirstOffset"] = f"OptionalLong[{txn}]" if txn >= 0 else "OptionalLong.empty"  # type: ignore[assignment]
        text = " ".join(f"{name}: {value}" for name, value in shown.items())
        printer.line(text if last_offset >= 0 else text + " ")


def first_sequence(last_sequence: int, delta: int) -> int:
    """The inverse of wrapping around 2^31-1."""
    return last_sequence - delta if last_sequence >= delta else last_sequence - delta + _SEQUENCES


def _base_offset(path: str) -> int:
    return int(os.path.basename(path).split(".")[0])


def _sibling(path: str, suffix: str) -> str:
    return os.path.join(os.path.dirname(path), os.path.basename(path).split(".")[0] + suffix)


def _whole(entry: struct.Struct, data: bytes) -> list[tuple[int, ...]]:
    return list(entry.iter_unpack(data[: len(data) // entry.size * entry.size]))


def _say(printer: Printer, path: str, what: str, text: str) -> None:
    if printer.as_json:
        printer.object("check", path=path, result=what)
    else:
        printer.line(text)


def _tell_sanity(path: str, fault: str | None, printer: Printer) -> None:
    if fault is None:
        _say(printer, path, "passed", f"{path} passed sanity check.")
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


def _batch_at(log: LogFile, position: int) -> tuple[int, int, int] | None:
    """(position, last offset, size) of what begins at `position`, by its length alone; None where nothing can."""
    head = log.read(position, _HEAD.size) if 0 <= position < log.size_bytes else b""
    if len(head) < 18:
        return None
    base_offset, length, _, magic, _, _, delta = _HEAD.unpack(head.ljust(_HEAD.size, b"\0"))
    if length < 14 or position + length + PREFIX_BYTES > log.size_bytes:
        return None
    return position, base_offset + delta if magic >= MAGIC else base_offset, length + PREFIX_BYTES


def _batch_up_to(log: LogFile, position: int, offset: int) -> tuple[int, int, int] | None:
    """The first batch from `position` on that ends at or behind `offset`."""
    while (found := _batch_at(log, position)) is not None and found[1] < offset:
        position += found[2]
    return found


def _latest(log: LogFile, position: int, size: int) -> int:
    """The latest timestamp of any record in the batch there; -1 without one."""
    rows = rows_of_batch(memoryview(log.read(position, size)))
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
