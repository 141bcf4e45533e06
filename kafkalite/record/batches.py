"""Batches of every format as they lie in a log: where each begins, its header, its checksum, its records.

A batch begins where the one before it ends by its length; offset, length and magic are at the same places in all
formats. A message of format v0 or v1 counts as a batch of one offset, with the header of `message_set.entry_header`.
Source: org.apache.kafka.common.record.ByteBufferLogInputStream, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct

from kafkalite.common.errors import Malformed
from kafkalite.record import message_set
from kafkalite.record.batch import (
    BATCH_LENGTH_MIN,
    MAGIC,
    MAGIC_AT,
    PREFIX_BYTES,
    BatchHeader,
    Buffer,
    compute_crc,
    parse_header,
)
from kafkalite.record.record import RECORDS_BYTES_MAX, RECORDS_MAX, Record, read_records, record_times

_unpack_length = Struct(">8xi").unpack_from


def find_bounds(data: Buffer, head_bytes: int = message_set.HEAD_BYTES) -> tuple[list[int], int | None]:
    """The begins of the whole batches in `data` and the end of the last; the length that is too small to be one, if
    any. Ends where less than `head_bytes` are left."""
    bounds = [0]
    append, unpack, length_min = bounds.append, _unpack_length, message_set.MESSAGE_BYTES_MIN
    position, size = 0, len(data)
    last = size - head_bytes
    while position <= last:
        (length,) = unpack(data, position)
        if length < length_min:
            return bounds, length
        position += length + PREFIX_BYTES
        if position > size:
            break
        append(position)
    return bounds, None


def whole_batches(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches in the records of a response, whose last one may be cut off. Raises Malformed."""
    view = memoryview(data)
    for at, end in pairwise(find_bounds(view)[0]):
        batch = view[at:end]
        yield read_header(batch), batch


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`. Raises Malformed where none can begin, or its header is cut off."""
    if len(data) - position <= MAGIC_AT or data[position + MAGIC_AT] != MAGIC:
        return message_set.entry_header(data, position)
    header = parse_header(data, position)
    if header.batch_length < BATCH_LENGTH_MIN:
        raise Malformed(f"no record batch at position {position}: its length says {header.batch_length}")
    return header


def is_intact(header: BatchHeader, batch: Buffer) -> bool:
    """Whether a batch is whole and its checksum is the one in its header."""
    if len(batch) != header.size_bytes:
        return False
    return header.crc == (compute_crc(batch) if header.magic == MAGIC else message_set.compute_crc(batch))


def read_batch(batch: Buffer, max_bytes: int = RECORDS_BYTES_MAX, max_records: int = RECORDS_MAX) -> list[Record]:
    """The records of one whole batch. Raises Malformed."""
    if batch[MAGIC_AT] < MAGIC:
        return message_set.read_messages(batch, max_bytes, max_records)
    return read_records(batch, max_bytes, max_records)


def batch_times(batch: Buffer, max_bytes: int = RECORDS_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record of one whole batch. Raises Malformed."""
    return (message_set.message_times if batch[MAGIC_AT] < MAGIC else record_times)(batch, max_bytes)
