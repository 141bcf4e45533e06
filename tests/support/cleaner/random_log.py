"""Logs as they may lie on a disk before compaction, made batch by batch: old formats, transactions, what is left of
earlier passes. `Event`s say what happened; `RandomLog` writes the segments that this leaves, with all their indexes.

Markers and delete horizons are made by hand: nobody needs a coordinator or a cleaner for them.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kafkalite.cleaner.job.job import LastRecord
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.recovery.segment_split import SegmentRebuild
from kafkalite.log.segment.cleaned_segment import SourceSegment
from kafkalite.log.segment.segment import Segment
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch, parse_header
from kafkalite.record.message_set import build_set
from tests.support.cleaner.plain_cleaner import records_of, rewritten

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Batch:
    """`count` records drawn with `seed`: keys out of `key_range`, and shares (of 10) of tombstones and null keys.

    `holes` is the share that an earlier cleaning took out; `horizon_hours` that it promised tombstones until then.
    """

    count: int
    key_range: int
    seed: int = 0
    tombstones: int = 1
    keyless: int = 0
    codec: int = 0
    producer: int | None = None
    transactional: bool = False
    log_append_time: bool = False
    holes: int = 0
    horizon_hours: int | None = None
    gap: int = 0


@dataclass(frozen=True)
class OldSet:
    """Messages of format v0 or v1, in one wrapper if there is a codec."""

    magic: int
    count: int
    key_range: int
    seed: int = 0
    tombstones: int = 1
    keyless: int = 0
    codec: int = 0
    log_append_time: bool = False
    gap: int = 0


@dataclass(frozen=True)
class Marker:
    producer: int
    commits: bool
    horizon_hours: int | None = None


@dataclass(frozen=True)
class Emptied:
    """The header that an earlier cleaning left of a producer's last batch."""

    producer: int
    transactional: bool = False


@dataclass(frozen=True)
class Fence:
    """The producer comes back with a new epoch."""

    producer: int


@dataclass(frozen=True)
class Roll:
    hours: int = 0
    gap: int = 0


Event = Batch | OldSet | Marker | Emptied | Fence | Roll


class RandomLog:
    """`logs` are the segments' bytes by base, `aborted` all that their .txnindex files say."""

    def __init__(self, directory: Path, events: list[Event], config: TopicConfig) -> None:
        self.directory = directory
        self.config = config
        self.logs: dict[int, bytearray] = {0: bytearray()}
        self.modified_ms: dict[int, int] = {}
        self.aborted: list[AbortedTxn] = []
        self.lasts: dict[int, LastRecord] = {}
        self.end_offset = 0
        self.now_ms = NOW_MS - 1000 * HOUR_MS
        self._base = 0
        self._open: dict[int, int] = {}  # producer -> first offset
        self._epochs: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._epoch_from: int | None = None
        for event in events:
            self.now_ms += 60_000
            getattr(self, type(event).__name__.lower())(event)
        self.modified_ms[self._base] = self.now_ms

    @property
    def stable_offset(self) -> int:
        return min(self._open.values(), default=self.end_offset)

    # what happens

    def batch(self, event: Batch) -> None:
        random = Random(event.seed)
        producer, transactional = event.producer, event.transactional
        if producer is None:
            transactional = False
        elif producer in self._open:
            transactional = True  # its data belong to the transaction until a marker ends it
        self._skip(event.gap)
        fields: dict[str, int | bool] = {}
        if producer is not None:
            epoch, sequence = self._epochs.get(producer, 0), self._sequences.get(producer, 0)
            fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
            self._sequences[producer] = sequence + event.count
            self.lasts[producer] = LastRecord(self.end_offset + event.count - 1, epoch)
            if transactional:
                self._open.setdefault(producer, self.end_offset)
        batch = build_batch(
            self._records(event, random), base_offset=self.end_offset, codec=event.codec, leader_epoch=3,
            transactional=transactional, timestamp_type=int(event.log_append_time), **fields,  # type: ignore[arg-type]
        )  # fmt: skip
        header = parse_header(batch)
        data = bytes(batch)
        kept = [record for record in records_of(header, data) if random.randrange(10) >= event.holes]
        horizon = None if event.horizon_hours is None else NOW_MS + event.horizon_hours * HOUR_MS
        if kept and (len(kept) < event.count or horizon is not None):
            data = rewritten(header, kept, horizon)
        self._put(data, event.count)

    def _records(self, event: Batch | OldSet, random: Random) -> list[NewRecord]:
        records = []
        for number in range(event.count):
            key = None if random.randrange(10) < event.keyless else b"key-%d" % random.randrange(event.key_range)
            value = b"" if number % 7 == 3 else b"value-%d-%d" % (self.end_offset + number, event.seed)
            headers = [("a", b"1"), ("ключ", None)][: random.randrange(3)] if isinstance(event, Batch) else []
            time = -1 if event.seed % 11 == 10 else self.now_ms + random.randint(-HOUR_MS, HOUR_MS)
            records.append(
                NewRecord(
                    key, None if random.randrange(10) < event.tombstones else value * (event.seed % 3), headers, time
                )
            )
        return records

    def oldset(self, event: OldSet) -> None:
        if self._epoch_from is not None:
            return  # a log never goes back to an older format
        random = Random(event.seed)
        self._skip(event.gap)
        records = self._records(event, random)
        now_ms = self.now_ms
        times = [-1 if not event.magic else now_ms if event.log_append_time else max(0, r.timestamp) for r in records]
        data = build_set(
            [(self.end_offset + n, times[n], r.key, r.value) for n, r in enumerate(records)],
            event.magic, codec=event.codec, timestamp_type=int(event.log_append_time),
        )  # fmt: skip
        self._put(data, event.count, is_old=True)

    def marker(self, event: Marker) -> None:
        """Also without data before it: an earlier cleaning may have taken them."""
        producer = event.producer
        epoch = self._epochs.get(producer, 0)
        key = struct.pack(">hh", 0, int(event.commits))
        record = NewRecord(key, struct.pack(">hi", 0, 7), (), self.now_ms)
        batch = build_batch(
            [record], base_offset=self.end_offset, producer_id=producer, producer_epoch=epoch, leader_epoch=3,
            transactional=True, control=True,
        )  # fmt: skip
        data = bytes(batch)
        first = self._open.pop(producer, None)
        if event.horizon_hours is not None and first is None:
            header = parse_header(batch)
            data = rewritten(header, records_of(header, data), NOW_MS + event.horizon_hours * HOUR_MS)
        if first is not None and not event.commits:
            stable = min(self._open.values(), default=self.end_offset + 1)
            self.aborted.append(AbortedTxn(producer, first, self.end_offset, stable))
        self.lasts.setdefault(producer, LastRecord(-1, epoch))
        self._put(data, 1)

    def emptied(self, event: Emptied) -> None:
        producer = event.producer
        if producer in self._open:
            return
        epoch, sequence = self._epochs.get(producer, 0), self._sequences.get(producer, 0)
        batch = build_batch(
            [], base_offset=self.end_offset, producer_id=producer, producer_epoch=epoch, base_sequence=sequence,
            leader_epoch=3, last_offset_delta=2, transactional=False,
        )  # fmt: skip
        self._sequences[producer] = sequence + 3
        self.lasts[producer] = LastRecord(self.end_offset + 2, epoch)
        self._put(bytes(batch), 3)

    def fence(self, event: Fence) -> None:
        if event.producer not in self._open:
            epoch = self._epochs[event.producer] = self._epochs.get(event.producer, 0) + 1
            self._sequences[event.producer] = 0
            self.lasts[event.producer] = LastRecord(-1, epoch)
            self.marker(Marker(event.producer, commits=False))

    def roll(self, event: Roll) -> None:
        self.modified_ms[self._base] = self.now_ms
        self.now_ms += event.hours * HOUR_MS
        self._skip(event.gap)
        if self.end_offset > self._base:
            self._base = self.end_offset
            self.logs[self._base] = bytearray()

    def _skip(self, gap: int) -> None:
        """Compaction took what was there."""
        self.end_offset += gap

    def _put(self, data: bytes, count: int, *, is_old: bool = False) -> None:
        if self._epoch_from is None and not is_old:
            self._epoch_from = self.end_offset
        self.logs[self._base] += data
        self.end_offset += count

    # the files, and the job

    def write(self, files: Files) -> None:
        """All segments as sealed ones, and from where on batches have an epoch."""
        if self._epoch_from is not None:
            files.write_new(f"{self.directory}/leader-epoch-checkpoint", b"0\n1\n3 %d\n" % self._epoch_from)
        for base, data in self.logs.items():
            segment = Segment(str(self.directory), base, 0, self.config, self.now_ms, files)
            segment.make_files(self.config)
            fd = files.open(segment.path, os.O_WRONLY)
            files.write_fully(fd, bytes(data))
            files.close(fd)
            segment.size_bytes = len(data)
            rebuild = SegmentRebuild(segment)
            for position, header, _ in segment.iter_batches():
                rebuild.add(position, header)
            rebuild.finish(len(data))
            upto = min((other for other in self.logs if other > base), default=self.end_offset)
            for txn in self.aborted:
                if base <= txn.last_offset < upto:
                    segment.txn_index.append(txn)
            segment.abandon()
            at_ms = self.modified_ms[base]
            os.utime(segment.path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))

    def sources(self) -> list[SourceSegment]:
        """The segments that are there now, the last one too."""
        bases = sorted(int(path.name[:20]) for path in self.directory.glob("*.log"))
        found = []
        for base, upto in zip(bases, [*bases[1:], self.end_offset], strict=True):
            stats = [os.stat(f"{self.directory}/{base:020d}{suffix}") for suffix in (".log", ".index", ".timeindex")]
            log_bytes, index_bytes, time_index_bytes = (stat.st_size for stat in stats)
            found.append(SourceSegment(base, upto, log_bytes, index_bytes, time_index_bytes, stats[0].st_mtime_ns))
        return found
