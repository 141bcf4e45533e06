"""Completes or undoes a replacement of segments that was in progress when the broker stopped.

    .deleted    is removed
    .cleaned    incomplete: is removed, together with every .swap at or after the first .cleaned, which belongs to it
    .swap       any other .swap is complete: it replaces the segments that it covers

The start may be interrupted as well. So no .swap outlives the .cleaned that marks it as incomplete, and the segments
that a .swap covers are removed only when the names of the .swap files are on the disk. The .log.swap is renamed first:
an index .swap without a .log.swap belongs to the .log that has been renamed already. Segments after the last batch of a
.swap stay: they may be segments that were not compacted. The parts of a segment that Kafka split are named by their
first batches, so the segment itself may begin before all of them.
Source: kafka.log.LogLoader (load, removeTempFilesAndCollectSwapFiles).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence

from kafkalite.common.errors import Malformed, StorageError
from kafkalite.log.segment.segment import RELATIVE_OFFSET_MAX
from kafkalite.log.segment.segment_file import end_offset
from kafkalite.log.storage.file_names import CLEANED, DELETED, LOG, SNAPSHOT, SWAP, parse_segment_file
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import HEADER_BYTES

logger = logging.getLogger(__name__)


def complete_swaps(directory: str, names: Iterable[str], files: Files) -> None:
    """Processes `names`, all files in `directory` that end in .deleted, .cleaned or .swap; none of them remains.

    Raises OSError, and StorageError for a .swap that is damaged.
    """
    cleaned: list[tuple[int, str]] = []
    swaps: list[tuple[int, bool, str]] = []
    for name in names:
        found = parse_segment_file(name)
        assert found is not None
        base, suffix, state = found
        if state == SWAP:
            swaps.append((base, suffix != LOG, name))
        elif state == CLEANED:
            cleaned.append((base, name))
        else:
            assert state == DELETED
            files.unlink_if_exists(f"{directory}/{name}")
    if cleaned:
        first = min(cleaned)[0]
        undone = [name for base, _, name in swaps if base >= first]
        for name in undone:
            files.unlink_if_exists(f"{directory}/{name}")
        if undone:
            files.sync(directory)
        for _, name in cleaned:
            files.unlink_if_exists(f"{directory}/{name}")
        swaps = [swap for swap in swaps if swap[0] < first]
    if not swaps:
        return
    files.sync(directory)  # the broker may have been killed before it fsynced these names
    swaps.sort()
    logs = [base for base, is_beside, _ in swaps if not is_beside]
    if logs:
        end = _end_of(f"{directory}/{logs[-1]:020d}{LOG}{SWAP}", logs[-1], files)
        _delete_covered(directory, _split_source(directory, logs, files), logs, end, files)
    for _, _, name in swaps:
        logger.info("%s/%s takes its place", directory, name)
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    files.sync(directory)


def _end_of(path: str, base: int, files: Files) -> int:
    """The offset after the last batch of a complete segment file; an empty one covers at least its base offset."""
    fd = files.open(path, os.O_RDONLY)
    try:
        size_bytes = os.fstat(fd).st_size
        return end_offset(fd, 0, size_bytes) if size_bytes else base + 1
    except Malformed as error:
        raise StorageError(f"{path} should be complete, but {error}; move it away to start without it") from error
    finally:
        files.close(fd)


def _split_source(directory: str, logs: Sequence[int], files: Files) -> int:
    """The base offset of the segment whose batches are all in `logs`, which Kafka split; else the first of `logs`."""
    bases = [base for base, suffix, state in _segment_files(directory) if suffix == LOG and not state]
    before = max((base for base in bases if base < logs[0]), default=-1)
    if before < 0 or logs[-1] - before <= RELATIVE_OFFSET_MAX:
        return logs[0]
    source = f"{directory}/{before:020d}{LOG}"
    parts = [f"{directory}/{base:020d}{LOG}{SWAP}" for base in logs]
    is_whole = os.path.getsize(source) == sum(map(os.path.getsize, parts))
    return before if is_whole and _head(source, files) == _head(parts[0], files) else logs[0]


def _head(path: str, files: Files) -> bytes:
    """The header of the first batch."""
    fd = files.open(path, os.O_RDONLY)
    try:
        return files.pread(fd, HEADER_BYTES, 0)
    finally:
        files.close(fd)


def _segment_files(directory: str) -> Iterator[tuple[int, str, str]]:
    return filter(None, map(parse_segment_file, os.listdir(directory)))


def _delete_covered(directory: str, start: int, logs: Sequence[int], end: int, files: Files) -> None:
    """Deletes the segments between `start` and `end`; a producer snapshot at one of `logs` stays."""
    for name in sorted(files.listdir(directory)):
        found = parse_segment_file(name)
        if found is None or found[2] or not start <= found[0] < end:
            continue
        if found[1] != SNAPSHOT or found[0] not in logs:
            logger.info("%s/%s was compacted already; deleting it", directory, name)
            files.unlink_if_exists(f"{directory}/{name}")
