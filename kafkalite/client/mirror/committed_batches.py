"""Batches of a fetch as they are produced at the target: of committed records, as they are where that is possible.

A broker takes a batch from a producer if its offsets have no gap and its times are the producer's. So a batch that
compaction has thinned out, one with the time of its append, one of formats v0 and v1, and one whose first records are
copied already are decoded and encoded again, with the same codec. All others keep their compressed records; only the
header changes. Markers and aborted transactions are left out.
Source: org.apache.kafka.storage.internals.log.LogValidator (its rules for a batch of a client).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from kafkalite.client.fetching import AbortedTransactions, Fetched
from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import HEADER_BYTES, MAGIC, BatchHeader, Buffer, encode_records
from kafkalite.record.batches import is_intact, read_batch
from kafkalite.record.compression import NONE, UNPACKED_BYTES_MAX, compress
from kafkalite.record.record import Record

_RECORDS_MAX = 1 << 31


class Part(NamedTuple):
    """Records of a batch whose offsets at the source have no gap: the first offset, its place in the batch, and their
    number."""

    source: int
    place: int
    records: int


class CommittedBatch(NamedTuple):
    """A batch for a producer: the codec and bytes of its records, and their offsets at the source."""

    codec: int
    record_count: int
    base_timestamp: int
    max_timestamp: int
    records: Buffer
    parts: tuple[Part, ...]


def committed_batches(fetched: Fetched, position: int) -> tuple[list[CommittedBatch], int]:
    """The batches with committed records from `position` on, and the offset behind all that was read. Raises Malformed
    for a batch that is damaged."""
    found = []
    for header, batch in committed(fetched, position):
        passed = _as_it_is(header, batch, position) or _encoded_anew(header, batch, position)
        if passed is not None:
            found.append(passed)
    return found, position_behind(fetched, position)


def committed(fetched: Fetched, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches that end at or behind `position` and are neither markers nor of an aborted transaction. Raises
    Malformed for one that is damaged."""
    aborted = AbortedTransactions(fetched.aborted)
    for header, batch in fetched.batches:
        is_aborted = header.is_transactional and not header.is_control and aborted.has(header)
        aborted.passed(header, batch)
        if header.last_offset >= position and not header.is_control and not is_aborted:
            if not is_intact(header, batch):
                raise Malformed(f"the batch at offset {header.base_offset} is damaged: its checksum is another")
            yield header, batch


def position_behind(fetched: Fetched, position: int) -> int:
    """The offset behind all batches, `position` if it is not before that."""
    return max([position, *(header.last_offset + 1 for header, _ in fetched.batches)])


def _as_it_is(header: BatchHeader, batch: memoryview, position: int) -> CommittedBatch | None:
    count = header.record_count
    is_dense = count > 0 and count == header.last_offset_delta + 1 and header.base_offset >= position
    if header.magic != MAGIC or not is_dense or header.timestamp_type:
        return None
    base_timestamp = header.base_timestamp  # records are relative to it also where it is a delete horizon
    parts = (Part(header.base_offset, 0, count),)
    return CommittedBatch(header.codec, count, base_timestamp, header.max_timestamp, batch[HEADER_BYTES:], parts)


def _encoded_anew(header: BatchHeader, batch: memoryview, position: int) -> CommittedBatch | None:
    """None if no record is left."""
    records = records_from(batch, position)
    if not records:
        return None
    codec = header.codec
    base_timestamp = records[0].timestamp
    body: Buffer = encode_records(records, range(len(records)), base_timestamp)
    if codec != NONE:
        body = compress(codec, body)
    newest = max(one.timestamp for one in records)
    return CommittedBatch(codec, len(records), base_timestamp, newest, body, _parts(records))


def records_from(batch: memoryview, position: int) -> list[Record]:
    """The records of a batch from an offset on. Raises Malformed."""
    return [one for one in read_batch(batch, UNPACKED_BYTES_MAX, _RECORDS_MAX) if one.offset >= position]


def _parts(records: list[Record]) -> tuple[Part, ...]:
    placed = groupby(enumerate(records), key=lambda one: one[1].offset - one[0])
    parts = []
    for _, group in placed:
        run = list(group)
        parts.append(Part(run[0][1].offset, run[0][0], len(run)))
    return tuple(parts)
