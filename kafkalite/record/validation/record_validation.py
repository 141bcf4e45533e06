"""Checks of every record of a producer's batch: that it can be read, and its content where the topic needs that
(missing keys, timestamps too long ago); and recompression with another codec.

A few hundred bytes can unpack to a quarter of a million records. One object each would hold the loop for a second and
more, so batches of more than `COLUMNS_MIN` records are decoded as columns, whose memory and time are bounded by
`RECORDS_BYTES_MAX` and `RECORDS_MAX` (200,000 records: 0.1 s instead of 1.3 s), and are recompressed as they are. numpy
is imported for the first of them.
Source: org.apache.kafka.storage.internals.log.LogValidator.

Records of one producer often have one shape: the same lengths, and deltas of as many bytes. `check_structure` compares
the bytes that make the shape of a record, some ten of them, with those of many records behind it at once, each as a
column: a slice of the batch whose step is the size of a record. 8,000 records of 100 bytes take 0.12 ms instead of 4.5
in the loop that checks all other records one by one. Many records of varied sizes without headers are left to
`record_starts.find_unknown`. `record.check_record` is the plain version, with which the tests compare.
Source: org.apache.kafka.common.record.DefaultRecord, with its rules for malformed records.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
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
from kafkalite.record.record import RECORDS_BYTES_MAX, RECORDS_MAX, check_record, read_records, read_varint, wrap
from kafkalite.record.validation.batch_shapes import known_shapes, remember, rows_alike, shape_of

if TYPE_CHECKING:
    from kafkalite.record.columns.record_columns import Columns


_RUN_MIN = 16
"""To find the shape and compare it costs as much as the loop for so many records."""
_AHEAD_GROWTH = 64
_AHEAD_MAX = 4096
"""Records of varied sizes before the next attempt at a run, if the last ones found none."""
_SHAPED_RECORDS_MIN = 500
"""From so many records of varied sizes on, columns take half the time of the loop. The first of them import numpy: 0.2
s of CPU, once, and 18 MB."""
_ROWS_FIRST = 128
_ROWS_GROWTH = 8


def check_structure(body: Buffer, count: int) -> None:
    """Check that `body` is `count` whole records. Raises Malformed."""
    known = known_shapes.get((len(body), count))
    if known is not None and known.fits(body, 0):
        return
    if count < 0:
        raise Malformed(f"its header counts {count} records")
    data = bytes(body)
    last = len(data)
    left = count
    end = 0
    ahead = 1
    try:
        while left > ahead + _RUN_MIN:
            start, end = _check_varied(data, end, ahead)
            left -= ahead
            run = _run_length(data, start, end, left)
            left -= run
            end += run * (end - start)
            ahead = 1 if run >= _RUN_MIN else min(ahead * _AHEAD_GROWTH, _AHEAD_MAX)
        _, end = _check_varied(data, end, left)
    except IndexError:
        end = last + 1
    if end != last:
        where = "its records end inside it" if end < last else "it ends inside a record"
        raise Malformed(f"{where}, which has {last} bytes for {count} records")
    remember(data, count)


def _run_length(data: bytes, start: int, end: int, count: int) -> int:
    """The number of records, `count` at most, that follow the good record from `start` to `end` and have its shape.

    0 also where too few seem to follow.
    """
    size = end - start
    if data[start : end + _RUN_MIN * size : size] != data[start : start + 1] * (_RUN_MIN + 1):
        return 0
    shape = shape_of(data, start)
    count = min(count, (len(data) - end) // size)
    rows = _ROWS_FIRST
    run = 0
    while shape and run < count:
        rows = min(rows, count - run)
        alike = rows_alike(data, end + run * size, size, rows, shape)
        run += alike
        if alike < rows:
            break
        rows *= _ROWS_GROWTH  # not all at once: a byte that differs wastes the rows behind it
    return run


def _check_varied(data: bytes, end: int, count: int) -> tuple[int, int]:
    """As `_check_each`, and faster for many records without headers."""
    if count < _SHAPED_RECORDS_MIN or data[end - 1 : end] != b"\0":  # the header count of the record before
        return _check_each(data, end, count)
    from kafkalite.record.columns.record_starts import find_unknown

    found = find_unknown(data, end, count)
    if found is None:
        return _check_each(data, end, count)
    unknown, start, end = found
    for begin in unknown:
        check_record(data, begin, len(data))
    return start, end


def _check_each(data: bytes, end: int, count: int) -> tuple[int, int]:
    """Check `count` records from `end`; returns where the last of them begins and ends. Raises Malformed, IndexError.

    Common records are checked here: lengths below 8,192, times within 17 minutes of the first, short headers. Others
    are left to `check_record`.
    """
    # inline: 0.5 us a record instead of 2 (python -m bench.validation)
    last = len(data)
    start = end
    for _ in repeat(None, count):
        start = end
        try:
            size = data[start]
            at = start + 1
            if size > 0x7F:
                size += (data[at] << 7) - 0x80
                at += 1
            end = at + (size >> 1)
            at += 1  # attributes
            time = data[at]
            if time > 0x7F:
                at += 1
                time = data[at]
                if time > 0x7F:
                    at += 1
                    time = data[at]
            at += 1
            offset = data[at]
            if offset > 0x7F:
                at += 1
                offset = data[at]
            key = data[at + 1]
            at += 2
            if key > 0x7F:
                key += (data[at] << 7) - 0x80
                at += 1
            if key != 1:
                at += key >> 1
            value = data[at]
            at += 1
            if value > 0x7F:
                value += (data[at] << 7) - 0x80
                at += 1
            if value != 1:
                at += value >> 1
            odd = headers = data[at]
            at += 1
            while headers and not odd & 0x81:
                name = data[at]
                at += 1 + (name >> 1)
                content = data[at]
                at += 1 + (content >> 1)
                odd |= name | content
                headers -= 2
            if (
                at == end
                and not (time | offset | odd) & 0x80
                and not (size | odd) & 1
                and size < 0x4000
                and (key == 1 or (not key & 1 and key < 0x4000))
                and (value == 1 or (not value & 1 and value < 0x4000))
            ):
                continue
        except IndexError:
            pass
        end = check_record(data, start, last)
    return start, end


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
