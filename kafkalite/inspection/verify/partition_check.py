"""Check of one partition's directory: its segments in order, and all files beside them.

A `.snapshot` covers everything below its name: each producer's last batch there, and its open transaction. A
`.txnindex` has one entry for each transaction that was aborted in its segment; a missing one would let consumers with
read_committed see records of an aborted transaction.
Source: org.apache.kafka.storage.internals.log.{LogLoader, LocalLog, LogFileUtils, ProducerStateManager,
TransactionIndex}, LeaderEpochCheckpointFile, PartitionMetadataFile; KIP-98.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kafkalite.common.errors import Malformed
from kafkalite.inspection.files.directory_listing import PartitionDirectory, kind_of, read_file
from kafkalite.inspection.files.findings import LINK_TO_NOWHERE, Fault, Severity, no_file
from kafkalite.inspection.verify.index_check import check_indexes
from kafkalite.inspection.verify.log_history import History
from kafkalite.inspection.verify.segment_scan import Segment, SegmentScan, scan_segment
from kafkalite.log.index.transaction_index import ENTRY as TXN_ENTRY
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.segment.record_count_file import ENTRY_BYTES, identity_of
from kafkalite.log.segment.record_count_file import decode_entries as decode_counts
from kafkalite.log.segment.record_counting import Tally
from kafkalite.log.state.producer import Producer
from kafkalite.log.state.producer_snapshots import SnapshotEntry, decode_snapshot
from kafkalite.log.storage.checkpoint_file import LaterVersion, decode_entries, decode_topic_id, number_of
from kafkalite.log.storage.file_names import (
    CLEANED,
    DELETED,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    RECORD_COUNTS,
    SEGMENT_FILES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    parse_segment_file,
)

_OF_KRAFT = ("quorum-state", ".checkpoint", ".checkpoint.deleted")
_LEFTOVERS = {
    DELETED: "a file on its way out: the broker stopped before file.delete.delay.ms was over",
    CLEANED: "a compaction that did not come to its end",
    SWAP: "a compaction whose outcome did not take its place yet",
}


@dataclass(slots=True)
class PartitionReport:
    """The faults of a partition. `end_offset` is the offset behind its last batch, `start_offset` the base of its first
    segment; `topic_id` is None where the partition does not say."""

    partition: PartitionDirectory
    faults: list[Fault] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = 0
    topic_id: uuid.UUID | None = None


def check_partition(
    partition: PartitionDirectory,
    advance: Callable[[int], None],
    *,
    compacted_to: int = 0,
    is_compacted: bool = False,
    clean: bool = False,
    deep: bool = False,
) -> PartitionReport:
    """Checks one partition. Below offset `compacted_to` offsets may be missing; `is_compacted`: anywhere. `clean`: the
    last shutdown was clean. Raises OSError."""
    bases = partition.bases
    start_offset = bases[0] if bases else 0
    report = PartitionReport(partition, start_offset=start_offset, end_offset=start_offset)
    faults = report.faults
    faults += _check_names(partition)
    report.topic_id = _check_metadata(partition, faults, clean)
    snapshots = sorted(
        found[0] for name in partition.files if (found := parse_segment_file(name)) and found[1:] == (SNAPSHOT, "")
    )

    def check_snapshot_here(offset: int, history: History | None) -> None:
        faults.extend(check_snapshot(partition.file(offset, SNAPSHOT), offset, history))

    if not bases and partition.files:
        faults.append(Fault(partition.path, "", "it has no segment"))
    for offset in snapshots:
        if offset < start_offset:
            early = f"it is of an offset before the log's first, {start_offset}"
            faults.append(Fault(partition.file(offset, SNAPSHOT), "", early))
    stops = [offset for offset in snapshots if offset >= start_offset]
    history = History(stops, check_snapshot_here)
    scans = []
    for base, next_base in zip(bases, [*bases[1:], -1], strict=False):
        aborts_before = len(history.aborted)
        scan = scan_segment(Segment(partition.file(base, LOG), base, next_base), history, advance, deep=deep)
        scans.append(scan)
        report.end_offset = max(report.end_offset, scan.end_offset)
        faults += scan.faults
        faults += check_indexes(scan, is_last=next_base < 0, names=partition.files)
        faults += check_txn_index(
            partition.file(base, TXN_INDEX),
            partition.has(base, TXN_INDEX),
            scan,
            history.aborted[aborts_before:],
            compacted_to=scan.end_offset if history.was_compacted else compacted_to,
        )
        scan.forget_batches()
    history.end(report.end_offset)
    for offset in stops:
        check_snapshot_here(offset, None)
    if not history.was_compacted and not is_compacted:
        faults += _check_gaps(scans, compacted_to)
    faults += _check_epochs(partition, history, report.end_offset)
    faults += _check_counts(partition, scans)
    return report


def _check_gaps(scans: list[SegmentScan], compacted_to: int) -> Iterator[Fault]:
    """Yields a fault for each range of missing offsets. Only compaction may leave one."""

    def fault(scan: SegmentScan, position: int, first: int, last: int) -> Fault:
        what = f"the offsets {first} to {last} are missing"
        passed = "the log continues behind the gap: consumers skip it"
        where = f"position {position}, offset {last + 1}"
        return Fault(scan.segment.path, where, what, restart=passed, position=position)

    before = None
    for scan in scans:
        damaged = [fault.position for fault in scan.faults if fault.position >= 0]
        base = scan.segment.base_offset
        if before is not None and base > max(before.end_offset, compacted_to) and not before.faults:
            yield fault(scan, 0, before.end_offset, base - 1)
        for position, first, last in scan.gaps:
            # the batches in front of the gap may only be unreadable
            if last >= compacted_to and not any(at < position for at in damaged):
                yield fault(scan, position, first, last)
        before = scan


def _check_counts(partition: PartitionDirectory, scans: list[SegmentScan]) -> Iterator[Fault]:
    """Compares the noted record counts of sealed segments with the scans. An entry is of one version of a file."""
    if RECORD_COUNTS not in partition.files:
        return
    path = f"{partition.path}/{RECORD_COUNTS}"
    data = read_file(path)
    numbers = {}
    for number in range(len(data) // ENTRY_BYTES):
        entry = decode_counts(data[number * ENTRY_BYTES : (number + 1) * ENTRY_BYTES])
        if not entry:
            yield _untouched(path, "an entry that is damaged", f"entry {number}")
        numbers.update({base: (number, *noted) for base, noted in entry.items()})
    if len(data) % ENTRY_BYTES:
        yield _untouched(path, "its last entry is torn")
    for scan in scans:
        if scan.segment.base_offset not in numbers or scan.faults or scan.has_legacy:
            continue
        number, identity, counted = numbers[scan.segment.base_offset]
        there = Tally(scan.records, scan.control_records)
        if identity == identity_of(os.stat(scan.segment.path)) and counted != there:
            what = f"it says {tuple(counted)} data and control records, the segment has {tuple(there)}"
            wrong = "the broker reports wrong numbers until the file is deleted; records are not concerned"
            yield Fault(path, f"entry {number}", what, Severity.STAYS, wrong)


def _check_names(partition: PartitionDirectory) -> Iterator[Fault]:
    for name in partition.others:
        path = f"{partition.path}/{name}"
        try:
            kind = kind_of(path)
        except FileNotFoundError:
            yield _untouched(path, LINK_TO_NOWHERE)
            continue
        if kind is not None and (parse_segment_file(name) or name in (LEADER_EPOCHS, PARTITION_METADATA)):
            yield no_file(path, kind)
        else:
            yield _untouched(path, f"it is {kind}, and no file of a log")
    for name in sorted(partition.files):
        path = f"{partition.path}/{name}"
        found = parse_segment_file(name)
        if found is None or found[1] not in (*SEGMENT_FILES, SNAPSHOT):
            if name.endswith(".tmp"):
                yield _untouched(path, "a file that was not written to its end: its name was never changed")
            elif name not in (LEADER_EPOCHS, PARTITION_METADATA, RECORD_COUNTS) and not (
                partition.is_kraft and name.endswith(_OF_KRAFT)
            ):
                yield _untouched(path, "no file of a log has such a name")
            continue
        base, suffix, leftover = found
        if leftover:
            yield Fault(path, "", _LEFTOVERS[leftover])
        elif suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX) and not partition.has(base, LOG):
            yield Fault(path, "", "the index of a segment that is not there")


def _untouched(path: str, what: str, where: str = "") -> Fault:
    return Fault(path, where, what, Severity.HARMLESS, "it is not looked at, and stays")


def _check_metadata(partition: PartitionDirectory, faults: list[Fault], clean: bool) -> uuid.UUID | None:
    """The topic id in partition.metadata; None without that file, which old brokers do not write."""
    if PARTITION_METADATA not in partition.files:
        return None
    path = f"{partition.path}/{PARTITION_METADATA}"
    try:
        return decode_topic_id(read_file(path))
    except ValueError as error:
        severity, restart = Severity.REPAIRED, "it is written again, with the id that the metadata have for the topic"
        if isinstance(error, LaterVersion):
            severity, restart = Severity.STAYS, "it is passed over: the metadata have an id for the topic"
        elif clean:
            severity, restart = Severity.STAYS, "it is not read after an orderly stop: the metadata have an id"
        faults.append(Fault(path, "", f"it does not tell the topic's id: {error}", severity, restart))
        return None


def _check_epochs(partition: PartitionDirectory, history: History, end_offset: int) -> Iterator[Fault]:
    path = f"{partition.path}/{LEADER_EPOCHS}"
    written = [(epoch, offset) for epoch, offset in history.epochs if epoch >= 0]
    if LEADER_EPOCHS not in partition.files:
        if written:
            yield Fault(path, "", f"it is missing, and batches have epochs up to {written[-1][0]}")
        return
    try:
        entries = [(number_of(epoch), number_of(start)) for epoch, start in decode_entries(read_file(path), 2)]
    except ValueError as error:
        yield Fault(path, "", f"it cannot be read: {error}")
        return
    for number, (epoch, start) in enumerate(entries):
        where = f"entry {number}, epoch {epoch}"
        if epoch < 0 or start < 0:
            yield Fault(path, where, "a number below zero")
        elif number and (epoch <= entries[number - 1][0] or start <= entries[number - 1][1]):
            yield Fault(path, where, "it does not ascend")
        elif start > end_offset:
            yield Fault(path, where, f"it begins at {start}, and the log ends at {end_offset}")
    for epoch, offset in written:
        believed = [known for known, start in entries if start <= offset]
        if believed and believed[-1] != epoch:
            yield Fault(path, f"offset {offset}", f"it says epoch {believed[-1]}, the batch there says {epoch}")
            return
        if not believed and epoch > max((known for known, _ in entries), default=-1):
            yield Fault(path, f"offset {offset}", f"it does not know epoch {epoch} of the batch there")
            return


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
            what = f"the unknown version {version}"
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
