"""Conversion from old message formats to the stored one, and back for old clients.

Up (Produce 0-2): a set of v0 or v1 becomes one v2 batch with the topic's codec, or else its own. `validate` checks the
result as any batch; here only the set itself is checked: sizes and checksums of its entries, one format throughout, a
wrapper only by itself.
Down (Fetch 0-3): each batch becomes a set of v1 or v0, with the same offsets and the same codec. Headers, producer ids
and control batches have no place there and are left out; v0 has no timestamps. A batch of an old format stays as it is,
and zstd, which the formats never had, is refused.
Both go by way of a `Record` for each message, 3 to 4 us, and both are bounded: a batch of some hundred bytes may unpack
to gigabytes.
Source: org.apache.kafka.storage.internals.log.LogValidator, org.apache.kafka.common.record.RecordsUtil;
KIP-31, KIP-283.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.record.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
    build_batch,
    compute_crc,
)
from kafkalite.record.batches import read_batch
from kafkalite.record.compression import GZIP, NONE, ZSTD
from kafkalite.record.message_set import (
    CRC_FROM,
    MESSAGE_BYTES_MIN,
    V1,
    TooManyMessages,
    WrongChecksum,
    build_set,
    entry_header,
    read_inner,
    read_set,
    resolve,
)
from kafkalite.record.record import RECORDS_MAX, Record
from kafkalite.record.validation.batch_validation import KEEP_CODEC, Rules

_UP_TO_MAGIC = 17
_MESSAGE_BYTES_MIN = MESSAGE_BYTES_MIN + PREFIX_BYTES
MESSAGES_MAX = 50_000
"""Limit of messages in a set where `max.message.bytes` does not ask for more. Producers of that age gather a megabyte
at most before they compress it, which is 40,330 of the smallest messages; a wrapper of some kilobytes could hold ten
times that, and each takes 3 us of the loop."""
_GZIP_FAST_FROM_BYTES = 1 << 20
_GZIP_FAST_LEVEL = 1  # above that, for one reader only: 32 MiB of JSON take 0.2 s instead of 1 s
_old_head = Struct(">8xiIbb").unpack_from  # size, checksum, magic, attributes


# -- up


def to_batch(records: memoryview, rules: Rules) -> memoryview | None:
    """The v2 batch for the message set of an old producer (Produce 0-2), ready for `validate`.

    None if there is no whole message: nothing is to be appended then, which is no error. A partial message at the end
    is ignored. A v2 batch is returned as it is. Raises KafkaError with the code for the producer.
    """
    count_max = min(max(MESSAGES_MAX, rules.max_message_bytes // _MESSAGE_BYTES_MIN), RECORDS_MAX)
    count, magics, codec, end = _check_entries(records, rules, count_max)
    if not count:
        return None
    if count > 1 and (MAGIC in magics or codec != NONE):
        raise KafkaError(ErrorCode.INVALID_RECORD, "Compressed outer record has more than one batch")
    if len(magics) > 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"The messages are of different magics: {sorted(magics)}")
    if MAGIC in magics:
        return records[:end]
    try:
        found, any_append_time = _read(records[:end], entry_header(records), count_max)
    except TooManyMessages as error:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except WrongChecksum as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    except Malformed as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    if any_append_time and rules.log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "A producer should not set the time to LogAppendTime")
    if any(record.timestamp < -1 for record in found):
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "There is no time before the epoch")
    target = codec if rules.codec == KEEP_CODEC else rules.codec
    return memoryview(build_batch(found, codec=target, level=rules.codec_level))


def _read(entries: memoryview, header: BatchHeader, count_max: int) -> tuple[list[Record], bool]:
    """The records of whole entries, and whether any has LogAppendTime; `header` is the first entry's. Raises
    Malformed."""
    packed = header.codec != NONE
    found = read_inner(entries, max_records=count_max, check_crc=True) if packed else read_set(entries)
    if any(message.magic != header.magic for message in found):
        raise Malformed(f"Not every message in the wrapper is of its magic {header.magic}")
    if packed:
        return resolve(header, found), header.timestamp_type != 0
    records = [Record(message.offset, message.timestamp, message.key, message.value, ()) for message in found]
    return records, header.magic == V1 and any(message.attributes & LOG_APPEND_TIME for message in found)


def _check_entries(records: memoryview, rules: Rules, count_max: int) -> tuple[int, set[int], int, int]:
    """(number of whole entries, their magics, their codec, where they end) of a producer's set, whose sizes and
    checksums are right. Raises KafkaError."""
    at = count = codec = 0
    magics: set[int] = set()
    size_bytes = len(records)
    while size_bytes - at >= PREFIX_BYTES:
        size = int.from_bytes(records[at + 8 : at + PREFIX_BYTES], "big", signed=True) + PREFIX_BYTES
        if size < _MESSAGE_BYTES_MIN:
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
        crc, computed, attributes = _checksums(records[at : at + size], magic)
        if attributes & CODEC_MASK:
            codec = attributes & CODEC_MASK
            if codec > ZSTD:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {codec}")
        if crc != computed:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {crc})")
        magics.add(magic)
        count += 1
        if count > count_max:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"The set has more than {count_max} messages")
        at += size
    return count, magics, codec, at


def _checksums(entry: memoryview, magic: int) -> tuple[int, int, int]:
    """(stored checksum, computed checksum, attributes) of one entry. Raises KafkaError."""
    least = HEADER_BYTES if magic == MAGIC else _MESSAGE_BYTES_MIN + (8 if magic == V1 else 0)
    if len(entry) < least:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A message of {len(entry)} bytes where {least} are the least")
    if magic == MAGIC:
        return int.from_bytes(entry[17:21], "big"), compute_crc(entry), entry[22]
    _, crc, _, attributes = _old_head(entry)
    return crc, crc32(entry[CRC_FROM:]), attributes


def _too_large(size: int, rules: Rules) -> str:
    return f"The message has {size} bytes, more than the maximum configured value of {rules.max_message_bytes}"


# -- down


class NotConvertible(Exception):
    """A batch that the old format cannot express. `code` is the error for the client."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def to_old_format(header: BatchHeader, batch: memoryview, magic: int, from_offset: int) -> bytes | memoryview:
    """One stored batch, or entry of an older format, as a message set of format `magic`; b"" where nothing is left.

    A set that is not compressed begins at `from_offset`, since some readers reject an earlier message. Raises
    NotConvertible.
    """
    if header.is_control:
        return b""
    if header.codec == ZSTD:
        raise NotConvertible(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd is not known to message formats v0 and v1")
    if header.magic <= magic:
        return batch
    try:
        records = read_batch(batch)
        found = [record[:4] for record in records if header.codec != NONE or record.offset >= from_offset]
        if not found:
            return b""
        level = None
        if header.codec == GZIP and sum(len(row[3] or b"") for row in found) > _GZIP_FAST_FROM_BYTES:
            level = _GZIP_FAST_LEVEL
        return build_set(found, magic, codec=header.codec, timestamp_type=header.timestamp_type, level=level)
    except Malformed as error:
        raise NotConvertible(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
