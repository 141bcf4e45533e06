"""From old message formats to the one that is stored, and back for readers who know no other.

Up (Produce 0-2): a set of v0 or v1 becomes one v2 batch, packed as the topic wants it, else as it came. What makes an
ordinary batch acceptable is asked of the result, by `validate`; here is asked what only the set can tell: sizes and
checksums of its entries, one format throughout, one wrapper and nothing beside it.
Down (Fetch 0-3): each batch becomes a set of v1 or v0, with the same offsets and the same codec. Headers, producer ids
and control batches have no place there and are left out; v0 has no timestamps. A batch that is old enough stays as it
is, and zstd, which the formats never had, is refused.
Both are bounded: a batch of some hundred bytes may unpack to gigabytes.
Source: org.apache.kafka.storage.internals.log.LogValidator, org.apache.kafka.common.record.RecordsUtil;
KIP-31, KIP-283.
"""

from __future__ import annotations

from struct import pack_into
from typing import NamedTuple

from kafkalite.errors import ErrorCode, KafkaError, Malformed
from kafkalite.log.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
    compute_crc,
    encode_records,
)
from kafkalite.log.compression import GZIP, NONE, ZSTD, compress
from kafkalite.log.message_set import (
    MESSAGE_BYTES_MIN,
    V1,
    WrongChecksum,
    base_offset,
    build_set,
    count_in,
    entry_header,
    read_inner,
    read_message,
    read_messages,
    read_set,
    resolve,
    unpack,
)
from kafkalite.log.message_set import compute_crc as compute_old_crc
from kafkalite.log.record import RECORDS_BYTES_MAX, RECORDS_MAX, Record, read_records
from kafkalite.log.record_check import COLUMNS_MIN
from kafkalite.log.validate import KEEP_CODEC, Rules

_UP_TO_MAGIC = 17
_GZIP_AT_LEISURE_BYTES = 1 << 20
_GZIP_LEVEL = 1  # of what is more than that, for one reader only: 32 MiB of JSON take 0.2 s instead of 1 s


# up


def to_batch(records: memoryview, rules: Rules) -> memoryview | None:
    """The one v2 batch that a producer of old (Produce 0-2) has sent in its own format, ready to be appended.

    None if there is no whole message: nothing is to be appended then, and nothing is wrong. A part of a message at the
    end is passed over, as ever. A v2 batch is given back as it is. Raises KafkaError with the code for the producer.
    """
    count, magics, codec, end = _check_entries(records, rules)
    if not count:
        return None
    if count > 1 and (MAGIC in magics or codec != NONE):
        raise KafkaError(ErrorCode.INVALID_RECORD, "Compressed outer record has more than one batch")
    if len(magics) > 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"The messages are of different magics: {sorted(magics)}")
    if MAGIC in magics:
        return records[:end]
    try:
        found = _read(records[:end], entry_header(records))
    except WrongChecksum as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    except Malformed as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    if found.any_append_time and rules.log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "A producer should not set the time to LogAppendTime")
    if found.min_timestamp < -1:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "There is no time before the epoch")
    target = codec if rules.codec == KEEP_CODEC else rules.codec
    return memoryview(found.batch(target, rules.codec_level))


class _Body(NamedTuple):
    """The records of a v2 batch without producer, before compression, and what its header says of them."""

    data: bytes
    record_count: int
    base_timestamp: int
    min_timestamp: int
    max_timestamp: int
    any_append_time: bool

    def batch(self, codec: int, level: int | None) -> bytearray:
        packed = compress(codec, self.data, level)
        out = bytearray(HEADER_BYTES + len(packed))
        out[HEADER_BYTES:] = packed
        pack_into(
            ">qiibIhiqqqhii", out, 0, 0, len(out) - PREFIX_BYTES, -1, MAGIC, 0, codec, self.record_count - 1,
            self.base_timestamp, max(self.max_timestamp, -1), -1, -1, -1, self.record_count,
        )  # fmt: skip
        pack_into(">I", out, 17, compute_crc(out))
        return out


def _read(entries: memoryview, header: BatchHeader) -> _Body:
    """What is in whole entries, of which `header` is the first one's. Raises Malformed."""
    packed = header.codec != NONE
    data = unpack(read_message(entries)) if packed else bytes(entries)
    if count_in(data) > COLUMNS_MIN:
        return _read_many(data, header)
    found = read_inner(entries, check_crc=True) if packed else read_set(data)
    if any(message.magic != header.magic for message in found):
        raise Malformed(f"Not every message in the wrapper is of its magic {header.magic}")
    if packed:
        any_append_time = header.timestamp_type != 0
        records = resolve(header, found)
    else:
        any_append_time = header.magic == V1 and any(message.attributes & LOG_APPEND_TIME for message in found)
        records = [Record(i, message.timestamp, message.key, message.value, ()) for i, message in enumerate(found)]
    times = [record.timestamp for record in records]
    body = bytes(encode_records(records, range(len(records)), times[0]))
    return _Body(body, len(records), times[0], min(times), max(times), any_append_time)


def _read_many(data: bytes, header: BatchHeader) -> _Body:
    from kafkalite.log.message_columns import encode_columns, read_columns

    packed = header.codec != NONE
    found = read_columns(data, RECORDS_MAX, check_crc=packed)
    if found.magic != header.magic:
        raise Malformed(f"The messages in the wrapper are not of its magic {header.magic}")
    any_append_time = found.any_append_time
    if packed:
        base_offset(header, int(found.offset[-1]))
        any_append_time = header.timestamp_type != 0
        if any_append_time:
            found.timestamp[:] = header.max_timestamp
    times = found.timestamp
    return _Body(encode_columns(found), len(found), int(times[0]), int(times.min()), int(times.max()), any_append_time)


def _check_entries(records: memoryview, rules: Rules) -> tuple[int, set[int], int, int]:
    """(number of whole entries, their magics, their codec, where they end) of a producer's set. Raises KafkaError.

    Each has been found sound: its size, and its checksum.
    """
    at = count = codec = 0
    magics: set[int] = set()
    size_bytes = len(records)
    while size_bytes - at >= PREFIX_BYTES:
        size = int.from_bytes(records[at + 8 : at + PREFIX_BYTES], "big", signed=True) + PREFIX_BYTES
        if size < MESSAGE_BYTES_MIN + PREFIX_BYTES:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A message of {size} bytes is less than any takes")
        if size_bytes - at < _UP_TO_MAGIC:
            break
        magic = records[at + _UP_TO_MAGIC - 1]
        if magic > MAGIC:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"There is no message with magic {magic}")
        if size > size_bytes - at:
            break
        if size > rules.max_message_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, _too_large(size, rules))
        entry = records[at : at + size]
        crc, attributes = _crc_and_attributes(entry, magic)
        if attributes & CODEC_MASK:
            codec = attributes & CODEC_MASK
            if codec > ZSTD:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {codec}")
        if crc != (compute_crc(entry) if magic == MAGIC else compute_old_crc(entry)):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {crc})")
        magics.add(magic)
        count += 1
        if count > RECORDS_MAX:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"The set has more than {RECORDS_MAX} messages")
        at += size
    return count, magics, codec, at


def _crc_and_attributes(entry: memoryview, magic: int) -> tuple[int, int]:
    least = HEADER_BYTES if magic == MAGIC else MESSAGE_BYTES_MIN + PREFIX_BYTES + (8 if magic == V1 else 0)
    if len(entry) < least:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A message of {len(entry)} bytes where {least} are the least")
    if magic == MAGIC:
        return int.from_bytes(entry[17:21], "big"), entry[22]
    return int.from_bytes(entry[12:16], "big"), entry[17]


def _too_large(size: int, rules: Rules) -> str:
    return f"The message has {size} bytes, more than the maximum configured value of {rules.max_message_bytes}"


# down


class NotConvertible(Exception):
    """This batch cannot be had in an old format. `code` is what a reader is told."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


def to_old_format(header: BatchHeader, batch: memoryview, magic: int, from_offset: int) -> bytes | memoryview:
    """One stored batch, or entry of an older format, as a message set of format `magic`; b"" where nothing is left.

    What is not compressed begins at `from_offset`: some readers take an older message for a fault. Raises
    NotConvertible.
    """
    if header.is_control:
        return b""
    if header.codec == ZSTD:
        raise NotConvertible(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd is not known to message formats v0 and v1")
    if header.magic <= magic:
        return batch
    try:
        found = _plain(header, batch)
        if header.codec == NONE:
            found = [record for record in found if record[0] >= from_offset]
        if not found:
            return b""
        level = None
        if (
            header.codec == GZIP
            and sum(len(value) for *_, value in found if value is not None) > _GZIP_AT_LEISURE_BYTES
        ):
            level = _GZIP_LEVEL
        return build_set(found, magic, codec=header.codec, timestamp_type=header.timestamp_type, level=level)
    except Malformed as error:
        raise NotConvertible(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None


def _plain(header: BatchHeader, batch: memoryview) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """(offset, timestamp, key, value) of each record. Raises Malformed, also when they are too many."""
    if header.magic != MAGIC:
        return [record[:4] for record in read_messages(batch)]
    if header.record_count <= COLUMNS_MIN:
        return [record[:4] for record in read_records(batch)]
    from kafkalite.log.columns import decode

    if header.codec != NONE and header.record_count > RECORDS_MAX:
        raise Malformed(f"the batch at offset {header.base_offset} unpacks to more than {RECORDS_MAX} records")
    found = decode(batch, max_bytes=RECORDS_BYTES_MAX)
    data = found.data.tobytes()
    return [
        (offset, timestamp, None if key_end < key else data[key:key_end], None if end < value else data[value:end])
        for offset, timestamp, key, key_end, value, end in zip(
            found.offset.tolist(),
            found.timestamp.tolist(),
            found.key_start.tolist(),
            found.key_end.tolist(),
            found.value_start.tolist(),
            found.value_end.tolist(),
            strict=True,
        )
    ]
