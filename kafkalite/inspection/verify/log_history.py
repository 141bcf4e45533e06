"""History of a log from its beginning on: leader epochs, transactions, the last batch of each producer.

The small files beside the log are compared with it. Only batches with a producer are visited one by one; outside
transactions only each producer's last batch of a window.
Source: org.apache.kafka.storage.internals.log.ProducerStateManager, LeaderEpochFileCache.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import CONTROL, TRANSACTIONAL, parse_header
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.transaction_marker import read_marker

_FACTS_MAX = 1_000_000  # of transactions, producers and epochs each


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
    """The history up to the batches that were added. `at_offset` is called for each offset of `stops` (ascending) when
    everything below it was added."""

    def __init__(self, stops: list[int], at_offset: Callable[[int, History], None]) -> None:
        self.producers = ProducerState("", [], Files())  # of each producer only the last batch of a window
        self.aborted: list[AbortedTxn] = []  # the first offset is -1 where it is not in the log any more
        self.epochs: list[tuple[int, int]] = []  # (epoch, first offset of a batch of it), in the order of the log
        self.was_compacted = False
        self._stops = stops
        self._at_offset = at_offset

    def add(self, rows: Rows, batch_at: Callable[[int], memoryview]) -> None:
        """Adds sound batches; `batch_at(row)` is the whole batch of a row."""
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
        """Calls `at_offset` for the stops that are left, up to the end of the log."""
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
        ids, attributes = rows.producer_id[part], rows.attributes[part]
        if not len(ids) or (ids < 0).all():
            return
        is_control = (attributes & CONTROL) != 0
        data = np.flatnonzero((ids >= 0) & ~is_control)
        _, last = np.unique(ids[data][::-1], return_index=True)
        in_transaction = np.flatnonzero((ids >= 0) & (is_control | ((attributes & TRANSACTIONAL) != 0)))
        for row in np.union1d(data[::-1][last], in_transaction).tolist():
            if len(self.producers) < _FACTS_MAX or self.producers.get(int(ids[row])) is not None:
                self._apply(batch_at(start + row))

    def _apply(self, batch: memoryview) -> None:
        header = parse_header(batch)
        if not header.is_control:
            self.producers.apply(header, batch)
            return
        try:
            marker = read_marker(batch)
        except Malformed:
            return
        if marker is None:
            return
        aborted = self.producers.aborted_by(header, marker)
        self.producers.end_transaction(header, marker)
        if not marker.commit and len(self.aborted) < _FACTS_MAX:
            self.aborted.append(aborted or AbortedTxn(header.producer_id, -1, header.last_offset, -1))
