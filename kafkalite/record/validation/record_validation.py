"""Checks of every record of a producer's batch: that it can be read, and what is in it where the topic needs that
(missing keys, timestamps too long ago); and recompression with another codec.

A few hundred bytes can unpack to a quarter of a million records. One object each would hold the loop for a second and
more, so batches of more than `COLUMNS_MIN` records are decoded as columns, whose memory and time are bounded by
`RECORDS_BYTES_MAX` and `RECORDS_MAX` (200,000 records: 0.1 s instead of 1.3 s), and are recompressed as they are. numpy
is imported for the first of them.
Source: org.apache.kafka.storage.internals.log.LogValidator.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    assemble,
    build_batch,
    parse_header,
)
from kafkalite.record.codec_contexts import Codecs
from kafkalite.record.compression import NONE, compress, is_for_java
from kafkalite.record.record import RECORDS_BYTES_MAX, RECORDS_MAX, read_records, read_varint, wrap
from kafkalite.record.validation.record_structure import check_structure

if TYPE_CHECKING:
    from kafkalite.record.columns.record_columns import Columns

_THREAD = threading.local()  # the brokers of a test have a loop, and a thread, each

COLUMNS_MIN = 1000
MISNUMBERED_MAX = 20_000
"""Records whose offsets do not count from 0, as some old clients send them, are decoded and numbered anew; larger
batches are refused."""
NO_TIMESTAMP = -1
LATEST_MS_MAX = (1 << 63) - 1
FAULTS_MAX = 1000
"""Kafka lists every faulty record; a response that lists a quarter of a million of them is too large."""


class Faults(NamedTuple):
    """Indexes of records without a key, and (index, timestamp) of records that are too old or too late: the first
    `FAULTS_MAX` of each."""

    without_key: list[int]
    out_of_range: list[tuple[int, int]]


def check_content(records: memoryview, codec: int, count: int, *, reads_records: bool) -> Buffer:
    """The records of the batch, decompressed, within the limits, if need be. With `reads_records` it has `count` whole
    records and nothing else. Raises Malformed."""
    body: Buffer = records[HEADER_BYTES:]
    if codec != NONE:
        _check_for_java(codec, body)
        if count > RECORDS_MAX:
            raise Malformed(f"the batch unpacks to {count} records, more than {RECORDS_MAX}")
        body = _codecs_of_thread().decompress(codec, body, RECORDS_BYTES_MAX)
    if reads_records:
        check_structure(body, count)
    return body


def _check_for_java(codec: int, body: Buffer) -> None:
    if not is_for_java(codec, body):
        raise Malformed("its lz4 frame has linked blocks, which Java's clients do not read")


def _codecs_of_thread() -> Codecs:
    try:
        found: Codecs = _THREAD.codecs
    except AttributeError:
        found = _THREAD.codecs = Codecs()
    return found


def find_faults(
    records: memoryview, *, keys_required: bool, earliest_ms: int, latest_ms: int = LATEST_MS_MAX
) -> Faults:
    """The faulty records of one whole batch. A record without a timestamp (-1) is neither too old nor too late.

    Raises Malformed when the records contradict the header, or are too many.
    """
    header = parse_header(records)
    if header.record_count > COLUMNS_MIN:
        _check_for_java(header.codec, records[HEADER_BYTES:])
        found = _columns(records, header)
        if _may_have_odd_nulls(found):
            check_content(records, header.codec, header.record_count, reads_records=True)
        return _faults_in_columns(found, keys_required, earliest_ms, latest_ms)
    body = check_content(records, header.codec, header.record_count, reads_records=True)
    without_key: list[int] = []
    out_of_range: list[tuple[int, int]] = []
    for index, (has_key, timestamp) in enumerate(_keys_and_times(header, body)):
        if keys_required and not has_key:
            without_key.append(index)
        elif timestamp != NO_TIMESTAMP and not earliest_ms <= timestamp <= latest_ms:
            out_of_range.append((index, timestamp))
    return Faults(without_key, out_of_range)


def _keys_and_times(header: BatchHeader, body: Buffer) -> Iterator[tuple[bool, int]]:
    """(whether it has a key, timestamp) of each record. The structure has been checked."""
    append_time = header.max_timestamp if header.timestamp_type else None
    position = 0
    for _ in range(header.record_count):
        size, position = read_varint(body, position)
        end = position + size
        delta_ms, position = read_varint(body, position + 1, 64)
        _, position = read_varint(body, position)
        key_bytes, _ = read_varint(body, position)
        yield key_bytes >= 0, wrap(header.base_timestamp + delta_ms) if append_time is None else append_time
        position = end


def _may_have_odd_nulls(found: Columns) -> bool:
    """Whether a key or a value is null whose length is not -1 in one byte, or there are headers, which may be so."""
    if found.header_count.any():
        return True
    nulls = ((found.key_start, found.key_is_null), (found.value_start, found.value_is_null))
    return any((found.data[start[is_null] - 1] != 1).any() for start, is_null in nulls)


def _faults_in_columns(found: Columns, keys_required: bool, earliest_ms: int, latest_ms: int) -> Faults:
    import numpy as np

    no_key = found.key_is_null if keys_required else np.zeros(len(found), bool)
    times = found.timestamp
    earliest_ms, latest_ms = (max(-LATEST_MS_MAX, min(bound, LATEST_MS_MAX)) for bound in (earliest_ms, latest_ms))
    outside = (times < earliest_ms) | (times > latest_ms)
    rows = np.flatnonzero(~no_key & outside & (times != NO_TIMESTAMP))[:FAULTS_MAX]
    return Faults(
        np.flatnonzero(no_key)[:FAULTS_MAX].tolist(),
        list(zip(rows.tolist(), times[rows].tolist(), strict=True)),
    )


def repack(records: memoryview, codec: int, level: int | None) -> bytearray:
    """The same batch with another codec, its offsets counting from 0. Raises Malformed as `find_faults`."""
    header = parse_header(records)
    if header.record_count > COLUMNS_MIN:
        found = _columns(records, header)
        if (found.offset[1:] - found.offset[:-1] == 1).all() and found.offset[0] == header.base_offset:
            return _repacked_unchanged(header, found, codec, level)
        if header.record_count > MISNUMBERED_MAX:
            raise Malformed(f"{header.record_count} records whose offsets do not count from 0")
    return build_batch(
        read_records(records),
        codec=codec,
        level=level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
    )


def _repacked_unchanged(header: BatchHeader, found: Columns, codec: int, level: int | None) -> bytearray:
    """Compresses the bytes of the records as they are: their offsets need no change."""
    body = found.data.data
    if header.codec == NONE:
        body = body[HEADER_BYTES:]
    header = header._replace(
        base_offset=0,
        leader_epoch=-1,
        crc=0,
        attributes=header.attributes & ~CODEC_MASK | codec,
        last_offset_delta=header.record_count - 1,
        max_timestamp=int(found.timestamp.max()),
    )
    return assemble(header, compress(codec, body, level))


def _columns(records: memoryview, header: BatchHeader) -> Columns:
    from kafkalite.record.columns.record_columns import decode

    if header.codec != NONE and header.record_count > RECORDS_MAX:
        raise Malformed(f"the batch unpacks to {header.record_count} records, more than {RECORDS_MAX}")
    found = decode(records, max_bytes=RECORDS_BYTES_MAX)
    if len(found) != header.record_count:
        raise Malformed("a producer's batch has no control records")
    return found
