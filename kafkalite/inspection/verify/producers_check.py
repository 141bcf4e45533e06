"""Check of the files about producers and transactions beside a log, against the log itself.

A `.snapshot` covers everything below its name: each producer's last batch there, and its open transaction. A
`.txnindex` has one entry for each transaction that was aborted in its segment; a missing one would let consumers with
read_committed see records of an aborted transaction.
Source: org.apache.kafka.storage.internals.log.{ProducerStateManager, TransactionIndex, AbortedTxn}; KIP-98.
"""

from __future__ import annotations

from kafkalite.common.errors import Malformed
from kafkalite.inspection.files.findings import Fault
from kafkalite.inspection.files.regular_file import read_file
from kafkalite.inspection.verify.log_history import History
from kafkalite.inspection.verify.segment_scan import SegmentScan
from kafkalite.log.index.transaction_index import ENTRY as TXN_ENTRY
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.state.producer import Producer
from kafkalite.log.state.producer_snapshot import SnapshotEntry, decode_snapshot


def check_snapshot(path: str, offset: int, history: History | None) -> list[Fault]:
    """The faults of a snapshot. `history`: the log below `offset`; None if the log ends before it. Raises OSError."""
    try:
        entries, excess_bytes = decode_snapshot(read_file(path))
    except Malformed as error:
        return [Fault(path, "", str(error))]
    faults = []
    if excess_bytes:
        faults.append(Fault(path, "", f"{excess_bytes} bytes behind its last producer"))
    if history is None:
        return [*faults, Fault(path, "", "it is of an offset that the log does not reach")]
    for number, entry in enumerate(entries):
        what = _entry_fault(entry, offset, history.producers.get(entry.producer_id))
        if what:
            faults.append(Fault(path, f"producer {number}, id {entry.producer_id}", what))
    return faults


def _entry_fault(entry: SnapshotEntry, offset: int, producer: Producer | None) -> str:
    """The fault of an entry, "" for none. `producer`: its state by the log."""
    if entry.last_offset >= offset or entry.txn_first_offset >= offset:
        latest = max(entry.last_offset, entry.txn_first_offset)
        return f"it knows of offset {latest}, which its name excludes"
    if not 0 <= entry.offset_delta <= max(entry.last_offset, 0) or entry.epoch < 0:
        return "its last batch cannot be"
    if producer is None or not producer.batches or entry.last_offset > producer.batches[-1].last_offset:
        return ""
    last_offset = producer.batches[-1].last_offset
    if entry.last_offset < last_offset:
        return f"its last batch is at {entry.last_offset}, but the log has one at {last_offset}"
    if (producer.epoch, producer.last_sequence) == (entry.epoch, entry.last_sequence):
        return ""
    has = f"epoch {entry.epoch} and sequence {entry.last_sequence}"
    return f"its last batch has {has}, but the log says {producer.epoch} and {producer.last_sequence}"


def check_txn_index(
    path: str, exists: bool, scan: SegmentScan, aborted: list[AbortedTxn], *, compacted_to: int
) -> list[Fault]:
    """Compares the index of a segment with the aborted transactions whose markers stand in it, `aborted`.

    Compaction removes the data of an aborted transaction, except for the header of a producer's last batch. Then the
    transaction began before the batches that are left of it, below offset `compacted_to`. Raises OSError.
    """
    data = read_file(path) if exists else b""
    faults = []
    if len(data) % TXN_ENTRY.size:
        faults.append(Fault(path, "", f"its size of {len(data)} bytes is no multiple of {TXN_ENTRY.size}"))
    markers = {one.last_offset: one for one in aborted}
    known = set()
    previous = -1
    whole = data[: len(data) // TXN_ENTRY.size * TXN_ENTRY.size]
    for number, (version, producer_id, first, last, _) in enumerate(TXN_ENTRY.iter_unpack(whole)):
        marker = markers.get(last)
        what = ""
        if version != 0:
            what = f"version {version}, which there is none of"
        elif last <= previous:
            what = "it does not ascend"
        elif marker is None or marker.producer_id != producer_id:
            offsets = f"{scan.segment.base_offset}..{scan.end_offset}"
            what = f"no abort of producer {producer_id} at offset {last} in {offsets}"
        elif first > last or (first != marker.first_offset >= 0 and first >= min(marker.first_offset, compacted_to)):
            what = f"the transaction began at {marker.first_offset}, not at {first}"
        else:
            known.add(last)
        if what:
            faults.append(Fault(path, f"entry {number}", what))
        previous = last
    missing = [one for one in markers.values() if one.first_offset >= 0 and one.last_offset not in known]
    if not faults:
        for one in missing[:10]:
            what = f"no entry for the transaction {one.first_offset}..{one.last_offset}, which was aborted"
            faults.append(Fault(path, "", what))
    return faults
