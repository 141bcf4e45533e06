"""Record batches, format v2: the header of 61 bytes, the checksum, and how a batch is built.

    0 base offset i64    8 length i32 (from here on)  12 leader epoch i32   16 magic i8 = 2   17 crc u32
    21 attributes i16   23 last offset delta i32         27 base timestamp i64 35 max timestamp i64
    43 producer id i64  51 producer epoch i16            53 base sequence i32  57 record count i32   61 records

The CRC-32C covers byte 21 to the end. Base offset and leader epoch lie before it, so a broker stamps both into the
memory that it received and rewrites no record. `parse_header`, `stamp` and `iter_batches` are on the hot
path: one struct call and one tuple each.
Source: org.apache.kafka.common.record.DefaultRecordBatch, DefaultRecord; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.compression import NONE, compress

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str | bytes, bytes | None]]

HEADER_BYTES = 61
PREFIX_BYTES = 12  # base offset and length, which `batch_length` does not count
BATCH_LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES  # the length of a batch without records
CRC_FROM = 21  # the checksum covers everything from here on
MAGIC = 2
MAGIC_AT = 16  # in the messages of older formats, too
ATTRIBUTES_AT = 21
SEQUENCE_MAX = (1 << 31) - 1  # sequences wrap from here to 0

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")


class BatchHeader(NamedTuple):
    """The header of a batch, 61 bytes, whose values are not checked; of a message of formats v0 and v1 as
    `message_set.entry_header` has it, with the message's offset as base and last offset."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record, even if compaction has removed that record: the delta stays."""
        return self.base_offset + self.last_offset_delta

    @property
    def first_offset(self) -> int | None:
        """None for a compressed message of formats v0 and v1, whose first offset is known only after decompression."""
        return self.base_offset if self.magic == MAGIC or not self.attributes & CODEC_MASK else None

    def begins_by(self, offset: int) -> bool:
        """Whether the batch may begin at or before `offset`."""
        first = self.first_offset
        return first is None or first <= offset

    @property
    def size_bytes(self) -> int:
        return self.batch_length + PREFIX_BYTES

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0: each record has its own (CreateTime); 1: all have `max_timestamp` (LogAppendTime)."""
        return self.attributes >> 3 & 1

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """`base_timestamp` holds the time from which compaction may drop the batch's tombstones."""
        return self.attributes & DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """-1 without a producer id."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


# 0.33 us instead of 0.60 us for BatchHeader(*fields): the tuple is made from the struct's own
unpack_header = _unpack = _HEADER.unpack_from
_make = tuple.__new__


def parse_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, with unchecked values. Raises Malformed if there are fewer than 61 bytes."""
    try:
        return _make(BatchHeader, _unpack(data, position))
    except struct.error:
        raise Malformed(f"{len(data) - position} bytes are no record batch: its header alone takes 61") from None


def sequence_at(base_sequence: int, delta: int) -> int:
    """Sequences wrap from 2^31-1 to 0; -1 for a batch that has none."""
    return (base_sequence + delta) & SEQUENCE_MAX if base_sequence >= 0 else -1


stamp_prefix = struct.Struct(">qii").pack_into
"""Writes base offset, length and leader epoch at a position; `stamp` for those who know the length: half the time."""


def stamp(data: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Writes the base offset and the leader epoch into the batch, in place. The checksum does not cover them."""
    _BASE_OFFSET.pack_into(data, 0, base_offset)
    _LEADER_EPOCH.pack_into(data, 12, leader_epoch)


def stamp_log_append_time(data: bytearray | memoryview, now_ms: int) -> None:
    """Makes `now_ms` the timestamp of every record, in place, and corrects the checksum."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(data, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(data, 35, now_ms)
    _CRC.pack_into(data, 17, compute_crc(data))


def compute_crc(data: Buffer) -> int:
    """CRC-32C of one whole batch, to be compared with its header's `crc`."""
    return crc32c(memoryview(data)[CRC_FROM:])


def iter_batches(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches in `data`, front to back, up to a batch that is cut off.

    Raises Malformed where no v2 batch can begin. Checksums are not verified.
    """
    view = memoryview(data)
    size = len(view)
    position = 0
    while size - position >= HEADER_BYTES:
        header = _make(BatchHeader, _unpack(view, position))
        if header[3] != MAGIC or header[1] < BATCH_LENGTH_MIN:
            break
        end = position + header[1] + PREFIX_BYTES
        if end > size:
            return
        yield header, view[position:end]
        position = end
    if size - position > MAGIC_AT and view[position + MAGIC_AT] != MAGIC:
        raise Malformed(f"no v2 record batch at position {position}: its magic is {view[position + MAGIC_AT]}")
    if size - position >= HEADER_BYTES:
        raise Malformed(f"no record batch at position {position}: its length says {parse_header(view, position)[1]}")


class RecordLike(Protocol):
    """A `NewRecord`, or a `Record` that was read, whose offset is ignored."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def timestamp(self) -> int: ...


class NewRecord(NamedTuple):
    """A record that has no offset yet. `timestamp` is in milliseconds."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = -1


def build_batch(
    records: Sequence[RecordLike],
    *,
    base_offset: int = 0,
    codec: int = NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = 0,
    level: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """One batch of `records`, checksum included, in memory that may be stamped.

    Offsets count up from `base_offset` unless `offset_deltas` says otherwise (compaction leaves gaps). Without records
    it is the header alone, as compaction keeps it for the producer's state.
    """
    timestamps = [record.timestamp for record in records]
    base_timestamp = timestamps[0] if timestamps else -1
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    body = encode_records(records, deltas, base_timestamp)
    packed = compress(codec, body, level) if codec and records else body
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if records else 0
    attributes = (codec if records else NONE) | timestamp_type << 3
    attributes |= (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC, 0, attributes, last_offset_delta, base_timestamp,
        max(timestamps, default=-1), producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    return assemble(header, packed)


def assemble(header: BatchHeader, packed: Buffer) -> bytearray:
    """The batch of `header`, whose length and checksum are computed, and of records that are already compressed."""
    out = bytearray(HEADER_BYTES + len(packed))
    _HEADER.pack_into(out, 0, header[0], len(out) - PREFIX_BYTES, *header[2:])
    out[HEADER_BYTES:] = packed
    _CRC.pack_into(out, 17, compute_crc(out))
    return out


def assemble_header(header: BatchHeader, packed: Buffer) -> bytearray:
    """The beginning of `assemble`, up to the records, which are not copied: to be sent with them behind it."""
    out = bytearray(HEADER_BYTES)
    _HEADER.pack_into(out, 0, header[0], HEADER_BYTES + len(packed) - PREFIX_BYTES, *header[2:])
    _CRC.pack_into(out, 17, crc32c(packed, compute_crc(out)))
    return out


def build_batch_at(
    timestamp_ms: int,
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """`build_batch` for (key, value) pairs of one time, without headers or compression: 1.3 us instead of 3.5 us for
    one record, 5.3 us instead of 11 us for ten (coordinators append one with every commit)."""
    out = bytearray(HEADER_BYTES)
    for delta, (key, value) in enumerate(records):
        out += _encode_record(0, delta, key, value, ())
    count = len(records)
    attributes = TRANSACTIONAL if transactional else 0
    _HEADER.pack_into(
        out, 0, 0, len(out) - PREFIX_BYTES, -1, MAGIC, 0, attributes, count - 1, timestamp_ms, timestamp_ms,
        producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    _CRC.pack_into(out, 17, compute_crc(out))
    return out


def encode_records(records: Iterable[RecordLike], deltas: Iterable[int], base_timestamp: int) -> bytearray:
    """The records of a batch as they follow its header, before compression."""
    out = bytearray()
    for record, delta in zip(records, deltas, strict=True):
        out += _encode_record(record.timestamp - base_timestamp, delta, record.key, record.value, record.headers)
    return out


def _encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    # joined from bytes: 0.9 us instead of 1.2 us with a bytearray that grows by each field
    body = b"".join(
        (
            _RECORD_ATTRIBUTES,
            varint(timestamp_delta),
            varint(offset_delta),
            _NULL if key is None else varint(len(key)),
            key or b"",
            _NULL if value is None else varint(len(value)),
            value or b"",
            varint(len(headers)),
        )
    )
    if headers:
        body += b"".join([_sized(each) for header in headers for each in header])
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    """`value` as a zig-zag varint: seven bits a byte, low bits first, the same for 32 and 64 bits."""
    if 0 <= value < _SMALL_VARINTS_MAX:
        return _SMALL_VARINTS[value]
    return _encode_varint(value)


def append_varint(out: bytearray, value: int) -> None:
    """Append `value` as a varint."""
    value = value << 1 ^ value >> 63
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


_SMALL_VARINTS_MAX = 256
_SMALL_VARINTS = [_encode_varint(value) for value in range(_SMALL_VARINTS_MAX)]
_RECORD_ATTRIBUTES = b"\0"  # none are in use
_NULL = _encode_varint(-1)


def _sized(data: bytes | str | None) -> bytes:
    if data is None:
        return _NULL
    encoded = data.encode() if isinstance(data, str) else data
    return varint(len(encoded)) + encoded
