"""The sealed segments of another broker's log on the same disk, taken over by links instead of copied over the network.

A reassignment between brokers of one machine (`log/storage/file_names`) adds a follower whose leader's files lie beside
its own. The leader rolls; the follower then links every sealed segment into its new directory, copies the small files
around them, and begins an empty segment behind. The rest, of the moment since the roll, it fetches. When the leader
drops its replica, its names go, and the bytes have not moved.

    orders-0.<uuid>-delete/     while it is made: a start removes what a crash leaves
    orders-0/                   when it is whole

A file with two names must never change: only sealed segments are linked, of a leader that is the whole ISR, and both
brokers give a file a copy of its own before they would change it (`Files.unshare`). Indexes are mapped and cut in
place, so they are copied. Compaction and retention replace and unlink files, which leaves the other name alone.
Runs on another thread.
"""

from __future__ import annotations

import logging
import os
import time
import uuid

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.log.directories.meta_properties import read_meta_properties
from kafkalite.log.storage import file_names
from kafkalite.log.storage.checkpoint_file import decode_entries, encode_entries, read_topic_id
from kafkalite.log.storage.file_names import broker_directory
from kafkalite.log.storage.files import Files

logger = logging.getLogger(__name__)

_COPIED = (file_names.OFFSET_INDEX, file_names.TIME_INDEX, file_names.TXN_INDEX, file_names.SNAPSHOT)
_ATTEMPTS = 25
_ATTEMPTS_UNSEALED = 5  # for a leader that has not noticed the reassignment yet
_PAUSE_S = 0.02  # longer than a roll takes between its first file and its last
_ACTIVE_BYTES = 1 << 20  # beyond it the leader is about to roll; less is fetched


class LinkedLog(NamedTuple):
    """A finished directory. Its segments reach up to `end_offset`."""

    path: str
    end_offset: int
    segments: int


def find_neighbour(path: str, leader_id: int, files: Files) -> str | None:
    """The data directory of the leader beside that of this broker, if both are of one machine and one cluster."""
    machine, name = os.path.split(os.path.abspath(path))
    try:
        own = read_meta_properties(files, os.path.join(path, file_names.META_PROPERTIES))
        if own is None or own.broker_id is None or name != os.path.basename(broker_directory("", own.broker_id)):
            return None
        beside = broker_directory(machine, leader_id)
        theirs = read_meta_properties(files, os.path.join(beside, file_names.META_PROPERTIES))
    except (OSError, ValueError):
        return None
    if theirs is None or (theirs.cluster_id, theirs.broker_id) != (own.cluster_id, leader_id):
        return None
    return beside


def link_log(path: str, beside: str, key: TopicPartition, topic_id: uuid.UUID, files: Files) -> LinkedLog | None:
    """Makes a directory in `path` from the log of that partition in `beside`. None if there is nothing to be linked, or
    the files do not allow it; then nothing is left."""
    source = f"{beside}/{file_names.partition_directory(*key)}"
    target = f"{path}/{file_names.renamed_directory(*key, file_names.DELETE_DIRECTORY)}"
    try:
        if read_topic_id(files, f"{source}/{file_names.PARTITION_METADATA}") != topic_id:
            return None
        for attempt in range(_ATTEMPTS):
            before = _listing(source)
            if before is not None and not before.bases and (not before.active_bytes or attempt == _ATTEMPTS_UNSEALED):
                return None
            time.sleep(_PAUSE_S)
            if before is None or not before.bases or before.active_bytes > _ACTIVE_BYTES:
                continue
            files.mkdir(target)
            _fill(source, target, before, files)
            after = _listing(source)
            if after is not None and before.states.items() <= after.states.items():
                return LinkedLog(target, before.end_offset, len(before.bases))
            files.remove_directory(target)
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be linked, and is fetched: %s", source, error)
        if os.path.isdir(target):
            files.remove_directory(target)
    return None


class _Listing(NamedTuple):
    """The sealed segments of a log, by base offset, and the state of each of their files. They end at `end_offset`."""

    bases: tuple[int, ...]
    end_offset: int
    active_bytes: int
    states: dict[str, tuple[int, int, int]]


def _listing(directory: str) -> _Listing | None:
    """None while segments are being replaced, or the log rolls: the snapshot of its producers comes after the new
    segment, and a log that is loaded without it forgets those of the last one. Raises OSError."""
    found = file_names.list_segment_files(directory)
    if any(name.endswith(file_names.SWAP) for name in found.temporary) or not found.sizes:
        return None
    *bases, active = found.sizes
    if bases and active not in found.offsets[file_names.SNAPSHOT]:
        return None
    names = [f"{file_names.segment_stem(base)}{file_names.LOG}" for base in bases]
    for suffix in _COPIED:
        last = active if suffix == file_names.SNAPSHOT else active - 1
        names += [f"{file_names.segment_stem(base)}{suffix}" for base in found.offsets[suffix] if base <= last]
    states = {}
    for name in names:
        state = os.stat(f"{directory}/{name}")
        states[name] = state.st_ino, state.st_size, state.st_mtime_ns
    return _Listing(tuple(bases), active, found.sizes[active], states)


def _fill(source: str, target: str, listing: _Listing, files: Files) -> None:
    for name, (_, size_bytes, _) in listing.states.items():
        if name.endswith(file_names.LOG):
            files.link(f"{source}/{name}", f"{target}/{name}")
        else:
            files.write_range(f"{target}/{name}", f"{source}/{name}", 0, size_bytes)
    for suffix in (file_names.LOG, file_names.OFFSET_INDEX, file_names.TIME_INDEX):
        files.create_empty(f"{target}/{file_names.segment_stem(listing.end_offset)}{suffix}")
    metadata = files.read(f"{source}/{file_names.PARTITION_METADATA}")
    files.write_new(f"{target}/{file_names.PARTITION_METADATA}", metadata)
    epochs = decode_entries(files.read(f"{source}/{file_names.LEADER_EPOCHS}"), 2)
    kept = [" ".join(entry) for entry in epochs if int(entry[1]) < listing.end_offset]
    files.write_new(f"{target}/{file_names.LEADER_EPOCHS}", encode_entries(kept))
