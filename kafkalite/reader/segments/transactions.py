"""Transactions of a partition for a reader without a broker: the last stable offset, and the aborted ones.

The newest producer snapshot tells which transactions were open at its offset, the batch headers behind it tell which
began and ended since. Aborted ones that ended before the snapshot are in the `.txnindex` files of their segments; those
behind it are taken from the markers themselves, since a broker may just be writing both.
Source: org.apache.kafka.storage.internals.log.{ProducerStateManager, TransactionIndex}; KIP-98.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalite.common.errors import Malformed
from kafkalite.log.index.transaction_index import ENTRY, AbortedTxn
from kafkalite.log.state.producer_snapshot import decode_snapshot
from kafkalite.log.storage.file_names import SNAPSHOT, TXN_INDEX, parse_segment_file, segment_stem
from kafkalite.reader.segments.segment_file import SegmentFile, old_format
from kafkalite.record.batch import CONTROL, TRANSACTIONAL, parse_header
from kafkalite.record.columns.batch_columns import Batches, OldFormat, scan
from kafkalite.record.transaction_marker import read_marker

Flags = npt.NDArray[np.bool_]

_SCAN_BYTES = 16 << 20


class Transactions(NamedTuple):
    """`last_stable_offset`: the end of the log, or the first offset of the oldest open transaction. `aborted`: those
    with records in the wanted range, or more."""

    last_stable_offset: int
    aborted: tuple[AbortedTxn, ...]


def read_transactions(
    directory: str, bases: Sequence[int], end_position: int, log_end: int, start: int
) -> Transactions:
    """The transactions of a log that ends at `log_end`, at `end_position` of its last segment; aborted ones from the
    offset `start` on.

    `bases` are the base offsets of its segments. Raises FileNotFoundError for a segment that is gone, Malformed.
    """
    snapshot_offset, open_since = _newest_snapshot(directory, bases, log_end)
    last_before = max((base for base in bases if base <= snapshot_offset), default=bases[0])
    aborted = []
    for base in bases[bases.index(last_before) :]:
        with SegmentFile(directory, base) as segment:
            end = end_position if base == bases[-1] else segment.size_bytes
            aborted += _follow(segment, end, snapshot_offset, open_since)
    known = {txn.last_offset for txn in aborted}
    for base in bases:
        aborted += [txn for txn in _index(directory, base) if txn.last_offset not in known]
    stable = min([log_end, *open_since.values()])
    return Transactions(stable, tuple(sorted(txn for txn in aborted if start <= txn.last_offset < log_end)))


def overlapping(aborted: Iterable[AbortedTxn], start: int, end: int) -> tuple[AbortedTxn, ...]:
    """The transactions with records in the offsets from `start` to before `end`."""
    return tuple(txn for txn in aborted if txn.first_offset < end and txn.last_offset >= start)


def is_aborted(batches: Batches, aborted: Iterable[AbortedTxn]) -> Flags:
    """A flag for each batch: whether it belongs to one of these transactions."""
    flags: Flags = np.zeros(len(batches), np.bool_)
    producer_ids, offsets = batches.column("producer_id"), batches.base_offset
    transactional = (batches.heads["attributes"] & TRANSACTIONAL) != 0
    for txn in aborted:
        first, end = np.searchsorted(offsets, [txn.first_offset, txn.last_offset]).tolist()
        flags[first:end] |= transactional[first:end] & (producer_ids[first:end] == txn.producer_id)
    return flags


def _newest_snapshot(directory: str, bases: Sequence[int], log_end: int) -> tuple[int, dict[int, int]]:
    """Its offset and the first offsets of the transactions that were open there, by producer id. Without a snapshot
    that can be read: the beginning of the log."""
    names = [parse_segment_file(entry.name) for entry in os.scandir(directory)]
    offsets = [one[0] for one in names if one is not None and one[1] == SNAPSHOT and not one[2]]
    for offset in sorted(offsets, reverse=True):
        if bases[0] <= offset <= log_end:
            try:
                with open(os.path.join(directory, segment_stem(offset) + SNAPSHOT), "rb") as file:
                    entries, _ = decode_snapshot(file.read())
            except (FileNotFoundError, Malformed):
                continue
            return offset, {one.producer_id: one.txn_first_offset for one in entries if one.txn_first_offset >= 0}
    return bases[0], {}


def _follow(segment: SegmentFile, end: int, start: int, open_since: dict[int, int]) -> list[AbortedTxn]:
    """Brings `open_since` forward over the batches from the offset `start` to the position `end`; returns the
    transactions that are aborted there."""
    aborted = []
    position = _position_of(segment, start)
    size = _SCAN_BYTES
    while position < end:
        data = memoryview(os.pread(segment.fd, min(size, end - position), position))
        try:
            batches = scan(data)
        except OldFormat:
            raise old_format(segment.path, position) from None
        if not batches.consumed_bytes:
            if len(data) < size:
                break  # a torn batch
            size *= 2  # one batch larger than the piece
            continue
        attributes, producer_ids = batches.heads["attributes"], batches.column("producer_id")
        concerned = (attributes & (TRANSACTIONAL | CONTROL)) != 0
        concerned &= (producer_ids >= 0) & (batches.base_offset >= start)
        for row in np.flatnonzero(concerned).tolist():
            producer_id, offset = int(producer_ids[row]), int(batches.base_offset[row])
            if not attributes[row] & CONTROL:
                open_since.setdefault(producer_id, offset)
                continue
            at = int(batches.position[row])
            marker = read_marker(data[at : at + parse_header(data, at).size_bytes])
            first = open_since.pop(producer_id, None)
            if first is not None and marker is not None and not marker.commit:
                aborted.append(AbortedTxn(producer_id, first, offset, offset + 1))
        position += batches.consumed_bytes
    return aborted


def _position_of(segment: SegmentFile, start: int) -> int:
    """A position at or before that of the batch with offset `start`, as closely as the index knows."""
    offsets, positions = segment.index()
    floor = int(np.searchsorted(offsets, start, "left")) - 1
    if floor >= 0 and segment.begins(int(positions[floor]), int(offsets[floor])):
        return int(positions[floor])
    return 0


def _index(directory: str, base: int) -> list[AbortedTxn]:
    try:
        with open(os.path.join(directory, segment_stem(base) + TXN_INDEX), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    return [AbortedTxn(*fields[1:]) for fields in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size])]
