"""Message sets, formats v0 and v1: as producers and brokers before Kafka 0.11 wrote them.

    0 offset i64   8 size i32 (from here on)   12 crc u32   16 magic i8 = 0, 1   17 attributes i8
    v1 only: 18 timestamp i64      then: key size i32 (-1 is null), key, value size i32, value

An entry is one message, with a checksum (CRC-32, from the magic on) and an offset of its own. A compressed entry is a
wrapper: its value is a whole set, compressed; it has the offset of the last message inside and the latest timestamp.
Offsets inside are absolute in v0; in v1 they count from 0 and end at the wrapper's, so the first offset of a wrapper is
known only after decompression. Where the wrapper has LogAppendTime, its timestamp holds for all messages inside.
The header of an lz4 frame inside v0 has a wrong checksum: producers of that time computed it over too many bytes.
Source: org.apache.kafka.common.record.LegacyRecord, AbstractLegacyRecordBatch, MemoryRecordsBuilder; KIP-31, KIP-32,
KIP-57.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from zlib import crc32

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import CODEC_MASK, LOG_APPEND_TIME, PREFIX_BYTES, BatchHeader, Buffer
from kafkalite.record.compression import CODEC_NAMES, LZ4, NONE, ZSTD, compress, decompress, lz4_head_checksum
from kafkalite.record.record import RECORDS_BYTES_MAX, RECORDS_MAX, Record, wrap

V0, V1 = 0, 1
MESSAGE_BYTES_MIN = 14  # the size field of an empty message of v0
HEAD_BYTES = 26  # the bytes that `entry_header` needs: up to and with a timestamp
CRC_FROM = 16  # the checksum covers everything from here on
UNKNOWN_COUNT = -1

_BYTES_MIN = (MESSAGE_BYTES_MIN, MESSAGE_BYTES_MIN + 8)  # by magic
_HEAD = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_V0 = struct.Struct(">qiIbbi")
_V1 = struct.Struct(">qiIbbqi")
_V0_BODY = struct.Struct(">bbi")
_V1_BODY = struct.Struct(">bbqi")
_PREFIX = struct.Struct(">qiI")
_NULL = _SIZE.pack(-1)


class WrongChecksum(Malformed):
    """The CRC-32 of a message differs from the stored one."""


class TooManyMessages(Malformed):
    """A set holds more messages than the caller permits."""

    def __init__(self, max_records: int) -> None:
        super().__init__(f"a set of more than {max_records} messages")


class Message(NamedTuple):
    """One message as stored in its set: inside a wrapper of v1 its offset counts from the wrapper's first.

    `size` is that of the fields behind it, `timestamp` is -1 in v0.
    """

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


def entry_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The entry at `position` as a batch header without producer and epoch. Raises Malformed where no entry can begin.

    Two fields differ from a batch's: `base_offset` is the last offset, and a wrapper's `record_count` is
    `UNKNOWN_COUNT`.
    """
    try:
        offset, size, crc, magic, attributes = _HEAD.unpack_from(data, position)
        if magic not in (V0, V1) or size < _BYTES_MIN[magic]:
            raise Malformed(f"no message of format v0 or v1 at position {position}")
        timestamp = _TIMESTAMP.unpack_from(data, position + _HEAD.size)[0] if magic == V1 else -1
    except struct.error:
        raise Malformed(f"{len(data) - position} bytes are no message: the smallest takes 26") from None
    attributes &= CODEC_MASK | (LOG_APPEND_TIME if magic == V1 else 0)
    count = UNKNOWN_COUNT if attributes & CODEC_MASK else 1
    return BatchHeader(offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, count)


def compute_crc(entry: Buffer) -> int:
    """CRC-32 of one whole entry, to be compared with its header's `crc`."""
    return crc32(memoryview(entry)[CRC_FROM:])


# -- reading


def read_message(entry: Buffer) -> Message:
    """The message of one whole entry; the value of a wrapper stays compressed. Raises Malformed."""
    data = bytes(entry)
    for message in _messages(data, 1):
        if message.size + PREFIX_BYTES == len(data):
            return message
    raise Malformed(f"{len(data)} bytes are not one message")


def read_inner(
    wrapper: Buffer, max_bytes: int = RECORDS_BYTES_MAX, max_records: int = RECORDS_MAX, *, check_crc: bool = False
) -> list[Message]:
    """The messages inside one wrapper, as stored; for an entry that is no wrapper, its message.

    A message that is cut off at the end is ignored. Raises Malformed for a wrapper that cannot be decompressed, unpacks
    to too much or to nothing, or has a wrapper in it; with `check_crc` WrongChecksum.
    """
    outer = read_message(wrapper)
    if outer.codec == NONE:
        return [outer]
    found: list[Message] = []
    for message in _messages(_unpack(outer, max_bytes), max_records, check_crc=check_crc):
        if message.attributes & CODEC_MASK:
            raise Malformed(f"in the wrapper at offset {outer.offset} is another wrapper")
        found.append(message)
    if not found:
        raise Malformed(f"the wrapper at offset {outer.offset} holds no message")
    return found


def read_set(data: Buffer, max_records: int = RECORDS_MAX) -> list[Message]:
    """The whole messages in `data`; the values of wrappers stay compressed. Raises Malformed."""
    return list(_messages(bytes(data), max_records))


def read_messages(
    entry: Buffer, max_bytes: int = RECORDS_BYTES_MAX, max_records: int = RECORDS_MAX, *, check_crc: bool = False
) -> list[Record]:
    """The records of one whole entry, decompressed if necessary. The entry's own checksum is not verified.

    Raises Malformed as `read_inner`, and where offsets inside reach above the wrapper's.
    """
    return resolve(entry_header(entry), read_inner(entry, max_bytes, max_records, check_crc=check_crc))


def resolve(header: BatchHeader, found: list[Message]) -> list[Record]:
    """The messages that `read_inner` found in the entry with this header, with a consumer's offsets and timestamps.

    Raises Malformed where the last offset inside is above the wrapper's, unless that is at 0: its producer may not have
    numbered it.
    """
    base = 0
    if header.codec != NONE and header.magic != V0 and header.base_offset != 0:
        base = header.base_offset - found[-1].offset
        if base < 0:
            raise Malformed(
                f"the wrapper at offset {header.base_offset} holds offset {found[-1].offset}, and is not at 0"
            )
    append_time = header.max_timestamp if header.codec and header.timestamp_type else None
    return [
        Record(
            wrap(base + message.offset),
            message.timestamp if append_time is None or message.magic == V0 else append_time,
            message.key,
            message.value,
            (),
        )
        for message in found
    ]


def message_times(entry: Buffer, max_bytes: int = RECORDS_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each message of one whole entry. Raises Malformed as `read_messages`."""
    for record in read_messages(entry, max_bytes):
        yield record.offset, record.timestamp


def count_messages(entry: Buffer, max_bytes: int = RECORDS_BYTES_MAX) -> int:
    """The number of messages in one whole entry. Raises Malformed as `read_inner`."""
    return len(read_inner(entry, max_bytes)) if entry_header(entry).codec else 1


def first_offset(entry: Buffer, max_bytes: int = RECORDS_BYTES_MAX) -> int:
    """The offset of the first message of one whole entry. Raises Malformed as `read_messages`."""
    return read_messages(entry, max_bytes)[0].offset


def _unpack(wrapper: Message, max_bytes: int = RECORDS_BYTES_MAX) -> bytes:
    """The set inside a wrapper. Raises Malformed."""
    codec = wrapper.codec
    if codec >= ZSTD:
        name = CODEC_NAMES[codec] if codec == ZSTD else f"codec {codec}"
        raise Malformed(f"the wrapper at offset {wrapper.offset} has {name}, which its format never had")
    if wrapper.value is None:
        raise Malformed(f"the wrapper at offset {wrapper.offset} is empty")
    packed: Buffer = wrapper.value
    if codec == LZ4 and wrapper.magic == V0:
        packed = _with_lz4_checksum(wrapper.value, broken=False)
    return decompress(codec, packed, max_bytes)


def _messages(data: bytes, max_records: int, *, check_crc: bool = False) -> Iterator[Message]:
    """The whole messages in `data`. Raises Malformed, and with `check_crc` WrongChecksum before it reads the fields."""
    # 1.2 us a message: one struct call for the fields in front of the key
    size_bytes = len(data)
    at = count = 0
    try:
        while at + PREFIX_BYTES <= size_bytes:
            size = int.from_bytes(data[at + 8 : at + PREFIX_BYTES], "big", signed=True)
            if size < MESSAGE_BYTES_MIN:
                raise Malformed(f"a message of {size} bytes")
            end = at + PREFIX_BYTES + size
            if end > size_bytes:
                return
            if check_crc and crc32(data[at + CRC_FROM : end]) != int.from_bytes(data[at + 12 : at + CRC_FROM], "big"):
                raise WrongChecksum(f"the checksum of message {count} is wrong")
            if data[at + 16] == V1:
                offset, _, crc, magic, attributes, timestamp, key_size = _V1.unpack_from(data, at)
                start = at + _V1.size
            else:
                offset, _, crc, magic, attributes, key_size = _V0.unpack_from(data, at)
                timestamp = -1
                start = at + _V0.size
                if magic != V0:
                    raise Malformed(f"a message of magic {magic}")
            key = None if key_size < 0 else data[start : start + key_size]
            start += max(key_size, 0)
            (value_size,) = _SIZE.unpack_from(data, start)
            start += _SIZE.size
            value = None if value_size < 0 else data[start : start + value_size]
            if start + max(value_size, 0) > end:
                raise Malformed(f"a message of {size} bytes with a key of {key_size} and a value of {value_size}")
            count += 1
            if count > max_records:
                raise TooManyMessages(max_records)
            yield Message(offset, size, crc, magic, attributes, timestamp, key, value)
            at = end
    except struct.error:
        raise Malformed("a message that ends inside its key") from None


# -- writing


def build_message(
    offset: int, key: bytes | None, value: Buffer | None, timestamp: int = -1, *, magic: int, attributes: int = 0
) -> bytes:
    """One entry, checksum included. v0 leaves the timestamp out."""
    key_size = -1 if key is None else len(key)
    if magic == V0:
        head = _V0_BODY.pack(V0, attributes, key_size)
    else:
        head = _V1_BODY.pack(V1, attributes, timestamp, key_size)
    if value is None:
        body = b"".join((head, key or b"", _NULL))
    else:
        body = b"".join((head, key or b"", _SIZE.pack(len(value)), value))
    return _PREFIX.pack(offset, len(body) + 4, crc32(body)) + body


def build_set(
    records: Iterable[tuple[int, int, bytes | None, bytes | None]],
    magic: int,
    *,
    codec: int = NONE,
    timestamp_type: int = 0,
    level: int | None = None,
) -> bytes:
    """A set of (offset, timestamp, key, value), at least one; with a codec all of them in one wrapper.

    Raises Malformed for a codec that the formats never had.
    """
    if codec >= ZSTD:
        raise Malformed(f"there is no {CODEC_NAMES[codec]} in message formats v0 and v1")
    attributes = LOG_APPEND_TIME if timestamp_type and magic == V1 else 0
    if codec == NONE:
        return b"".join(
            [
                build_message(offset, key, value, timestamp, magic=magic, attributes=attributes)
                for offset, timestamp, key, value in records
            ]
        )
    entries = []
    base = offset = -1
    latest = -1
    for offset, timestamp, key, value in records:
        if base < 0:
            base = offset if magic == V1 else 0
        latest = max(latest, timestamp)
        entries.append(build_message(wrap(offset - base), key, value, timestamp, magic=magic, attributes=attributes))
    packed = pack(codec, b"".join(entries), magic, level)
    return build_message(offset, None, packed, latest, magic=magic, attributes=attributes | codec)


def pack(codec: int, inside: bytes, magic: int, level: int | None = None) -> bytes:
    """The value of a wrapper of format `magic` around a set."""
    packed = compress(codec, inside, level)
    return _with_lz4_checksum(packed, broken=True) if codec == LZ4 and magic == V0 else packed


# -- lz4 of v0


def _with_lz4_checksum(frame: bytes, *, broken: bool) -> bytes:
    """The lz4 frame with the right checksum of its header, or the `broken` one over the frame's magic number too.

    Data that do not begin a frame stay as they are.
    """
    if len(frame) < 7 or frame[:4] != b"\x04\x22\x4d\x18":
        return frame
    # the flags say whether the content's size and a dictionary's id follow the two bytes of the descriptor
    end = 6 + (8 if frame[4] & 0x08 else 0) + (4 if frame[4] & 0x01 else 0)
    return b"".join((frame[:end], lz4_head_checksum(frame[0 if broken else 4 : end]), frame[end + 1 :]))
