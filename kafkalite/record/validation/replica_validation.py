"""A follower's checks of the bytes that it has fetched from its leader, before it appends them.

The leader has validated the records, and the bytes stay as they are. Checked is that they are whole: lengths,
checksums, ascending offsets. A fetch ends where its limit was reached, so the last batch may be cut off, and is
ignored. Old topics have messages of formats v0 and v1; each counts as a batch of one offset.
Source: kafka.log.UnifiedLog (analyzeAndValidateRecords, trimInvalidBytes), KAFKA-18723 (epochs above the leader's).
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.record import message_set
from kafkalite.record.batch import (
    BATCH_LENGTH_MIN,
    CRC_FROM,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    PREFIX_BYTES,
    BatchHeader,
    parse_header,
)

EPOCH_MAX = (1 << 31) - 1


class ReplicaBatches(NamedTuple):
    """The headers of the whole batches in the first `size_bytes` of the answer, and their largest timestamp. The
    headers of v0 and v1 are `message_set.entry_header`'s."""

    headers: list[BatchHeader]
    size_bytes: int
    max_timestamp: int


def check_batches(records: memoryview, next_offset: int, leader_epoch: int = EPOCH_MAX) -> ReplicaBatches:
    """The batches in `records`, which follow the offset before `next_offset` and are of `leader_epoch` at most.

    Offsets may be missing, since compaction removes records. Raises KafkaError(CORRUPT_MESSAGE) if anything is wrong
    with any batch.
    """
    headers: list[BatchHeader] = []
    size_bytes = len(records)
    position = 0
    max_timestamp = -1
    while size_bytes - position > MAGIC_AT:
        if records[position + MAGIC_AT] == MAGIC:
            if size_bytes - position < HEADER_BYTES:
                break
            header = parse_header(records, position)
            base_offset, length, epoch, _, crc, _, delta, _, timestamp, _, _, _, _ = header
            end = position + length + PREFIX_BYTES
            if end > size_bytes and length >= BATCH_LENGTH_MIN:
                break
            is_whole = length >= BATCH_LENGTH_MIN and delta >= 0 and crc == crc32c(records[position + CRC_FROM : end])
        else:
            header, end = _entry(records, position)
            if end > size_bytes:
                break
            base_offset, _, epoch, _, crc, _, delta, _, timestamp, _, _, _, _ = header
            is_whole = crc == message_set.compute_crc(records[position:end])
        if not is_whole or base_offset < next_offset or epoch > leader_epoch:
            raise _refusal(header, position, next_offset, leader_epoch, is_whole=is_whole)
        headers.append(header)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        next_offset = base_offset + delta + 1
        position = end
    return ReplicaBatches(headers, position, max_timestamp)


def _entry(records: memoryview, position: int) -> tuple[BatchHeader, int]:
    """The message of v0 or v1 at `position`, and its end. Raises KafkaError(CORRUPT_MESSAGE)."""
    head = bytes(records[position : position + message_set.HEAD_BYTES]).ljust(message_set.HEAD_BYTES, b"\0")
    try:
        header = message_set.entry_header(head)
    except Malformed:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"there is no record batch at byte {position}") from None
    return header, position + header.size_bytes


def _refusal(header: BatchHeader, position: int, next_offset: int, leader_epoch: int, *, is_whole: bool) -> KafkaError:
    if not is_whole:
        fault = f"the batch at byte {position} is corrupt (stored crc = {header.crc}, {header.size_bytes} bytes)"
    elif header.base_offset < next_offset:
        fault = f"a batch that begins at offset {header.base_offset} comes after offset {next_offset - 1}"
    else:
        fault = f"a batch of leader epoch {header.leader_epoch} comes from the leader of epoch {leader_epoch}"
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, fault)
