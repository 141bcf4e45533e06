"""A plain cleaner: what compaction must leave of a log, said as simply as it can be said, and slow.

It takes the bytes of the segments and gives back the batches of each new one; no files, no columns, keys as they are
instead of their hashes. It is the oracle of the tests of `clean_log`.

    offset map      key -> the last offset that has it, from the first dirty offset on, without markers and what was
                    aborted; it ends before the first record with a new key for which the map has no room
    grouping        neighbours that fit into one segment together
    rewriting       of each batch those records stay that are the last of their key, or lie behind the offset map;
                    a batch that keeps all of them, and needs no delete horizon, stays as it is, byte for byte

Source: kafka.log.LogCleaner (buildOffsetMap, groupSegmentsBySize, cleanInto, shouldRetainRecord,
CleanedTransactionMetadata), org.apache.kafka.common.record.MemoryRecords (filterTo), KIP-98, KIP-534.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from kafkalite.cleaner.job.job import CleanJob
from kafkalite.common.checksum import crc32c
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.segment.cleaned_segment import SourceSegment
from kafkalite.record.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    encode_records,
    parse_header,
)
from kafkalite.record.compression import NONE, compress
from kafkalite.record.message_set import build_set, entry_header, read_inner, resolve
from kafkalite.record.record import Record, read_records

SLOT_BYTES = 24
_ABORT, _COMMIT = 0, 1
_ANY_SIZE = 1 << 30
_OFFSETS_IN_A_SEGMENT = (1 << 31) - 1


@dataclass
class PlainGroup:
    """One new segment: the bases of those that it replaces, its batches and its aborted transactions."""

    sources: tuple[int, ...]
    batches: list[bytes] = field(default_factory=list)
    aborted: list[AbortedTxn] = field(default_factory=list)


@dataclass
class PlainResult:
    """`last_of_keys` is the offset map; the log is clean below `end_offset`."""

    end_offset: int
    is_complete: bool
    last_of_keys: dict[bytes, int]
    groups: list[PlainGroup]


def clean_plainly(job: CleanJob, logs: Mapping[int, bytes], aborted: Sequence[AbortedTxn]) -> PlainResult:
    """`logs`: the .log of each segment by its base; `aborted`: what all .txnindex files of the log say, also those of
    segments that the job does not have, for a marker may lie in one."""
    last_of_keys, latest, is_complete = _first_reading(job, logs, aborted)
    was_clean = [s for s in job.segments if s.base_offset < job.first_dirty_offset]
    horizon = was_clean[-1].modified_ns // 1_000_000 - job.delete_retention_ms if was_clean else 0
    seen: set[int] = set()
    groups = []
    for sources in _grouped([s for s in job.segments if s.base_offset <= latest], job):
        group = PlainGroup(tuple(source.base_offset for source in sources))
        for source in sources:
            keeps_old_tombstones = source.modified_ns // 1_000_000 > horizon
            rules = _Rules(job, last_of_keys, latest, keeps_old_tombstones, aborted, seen, group.aborted)
            for header, batch in entries(logs[source.base_offset]):
                left = rules.apply(header, batch)
                if left is not None:
                    group.batches.append(left)
        groups.append(group)
    return PlainResult(latest + 1, is_complete, last_of_keys, groups)


def entries(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches of a segment, and the messages and wrappers of the old formats as if they were batches."""
    position = 0
    while position < len(data):
        is_old = data[position + 16] < MAGIC
        header = entry_header(data, position) if is_old else parse_header(data, position)
        end = position + header.size_bytes
        assert end <= len(data), f"a torn batch at {position}"
        yield header, data[position:end]
        position = end


def records_of(header: BatchHeader, batch: bytes) -> list[Record]:
    return _read(batch, header.magic)


@lru_cache(512)  # each batch is looked at several times in a cleaning
def _read(batch: bytes, magic: int) -> list[Record]:
    if magic == MAGIC:
        return read_records(batch, _ANY_SIZE, _ANY_SIZE)
    return resolve(entry_header(batch), read_inner(batch, _ANY_SIZE, _ANY_SIZE))


def marker_kind(header: BatchHeader, batch: bytes) -> int:
    """0 an abort, 1 a commit; -1 for what compaction left of one, and for other control batches."""
    records = records_of(header, batch)
    kind = struct.unpack_from(">hh", records[0].key or b"")[1] if records else -1
    return kind if kind in (_ABORT, _COMMIT) else -1


def _is_aborted(header: BatchHeader, aborted: Sequence[AbortedTxn]) -> bool:
    return header.is_transactional and any(
        txn.producer_id == header.producer_id and txn.first_offset <= header.last_offset <= txn.last_offset
        for txn in aborted
    )


def _first_reading(
    job: CleanJob, logs: Mapping[int, bytes], aborted: Sequence[AbortedTxn]
) -> tuple[dict[bytes, int], int, bool]:
    """The map, the last offset that it covers, and whether that is all that was asked for."""
    room = int(job.dedupe_buffer_bytes // SLOT_BYTES * job.load_factor)
    last_of_keys: dict[bytes, int] = {}
    latest = job.first_dirty_offset - 1
    for source in job.segments:
        if source.end_offset <= job.first_dirty_offset:
            continue
        for header, batch in entries(logs[source.base_offset]):
            if not header.is_control and not _is_aborted(header, aborted):
                for record in records_of(header, batch):
                    if record.key is None or record.offset < job.first_dirty_offset:
                        continue
                    if record.key not in last_of_keys and len(last_of_keys) == room:
                        return last_of_keys, latest, False
                    last_of_keys[record.key] = latest = record.offset
            latest = max(latest, header.last_offset)
        latest = source.end_offset - 1  # what is missing before the next segment counts as read
    return last_of_keys, latest, True


def _grouped(segments: Sequence[SourceSegment], job: CleanJob) -> list[list[SourceSegment]]:
    groups: list[list[SourceSegment]] = []
    for segment in segments:
        if groups:
            with_it = [*groups[-1], segment]
            if (
                sum(s.size_bytes for s in with_it) <= job.segment_bytes
                and sum(s.index_bytes for s in with_it) <= job.segment_index_bytes
                and sum(s.time_index_bytes for s in with_it) <= job.segment_index_bytes
                and (not segment.size_bytes or segment.end_offset - 1 - with_it[0].base_offset <= _OFFSETS_IN_A_SEGMENT)
            ):
                groups[-1] = with_it
                continue
        groups.append([segment])
    return groups


@dataclass
class _Rules:
    """The retained part of the batches of one segment. `seen` are the producers of which data was met since their last
    marker, over all segments; the aborted transactions that stay go to `kept_aborted`."""

    job: CleanJob
    last_of_keys: Mapping[bytes, int]
    latest: int
    keeps_old_tombstones: bool
    aborted: Sequence[AbortedTxn]
    seen: set[int]
    kept_aborted: list[AbortedTxn]

    def apply(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """The batch as it shall be, or None."""
        if header.magic < MAGIC:
            return self._apply_to_old(header, batch)
        if header.is_control:
            is_of_nothing = self._end_transaction(header, batch)
            keeps_all = not (is_of_nothing and self._is_past_horizon(header))
            kept = records_of(header, batch) if keeps_all else []
        else:
            if header.is_transactional:
                self.seen.add(header.producer_id)
            is_of_nothing = False
            is_aborted = _is_aborted(header, self.aborted)
            kept = [] if is_aborted else [r for r in records_of(header, batch) if self._stays(header, r)]
        if not kept:
            return _emptied(header) if self._is_last_of_producer(header) else None
        begins_horizon = not header.has_delete_horizon and (is_of_nothing or any(r.value is None for r in kept))
        if len(kept) == header.record_count and not begins_horizon:
            return batch
        horizon = self.job.now_ms + self.job.delete_retention_ms if begins_horizon else None
        return rewritten(header, kept, header.base_timestamp if header.has_delete_horizon else horizon)

    def _end_transaction(self, header: BatchHeader, batch: bytes) -> bool:
        """Whether nothing is left of the transaction that this marker ends."""
        kind = marker_kind(header, batch)
        if kind < 0:
            return header.record_count == 0
        if header.producer_id not in self.seen:
            return True
        self.seen.discard(header.producer_id)
        if kind == _ABORT:
            pid, end = header.producer_id, header.last_offset
            self.kept_aborted += [t for t in self.aborted if t.producer_id == pid and t.last_offset == end]
        return False

    def _stays(self, header: BatchHeader, record: Record) -> bool:
        if record.offset > self.latest:
            return True
        if record.key is None or self.last_of_keys.get(record.key, -1) > record.offset:
            return False
        if record.value is not None:
            return True
        return self.keeps_old_tombstones if header.magic < MAGIC else not self._is_past_horizon(header)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self.job.now_ms

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether its header must stay, for it is what the log still knows of its producer."""
        last = self.job.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _apply_to_old(self, header: BatchHeader, batch: bytes) -> bytes | None:
        inner = read_inner(batch, _ANY_SIZE, _ANY_SIZE)
        records = resolve(header, inner)
        kept = [record for record in records if self._stays(header, record)]
        if not kept:
            return None
        if len(kept) == len(records) and all(message.magic == header.magic for message in inner):
            return batch
        return build_set(
            [(r.offset, r.timestamp, r.key, r.value) for r in kept],
            header.magic,
            codec=header.codec,
            timestamp_type=header.timestamp_type,
        )


def rewritten(header: BatchHeader, kept: Sequence[Record], horizon: int | None) -> bytes:
    """The batch with these records only. Where it stands, and whose it is, stays."""
    base_timestamp = kept[0].timestamp if horizon is None else horizon
    body = encode_records(kept, [record.offset - header.base_offset for record in kept], base_timestamp)
    attributes = header.attributes & ~DELETE_HORIZON | (0 if horizon is None else DELETE_HORIZON)
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp if header.timestamp_type else max(record.timestamp for record in kept),
        record_count=len(kept),
    )
    return _with_header(changed, compress(header.codec, body) if header.codec != NONE else bytes(body))


def _emptied(header: BatchHeader) -> bytes:
    """The header alone."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _with_header(header._replace(attributes=attributes, base_timestamp=-1, record_count=0), b"")


def _with_header(header: BatchHeader, body: bytes) -> bytes:
    covered = struct.pack(">hiqqqhii", *header[5:]) + body
    head = struct.pack(">qiibI", header[0], 49 + len(body), header.leader_epoch, MAGIC, crc32c(covered))
    return head + covered
