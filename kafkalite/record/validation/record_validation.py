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
from kafkalite.record.record import RECORDS_BYTES_MAX, RECORDS_MAX, read_records
from kafkalite.record.validation.record_structure import check_structure

if TYPE_CHECKING:
    from kafkalite.record.columns.record_columns import Columns

_THREAD = threading.local()  # the brokers of a test have a loop, and a thread, each

COLUMNS_MIN = 1000
MISNUMBERED_MAX = 20_000
"""Records whose offsets do not count from 0, as some old clients send them, are decoded and numbered anew; larger
batches are refused."""
FAULTS_MAX = 1000
"""Kafka lists every faulty record; a response that lists a quarter of a million of them is too large."""


class Faults(NamedTuple):
    """Indexes of records without a key, and (index, timestamp) of records that are too old: the first `FAULTS_MAX` of
    each."""

    without_key: list[int]
    too_old: list[tuple[int, int]]


def check_content(records: memoryview, codec: int, count: int, *, reads_records: bool) -> None:
    """Check that the batch can be decompressed, within the limits, and with `reads_records` that it has `count` whole
    records and nothing else. Raises Malformed."""
    body: Buffer = records[HEADER_BYTES:]
    if codec != NONE:
        _check_for_java(codec, body)
        if count > RECORDS_MAX:
            raise Malformed(f"the batch unpacks to {count} records, more than {RECORDS_MAX}")
        body = _codecs_of_thread().decompress(codec, body, RECORDS_BYTES_MAX)
    if reads_records:
        check_structure(body, count)


def _check_for_java(codec: int, body: Buffer) -> None:
    if not is_for_java(codec, body):
        raise Malformed("its lz4 frame has linked blocks, which Java's clients do not read")


def _codecs_of_thread() -> Codecs:
    try:
        found: Codecs = _THREAD.codecs
    except AttributeError:
        found = _THREAD.codecs = Codecs()
    return found


def find_faults(records: memoryview, *, keys_required: bool, earliest_ms: int) -> Faults:
    """The faulty records of one whole batch. A record without a timestamp (-1) is not too old.

    Raises Malformed when the records contradict the header, or are too many.
    """
    header = parse_header(records)
    _check_for_java(header.codec, records[HEADER_BYTES:])
    if header.record_count > COLUMNS_MIN:
        return _faults_in_columns(_columns(records, header), keys_required, earliest_ms)
    without_key: list[int] = []
    too_old: list[tuple[int, int]] = []
    for index, record in enumerate(read_records(records)):
        if keys_required and record.key is None:
            without_key.append(index)
        elif 0 <= record.timestamp < earliest_ms:
            too_old.append((index, record.timestamp))
    return Faults(without_key, too_old)


def _faults_in_columns(found: Columns, keys_required: bool, earliest_ms: int) -> Faults:
    import numpy as np

    no_key = found.key_is_null if keys_required else np.zeros(len(found), bool)
    earliest_ms = max(min(earliest_ms, (1 << 63) - 1), 0)
    old = np.flatnonzero(~no_key & (found.timestamp >= 0) & (found.timestamp < earliest_ms))[:FAULTS_MAX]
    return Faults(
        np.flatnonzero(no_key)[:FAULTS_MAX].tolist(),
        list(zip(old.tolist(), found.timestamp[old].tolist(), strict=True)),
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
