"""Batches of every format as they lie in a log: the header of any of them, and whether its checksum is right.

A message of format v0 or v1 counts as a batch of one offset, with the header of `message_set.entry_header`.
Source: org.apache.kafka.common.record.ByteBufferLogInputStream.
"""

from __future__ import annotations

from kafkalite.common.errors import Malformed
from kafkalite.record import message_set
from kafkalite.record.batch import BATCH_LENGTH_MIN, MAGIC, MAGIC_AT, BatchHeader, Buffer, compute_crc, parse_header


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
