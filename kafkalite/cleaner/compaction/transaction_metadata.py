"""Decides which batches a cleaning discards because of their transactions, and how long transaction markers stay.

Data of an aborted transaction is discarded at once. A marker is discarded once no data of its transaction is left
before it: the cleaning that finds it so retains it with a delete horizon, and one after that time drops it. As long as
data of an aborted transaction was seen, the transaction stays in the index of the segment that has its marker.
Source: kafka.log.CleanedTransactionMetadata; KIP-98, KIP-534.
"""

from __future__ import annotations

import os

import numpy as np

from kafkalite.cleaner.compaction.segment_reader import BatchPiece, Entries
from kafkalite.common.errors import Malformed
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.storage.file_names import TXN_INDEX, parse_segment_file
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import CONTROL, TRANSACTIONAL
from kafkalite.record.columns.batch_columns import Flags
from kafkalite.record.record import read_records
from kafkalite.record.transaction_marker import ABORT, COMMIT, control_key

_NEVER = 1 << 63
_ENTRY = np.dtype([("version", ">i2"), *((name, ">i8") for name in AbortedTxn._fields)])  # as in TxnIndex


def marker_type(key: bytes | None) -> int:
    """The type in the key of a control record; all but ABORT and COMMIT are retained without limit. Raises
    Malformed."""
    found = control_key(key)
    if found is None:
        raise Malformed("a control record whose key is none")
    version, kind = found
    if version < 0:
        raise Malformed(f"a control record of version {version}")
    return kind


def read_aborted(files: Files, directory: str) -> Entries:
    """All aborted transactions in the transaction indexes of a log, by their first offsets. Raises OSError.

    A marker may be in a later segment than its data, even in the active one, so the indexes of all segments are read.
    The result is columns, 34 bytes a transaction: there may be millions.
    """
    found = [np.empty(0, _ENTRY)]
    for name in files.listdir(directory):
        parts = parse_segment_file(name)
        if parts is not None and parts[1:] == (TXN_INDEX, ""):
            data = files.read(os.path.join(directory, name))
            entries = np.frombuffer(
                data, _ENTRY, len(data) // _ENTRY.itemsize
            )  # the last entry may be torn, or incomplete as yet
            found.append(entries[entries["version"] == 0])
    every = np.concatenate(found)
    order = np.lexsort((every["last_offset"], every["producer_id"], every["first_offset"]))
    every = every[order]
    is_new = np.ones(len(every), np.bool_)
    is_new[1:] = every[1:] != every[:-1]
    different: Entries = every[is_new]
    return different


class TransactionMetadata:
    """Gets every transactional and control batch in the order of the log. `aborted` are all aborted transactions of the
    log, by their first offsets; one that ended before a batch does not concern it, even without a marker."""

    def __init__(self, aborted: Entries) -> None:
        self._upcoming = aborted
        self._next = 0  # in `_upcoming`
        self._next_first = self._first_of_next()
        self._aborted: dict[int, AbortedTxn] = {}
        self._has_data: set[int] = set()  # of those in _aborted: producers of which a batch was seen
        self._committed: set[int] = set()

    def on_batches(self, piece: BatchPiece, selected: Flags) -> tuple[Flags, list[AbortedTxn]]:
        """Flags of the selected batches that are discarded, and the transactions that stay in the index.

        Data is discarded if its transaction was aborted, a control batch if no data of its transaction is left.
        Raises CleaningFailed.
        """
        batches = piece.batches
        discarded = np.zeros(len(batches), np.bool_)
        aborted: list[AbortedTxn] = []
        concerned = selected & ((batches.heads["attributes"] & (TRANSACTIONAL | CONTROL)) != 0)
        if not concerned.any():
            return discarded, aborted
        base, last, producer = batches.base_offset, batches.last_offset, batches.column("producer_id")
        is_control = batches.is_control
        for row in np.flatnonzero(concerned).tolist():
            of = int(producer[row]), int(base[row]), int(last[row])
            if is_control[row]:
                discarded[row], txn = self.on_control_batch(*of, _kind(piece, row))
                if txn is not None:
                    aborted.append(txn)
            else:
                discarded[row] = self.on_data_batch(*of)
        return discarded, aborted

    def on_data_batch(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Whether a transactional batch is of an aborted transaction."""
        self._begin(base_offset, last_offset)
        txn = self._aborted.get(producer_id)
        if txn is not None and base_offset <= txn.last_offset:
            self._has_data.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def on_control_batch(
        self, producer_id: int, base_offset: int, last_offset: int, kind: int | None
    ) -> tuple[bool, AbortedTxn | None]:
        """Whether a control batch is discarded, and the transaction that stays in the index if it is not. `kind` is the
        marker's type, None for a batch that was emptied before."""
        self._begin(base_offset, last_offset)
        if kind is None:
            return True, None
        if kind == ABORT:
            txn = self._aborted.pop(producer_id, None)
            if txn is None or producer_id not in self._has_data:
                return True, None
            self._has_data.discard(producer_id)
            return False, txn
        if kind == COMMIT:
            if producer_id in self._committed:
                self._committed.discard(producer_id)
                return False, None
            return True, None
        return False, None

    def _begin(self, base_offset: int, last_offset: int) -> None:
        while self._next_first <= last_offset:
            txn = AbortedTxn(*self._upcoming[self._next].tolist()[1:])
            self._next += 1
            self._next_first = self._first_of_next()
            before = self._aborted.get(txn.producer_id)
            if txn.last_offset >= base_offset and (before is None or before.last_offset < txn.first_offset):
                self._aborted[txn.producer_id] = txn
                self._has_data.discard(txn.producer_id)

    def _first_of_next(self) -> int:
        return int(self._upcoming["first_offset"][self._next]) if self._next < len(self._upcoming) else _NEVER


def _kind(piece: BatchPiece, row: int) -> int | None:
    at = int(piece.batches.position[row])
    end = at + int(piece.batches.size_bytes[row])
    try:
        records = read_records(piece.data[at:end])
        return marker_type(records[0].key) if records else None
    except Malformed as error:
        raise piece.refuse(at, str(error)) from None
