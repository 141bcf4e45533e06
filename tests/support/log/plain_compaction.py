"""Compaction in its plainest form, whole batches at a time: what the cleaner's files must look like, for tests of what
the log makes of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.segment.cleaned_segment import CleanedSegment, SourceSegment
from kafkalite.log.storage.file_names import CLEANED, LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, segment_stem
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import BatchHeader


@dataclass
class Compaction:
    """The result of compacting some segments. `end_offset` is the one behind the last batch that is left, or behind the
    base where none is; `dropped` are the batches that are not in it."""

    replacement: CleanedSegment
    end_offset: int
    dropped: list[bytes] = field(default_factory=list)

    @property
    def sources(self) -> tuple[int, ...]:
        return self.replacement.sources


def compact(
    files: Files, log: PartitionLog, sources: Sequence[SourceSegment], keep: Callable[[BatchHeader, bytes], bool],
    batches_max: int = 1 << 30,
) -> Compaction:  # fmt: skip
    """Write the .cleaned files of the segments that take the place of `sources`, one for each `batches_max` batches,
    and wait for the disk. Raises OSError."""
    base = sources[0].base_offset
    bases = [source.base_offset for source in sources]
    txn_index = b""
    dropped = []
    left: list[tuple[BatchHeader, bytes]] = []
    for segment in [segment for segment in log.segments if segment.base_offset in bases]:
        txn_index += b"".join(_read(files, segment.txn_index.path))
        for _, header, view in segment.iter_batches():
            batch = bytes(view)
            if keep(header, batch):
                left.append((header, batch))
            else:
                dropped.append(batch)
    end_offset = left[-1][0].last_offset + 1 if left else base + 1
    segments = []
    for at in range(0, max(1, len(left)), batches_max):
        part = left[at : at + batches_max]
        segments.append(_write(files, log, base, tuple(bases), part, txn_index))
        txn_index = b""
        base = part[-1][0].last_offset + 1 if part else base
    return Compaction(segments[0]._replace(further=tuple(segments[1:])), end_offset, dropped)


def _write(
    files: Files, log: PartitionLog, base: int, bases: tuple[int, ...], batches: Sequence[tuple[BatchHeader, bytes]],
    txn_index: bytes,
) -> CleanedSegment:  # fmt: skip
    data = index = time_index = b""
    unindexed = records = control_records = 0
    latest, latest_offset, indexed = -1, base, -1
    config = log.config
    for header, batch in batches:
        if header.max_timestamp > latest:
            latest, latest_offset = header.max_timestamp, header.last_offset
        is_full = len(index) >= config.segment_index_bytes - 7 or len(time_index) >= config.segment_index_bytes - 23
        if unindexed > config.index_interval_bytes and not is_full:
            index += (header.last_offset - base).to_bytes(4) + len(data).to_bytes(4)
            if latest > indexed:
                time_index += latest.to_bytes(8) + (latest_offset - base).to_bytes(4)
                indexed = latest
            unindexed = 0
        unindexed += len(batch)
        data += batch
        records += header.record_count
        control_records += header.record_count if header.is_control else 0
    if latest > indexed:
        time_index += latest.to_bytes(8) + (latest_offset - base).to_bytes(4)
    contents = {LOG: data, OFFSET_INDEX: index, TIME_INDEX: time_index}
    if txn_index:
        contents[TXN_INDEX] = txn_index
    for suffix, content in contents.items():
        path = f"{log.directory}/{segment_stem(base)}{suffix}{CLEANED}"
        files.write_new(path, content)
        files.sync(path)
    return CleanedSegment(base, bases, len(data), records, control_records, latest, latest_offset)


def _read(files: Files, path: str) -> list[bytes]:
    return [files.read(path)] if os.path.exists(path) else []
