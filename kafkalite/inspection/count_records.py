"""`kafkalite log count`: exactly how many records there are, of each segment, partition and topic.

Headers are enough: a batch says how many records it holds, also when compaction took some. Only a batch that begins
before the log start offset and ends behind it is unpacked, and message sets in wrappers, which tell no number.
Live records are data records at or past the log start offset, control records those of control batches there; bytes are
those of the `.log` files. Live records of aborted transactions are counted among the live ones, and once more apart:
a transaction that was aborted is one whose abort marker stands in the log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

from kafkalite.common.errors import Malformed
from kafkalite.inspection.files.control_records import ABORT, COMMIT, control_type
from kafkalite.inspection.files.directory_listing import PartitionDirectory, is_locked, look, offsets_of
from kafkalite.inspection.files.log_file import HEAD_BYTES, SIZE_MIN, LogFile
from kafkalite.inspection.files.progress import Progress, size_text
from kafkalite.inspection.files.record_rows import rows_of_batch
from kafkalite.log.storage.file_names import LOG, LOG_STARTS
from kafkalite.record.batch import CODEC_MASK, CONTROL, HEADER_BYTES, MAGIC, PREFIX_BYTES, TRANSACTIONAL

_HEAD = struct.Struct(">qiibIhiqqqhii")
_BLOCK_BYTES = 64 << 10
_OPEN_MAX = 1_000_000


@dataclass(slots=True)
class Count:
    """Fields are numbers that can be added up. `unread_bytes`: of a log's end that is no whole batch."""

    live_records: int = 0
    control_records: int = 0
    aborted_records: int = 0
    batches: int = 0
    bytes: int = 0
    unread_bytes: int = 0

    def add(self, other: Count) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def as_json(self) -> dict[str, int]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


class PartitionCount(NamedTuple):
    """`segments` by their base offsets. `end_offset` is the offset behind the last batch."""

    partition: PartitionDirectory
    start_offset: int
    end_offset: int
    total: Count
    segments: dict[int, Count]


class Counted(NamedTuple):
    root: str
    partitions: list[PartitionCount]
    is_running: bool


def count(path: str, topics: Iterable[str] = (), *, shown: bool | None = None) -> Counted:
    """`topics`: only these. Raises ConfigError for a path that is no data directory, OSError."""
    place = look(path)
    wanted = set(topics)
    partitions = [one for one in place.partitions if not wanted or one.topic in wanted]
    progress = Progress(sum(one.log_bytes for one in partitions), shown=shown)
    starts = offsets_of(place.root, LOG_STARTS)
    try:
        counted = [
            count_partition(one, starts.get((one.topic, one.partition), 0), progress.advance) for one in partitions
        ]
    finally:
        progress.clear()
    return Counted(place.root or place.partitions[0].path, counted, place.root is not None and is_locked(place.root))


def count_partition(
    partition: PartitionDirectory, start_offset: int, advance: Callable[[int], None] = lambda _: None
) -> PartitionCount:
    """Records before `start_offset` are not live. Raises OSError."""
    start_offset = max(start_offset, partition.bases[0] if partition.bases else 0)
    total = Count()
    end_offset = partition.bases[0] if partition.bases else 0
    segments: dict[int, Count] = {}
    # of transactions that are open at this place: which segment has how many of their live records
    ongoing: dict[int, dict[int, int]] = {}
    for base in partition.bases:
        segments[base] = found = Count()
        end_offset = max(end_offset, _count_segment(partition, base, start_offset, segments, ongoing, advance))
        found.bytes = partition.files[f"{base:020d}{LOG}"]
    for found in segments.values():
        total.add(found)
    return PartitionCount(partition, start_offset, end_offset, total, segments)


def _count_segment(
    partition: PartitionDirectory, base: int, start_offset: int, segments: dict[int, Count],
    ongoing: dict[int, dict[int, int]], advance: Callable[[int], None],
) -> int:  # fmt: skip
    """The offset behind the last batch."""
    found = segments[base]
    end_offset = base
    told = 0
    with LogFile(partition.file(base, LOG)) as log:
        position = 0
        for position, head in _hop(log):
            base_offset, length, _, magic, _, attributes, delta, _, _, producer_id, _, _, count = head
            found.batches += 1
            last_offset = base_offset + delta if magic >= MAGIC else base_offset
            end_offset = max(end_offset, last_offset + 1)
            if position - told > _BLOCK_BYTES:
                advance(position - told)
                told = position
            if last_offset < start_offset:
                if attributes & CONTROL and magic >= MAGIC:
                    ongoing.pop(producer_id, None)
                continue
            is_control = magic >= MAGIC and bool(attributes & CONTROL)
            if magic < MAGIC and not _is_wrapper(log, position):
                count = 1
            elif magic < MAGIC or base_offset < start_offset or is_control:
                rows = rows_of_batch(memoryview(log.read(position, length + PREFIX_BYTES)))
                if isinstance(rows, Malformed):
                    found.unread_bytes += length + PREFIX_BYTES
                    continue
                if is_control:
                    _end_transaction(producer_id, rows[0].key if rows else None, ongoing, segments)
                count = sum(row.offset >= start_offset for row in rows)
            if is_control:
                found.control_records += count
                continue
            found.live_records += count
            if attributes & TRANSACTIONAL and magic >= MAGIC and producer_id >= 0 and len(ongoing) < _OPEN_MAX:
                mine = ongoing.setdefault(producer_id, {})
                mine[base] = mine.get(base, 0) + count
        end = _end(log, position, found.batches)
        found.unread_bytes += log.size_bytes - end
        advance(log.size_bytes - told)
    return end_offset


def _is_wrapper(log: LogFile, position: int) -> bool:
    """Whether a message of v0 or v1 has others inside."""
    return bool(log.read(position + HEAD_BYTES, 1)[0] & CODEC_MASK)


def _end_transaction(
    producer_id: int, key: bytes | None, ongoing: dict[int, dict[int, int]], segments: dict[int, Count]
) -> None:
    kind = control_type(key)
    if kind not in (ABORT, COMMIT):
        return
    for base, records in ongoing.pop(producer_id, {}).items():
        if kind == ABORT:
            segments[base].aborted_records += records


def _hop(log: LogFile) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(position, the fields of the header) of every whole batch; of v0 and v1 only those up to the magic count."""
    size = log.size_bytes
    position = start = 0
    data = b""
    while size - position > HEAD_BYTES:
        at = position - start
        if at + HEADER_BYTES > len(data):
            start, at = position, 0
            data = log.read(position, _BLOCK_BYTES)
            if len(data) < HEADER_BYTES:
                data = data.ljust(HEADER_BYTES, b"\0")
        head = _HEAD.unpack_from(data, at)
        length = head[1]
        if length < SIZE_MIN or position + length + PREFIX_BYTES > size or head[3] > MAGIC or head[3] < 0:
            return
        if head[3] == MAGIC and (length < HEADER_BYTES - PREFIX_BYTES or head[6] < 0 or head[12] < 0):
            return
        yield position, head
        position += length + PREFIX_BYTES


def _end(log: LogFile, position: int, batches: int) -> int:
    """Where the last batch, which begins at `position`, ends."""
    if not batches:
        return 0
    return position + PREFIX_BYTES + int.from_bytes(log.read(position + 8, 4), "big")


# the table

_COLUMNS = ("live records", "control", "aborted", "batches", "bytes")


def table(counted: Counted, *, segments: bool) -> Iterator[str]:
    """The lines of a table: a row for each topic and partition, with `segments` for each segment too; the sum."""
    rows: list[tuple[str, ...]] = []
    total = Count()
    topics: dict[str, list[PartitionCount]] = {}
    for one in counted.partitions:
        topics.setdefault(one.partition.topic, []).append(one)
    for topic, parts in topics.items():
        sum_of_topic = Count()
        for one in parts:
            sum_of_topic.add(one.total)
        total.add(sum_of_topic)
        rows.append(_row(topic, sum_of_topic))
        for one in sorted(parts, key=lambda one: one.partition.partition):
            rows.append(_row(f"  {one.partition.name}  {one.start_offset}..{one.end_offset}", one.total))
            if segments:
                rows += [_row(f"    {base:020d}", found) for base, found in one.segments.items()]
    rows.append(_row(f"{len(counted.partitions)} partitions, {size_text(total.bytes)}", total))
    head = ("", *_COLUMNS)
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join(cells).rstrip()
    for one in counted.partitions:
        if one.total.unread_bytes:
            yield f"{one.partition.name}: {one.total.unread_bytes} bytes are no whole batches; see kafkalite log verify"


def _row(name: str, found: Count) -> tuple[str, ...]:
    numbers = (found.live_records, found.control_records, found.aborted_records, found.batches, found.bytes)
    return (name, *[f"{number:,}" for number in numbers])


def objects(counted: Counted) -> Iterator[dict[str, object]]:
    """The same as objects: one for each segment, each partition, each topic."""
    topics: dict[str, Count] = {}
    for one in counted.partitions:
        where = {"topic": one.partition.topic, "partition": one.partition.partition}
        for base, found in one.segments.items():
            yield {"type": "segment", **where, "base_offset": base, **found.as_json()}
        offsets = {"start_offset": one.start_offset, "end_offset": one.end_offset}
        yield {"type": "partition", **where, **offsets, **one.total.as_json()}
        topics.setdefault(one.partition.topic, Count()).add(one.total)
    for topic, found in topics.items():
        yield {"type": "topic", "topic": topic, **found.as_json()}
