"""Transactions of a partition for a reader without a broker: the last stable offset, and the aborted ones.

The newest producer snapshot has the transactions that were open at its offset; the batch headers behind it have those
that began and ended since. Aborted ones that ended before the snapshot are in the `.txnindex` files of their
segments; those behind it are taken from the markers themselves, since a broker may just be writing both.
Source: org.apache.kafka.storage.internals.log.{ProducerStateManager, TransactionIndex}; KIP-98.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.index.transaction_index import AbortedTxn, decode_index
from kafkalite.log.segment.segment_file import CutOff, SegmentFile, iter_headers
from kafkalite.log.state.producer_snapshots import decode_snapshot
from kafkalite.log.storage.file_names import SNAPSHOT, TXN_INDEX, SegmentFiles, segment_stem
from kafkalite.record.batch import CONTROL, TRANSACTIONAL, BatchHeader
from kafkalite.record.columns.batch_columns import Batches
from kafkalite.record.transaction_marker import read_marker

Flags = npt.NDArray[np.bool_]

_READ_BYTES = 64 << 10  # of headers of small batches


class Transactions(NamedTuple):
    """`last_stable_offset`: the end of the log, or the first offset of the oldest open transaction. `aborted`: those
    with records in the wanted range, or more."""

    last_stable_offset: int
    aborted: tuple[AbortedTxn, ...]


def read_transactions(
    directory: str, segments: SegmentFiles, end_position: int, end_offset: int, start: int
) -> Transactions:
    """The transactions of a log up to `end_offset`, whose last segment ends at `end_position`; aborted ones from the
    offset `start` on.

    Markers at or behind `end_offset` do not count. Raises FileNotFoundError for a segment that is gone, Malformed.
    """
    bases = list(segments.sizes)
    snapshot_offset, open_since = _newest_snapshot(directory, segments, end_offset)
    first = max((base for base in bases if base <= snapshot_offset), default=bases[0])
    follower = _Follower(snapshot_offset, end_offset, open_since)
    for base in bases[bases.index(first) :]:
        if base < end_offset:
            with SegmentFile(directory, base) as segment:
                follower.follow(segment, end_position if base == bases[-1] else segment.size_bytes)
    aborted = follower.aborted
    known = {txn.last_offset for txn in aborted}
    for base in _indexes_from(segments, start):
        aborted += [txn for txn in _index(directory, base) if txn.last_offset not in known]
    stable = min([end_offset, *open_since.values()])
    return Transactions(stable, tuple(sorted(txn for txn in aborted if start <= txn.last_offset < end_offset)))


def _indexes_from(segments: SegmentFiles, start: int) -> list[int]:
    """The segments that have a transaction index and may hold a marker at or behind `start`."""
    bases = list(segments.sizes)
    first = bases[max(0, bisect_right(bases, start) - 1)]
    return [base for base in segments.offsets[TXN_INDEX] if base >= first]


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


def _newest_snapshot(directory: str, segments: SegmentFiles, end_offset: int) -> tuple[int, dict[int, int]]:
    """Its offset and the first offsets of the transactions that were open there, by producer id. Without a snapshot
    that can be read: the beginning of the log."""
    first = next(iter(segments.sizes))
    for offset in reversed(segments.offsets[SNAPSHOT]):
        if first <= offset <= end_offset:
            try:
                with open(os.path.join(directory, segment_stem(offset) + SNAPSHOT), "rb") as file:
                    entries, _ = decode_snapshot(file.read())
            except (FileNotFoundError, Malformed):
                continue
            return offset, {one.producer_id: one.txn_first_offset for one in entries if one.txn_first_offset >= 0}
    return first, {}


class _Follower:
    """Follows the batches from the offset `start` to `end`: brings `open_since`, the first offsets of open transactions
    by producer id, forward and collects the aborted ones."""

    def __init__(self, start: int, end: int, open_since: dict[int, int]) -> None:
        self.aborted: list[AbortedTxn] = []
        self._start, self._end = start, end
        self._open_since = open_since

    def follow(self, segment: SegmentFile, end_position: int) -> None:
        """Raises Malformed for damage, except for a torn batch at the end."""
        first = segment.locate(self._start, end_position)
        if first is None:
            return
        with suppress(CutOff):
            for position, header in iter_headers(segment.fd, first[0], end_position, _READ_BYTES):
                if header.attributes & (TRANSACTIONAL | CONTROL):
                    self._follow(segment, position, header)

    def _follow(self, segment: SegmentFile, position: int, header: BatchHeader) -> None:
        producer_id, offset = header.producer_id, header.base_offset
        if producer_id < 0 or not self._start <= offset < self._end:
            return
        if not header.is_control:
            self._open_since.setdefault(producer_id, offset)
            return
        marker = read_marker(os.pread(segment.fd, header.size_bytes, position))
        first = self._open_since.pop(producer_id, None)
        if first is not None and marker is not None and not marker.commit:
            self.aborted.append(AbortedTxn(producer_id, first, offset, offset + 1))


def _index(directory: str, base: int) -> list[AbortedTxn]:
    try:
        with open(os.path.join(directory, segment_stem(base) + TXN_INDEX), "rb") as file:
            return decode_index(file.read())
    except FileNotFoundError:
        return []
