"""One partition's directory before and after a cleaning: a job made of its files, the cleaning, the records in it.

No broker and no log: the segments are what lies there, and a swap is the renames alone, so that what `clean` wrote
stands by itself. `contents` is what two cleaners must agree upon: every field of every batch's header, every record,
the aborted transactions, and where batches are not compressed every byte.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalite.cleaner.compaction.clean_log import clean
from kafkalite.cleaner.job.job import CleanJob, CleanResult, LastRecord
from kafkalite.log.segment.cleaned_segment import CleanedSegment, SourceSegment
from kafkalite.log.storage.files import Files
from kafkalite.record import batch, message_set
from kafkalite.record.batch import MAGIC, MAGIC_AT, PREFIX_BYTES, parse_header
from kafkalite.record.message_set import entry_header, read_messages
from kafkalite.record.record import Record, read_records

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
_ABORTED = struct.Struct(">hqqqq")
_LENGTH = struct.Struct(">i")

DEFAULTS: dict[str, Any] = {
    "delete_retention_ms": 86_400_000,
    "segment_bytes": 1 << 30,
    "segment_index_bytes": 10 << 20,
    "index_interval_bytes": 4096,
    "dedupe_buffer_bytes": 1 << 20,
    "io_buffer_bytes": 512 << 10,
    "load_factor": 0.9,
}


def bases(directory: Path) -> list[int]:
    """The segments' first offsets, ascending."""
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def clean_job(directory: Path, plan: Mapping[str, Any], now_ms: int, **settings: Any) -> CleanJob:
    """`plan` says start, first_dirty, first_uncleanable and producers (id -> [last data offset, epoch])."""
    found = [base for base in bases(directory) if base < plan["first_uncleanable"]]
    ends = [*found[1:], plan["first_uncleanable"]]
    segments = []
    for base, end in zip(found, ends, strict=True):
        sizes = [_size(directory / f"{base:020}{suffix}") for suffix in SUFFIXES[:3]]
        modified_ns = (directory / f"{base:020}.log").stat().st_mtime_ns
        segments.append(SourceSegment(base, end, *sizes, modified_ns))
    topic, _, partition = directory.name.rpartition("-")
    return CleanJob(
        topic=topic,
        partition=int(partition),
        directory=str(directory),
        segments=tuple(segments),
        first_dirty_offset=plan["first_dirty"],
        first_uncleanable_offset=plan["first_uncleanable"],
        last_records={int(number): LastRecord(*last) for number, last in plan["producers"].items()},
        now_ms=now_ms,
        **DEFAULTS | settings,
    )


def run(job: CleanJob) -> CleanResult:
    """One cleaning, swapped in at once."""
    directory = Path(job.directory)

    def swap(cleaned: CleanedSegment) -> bool:
        for base in cleaned.sources:
            for suffix in SUFFIXES:
                (directory / f"{base:020}{suffix}").unlink(missing_ok=True)
        for each in cleaned.all:
            for suffix in SUFFIXES:
                path = directory / f"{each.base_offset:020}{suffix}"
                written = path.with_name(path.name + ".cleaned")
                if written.exists():
                    os.rename(written, path)
            assert _size(directory / f"{each.base_offset:020}.log") == each.size_bytes
        return True

    return clean(job, Files(), swap)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


# what is in it


def contents(directory: Path) -> list[dict[str, Any]]:
    """Each segment in order: `base`, `modified_ms`, `aborted`, `batches`."""
    return [_segment(directory, base) for base in bases(directory)]


def batches(directory: Path) -> list[dict[str, Any]]:
    """All batches, whatever segment they are in."""
    return [each for segment in contents(directory) for each in segment["batches"]]


def aborted(directory: Path) -> list[tuple[int, ...]]:
    """All aborted transactions that the indexes tell of."""
    return [txn for segment in contents(directory) for txn in segment["aborted"]]


def _segment(directory: Path, base: int) -> dict[str, Any]:
    log = directory / f"{base:020}.log"
    index = directory / f"{base:020}.txnindex"
    data = index.read_bytes() if index.exists() else b""
    return {
        "base": base,
        "modified_ms": log.stat().st_mtime_ns // 1_000_000,
        "aborted": [fields[1:] for fields in _ABORTED.iter_unpack(data)],
        "batches": _batches(log.read_bytes()),
    }


def _batches(data: bytes) -> list[dict[str, Any]]:
    found, position = [], 0
    while position < len(data):
        end = position + PREFIX_BYTES + _LENGTH.unpack_from(data, position + 8)[0]
        assert end <= len(data), f"the batch at position {position} is cut off"
        found.append(_batch(data[position:end]))
        position = end
    return found


def _batch(data: bytes) -> dict[str, Any]:
    records: list[Record]
    if data[MAGIC_AT] < MAGIC:
        header, crc = entry_header(data), message_set.compute_crc(data)
        records = read_messages(data, check_crc=True)
    else:
        header, crc = parse_header(data), batch.compute_crc(data)
        records = read_records(data)
    assert header.crc == crc, f"the checksum of the batch at offset {header.base_offset} is wrong"
    told: dict[str, Any] = {"header": header._replace(batch_length=0, crc=0), "records": records}
    if not header.codec:
        told["bytes"] = data
    return told
