"""Check of the root of a data directory: identity, last shutdown, checkpoints, leftovers, topic ids, metadata journal.

Source: kafka.log.LogManager, CleanShutdownFileHandler, OffsetCheckpointFile, MetaPropertiesEnsemble; `kafkalite.zk`.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition, format_uuid, parse_uuid
from kafkalite.common.text import read_json
from kafkalite.inspection.files.directory_listing import DirectoryListing, kind_of, read_file
from kafkalite.inspection.files.findings import LINK_TO_NOWHERE, Fault, Severity, no_file
from kafkalite.inspection.verify.partition_check import PartitionReport
from kafkalite.log.directories.meta_properties import read_meta_properties
from kafkalite.log.storage.checkpoint_file import decode_offsets
from kafkalite.log.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    STRAY_DIRECTORY,
)
from kafkalite.log.storage.files import Files
from kafkalite.metadata.metadata_journal import JOURNAL_NAME, CorruptJournal, decode

_ASIDE = "the partition is kept as a -stray directory, and not served"
_CHECKPOINTS = {
    RECOVERY_POINTS: "it counts as empty: after an orderly stop nothing is lost, after another one every log is read",
    LOG_STARTS: "it counts as empty: records that were deleted inside a segment are served again",
    HIGH_WATERMARKS: "it counts as empty, and is rewritten",
    CLEANER_OFFSETS: "it counts as empty: compaction begins again",
}
_LEFTOVERS = {
    DELETE_DIRECTORY: ("a partition on its way out", "it is deleted after a while"),
    STRAY_DIRECTORY: ("a partition that no broker knew, kept for the operator", "it is left alone"),
    FUTURE_DIRECTORY: ("a partition that was being moved here from another directory", "it is left alone"),
}


def check_root(listing: DirectoryListing, reports: list[PartitionReport], *, clean: bool) -> list[Fault]:
    """The faults of the root; `reports` are those of its partitions. `clean`: the last shutdown was clean.

    Raises OSError.
    """
    if listing.root is None or not listing.whole:
        return []
    faults: list[Fault] = []
    names = [name for name in listing.names if _is_file_or_other(f"{listing.root}/{name}", name, faults)]
    cluster_id = _check_meta(listing.root, names, faults)
    faults += _check_marker(listing.root, names)
    by_key = {report.partition.key: report for report in reports}
    for name in _CHECKPOINTS:
        if name in names:
            faults += _check_checkpoint(f"{listing.root}/{name}", name, by_key)
    faults += _check_leftovers(listing.root, names)
    registered = _check_journal(listing.root, names, cluster_id, faults)
    faults += _check_topic_ids(reports, registered, clean)
    return faults


def _is_file_or_other(path: str, name: str, faults: list[Fault]) -> bool:
    """False if a broker expects a file of this name and there is something else, which is reported."""
    if name not in (META_PROPERTIES, CLEAN_SHUTDOWN, JOURNAL_NAME, *_CHECKPOINTS):
        return True
    try:
        kind = kind_of(path)
    except FileNotFoundError:
        faults.append(Fault(path, "", LINK_TO_NOWHERE, Severity.HARMLESS, "it counts as missing"))
        return False
    if kind is not None:
        faults.append(no_file(path, kind))
    return kind is None


def _check_meta(root: str, names: list[str], faults: list[Fault]) -> str | None:
    """The cluster id in meta.properties; None where it is not known."""
    path = f"{root}/{META_PROPERTIES}"
    if META_PROPERTIES not in names:
        what = "it is missing: nothing says which broker's directory this is"
        made = "it is created, for the cluster of the registry or a new one"
        faults.append(Fault(path, "", what, Severity.REPAIRED, made))
        return None
    try:
        meta = read_meta_properties(Files(), path)
    except ConfigError as error:
        refused = "the broker does not start until the file is restored"
        faults.append(Fault(path, "", str(error), Severity.REFUSES, refused))
        return None
    assert meta is not None
    fields = ("cluster.id", meta.cluster_id), ("broker.id or node.id", meta.broker_id)
    missing = [name for name, value in fields if value is None]
    if missing:
        what = f"it does not say {' and '.join(missing)}"
        faults.append(Fault(path, "", what, Severity.REPAIRED, "what is missing is filled in"))
    if meta.cluster_id is not None and not _is_id(meta.cluster_id):
        what = f"the cluster id {meta.cluster_id!r} is none that Kafka makes"
        faults.append(Fault(path, "", what, Severity.HARMLESS, "it is compared as it stands"))
    return meta.cluster_id


def _is_id(text: str) -> bool:
    try:
        parse_uuid(text)
    except ValueError:
        return False
    return len(text) == 22


def _check_marker(root: str, names: list[str]) -> Iterator[Fault]:
    path = f"{root}/{CLEAN_SHUTDOWN}"
    data = read_file(path) if CLEAN_SHUTDOWN in names else b""
    if not data:
        return
    try:
        if read_json(data)["version"] != 0:
            raise ValueError("unknown version")
    except (ValueError, KeyError, TypeError) as error:
        counts = "that it is there says enough: the stop counts as orderly"
        yield Fault(path, "", f"it cannot be read: {error}", Severity.HARMLESS, counts)


def _check_checkpoint(path: str, name: str, reports: dict[TopicPartition, PartitionReport]) -> Iterator[Fault]:
    try:
        entries = decode_offsets(read_file(path))
    except ValueError as error:
        severity = Severity.STAYS if name == LOG_STARTS else Severity.REPAIRED
        yield Fault(path, "", f"it cannot be read: {error}", severity, _CHECKPOINTS[name])
        return
    counts = Counter(key for key, _ in entries)
    for line, (key, offset) in enumerate(entries, start=3):
        fault = _offset_fault(name, offset, reports.get(key), is_repeated=counts[key] > 1)
        if fault is not None:
            yield Fault(path, f"line {line}, {key[0]}-{key[1]}", *fault)


def _offset_fault(
    name: str, offset: int, log: PartitionReport | None, *, is_repeated: bool
) -> tuple[str, Severity, str] | None:
    """The fault of an entry of a checkpoint, its severity, and the effect of a restart; None without one."""
    if is_repeated:
        return "the same log is named twice", Severity.HARMLESS, "the later line counts"
    if log is None:
        return "there is no such log in this directory", Severity.HARMLESS, "the line goes with the next checkpoint"
    if offset < 0:
        return f"offset {offset} is below zero", Severity.REPAIRED, "it counts as 0"
    if offset > log.end_offset:
        what = f"offset {offset} lies behind the log's end, {log.end_offset}"
        if name == LOG_STARTS:
            lost = f"all {log.partition.log_bytes} bytes of the log go: it starts again at {offset}"
            return what, Severity.LOSES, lost
        more = "; what lay behind it was lost before" if name == RECOVERY_POINTS else ""
        return what, Severity.REPAIRED, f"the log's own end counts{more}"
    if name == HIGH_WATERMARKS and offset < log.start_offset:
        what = f"offset {offset} lies before the log's begin, {log.start_offset}"
        return what, Severity.REPAIRED, "the log's begin counts"
    return None


def _check_leftovers(root: str, names: list[str]) -> Iterator[Fault]:
    for name in names:
        path = f"{root}/{name}"
        if name.endswith(".tmp"):
            what = "a file that was not written to its end: its name was never changed"
            yield Fault(path, "", what, Severity.HARMLESS, "the next writing takes its place")
        elif os.path.isdir(path):
            for suffix, (what, restart) in _LEFTOVERS.items():
                if name.endswith(suffix):
                    yield Fault(path, "", what, Severity.HARMLESS, restart)


def _check_journal(
    root: str, names: list[str], cluster_id: str | None, faults: list[Fault]
) -> dict[TopicPartition, uuid.UUID] | None:
    """The topic id of each partition in the metadata journal; None without a journal that can be read."""
    if JOURNAL_NAME not in names:
        return None
    path = f"{root}/{JOURNAL_NAME}"
    data = read_file(path)
    try:
        entries, end = decode(data, path)
    except CorruptJournal as error:
        what = str(error).removeprefix(f"{path}: ")
        faults.append(Fault(path, "", what, Severity.REFUSES, "the broker does not start"))
        return None
    if end < len(data):
        what = f"its last {len(data) - end} bytes are no whole entry"
        faults.append(Fault(path, f"byte {end}", what, Severity.REPAIRED, "they are cut off"))
    known: dict[str, tuple[uuid.UUID, set[int]]] = {}
    number = 0
    try:
        for entry in entries:
            number += 1
            name = entry.get("name", "")
            if entry["op"] == "topic":
                known[name] = parse_uuid(entry["id"]), {row[0] for row in entry["partitions"]}
            elif entry["op"] == "partitions":
                known[name][1].update(row[0] for row in entry["partitions"])
            elif entry["op"] == "delete":
                del known[name]
            elif entry["op"] == "cluster" and cluster_id is not None and entry["id"] != cluster_id:
                what = f"it is of cluster {entry['id']}, and {META_PROPERTIES} of cluster {cluster_id}"
                refuses = "the broker does not start: one of the two is not of this directory"
                faults.append(Fault(path, "entry 1", what, Severity.REFUSES, refuses))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"it is whole but not understood: {error!r}"
        faults.append(Fault(path, f"entry {number}", what, Severity.REFUSES, "the broker does not start"))
        return None
    return {(name, number): topic_id for name, (topic_id, numbers) in known.items() for number in numbers}


def _check_topic_ids(
    reports: list[PartitionReport], registered: dict[TopicPartition, uuid.UUID] | None, clean: bool
) -> Iterator[Fault]:
    common: dict[str, Counter[uuid.UUID]] = {}
    for report in reports:
        if report.topic_id is not None:
            common.setdefault(report.partition.topic, Counter())[report.topic_id] += 1
    for report in reports:
        partition, topic_id = report.partition, report.topic_id
        if partition.is_kraft:
            continue
        path = f"{partition.path}/{PARTITION_METADATA}"
        if registered is not None and partition.key not in registered:
            what = "the registry does not know this partition"
            yield Fault(partition.path, "", what, Severity.SET_ASIDE, _ASIDE)
        elif topic_id is None:
            continue
        elif registered is not None and topic_id != registered[partition.key]:
            right = format_uuid(registered[partition.key])
            what = f"it says topic id {format_uuid(topic_id)}, the registry says {right}"
            if clean:
                stays = "it stays, and is served all the same, since the last stop was orderly"
                yield Fault(path, "", what, Severity.STAYS, stays)
            else:
                deleted = f"it counts as left of a deleted topic: {_ASIDE}, and an empty one takes its place"
                yield Fault(path, "", what, Severity.SET_ASIDE, deleted)
        elif registered is None and (usual := common[partition.topic].most_common(1)[0][0]) != topic_id:
            what = f"it says topic id {format_uuid(topic_id)}, most partitions say {format_uuid(usual)}"
            yield Fault(path, "", what, Severity.STAYS, "it stays as it is")
