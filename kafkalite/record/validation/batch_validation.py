"""Checks of batches before they are appended: a leader's, with the changes that the topic's settings ask for, and a
follower's.

Of a producer, the header and the checksum are checked: one v2 batch, its own length, offsets that count from 0, no bits
that only the broker may set. Then, as kafkalite.record.validation says, that the content can be read: consumers in C
ask for a batch that they cannot read again and again. The values inside records are read only where the topic needs it:
compacted topics (a null key), a bound on how old a record may be, another codec than the producer's. Otherwise the
largest timestamp of the header is trusted.
The bytes of a leader, which has validated the records, stay as they are. Checked is that they are whole: lengths,
checksums, ascending offsets. A fetch ends where its limit was reached, so the last batch may be cut off, and is
ignored. Old topics have messages of formats v0 and v1; each counts as a batch of one offset. A mirror's batches have
the offsets of another log; they are checked as a follower's, and as a client's.
Source: org.apache.kafka.storage.internals.log.LogValidator, org.apache.kafka.common.requests.ProduceRequest
(validateRecords), kafka.log.UnifiedLog.analyzeAndValidateRecords: same conditions, order and codes; KAFKA-18723 (epochs
above the leader's).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import error as struct_error

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.topic_config import TopicConfig
from kafkalite.record import message_set
from kafkalite.record.batch import (
    BATCH_LENGTH_MIN,
    CONTROL,
    CRC_FROM,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    parse_header,
    stamp,
    stamp_log_append_time,
    unpack_header,
)
from kafkalite.record.compression import CODEC_NAMES, CODECS
from kafkalite.record.validation.batch_shapes import known_shapes
from kafkalite.record.validation.record_validation import check_content, find_faults, repack

_BROKERS_BITS = LOG_APPEND_TIME | CONTROL
_UNUSUAL_BITS = _BROKERS_BITS | TRANSACTIONAL
_CODEC_MAX = len(CODEC_NAMES) - 1
_ZSTD = CODECS["zstd"]
_ZSTD_PRODUCE_VERSION_MIN = 7
KEEP_CODEC = -1  # compression.type=producer: as the batch came
_REFUSED_BY_LOG = (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
_FAR = (1 << 63) - 1
_LENGTH_MIN = 14  # the smallest message, of format v0
_UP_TO_MAGIC = 17  # fewer bytes are no batch for Kafka


class InvalidRecords(KafkaError):
    """The log refuses the batch. `record_errors` has (index in the batch, message) of each faulty record, and is empty
    if the batch as a whole is at fault; Produce v8 and later carry them."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class Rules:
    """The settings of a topic, and kafkalite.record.validation, in the form that `validate` needs. `rewrites`: batches
    may have to change."""

    __slots__ = (
        "after_max_ms", "batch_bytes_max", "before_max_ms", "checks_frames", "checks_records", "codec", "codec_level",
        "compacted", "log_append_time", "max_message_bytes", "reads_records", "rewrites", "segment_bytes",
    )  # fmt: skip

    def __init__(self, config: TopicConfig, record_validation: str = "records") -> None:
        self.checks_records = record_validation == "records"
        self.checks_frames = record_validation != "none"
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.compacted = "compact" in config.cleanup_policy
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        bounded = not self.log_append_time
        self.before_max_ms = config.message_timestamp_before_max_ms if bounded else _FAR
        self.after_max_ms = config.message_timestamp_after_max_ms if bounded else _FAR
        name = config.compression_type
        self.codec = KEEP_CODEC if name == "producer" else CODECS.get(name, 0)  # "uncompressed" is codec 0
        # the size that it has with the topic's codec decides whether a segment has room for it
        at_once = self.segment_bytes if self.codec == KEEP_CODEC else self.max_message_bytes
        self.batch_bytes_max = min(self.max_message_bytes, at_once)
        levels = {
            "gzip": config.compression_gzip_level,
            "lz4": config.compression_lz4_level,
            "zstd": config.compression_zstd_level,
        }
        self.codec_level = levels.get(name)
        self.reads_records = self.compacted or self.before_max_ms < _FAR
        self.rewrites = self.log_append_time or self.codec != KEEP_CODEC

    def check_copies(self, records: memoryview, next_offset: int, leader_epoch: int) -> ReplicaBatches:
        """As `check_batches`, for a mirror's batches, which keep their offsets; stamps this leader's epoch on them. A
        mirror is a client, so the content must be readable, and no larger than the topic allows. The records are those
        of a log: they may lack keys, be old, and have the time of an append. Raises KafkaError."""
        batches = check_batches(records, next_offset)
        if batches.size_bytes != len(records):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the last batch is cut off")
        headers = []
        position = 0
        for header in batches.headers:
            batch = records[position : position + header.size_bytes]
            self._check_copy(batch, header)
            stamp(batch, header.base_offset, leader_epoch)
            headers.append(header._replace(leader_epoch=leader_epoch))
            position += header.size_bytes
        return batches._replace(headers=headers)

    def _check_copy(self, batch: memoryview, header: BatchHeader) -> None:
        size, count = header.size_bytes, header.record_count
        if size > self.batch_bytes_max:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, _too_large(size, self.batch_bytes_max))
        if header.magic != MAGIC or header.producer_id >= 0 or header.attributes & (TRANSACTIONAL | CONTROL):
            fault = "is of an old format, or has a producer"
        elif header.codec > _CODEC_MAX or not 0 <= count <= header.last_offset_delta + 1:
            fault = "has an unknown codec, or more records than offsets"
        elif not count:
            fault = "has no records, and yet bytes of them" if size > HEADER_BYTES else ""
        else:
            fault = ""
            if self.checks_frames:
                try:
                    check_content(batch, header.codec, count, reads_records=self.checks_records)
                except Malformed as error:
                    fault = f"cannot be read: {error}"
        if fault:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch at offset {header.base_offset} {fault}")


def validate(
    records: memoryview, rules: Rules, now_ms: int, produce_version: int, transactional: bool = False
) -> tuple[int, ...]:
    """The fields of the `BatchHeader` of the one batch that `records` must be; as a plain tuple, which takes 0.2 us
    less. `transactional`: the request has a transactional id, so the batch may be transactional. Raises KafkaError with
    the code for the producer."""
    try:
        header: tuple[int, ...] = unpack_header(records)
    except struct_error:
        raise _no_batch(records) from None
    base_offset, length, _, magic, crc, attributes, delta, _, max_timestamp_ms, producer_id, _, sequence, count = header
    size = length + PREFIX_BYTES
    if (
        size != len(records)
        or magic != MAGIC
        or base_offset
        or size > rules.batch_bytes_max
        or crc != crc32c(records[CRC_FROM:])
        or delta + 1 != count
        or count <= 0
        or (producer_id >= 0 and sequence < 0)
        or max_timestamp_ms - now_ms > rules.after_max_ms
        or (
            not 0 <= attributes < _ZSTD
            and (
                (attributes & _UNUSUAL_BITS and (attributes & _BROKERS_BITS or not transactional))
                or attributes & 7 > _ZSTD
                or (attributes & 7 == _ZSTD and produce_version < _ZSTD_PRODUCE_VERSION_MIN)
            )
        )
    ):
        raise _refusal(records, parse_header(records), rules, now_ms, produce_version, transactional)
    if rules.reads_records:
        _check_records(records, rules, now_ms)
    elif rules.checks_records or (rules.checks_frames and attributes & 7):
        if (
            not attributes & 7
            and (known := known_shapes.get((size - HEADER_BYTES, count))) is not None
            and known.fits(records, HEADER_BYTES)
        ):
            return header
        try:
            check_content(records, attributes & 7, count, reads_records=rules.checks_records)
        except Malformed as error:
            raise InvalidRecords(ErrorCode.INVALID_RECORD, str(error), []) from None
    return header


def _no_batch(records: memoryview) -> KafkaError:
    """The error for bytes that hold no batch, or are too few for one."""
    size = len(records)
    if size >= PREFIX_BYTES and (length := _length(records)) < _LENGTH_MIN:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A batch of {length} bytes is less than any record takes")
    if size >= _UP_TO_MAGIC:
        if not 0 <= (magic := records[_UP_TO_MAGIC - 1]) <= MAGIC:
            return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"There is no batch with magic {magic}")
        if magic == MAGIC and length <= size - PREFIX_BYTES:
            return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A batch of {length} bytes is less than its header takes")
    return KafkaError(ErrorCode.INVALID_RECORD, f"{size} bytes hold no whole record batch, and there must be one")


def _length(records: memoryview) -> int:
    """The length that a batch states in front of itself: its bytes without the first twelve."""
    return int.from_bytes(records[8:PREFIX_BYTES], "big", signed=True)


def faults(
    records: memoryview, header: BatchHeader, rules: Rules, now_ms: int, produce_version: int, transactional: bool
) -> Iterator[tuple[ErrorCode, str]]:
    """The faults of a batch in the order of Kafka's checks; the first one decides the error.

    Invariant: there is a fault if and only if the condition in `validate` is true, which asks for all at once.
    """
    size = header.size_bytes
    codec, last_delta, count = header.codec, header.last_offset_delta, header.record_count
    requests = f"Produce requests with version {produce_version}"
    if header.magic != MAGIC:
        only = f"may only contain record batches with magic version 2, not {header.magic}"
        yield ErrorCode.INVALID_RECORD, f"{requests} {only}"
    if header.is_transactional and not transactional:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        yield code, "A transactional record batch came without a transactional id"
    if codec == _ZSTD and produce_version < _ZSTD_PRODUCE_VERSION_MIN:
        yield ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{requests} may not use ZStandard compression"
    behind = records[size:]
    is_batch = len(behind) >= _UP_TO_MAGIC and behind[_UP_TO_MAGIC - 1] <= MAGIC
    if is_batch and _LENGTH_MIN <= _length(behind) <= len(behind) - PREFIX_BYTES:
        yield ErrorCode.INVALID_RECORD, f"{requests} must contain exactly one record batch per partition"
    elif (error := _no_batch(behind)).code == ErrorCode.CORRUPT_MESSAGE:
        yield error.code, str(error)
    if header.base_offset != 0:
        expected = f"The base offset of an appended record batch should be 0, but it is {header.base_offset}"
        yield ErrorCode.INVALID_RECORD, expected
    if size > rules.max_message_bytes:
        yield ErrorCode.MESSAGE_TOO_LARGE, _too_large(size, rules.max_message_bytes)
    if size < HEADER_BYTES:
        yield ErrorCode.CORRUPT_MESSAGE, f"A batch of {size} bytes is less than its header takes"
    if header.crc != crc32c(records[CRC_FROM:size]):
        yield ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})"
    if codec > _CODEC_MAX:
        yield ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {codec}"
    if behind:
        yield ErrorCode.INVALID_RECORD, f"There are {len(behind)} bytes behind the record batch"
    if last_delta < 0:
        yield ErrorCode.INVALID_RECORD, f"Batch has an invalid offset range: [0, {last_delta}]"
    if count <= 0:
        yield ErrorCode.INVALID_RECORD, f"Invalid reported count for record batch: {count}"
    if last_delta + 1 != count:
        inconsistent = f"Inconsistent batch offset range [0, {last_delta}] and count of records {count}"
        yield ErrorCode.INVALID_RECORD, inconsistent
    if header.is_control:
        yield ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records"
    if header.producer_id >= 0 and header.base_sequence < 0:
        invalid = f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}"
        yield ErrorCode.INVALID_RECORD, invalid
    if header.timestamp_type != 0:
        yield ErrorCode.INVALID_TIMESTAMP, "Invalid timestamp type: a producer should not set it to LogAppendTime"
    if header.max_timestamp - now_ms > rules.after_max_ms:
        late = f"it should not be later than {now_ms + rules.after_max_ms}"
        yield ErrorCode.INVALID_TIMESTAMP, f"Timestamp {header.max_timestamp} is out of range: {late}"
    if size > rules.batch_bytes_max:
        limit = f"the maximum segment size of {rules.segment_bytes}"
        yield ErrorCode.RECORD_LIST_TOO_LARGE, f"The record batch has {size} bytes, more than {limit}"


def _refusal(
    records: memoryview, header: BatchHeader, rules: Rules, now_ms: int, produce_version: int, transactional: bool
) -> KafkaError:
    """Kafka's error for a faulty batch."""
    size = header.size_bytes
    if header.batch_length < _LENGTH_MIN or not 0 <= header.magic <= MAGIC or size > len(records):
        return _no_batch(records)
    fault = next(faults(records, header, rules, now_ms, produce_version, transactional), None)
    assert fault is not None, f"nothing is wrong with {header}"
    code, message = fault
    if code in _REFUSED_BY_LOG and header.magic == MAGIC and size == len(records):
        return InvalidRecords(code, message, [])  # the batch is well-formed, and the log refuses it
    return KafkaError(code, message)


def _too_large(size: int, limit: int) -> str:
    return f"The record batch has {size} bytes, more than the maximum configured value of {limit}"


def _check_records(records: memoryview, rules: Rules, now_ms: int) -> None:
    """Checks the keys and the ages of all records."""
    earliest_ms, latest_ms = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    try:
        faults = find_faults(records, keys_required=rules.compacted, earliest_ms=earliest_ms, latest_ms=latest_ms)
    except Malformed as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    null_keys = [(index, "Compacted topic cannot accept message without key") for index in faults.without_key]
    out_of_range = [
        (index, f"Timestamp {timestamp} of message is out of range: [{earliest_ms}, {latest_ms}]")
        for index, timestamp in faults.out_of_range
    ]
    if null_keys:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, "One or more records have been rejected", null_keys)
    if out_of_range:
        raise InvalidRecords(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            out_of_range,
        )


def rewrite(records: memoryview, header: BatchHeader, rules: Rules, now_ms: int) -> tuple[memoryview, BatchHeader]:
    """The batch with the topic's codec, and with the broker's time where the topic has LogAppendTime. Raises
    KafkaError.

    The time is stamped in place; another codec means new memory. Control batches are never compressed.
    """
    if rules.codec != KEEP_CODEC and not header.is_control:
        if rules.codec != header.codec:
            try:
                records = memoryview(repack(records, rules.codec, rules.codec_level))
            except Malformed as error:
                raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
        size = len(records)
        if size > rules.max_message_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, _too_large(size, rules.max_message_bytes))
        if size > rules.segment_bytes:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, _too_large(size, rules.segment_bytes))
    if rules.log_append_time:
        if header.is_transactional:  # if it must be verified first, it comes again as it was
            records = memoryview(bytearray(records))
        stamp_log_append_time(records, now_ms)
    return records, parse_header(records)


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
            raise _replica_refusal(header, position, next_offset, leader_epoch, is_whole=is_whole)
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


def _replica_refusal(
    header: BatchHeader, position: int, next_offset: int, leader_epoch: int, *, is_whole: bool
) -> KafkaError:
    if not is_whole:
        fault = f"the batch at byte {position} is corrupt (stored crc = {header.crc}, {header.size_bytes} bytes)"
    elif header.base_offset < next_offset:
        fault = f"a batch that begins at offset {header.base_offset} comes after offset {next_offset - 1}"
    else:
        fault = f"a batch of leader epoch {header.leader_epoch} comes from the leader of epoch {leader_epoch}"
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, fault)
