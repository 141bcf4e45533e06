"""The records inside one batch, one Python object each: for tools, coordinators and tests.

    body length varint | attributes i8 | timestamp delta varint | offset delta varint | key length varint, key
    value length varint, value | header count varint, then each: key length varint, key, value length varint, value

A plain loop, about 0.5 M records/s. Readers of many records use `record_columns`, which is tested against this module.
Source: org.apache.kafka.common.record.DefaultRecord, with its rules for malformed records.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import HEADER_BYTES, MAGIC, BatchHeader, Buffer, parse_header
from kafkalite.record.compression import NONE, UNPACKED_BYTES_MAX, decompress

RECORD_BYTES_MIN = 7  # a body length of one byte and a body of six
RECORDS_BYTES_MAX = 32 << 20
RECORDS_MAX = 250_000
"""Limits for a batch that is unpacked into an object per record: producers send some megabytes and some ten thousand
records at most, and 250,000 are half a second of work and 60 MB. Callers that must read more pass limits of their
own."""
_NO_MAX = 1 << 31


class Record(NamedTuple):
    """One record as a consumer sees it. `timestamp` is in milliseconds, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_records(batch: Buffer, max_bytes: int = RECORDS_BYTES_MAX, max_records: int = RECORDS_MAX) -> list[Record]:
    """The records of one whole v2 batch, decompressed if necessary. The checksum is not verified.

    Raises Malformed when the records contradict the header, or unpack to more than `max_bytes` or `max_records`.
    """
    return read_body(*unpacked_batch(batch, max_bytes, max_records))


def record_times(batch: Buffer, max_bytes: int = UNPACKED_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record, lazily; keys and values are not copied.

    Raises Malformed as `read_records`, but does not see faults inside a record.
    """
    header, body = unpacked_batch(batch, max_bytes, _NO_MAX)
    size_bytes = len(body)
    log_append_time = header.max_timestamp if header.timestamp_type else None
    end = 0
    try:
        for _ in range(header.record_count):
            size, position = read_varint(body, end)
            end = position + size
            delta_ms, position = read_varint(body, position + 1, 64)
            offset_delta, position = read_varint(body, position)
            if not position <= end <= size_bytes:
                raise Malformed(f"a record of {size} bytes")
            timestamp = wrap(header.base_timestamp + delta_ms) if log_append_time is None else log_append_time
            yield wrap(header.base_offset + offset_delta), timestamp
    except (Malformed, IndexError) as error:
        why = "it ends inside a record" if isinstance(error, IndexError) else error
        raise Malformed(f"the batch at offset {header.base_offset} is corrupt: {why}") from None


def unpacked_batch(
    batch: Buffer, max_bytes: int = RECORDS_BYTES_MAX, max_records: int = RECORDS_MAX
) -> tuple[BatchHeader, Buffer]:
    """The header of one whole v2 batch, and its records, decompressed, for `read_body`. Raises Malformed as
    `read_records`, whose records may still contradict the header."""
    header = parse_header(batch)
    if header.magic != MAGIC:
        raise Malformed(f"the batch at offset {header.base_offset} has magic {header.magic}, not 2")
    if header.size_bytes != len(batch):
        raise Malformed(
            f"the batch at offset {header.base_offset} has {len(batch)} bytes; its header says {header.size_bytes}"
        )
    body: Buffer = memoryview(batch)[HEADER_BYTES:]
    if header.codec != NONE and header.record_count:
        body = decompress(header.codec, body, max_bytes)
        if header.record_count > max_records:  # others are bounded by their own bytes
            count, at = header.record_count, header.base_offset
            raise Malformed(f"the batch at offset {at} unpacks to {count} records, more than {max_records}")
    _check_count(header, body)
    return header, body


def _check_count(header: BatchHeader, body: Buffer) -> None:
    if not 0 <= header.record_count * RECORD_BYTES_MIN <= len(body):
        raise Malformed(f"the batch at offset {header.base_offset} cannot hold {header.record_count} records")


def read_body(header: BatchHeader, body: Buffer) -> list[Record]:
    """The records in `body`, which followed `header` and is decompressed."""
    data = bytes(body)  # keys and values are cut out of it; a body that was decompressed is bytes already: no copy
    _check_count(header, data)
    log_append_time = header.max_timestamp if header.timestamp_type else None
    records = []
    position = 0
    try:
        for _ in range(header.record_count):
            record, position = _read_record(data, position, header, log_append_time)
            records.append(record)
    except (Malformed, IndexError) as error:
        why = "it ends inside a record" if isinstance(error, IndexError) else error
        raise Malformed(f"the batch at offset {header.base_offset} is corrupt: {why}") from None
    if position != len(data):
        raise Malformed(f"the batch at offset {header.base_offset} has {len(data) - position} bytes after its records")
    return records


def _read_record(data: bytes, position: int, header: BatchHeader, timestamp: int | None) -> tuple[Record, int]:
    size, position = read_varint(data, position)
    end = position + size
    if size < 0 or end > len(data):
        raise Malformed(f"a record of {size} bytes where {len(data) - position} are left")
    position += 1  # the record's attributes: none are in use
    timestamp_delta, position = read_varint(data, position, 64)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise Malformed(f"a record with {count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position)
        if name is None:
            raise Malformed("a header without a key")
        content, position = _read_bytes(data, position)
        headers.append((name.decode(errors="replace"), content))
    if position != end:
        raise Malformed(f"a record of {size} bytes ends {position - end:+} bytes off")
    if timestamp is None:
        timestamp = wrap(header.base_timestamp + timestamp_delta)
    return Record(wrap(header.base_offset + offset_delta), timestamp, key, value, tuple(headers)), position


def check_record(data: bytes, position: int, end: int) -> int:
    """The position behind the record at `position`, by the rules of `read_records`, and without lengths below -1, which
    only Java reads; nothing is copied. Raises Malformed, IndexError."""
    size, position = read_varint(data, position)
    if not 0 <= size <= end - position:
        raise Malformed(f"a record of {size} bytes where {end - position} are left")
    end = position + size
    _, position = read_varint(data, position + 1, 64)
    _, position = read_varint(data, position)
    position = _skip_bytes(data, _skip_bytes(data, position))
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise Malformed(f"a record with {count} headers")
    for _ in range(count):
        field_bytes, position = read_varint(data, position)
        if field_bytes < 0:
            raise Malformed("a header without a key")
        position = _skip_bytes(data, position + field_bytes)
    if position != end:
        raise Malformed(f"a record of {size} bytes ends {position - end:+} bytes off")
    return end


def _skip_bytes(data: bytes, position: int) -> int:
    size, position = read_varint(data, position)
    if size < -1:
        raise Malformed(f"a field of {size} bytes")
    return position + max(size, 0)


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:  # -1 is null, and so is less for Java
        return None, position
    end = position + size
    if end > len(data):
        raise Malformed(f"a field of {size} bytes where {len(data) - position} are left")
    return data[position:end], end


def read_varint(data: Buffer, position: int, bits: int = 32) -> tuple[int, int]:
    """A zig-zag varint of at most `bits` bits, and the position behind it. Bits above are dropped. Raises IndexError
    where the data end."""
    # nearly all have one byte or two: a record of 100 bytes takes 1.8 us instead of 2.9 us
    value = data[position]
    if value < 0x80:
        return value >> 1 ^ -(value & 1), position + 1
    byte = data[position + 1]
    if byte < 0x80:
        value += (byte - 1) << 7
        return value >> 1 ^ -(value & 1), position + 2
    value = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << bits) - 1
            return value >> 1 ^ -(value & 1), position
    raise Malformed(f"a varint of more than {bits} bits")


def wrap(value: int) -> int:
    """`value` wrapped to 64 bits, as Java's and numpy's additions do."""
    return (value + (1 << 63) & (1 << 64) - 1) - (1 << 63)
