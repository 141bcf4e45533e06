"""Batches of a fetch as they are appended at the offsets that they have: of committed records, as they are if possible.

Gaps in a batch, where compaction has removed records, and the time of an append stay, as a follower keeps them. Only
the producer is taken out of the header, for its id may be another producer's at the target. Batches of formats v0 and
v1, and those whose first records are deleted, are encoded again. Markers and aborted transactions are left out: the
next batch begins at its own offset, and the log lacks those before it, as one that was compacted. Consumers skip such
offsets. Where nothing follows yet, a batch without records takes the last offset, as the cleaner leaves one: so the
copy ends where its source does, and no offset that was committed there lies behind the copy's end.
Source: kafka.log.Cleaner; org.apache.kafka.common.record.DefaultRecordBatch.writeEmptyHeader.
"""

from __future__ import annotations

from kafkalite.client.fetching import Fetched
from kafkalite.client.mirror.committed_batches import committed, position_behind, records_from
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import HEADER_BYTES, MAGIC, TRANSACTIONAL, BatchHeader, Buffer, assemble, build_batch

_NO_PRODUCER = -1


class PreservedBatch(NamedTuple):
    """A whole batch with its offsets; `end_offset` is the one behind it."""

    data: Buffer
    end_offset: int
    record_count: int
    max_timestamp: int


def preserved_batches(fetched: Fetched, position: int) -> tuple[list[PreservedBatch], int]:
    """The batches with committed records from `position` on, and the offset behind all that was read. Raises Malformed
    for a batch that is damaged."""
    found = []
    for header, batch in committed(fetched, position):
        if header.magic == MAGIC and header.base_offset >= position:
            if header.record_count:
                data = _without_producer(header, batch)
                found.append(PreservedBatch(data, header.last_offset + 1, header.record_count, header.max_timestamp))
        elif (encoded := _encoded_again(header, batch, position)) is not None:
            found.append(encoded)
    return found, position_behind(fetched, position)


def filler(end_offset: int) -> PreservedBatch:
    """A batch without records, behind which the log ends at `end_offset`."""
    return PreservedBatch(build_batch([], base_offset=end_offset - 1), end_offset, 0, -1)


def _without_producer(header: BatchHeader, batch: memoryview) -> Buffer:
    if header.producer_id == _NO_PRODUCER and not header.is_transactional:
        return batch
    plain = header._replace(
        attributes=header.attributes & ~TRANSACTIONAL,
        producer_id=_NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
    )
    return assemble(plain, batch[HEADER_BYTES:])


def _encoded_again(header: BatchHeader, batch: memoryview, position: int) -> PreservedBatch | None:
    """None if no record is left."""
    records = records_from(batch, position)
    if not records:
        return None
    base_offset = records[0].offset
    data = build_batch(
        records,
        base_offset=base_offset,
        codec=header.codec,
        timestamp_type=header.timestamp_type,
        offset_deltas=[one.offset - base_offset for one in records],
        last_offset_delta=header.last_offset - base_offset,
    )
    newest = max(one.timestamp for one in records)
    return PreservedBatch(data, header.last_offset + 1, len(records), newest)
