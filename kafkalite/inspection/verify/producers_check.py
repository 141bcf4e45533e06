"""What stands beside a log about its producers and transactions, against the log itself.

A `.snapshot` covers everything below its name: each producer's last batch there, and its open transaction. A
`.txnindex` has one entry for each transaction that was aborted in its segment; a missing one would let consumers with
read_committed see what was taken back.
Source: org.apache.kafka.storage.internals.log.{ProducerStateManager, TransactionIndex, AbortedTxn}; KIP-98.
"""

from __future__ import annotations

from kafkalite.common.errors import Malformed
from kafkalite.inspection.files.findings import Fault
from kafkalite.inspection.files.regular_file import read_file
from kafkalite.inspection.verify.log_history import Ended, History
from kafkalite.log.index.transaction_index import ENTRY as TXN_ENTRY
from kafkalite.log.state.producer_snapshot import decode_snapshot


def check_snapshot(path: str, offset: int, history: History | None) -> list[Fault]:
    """`history`: what the log says of everything below `offset`; None where the log does not reach as far.

    Raises OSError.
    """
    data = read_file(path)
    try:
        entries, excess_bytes = decode_snapshot(data)
    except Malformed as error:
        return [Fault(path, "", str(error))]
    faults = []
    if excess_bytes:
        faults.append(Fault(path, "", f"{excess_bytes} bytes behind its last producer"))
    if history is None:
        return [*faults, Fault(path, "", "it is of an offset that the log does not reach")]
    for number, (producer_id, epoch, sequence, last_offset, delta, _, _, txn) in enumerate(entries):
        where = f"producer {number}, id {producer_id}"
        if last_offset >= offset or txn >= offset:
            faults.append(Fault(path, where, f"it knows of offset {max(last_offset, txn)}, which its name excludes"))
            continue
        if not 0 <= delta <= max(last_offset, 0) or epoch < 0:
            faults.append(Fault(path, where, "its last batch cannot be"))
            continue
        sent = history.producers.get(producer_id)
        if sent is not None and last_offset < sent.offset:
            faults.append(
                Fault(path, where, f"its last batch is at {last_offset}, but the log has one at {sent.offset}")
            )
        elif sent is not None and last_offset == sent.offset and (sent.epoch, sent.sequence) != (epoch, sequence):
            faults.append(
                Fault(
                    path,
                    where,
                    f"its last batch has epoch {epoch} and sequence {sequence}, but the log says {sent.epoch} and "
                    f"{sent.sequence}",
                )
            )
    return faults


def check_txn_index(
    path: str, exists: bool, base: int, end: int, ended: list[Ended], *, was_compacted: bool
) -> list[Fault]:
    """The aborted transactions of the segment [base, end); `ended` are the transactions whose markers stand in it.

    Compaction takes the data of an aborted transaction, but for the header of a producer's last batch: then the
    transaction began before what is left of it. Raises OSError.
    """
    data = read_file(path) if exists else b""
    faults = []
    if len(data) % TXN_ENTRY.size:
        faults.append(Fault(path, "", f"its size of {len(data)} bytes is no multiple of {TXN_ENTRY.size}"))
    markers = {one.offset: one for one in ended if one.aborted}
    known = set()
    previous = -1
    whole = data[: len(data) // TXN_ENTRY.size * TXN_ENTRY.size]
    for number, (version, producer_id, first, last, _) in enumerate(TXN_ENTRY.iter_unpack(whole)):
        where = f"entry {number}"
        marker = markers.get(last)
        if version != 0:
            faults.append(Fault(path, where, f"version {version}, which there is none of"))
        elif last <= previous:
            faults.append(Fault(path, where, "it does not ascend"))
        elif marker is None or marker.producer_id != producer_id:
            faults.append(Fault(path, where, f"no abort of producer {producer_id} at offset {last} in {base}..{end}"))
        elif first > last or (
            first != marker.first_offset >= 0 and not (was_compacted and first < marker.first_offset)
        ):
            faults.append(Fault(path, where, f"the transaction began at {marker.first_offset}, not at {first}"))
        else:
            known.add(last)
        previous = last
    missing = [one for one in markers.values() if one.first_offset >= 0 and one.offset not in known]
    if missing and not faults:
        faults += [
            Fault(path, "", f"no entry for the transaction {one.first_offset}..{one.offset}, which was aborted")
            for one in missing[:10]
        ]
    return faults
