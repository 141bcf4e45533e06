"""The files of a log that tests write batch by batch, and passes over them: no log object, no broker."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kafkalite.cleaner.compaction.clean_log import clean
from kafkalite.cleaner.job.job import CleanJob, CleanResult, LastRecord
from kafkalite.log.index.transaction_index import AbortedTxn, TransactionIndex
from kafkalite.log.segment.cleaned_segment import CleanedSegment, SourceSegment
from kafkalite.log.segment.segment_file import iter_batches
from kafkalite.log.storage.file_names import CLEANED, SEGMENT_FILES
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import BatchHeader, NewRecord, build_batch, parse_header
from kafkalite.record.message_set import read_messages
from kafkalite.record.record import Record, read_records

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def records(*pairs: str, at_ms: int = NOW_MS) -> list[NewRecord]:
    """ "a=1" is a record, "a=" has an empty value, "a" is a tombstone, "=1" has no key."""
    found = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        found.append(NewRecord(key.encode() or None, value.encode() if equals else None, (), at_ms))
    return found


@dataclass
class Log:
    """Segments are written one after another; `compact` looks at all of them but begins at the dirty offset."""

    directory: Path
    files: Files = field(default_factory=Files)
    end_offset: int = 0
    bases: list[int] = field(default_factory=list)
    lasts: dict[int, LastRecord] = field(default_factory=dict)
    pieces: int = 8 << 20

    def segment(self, *batches: bytes, base: int | None = None, modified_ms: int = NOW_MS) -> None:
        """One sealed segment of batches that `batch` made."""
        if base is None:
            base = self.bases[-1] if self.bases and not batches else self._first(batches)
        self.bases.append(base)
        path = self.path(base)
        path.write_bytes(b"".join(batches))
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def _first(self, batches: tuple[bytes, ...]) -> int:
        return parse_header(batches[0]).base_offset if batches else self.end_offset

    def batch(self, *pairs: str, at_ms: int = NOW_MS, **how: int | bool) -> bytes:
        """The next batch, of one record each."""
        return self.raw(records(*pairs, at_ms=at_ms), **how)

    def raw(self, new: list[NewRecord], **how: int | bool) -> bytes:
        made = build_batch(new, base_offset=self.end_offset, **how)  # type: ignore[arg-type]
        self.end_offset += len(new)
        return bytes(made)

    def marker(self, producer_id: int, *, commits: bool, epoch: int = 0) -> bytes:
        key = struct.pack(">hh", 0, int(commits))
        made = NewRecord(key, struct.pack(">hi", 0, 0), (), NOW_MS)
        return self.raw([made], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True)

    def aborts(self, producer_id: int, first_offset: int, last_offset: int) -> None:
        """The transaction index of the last segment knows of it."""
        txn = AbortedTxn(producer_id, first_offset, last_offset, last_offset + 1)
        TransactionIndex(str(self.path(self.bases[-1], ".txnindex")), self.bases[-1], self.files).append(txn)

    def path(self, base: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base:020d}{suffix}"

    # a cleaning

    def job(self, dirty: int = 0, **other: object) -> CleanJob:
        segments = []
        for base, end in zip(self.bases, [*self.bases[1:], self.end_offset], strict=True):
            stat = self.path(base).stat()
            segments.append(SourceSegment(base, end, stat.st_size, 0, 0, stat.st_mtime_ns))
        job = CleanJob(
            "orders", 0, str(self.directory), tuple(segments), dirty, self.end_offset, self.lasts, NOW_MS, DAY_MS,
            1 << 30, 10 << 20, 4096, 1 << 20, 1, 0.9,
        )  # fmt: skip
        return job._replace(**other)  # type: ignore[arg-type]

    def compact(self, dirty: int = 0, **other: object) -> CleanResult:
        return self.run(self.job(dirty, **other))

    def run(self, job: CleanJob, swap: Callable[[CleanedSegment], bool] | None = None) -> CleanResult:
        return clean(job, self.files, swap or self.put_in_place, piece_bytes=self.pieces)

    def put_in_place(self, cleaned: CleanedSegment) -> bool:
        """As the log does it, without its care."""
        for base in cleaned.sources:
            self.bases.remove(base)
            for suffix in SEGMENT_FILES:
                self.path(base, suffix).unlink(missing_ok=True)
        self.bases = sorted([*self.bases, cleaned.base_offset])
        for suffix in SEGMENT_FILES:
            path = self.path(cleaned.base_offset, suffix + CLEANED)
            if path.exists():
                path.rename(self.path(cleaned.base_offset, suffix))
        assert self.path(cleaned.base_offset).stat().st_size == cleaned.size_bytes
        return True

    # what is there

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        found = []
        for base in self.bases:
            fd = os.open(self.path(base), os.O_RDONLY)
            found += [(header, bytes(data)) for _, header, data in iter_batches(fd, 0, os.fstat(fd).st_size)]
            os.close(fd)
        return found

    def headers(self) -> list[BatchHeader]:
        return [header for header, _ in self.batches()]

    def records(self) -> list[Record]:
        found: list[Record] = []
        for header, data in self.batches():
            found += read_records(data) if header.magic == 2 else read_messages(data)
        return found

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def said(self) -> list[str]:
        """As `records` takes it."""
        return [_said(record) for record in self.records()]

    def names(self) -> Iterable[str]:
        return sorted(path.name for path in self.directory.iterdir())


def _said(record: Record) -> str:
    key = (record.key or b"").decode()
    return key if record.value is None else f"{key}={record.value.decode()}"
