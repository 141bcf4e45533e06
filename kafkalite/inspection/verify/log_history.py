"""History of a log from its beginning on: leader epochs, transactions, the last batch of each producer.

The small files beside the log are compared with it. Only batches with a producer are visited one by one, and of those
outside transactions only the last of each window.
Source: org.apache.kafka.storage.internals.log.ProducerStateManager, LeaderEpochFileCache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kafkalite.common.errors import Malformed
from kafkalite.inspection.files.control_records import ABORT, COMMIT, control_type
from kafkalite.inspection.files.record_rows import rows_of_batch
from kafkalite.record.batch import CONTROL, TRANSACTIONAL
from kafkalite.record.columns.batch_columns import Array

_FACTS_MAX = 1_000_000  # of transactions, producers and epochs each


class LastBatch(NamedTuple):
    """The last data batch of a producer: its last offset, epoch and sequence."""

    offset: int
    epoch: int
    sequence: int


class EndedTransaction(NamedTuple):
    """A transaction with its marker at `offset`. `first_offset` is -1 where its begin is not in the log any more."""

    producer_id: int
    first_offset: int
    offset: int
    aborted: bool


class Rows(NamedTuple):
    """Header fields of batches of one window in their order, as columns."""

    position: Array
    base_offset: Array
    last_offset: Array
    max_timestamp: Array
    attributes: Array
    leader_epoch: Array
    producer_id: Array
    producer_epoch: Array
    last_sequence: Array
    record_count: Array


class History:
    """`at_offset` is called for each offset of `stops` (ascending) when everything below it was added."""

    def __init__(self, stops: list[int], at_offset: Callable[[int, History], None]) -> None:
        self.producers: dict[int, LastBatch] = {}
        self.ongoing: dict[int, int] = {}  # producer id -> first offset of its open transaction
        self.ended: list[EndedTransaction] = []
        self.epochs: list[tuple[int, int]] = []  # (epoch, first offset of a batch of it), in the order of the log
        self.was_compacted = False
        self._stops = stops
        self._at_offset = at_offset

    def add(self, rows: Rows, batch_at: Callable[[int], memoryview]) -> None:
        """Add sound batches; `batch_at(row)` is the whole batch of a row."""
        self._note_epochs(rows)
        # a broker appends batches without gaps; only compaction takes records out of them
        if (rows.record_count < rows.last_offset - rows.base_offset + 1).any():
            self.was_compacted = True
        start = 0
        while self._stops and len(rows.base_offset) and self._stops[0] <= int(rows.last_offset[-1]):
            end = int(np.searchsorted(rows.base_offset, self._stops[0]))
            self._note_producers(rows, start, end, batch_at)
            self._at_offset(self._stops.pop(0), self)
            start = end
        self._note_producers(rows, start, len(rows.base_offset), batch_at)

    def end(self, end_offset: int) -> None:
        """The log ends here."""
        while self._stops and self._stops[0] <= end_offset:
            self._at_offset(self._stops.pop(0), self)

    def _note_epochs(self, rows: Rows) -> None:
        epochs = rows.leader_epoch
        latest = self.epochs[-1][0] if self.epochs else None
        changes = np.flatnonzero(np.diff(epochs, prepend=epochs[0] if latest is None else latest))
        if latest is None and len(epochs):
            changes = np.concatenate([[0], changes])
        for row in changes.tolist()[: max(0, _FACTS_MAX - len(self.epochs))]:
            self.epochs.append((int(epochs[row]), int(rows.base_offset[row])))

    def _note_producers(self, rows: Rows, start: int, end: int, batch_at: Callable[[int], memoryview]) -> None:
        part = slice(start, end)
        ids = rows.producer_id[part]
        if not len(ids) or (ids < 0).all():
            return
        control = (rows.attributes[part] & CONTROL) != 0
        data = np.flatnonzero((ids >= 0) & ~control) + start
        found, last = np.unique(rows.producer_id[data][::-1], return_index=True)
        for producer_id, row in zip(found.tolist(), data[::-1][last].tolist(), strict=True):
            if producer_id in self.producers or len(self.producers) < _FACTS_MAX:
                self.producers[producer_id] = LastBatch(
                    int(rows.last_offset[row]), int(rows.producer_epoch[row]), int(rows.last_sequence[row])
                )
        in_transaction = (ids >= 0) & (control | ((rows.attributes[part] & TRANSACTIONAL) != 0))
        for row in (np.flatnonzero(in_transaction) + start).tolist():
            self._note_transaction(rows, row, batch_at)

    def _note_transaction(self, rows: Rows, row: int, batch_at: Callable[[int], memoryview]) -> None:
        producer_id = int(rows.producer_id[row])
        if not int(rows.attributes[row]) & CONTROL:
            if len(self.ongoing) < _FACTS_MAX:
                self.ongoing.setdefault(producer_id, int(rows.base_offset[row]))
            return
        records = rows_of_batch(batch_at(row))
        kind = control_type(records[0].key) if not isinstance(records, Malformed) and records else -1
        if kind in (ABORT, COMMIT) and len(self.ended) < _FACTS_MAX:
            first = self.ongoing.pop(producer_id, -1)
            self.ended.append(EndedTransaction(producer_id, first, int(rows.last_offset[row]), kind == ABORT))
