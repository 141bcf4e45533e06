"""What lies in the root of a data directory: whose it is, how the last stop was, the checkpoints, what is on its way
out, and the registry that kafkalite keeps there.

Source: kafka.log.LogManager, CleanShutdownFileHandler, OffsetCheckpointFile, MetaPropertiesEnsemble; `kafkalite.zk`.
"""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Callable

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition, format_uuid, parse_uuid
from kafkalite.inspection.files.directory_listing import Place
from kafkalite.inspection.files.findings import LINK_TO_NOWHERE, Fault, Severity, no_file
from kafkalite.inspection.files.regular_file import kind_of, read_file
from kafkalite.inspection.verify.partition_check import PartitionReport
from kafkalite.log.directories.meta_properties import read_meta_properties
from kafkalite.log.storage.checkpoint_file import decode_entries
from kafkalite.log.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    DELETE_DIRECTORY,
    FUTURE_DIRECTORY,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    STRAY_DIRECTORY,
)
from kafkalite.log.storage.files import Files
from kafkalite.metadata.metadata_journal import JOURNAL_NAME, CorruptJournal, decode

Tell = Callable[[str, Severity, str], None]
_ASIDE = "the partition is kept as a -stray directory, and not served"
_CHECKPOINTS = {
    RECOVERY_POINTS: "it counts as empty: after an orderly stop nothing is lost, after another one every log is read",
    LOG_STARTS: "it counts as empty: records that were deleted inside a segment are served again",
    HIGH_WATERMARKS: "it counts as empty, and is written anew",
    CLEANER_OFFSETS: "it counts as empty: compaction begins anew",
}


def check_root(place: Place, told: list[PartitionReport], *, clean: bool) -> list[Fault]:
    """Everything but the partitions themselves, of which `told` says what is in them. `clean`: the last stop was
    orderly. Raises OSError."""
    if place.root is None or not place.whole:
        return []
    faults: list[Fault] = []
    place = _without_what_is_no_file(place, faults)
    cluster_id = _check_meta(place, faults)
    _check_marker(place, faults)
    ends = {(one.partition.topic, one.partition.partition): one for one in told}
    for name in _CHECKPOINTS:
        if name in place.names:
            _check_checkpoint(f"{place.root}/{name}", name, ends, faults)
    _check_leftovers(place, faults)
    registered = _check_journal(place, cluster_id, faults)
    _check_topic_ids(told, registered, clean, faults)
    return faults


def _without_what_is_no_file(place: Place, faults: list[Fault]) -> Place:
    """The same but for names under which a broker looks for a file and finds none."""
    left = []
    for name in place.names:
        if name in (META_PROPERTIES, CLEAN_SHUTDOWN, JOURNAL_NAME, *_CHECKPOINTS):
            path = f"{place.root}/{name}"
            try:
                kind = kind_of(path)
            except FileNotFoundError:
                faults.append(
                    Fault(path, "", LINK_TO_NOWHERE, gravity=Severity.HARMLESS, restart="it counts as missing")
                )
                continue
            if kind is not None:
                faults.append(no_file(path, kind))
                continue
        left.append(name)
    return place._replace(names=left)


def _check_meta(place: Place, faults: list[Fault]) -> str | None:
    """The id of the cluster."""
    path = f"{place.root}/{META_PROPERTIES}"
    refused = "the broker does not start until the file is restored"
    if META_PROPERTIES not in place.names:
        what = "it is missing: nothing says which broker's directory this is"
        made = "it is made anew, for the cluster of the registry or a new one"
        faults.append(Fault(path, "", what, gravity=Severity.REPAIRED, restart=made))
        return None
    try:
        meta = read_meta_properties(Files(), path)
    except ConfigError as error:
        faults.append(Fault(path, "", str(error), gravity=Severity.REFUSES, restart=refused))
        return None
    assert meta is not None
    missing = [
        name
        for name, value in (("cluster.id", meta.cluster_id), ("broker.id or node.id", meta.broker_id))
        if value is None
    ]
    if missing:
        what = f"it does not say {' and '.join(missing)}"
        made = "what is missing is filled in"
        faults.append(Fault(path, "", what, gravity=Severity.REPAIRED, restart=made))
    if meta.cluster_id is not None and not _is_id(meta.cluster_id):
        what = f"the cluster id {meta.cluster_id!r} is none that Kafka makes"
        faults.append(Fault(path, "", what, gravity=Severity.HARMLESS, restart="it is compared as it stands"))
    return meta.cluster_id


def _is_id(text: str) -> bool:
    try:
        parse_uuid(text)
    except ValueError:
        return False
    return len(text) == 22


def _check_marker(place: Place, faults: list[Fault]) -> None:
    if CLEAN_SHUTDOWN not in place.names:
        return
    path = f"{place.root}/{CLEAN_SHUTDOWN}"
    data = read_file(path)
    if not data:
        return
    try:
        if json.loads(data)["version"] != 0:
            raise ValueError("unknown version")
    except (ValueError, KeyError, TypeError) as error:
        counts = "that it is there says enough: the stop counts as orderly"
        faults.append(Fault(path, "", f"it cannot be read: {error}", gravity=Severity.HARMLESS, restart=counts))


def _check_checkpoint(path: str, name: str, told: dict[TopicPartition, PartitionReport], faults: list[Fault]) -> None:
    gravity = Severity.STAYS if name == LOG_STARTS else Severity.REPAIRED
    try:
        entries = [((topic, int(number)), int(offset)) for topic, number, offset in decode_entries(read_file(path), 3)]
    except (ValueError, UnicodeDecodeError) as error:
        faults.append(Fault(path, "", f"it cannot be read: {error}", gravity=gravity, restart=_CHECKPOINTS[name]))
        return
    counts = Counter(key for key, _ in entries)
    for line, ((topic, number), offset) in enumerate(entries, start=3):
        where = f"line {line}, {topic}-{number}"
        log = told.get((topic, number))

        def tell(what: str, gravity: Severity, restart: str, where: str = where) -> None:
            faults.append(Fault(path, where, what, gravity=gravity, restart=restart))

        if counts[topic, number] > 1:
            tell("the same log is named twice", Severity.HARMLESS, "the later line counts")
        elif log is None:
            tell("there is no such log in this directory", Severity.HARMLESS, "the line goes with the next checkpoint")
        elif offset < 0:
            tell(f"offset {offset} is below zero", Severity.REPAIRED, "it counts as 0")
        elif offset > log.end_offset:
            _tell_beyond(name, offset, log, tell)
        elif name == HIGH_WATERMARKS and offset < log.start_offset:
            tell(
                f"offset {offset} lies before the log's begin, {log.start_offset}",
                Severity.REPAIRED, "the log's begin counts",
            )  # fmt: skip


def _tell_beyond(name: str, offset: int, log: PartitionReport, tell: Tell) -> None:
    what = f"offset {offset} lies behind the log's end, {log.end_offset}"
    if name == LOG_STARTS:
        tell(what, Severity.LOSES, f"all {log.partition.log_bytes} bytes of the log go: it starts anew at {offset}")
    elif name == RECOVERY_POINTS:
        tell(what, Severity.REPAIRED, "the log's own end counts; what lay behind it was lost before")
    else:
        tell(what, Severity.REPAIRED, "the log's own end counts")


def _check_leftovers(place: Place, faults: list[Fault]) -> None:
    for name in place.names:
        path = f"{place.root}/{name}"
        if name.endswith(".tmp"):
            what = "a file that was not written to its end: its name was never changed"
            faults.append(Fault(path, "", what, gravity=Severity.HARMLESS, restart="the next writing takes its place"))
        elif not os.path.isdir(path):
            continue
        elif name.endswith(DELETE_DIRECTORY):
            what = "a partition on its way out"
            faults.append(Fault(path, "", what, gravity=Severity.HARMLESS, restart="it is deleted after a while"))
        elif name.endswith(STRAY_DIRECTORY):
            what = "a partition that no broker knew, kept for somebody to look at"
            faults.append(Fault(path, "", what, gravity=Severity.HARMLESS, restart="it is left alone"))
        elif name.endswith(FUTURE_DIRECTORY):
            what = "a partition that was being moved here from another directory"
            faults.append(Fault(path, "", what, gravity=Severity.HARMLESS, restart="it is left alone"))


def _check_journal(place: Place, cluster_id: str | None, faults: list[Fault]) -> dict[TopicPartition, uuid.UUID] | None:
    """The partitions that the registry knows, with their topics' ids; None where there is none, or it is unreadable."""
    if JOURNAL_NAME not in place.names:
        return None
    path = f"{place.root}/{JOURNAL_NAME}"
    data = read_file(path)
    try:
        entries, end = decode(data, path)
    except CorruptJournal as error:
        what = str(error).removeprefix(f"{path}: ")
        faults.append(Fault(path, "", what, gravity=Severity.REFUSES, restart="the broker does not start"))
        return None
    if end < len(data):
        what = f"its last {len(data) - end} bytes are no whole entry"
        faults.append(Fault(path, f"byte {end}", what, gravity=Severity.REPAIRED, restart="they are cut off"))
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
                faults.append(Fault(path, "entry 1", what, gravity=Severity.REFUSES, restart=refuses))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"it is whole but not understood: {error!r}"
        refuses = "the broker does not start"
        faults.append(Fault(path, f"entry {number}", what, gravity=Severity.REFUSES, restart=refuses))
        return None
    return {(name, number): topic_id for name, (topic_id, numbers) in known.items() for number in numbers}


def _check_topic_ids(
    told: list[PartitionReport], registered: dict[TopicPartition, uuid.UUID] | None, clean: bool, faults: list[Fault]
) -> None:
    common: dict[str, Counter[uuid.UUID]] = {}
    for one in told:
        if one.topic_id is not None:
            common.setdefault(one.partition.topic, Counter())[one.topic_id] += 1
    for one in told:
        if one.partition.is_kraft:
            continue
        key = one.partition.topic, one.partition.partition
        path = f"{one.partition.path}/partition.metadata"
        if registered is not None and key not in registered:
            what = "the registry does not know this partition"
            faults.append(Fault(one.partition.path, "", what, gravity=Severity.SET_ASIDE, restart=_ASIDE))
        elif one.topic_id is None:
            continue
        elif registered is not None and one.topic_id != registered[key]:
            what = f"it says topic id {format_uuid(one.topic_id)}, the registry says {format_uuid(registered[key])}"
            if clean:
                stays = "it stays, and is served all the same, since the last stop was orderly"
                faults.append(Fault(path, "", what, gravity=Severity.STAYS, restart=stays))
            else:
                deleted = f"it counts as left of a deleted topic: {_ASIDE}, and an empty one takes its place"
                faults.append(Fault(path, "", what, gravity=Severity.SET_ASIDE, restart=deleted))
        elif registered is None and (usual := common[one.partition.topic].most_common(1)[0][0]) != one.topic_id:
            what = f"it says topic id {format_uuid(one.topic_id)}, most partitions say {format_uuid(usual)}"
            faults.append(Fault(path, "", what, gravity=Severity.STAYS, restart="it stays as it is"))
