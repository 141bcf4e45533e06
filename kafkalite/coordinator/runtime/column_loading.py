"""Loads large pieces of a coordinator's log as numpy columns: 0.8 us a record instead of 4.4.

The records of a piece are decoded at once and put into the loader's tables in runs: a run ends where a transaction
marker lies between two records, or where the records are of another transaction. Everything unusual is left to
`PartitionLoader.read`, from the first batch on that is not loaded yet: messages of formats v0 and v1, damaged batches,
and records that the loader does not count as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

from kafkalite.common.errors import Malformed
from kafkalite.coordinator.runtime.last_values import TAIL_BYTES, Runs
from kafkalite.coordinator.runtime.partitioned_store import PIECE_BYTES, PartitionLoader
from kafkalite.record.batch import TRANSACTIONAL
from kafkalite.record.batches import find_bounds
from kafkalite.record.codec_contexts import Codecs
from kafkalite.record.columns.batch_columns import Batches, Flags, scan_until_fault
from kafkalite.record.columns.keyed_records import KEYED, cut, differ, last_four_bytes
from kafkalite.record.columns.record_columns import Columns, decode_rows
from kafkalite.record.record import RECORDS_BYTES_MAX

_PLAIN_TURN_BYTES = 64 << 10


def load_piece(loader: PartitionLoader, data: memoryview) -> Iterator[None]:
    """Put the records of the whole batches in `data` into the loader's tables. Yields where other work may go on."""
    batches, _ = scan_until_fault(data)
    piece = _Piece(loader, data, batches)
    rows = np.flatnonzero((batches.record_count > 0) & ~batches.is_control)
    groups = decode_rows(
        data, batches, rows, fields=KEYED, group_bytes=PIECE_BYTES, max_bytes=RECORDS_BYTES_MAX, codecs=Codecs()
    )
    try:
        for columns in groups:
            if not piece.load(columns):
                break
            yield
        else:
            piece.done = len(batches)
            piece.end_transactions(piece.done)
    except Malformed:  # the loader names the batch
        pass
    yield from piece.read_rest()


class _Piece:
    """The batches of one piece, of which the first `done` are loaded."""

    def __init__(self, loader: PartitionLoader, data: memoryview, batches: Batches) -> None:
        self.done = 0
        self._loader = loader
        self._data = data
        self._batches = batches
        control = batches.is_control
        self._markers = deque(np.flatnonzero(control).tolist())
        self._marker_count = np.cumsum(control)  # up to each batch
        self._is_transactional = (batches.heads["attributes"] & TRANSACTIONAL) != 0
        self._is_plain = not self._markers and not self._is_transactional.any()
        # the owner of a batch's records: a transaction by its producer id, or none
        self._owner = np.where(self._is_transactional, batches.column("producer_id"), 0)

    def load(self, columns: Columns) -> bool:
        """Put these records into the tables. False: they are to be read one by one."""
        counted = self._loader.counted_rows(columns)
        if counted is None or (columns.key_end - columns.key_start < TAIL_BYTES)[counted].any():
            return False
        if counted.any():
            rows = slice(None) if counted.all() else counted
            self._put(columns, rows)
        self.done = int(columns.batch[-1]) + 1
        self.end_transactions(self.done)
        return True

    def _put(self, columns: Columns, rows: slice | Flags) -> None:
        data, of = columns.data, columns.batch[rows]
        key_start, prefix_end = columns.key_start[rows], columns.key_end[rows] - TAIL_BYTES
        value_start, value_end = columns.value_start[rows], columns.value_end[rows]
        changes = differ(data, key_start, prefix_end)
        if not self._is_plain:
            changes |= self._owner_changes(of)
        starts = np.append(0, np.flatnonzero(changes) + 1)
        prefixes = cast("list[bytes]", cut(data, key_start[starts], prefix_end[starts]))
        bounds = list(pairwise([*starts.tolist(), len(of)]))
        tails = last_four_bytes(data, columns.key_end[rows])
        first = self._loader.begin_orders(len(of))
        entries = list(zip(cut(data, value_start, value_end), range(first, first + len(of)), strict=True))
        has_tombstones = bool((value_end < value_start).any())
        if self._is_plain:
            runs = Runs(prefixes, bounds, tails, entries)
            self._loader.put_runs(None, runs, has_tombstones=has_tombstones)
            return
        for prefix, bound, row in zip(prefixes, bounds, of[starts].tolist(), strict=True):
            self.end_transactions(row)
            producer_id = int(self._owner[row]) if self._is_transactional[row] else None
            runs = Runs([prefix], [bound], tails, entries)
            self._loader.put_runs(producer_id, runs, has_tombstones=has_tombstones)

    def _owner_changes(self, of: npt.NDArray[np.int32]) -> Flags:
        """Whether a marker lies between two records, whose batches are `of`, or they have different owners."""
        changes: Flags = np.diff(self._marker_count[of]) != 0
        changes |= np.diff(self._owner[of]) != 0
        changes |= np.diff(self._is_transactional[of].view(np.int8)) != 0
        return changes

    def end_transactions(self, row: int) -> None:
        """Read the markers in front of batch `row` that are not read yet."""
        markers = self._markers
        while markers and markers[0] < row:
            self._loader.read((self._batch(markers.popleft()),))

    def read_rest(self) -> Iterator[None]:
        """Read the batches that are not loaded one by one."""
        rest = self._data[self._begin(self.done) :]
        turn_bytes = 0
        for start, end in pairwise(find_bounds(rest)[0]):
            self._loader.read((rest[start:end],))
            turn_bytes += end - start
            if turn_bytes >= _PLAIN_TURN_BYTES:
                turn_bytes = 0
                yield

    def _batch(self, row: int) -> memoryview:
        return self._data[self._begin(row) : self._begin(row + 1)]

    def _begin(self, row: int) -> int:
        batches = self._batches
        return int(batches.position[row]) if row < len(batches) else batches.consumed_bytes
