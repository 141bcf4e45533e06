"""One partition's directory as a whole: its segments in a row, and everything that lies beside them.

Source: org.apache.kafka.storage.internals.log.{LogLoader, LocalLog, LogFileUtils}, LeaderEpochCheckpointFile,
PartitionMetadataFile.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.common.checksum import crc32c
from kafkalite.common.names import ZERO_UUID, parse_uuid
from kafkalite.inspection.files.directory_listing import PartitionDirectory
from kafkalite.inspection.files.findings import LINK_TO_NOWHERE, Fault, Severity, no_file
from kafkalite.inspection.files.regular_file import kind_of, read_file
from kafkalite.inspection.verify.index_check import check_indexes
from kafkalite.inspection.verify.log_history import History
from kafkalite.inspection.verify.producers_check import check_snapshot, check_txn_index
from kafkalite.inspection.verify.segment_scan import Segment, SegmentScan, scan_segment
from kafkalite.log.storage.checkpoint_file import decode_entries
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

_COUNTS = struct.Struct(">4s7q")
_OF_KRAFT = ("quorum-state", ".checkpoint", ".checkpoint.deleted")
_LEFTOVERS = {
    DELETED: "a file on its way out: the broker stopped before file.delete.delay.ms was over",
    CLEANED: "a compaction that did not come to its end",
    SWAP: "a compaction whose outcome did not take its place yet",
}


@dataclass(slots=True)
class PartitionReport:
    """What a look at a partition found. `end_offset` is the offset behind its last batch, `start_offset` the base of
    its first segment; `topic_id` None where the partition does not say."""

    partition: PartitionDirectory
    faults: list[Fault] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = 0
    topic_id: uuid.UUID | None = None
    scans: list[SegmentScan] = field(default_factory=list)


def check_partition(
    partition: PartitionDirectory, advance: Callable[[int], None], *, compacted_to: int = 0, deep: bool = False
) -> PartitionReport:
    """`compacted_to`: below it offsets may be missing. Raises OSError."""
    told = PartitionReport(partition)
    faults = told.faults
    _check_names(partition, faults)
    told.topic_id = _check_metadata(partition, faults)
    snapshots = sorted(
        found[0] for name in partition.files if (found := parse_segment_file(name)) and found[1:] == (SNAPSHOT, "")
    )

    def check_snapshot_here(offset: int, history: History | None) -> None:
        faults.extend(check_snapshot(partition.file(offset, SNAPSHOT), offset, history))

    bases = partition.bases
    if not bases:
        faults += [] if not partition.files else [Fault(partition.path, "", "it has no segment")]
    told.start_offset = told.end_offset = bases[0] if bases else 0
    reachable = [offset for offset in snapshots if not bases or offset >= bases[0]]
    for offset in snapshots[: len(snapshots) - len(reachable)]:
        faults.append(
            Fault(partition.file(offset, SNAPSHOT), "", f"it is of an offset before the log's first, {bases[0]}")
        )
    stops = list(reachable)
    history = History(stops, check_snapshot_here)
    for number, base in enumerate(bases):
        next_base = bases[number + 1] if number + 1 < len(bases) else -1
        _check_segment(partition, Segment(partition.file(base, LOG), base, next_base), history, advance, told, deep)
    history.end(told.end_offset)
    for offset in stops:
        check_snapshot_here(offset, None)
    if not history.was_compacted:
        _check_gaps(told, compacted_to)
    _check_epochs(partition, history, told)
    _check_counts(partition, told)
    for scan in told.scans:  # the columns are needed no more
        scan.positions.clear()
        scan.last_offsets.clear()
        scan.timestamps.clear()
    return told


def _check_segment(
    partition: PartitionDirectory, segment: Segment, history: History, advance: Callable[[int], None],
    told: PartitionReport, deep: bool,
) -> None:  # fmt: skip
    markers_before = len(history.ended)
    scan = scan_segment(segment, history, advance, deep=deep)
    told.scans.append(scan)
    told.faults += scan.faults
    told.end_offset = max(told.end_offset, scan.end_offset)
    told.faults += check_indexes(scan, is_last=segment.next_base < 0, names=partition.files)
    told.faults += check_txn_index(
        partition.file(segment.base_offset, TXN_INDEX),
        partition.has(segment.base_offset, TXN_INDEX),
        segment.base_offset,
        scan.end_offset,
        history.ended[markers_before:],
        was_compacted=history.was_compacted,
    )


def _check_gaps(told: PartitionReport, compacted_to: int) -> None:
    """Without compaction every offset from the log's begin on is somewhere."""

    def tell(scan: SegmentScan, position: int, first: int, last: int) -> None:
        what = f"the offsets {first} to {last} are missing"
        passed = "the log goes on behind the gap: consumers pass over it"
        place = f"position {position}, offset {last + 1}"
        told.faults.append(Fault(scan.segment.path, place, what, position, restart=passed))

    before = None
    for scan in told.scans:
        damaged = [fault.position for fault in scan.faults if fault.position >= 0]
        base = scan.segment.base_offset
        if before is not None and base > max(before.end_offset, compacted_to) and not before.faults:
            tell(scan, 0, before.end_offset, base - 1)
        for position, first, last in scan.gaps:
            # what stands in front of it may only be unreadable
            if last >= compacted_to and not any(at < position for at in damaged):
                tell(scan, position, first, last)
        before = scan


def _check_counts(partition: PartitionDirectory, told: PartitionReport) -> None:
    """What kafkalite noted of its sealed segments; an entry counts only for the very file that it was made of."""
    if RECORD_COUNTS not in partition.files:
        return
    path = f"{partition.path}/{RECORD_COUNTS}"
    data = read_file(path)
    width = _COUNTS.size + 4
    numbers: dict[int, tuple[int, list[int], tuple[int, int]]] = {}
    for at in range(0, len(data) // width * width, width):
        magic, base, *of, records, control_records = _COUNTS.unpack_from(data, at)
        if magic != b"krc1" or crc32c(data[at : at + _COUNTS.size]) != int.from_bytes(
            data[at + width - 4 : at + width]
        ):
            told.faults.append(_untouched(path, "an entry that is damaged", f"entry {at // width}"))
        else:
            numbers[base] = at // width, of, (records, control_records)
    if len(data) % width:
        told.faults.append(_untouched(path, "its last entry is torn"))
    for scan in told.scans:
        number, of, counted = numbers.get(scan.segment.base_offset, (0, [], (0, 0)))
        stat = os.stat(scan.segment.path)
        if of == [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino] and not scan.faults:
            there = scan.records, scan.control_records
            if counted != there and not scan.has_legacy:
                what = f"it says {counted} data and control records, the segment has {there}"
                wrong = "the broker tells wrong numbers until the file is deleted; records are not concerned"
                told.faults.append(Fault(path, f"entry {number}", what, gravity=Severity.STAYS, restart=wrong))


def _check_names(partition: PartitionDirectory, faults: list[Fault]) -> None:
    for name in partition.others:
        path = f"{partition.path}/{name}"
        try:
            kind = kind_of(path)
        except FileNotFoundError:
            faults.append(_untouched(path, LINK_TO_NOWHERE))
            continue
        if kind is not None and (parse_segment_file(name) or name in (LEADER_EPOCHS, PARTITION_METADATA)):
            faults.append(no_file(path, kind))
        else:
            faults.append(_untouched(path, f"it is {kind}, and no file of a log"))
    for name in sorted(partition.files):
        path = f"{partition.path}/{name}"
        found = parse_segment_file(name)
        if found is None or found[1] not in (*SEGMENT_FILES, SNAPSHOT):
            if name.endswith(".tmp"):
                faults.append(_untouched(path, "a file that was not written to its end: its name was never changed"))
            elif name not in (LEADER_EPOCHS, PARTITION_METADATA, RECORD_COUNTS) and not (
                partition.is_kraft and name.endswith(_OF_KRAFT)
            ):
                faults.append(_untouched(path, "no file of a log has such a name"))
            continue
        base, suffix, leftover = found
        if leftover:
            faults.append(Fault(path, "", _LEFTOVERS[leftover]))
        elif suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX) and not partition.has(base, LOG):
            faults.append(Fault(path, "", "the index of a segment that is not there"))


def _untouched(path: str, what: str, where: str = "") -> Fault:
    return Fault(path, where, what, gravity=Severity.HARMLESS, restart="it is not looked at, and stays")


def _check_metadata(partition: PartitionDirectory, faults: list[Fault]) -> uuid.UUID | None:
    """The topic's id, if the partition says it; one that has none was made by an old broker."""
    if PARTITION_METADATA not in partition.files:
        return None
    path = f"{partition.path}/{PARTITION_METADATA}"
    try:
        fields = dict(line.split(": ", 1) for line in read_file(path).decode().split("\n") if line)
        if fields.get("version") != "0":
            raise ValueError(f"unknown version {fields.get('version')!r}")
        topic_id = parse_uuid(fields["topic_id"])
        if topic_id == ZERO_UUID:
            raise ValueError("an id of zeros")
        return topic_id
    except (ValueError, KeyError) as error:
        faults.append(
            Fault(
                path,
                "",
                f"it does not tell the topic's id: {error}",
                gravity=Severity.STAYS,
                restart="it is passed over: the id comes from what the cluster knows of the topic",
            )
        )
        return None


def _check_epochs(partition: PartitionDirectory, history: History, told: PartitionReport) -> None:
    path = f"{partition.path}/{LEADER_EPOCHS}"
    written = [(epoch, offset) for epoch, offset in history.epochs if epoch >= 0]
    if LEADER_EPOCHS not in partition.files:
        if written:
            told.faults.append(Fault(path, "", f"it is missing, and batches have epochs up to {written[-1][0]}"))
        return
    try:
        entries = [(int(epoch), int(start)) for epoch, start in decode_entries(read_file(path), 2)]
    except (ValueError, UnicodeDecodeError) as error:
        told.faults.append(Fault(path, "", f"it cannot be read: {error}"))
        return
    for number, (epoch, start) in enumerate(entries):
        where = f"entry {number}, epoch {epoch}"
        if epoch < 0 or start < 0:
            told.faults.append(Fault(path, where, "a number below zero"))
        elif number and (epoch <= entries[number - 1][0] or start <= entries[number - 1][1]):
            told.faults.append(Fault(path, where, "it does not ascend"))
        elif start > told.end_offset:
            told.faults.append(Fault(path, where, f"it begins at {start}, and the log ends at {told.end_offset}"))
    for epoch, offset in written:
        believed = [known for known, start in entries if start <= offset]
        if believed and believed[-1] != epoch:
            told.faults.append(
                Fault(path, f"offset {offset}", f"it says epoch {believed[-1]}, the batch there says {epoch}")
            )
            return
        if not believed and epoch > max((known for known, _ in entries), default=-1):
            told.faults.append(Fault(path, f"offset {offset}", f"it does not know epoch {epoch} of the batch there"))
            return
