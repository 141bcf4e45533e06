"""Batches that a producer sends to a topic, whole and damaged, by a seed: what a leader has to take or to refuse.

Most damage is done under a right checksum. Nothing here knows which forms a leader takes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import NamedTuple

from kafkalite.record.batch import BatchHeader, assemble, compute_crc, varint
from kafkalite.record.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from kafkalite.record.message_set import build_message, pack
from tests.support.compressed_frames import draw_frame

NOW_MS = 1_700_000_000_000
FAR = (1 << 63) - 1
_HOUR_MS = 3_600_000


class TopicRules(NamedTuple):
    """The settings of a topic that decide. `codec` is -1 for the producer's."""

    compacted: bool
    log_append_time: bool
    before_max_ms: int
    after_max_ms: int
    codec: int
    max_message_bytes: int
    segment_bytes: int


class Produced(NamedTuple):
    """The data of one partition in a Produce request. `label`: what was done to them."""

    label: str
    topic: TopicRules
    version: int
    transactional: bool
    data: bytes


def draw_produced(chance: random.Random) -> Produced:
    topic = _draw_topic(chance)
    if chance.random() < 0.2:
        magic = chance.choice([0, 1])
        label, data = _draw_message_set(chance, magic)
        version = chance.choice([magic + 1, magic + 1, 0, 1, 2, 8] if chance.random() < 0.3 else [2])
        return Produced(f"v{magic} {label}", topic, version, False, data)
    transactional = chance.random() < 0.15
    label, data = _draw_batch(chance, transactional)
    version = chance.choice([3, 6, 7, 8, 9, 10, 11])
    transactional ^= chance.random() < 0.05
    return Produced(f"v2 {label}", topic, version, transactional, data)


def _draw_topic(chance: random.Random) -> TopicRules:
    bound = [FAR, FAR, FAR, _HOUR_MS, 1000, 0]
    return TopicRules(
        chance.random() < 0.25,
        chance.random() < 0.25,
        chance.choice(bound),
        chance.choice(bound),
        chance.choice([-1, -1, -1, *range(len(CODEC_NAMES))]),
        chance.choice([1_048_588] * 8 + [300]),
        chance.choice([1 << 30] * 8 + [250]),
    )


def _draw_time(chance: random.Random) -> int:
    if chance.random() < 0.9:
        return NOW_MS - chance.randrange(100)
    return NOW_MS + chance.choice([-10 * _HOUR_MS, -2000, 2000, 10 * _HOUR_MS, -NOW_MS, -NOW_MS - 1, -NOW_MS - 2])


def _draw_bytes(chance: random.Random) -> bytes | None:
    size = chance.choice([0, 1, 3, 20, 63, 64, 70, 200] + [9_000] * (chance.random() < 0.05))
    return chance.choice([chance.randbytes(size), b"ab" * (size // 2)])


def _draw_records(chance: random.Random) -> list[list[bytes]]:
    """The fields of each record behind its length, as they travel. Times are `NOW_MS` and a delta."""
    few = [1, 1, 1, 2, 3, 10] if chance.random() < 0.97 else [1_001, 1_500]
    count = chance.choice(few)
    has_keys = chance.random() < 0.8
    records = []
    for number in range(count):
        key = _draw_bytes(chance) if has_keys else None
        value = _draw_bytes(chance) if chance.random() < 0.9 else None
        fields = [b"\0", varint(_draw_time(chance) - NOW_MS), varint(number), *_sized(key), *_sized(value)]
        headers = chance.choice([0, 0, 0, 1, 2])
        fields.append(varint(headers))
        for _ in range(headers):
            fields += [*_sized(chance.choice([b"h", b"", b"a header"])), *_sized(_draw_bytes(chance))]
        records.append(fields)
    return records


def _sized(data: bytes | None) -> list[bytes]:
    return [varint(-1), b""] if data is None else [varint(len(data)), data]


_ODD_NUMBERS = (-(1 << 62), -(1 << 31), -100, -2, -1, 0, 1, 2, 5, 63, 64, 8191, 8192, 1 << 20, (1 << 31) - 1, 1 << 40)
_ODD_VARINTS = (
    b"\x80\x00", b"\x81\x00", b"\x82\x80\x00", b"\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\x01", b"\xff" * 9 + b"\x01", b"\xff" * 10 + b"\x01", b"\xff", b"",
)  # fmt: skip


def _odd_varint(chance: random.Random, field: bytes) -> tuple[str, bytes]:
    if chance.random() < 0.4:
        odd = chance.choice(_ODD_VARINTS)
        return odd.hex(), odd
    if chance.random() < 0.5 and len(field) == 1:
        near = field[0] + chance.choice([-2, -1, 1, 2]) & 0x7F
        return f"{field[0]:02x} to {near:02x}", bytes([near])
    number = chance.choice(_ODD_NUMBERS)
    return str(number), varint(number)


def _damage_record(chance: random.Random, records: list[list[bytes]]) -> tuple[str, bytes]:
    """The records with one field of one record changed, under the record's old or its right length."""
    at = chance.choice([0, len(records) - 1, chance.randrange(len(records))])
    fields = list(records[at])
    size = sum(map(len, fields))
    if chance.random() < 0.2:
        label, length = _odd_varint(chance, varint(size))
        label = f"length {label}"
    else:
        names = ["attributes", "time", "offset", "key length", "key", "value length", "value", "headers"]
        names += ["name length", "name", "content length", "content"] * ((len(fields) - 8) // 4)
        which = chance.choice([i for i, name in enumerate(names) if name not in ("key", "value", "name", "content")])
        label, fields[which] = _odd_varint(chance, fields[which])
        label = f"{names[which]} {label}"
        if chance.random() < 0.7:
            size = sum(map(len, fields))
        else:
            label += " under the old length"
        length = varint(size)
    bodies = [_joined(record) for record in records]
    bodies[at] = length + b"".join(fields)
    return f"record {at}: {label}", b"".join(bodies)


def _joined(fields: list[bytes]) -> bytes:
    data = b"".join(fields)
    return varint(len(data)) + data


def _damage_body(chance: random.Random, records: list[list[bytes]]) -> tuple[str, bytes]:
    body = b"".join(map(_joined, records))
    at = chance.randrange(len(body))
    form = chance.randrange(7)
    if form == 0:
        return f"body cut to {at}", body[:at]
    if form == 1:
        more = chance.choice([b"\0", b"x", bytes(7), bytes(40), chance.randbytes(9)])
        return f"{len(more)} bytes behind the records", body + more
    if form == 2:
        return "a record more", body + _joined(records[-1])
    if form == 3:
        return "a record less", b"".join(map(_joined, records[:-1]))
    if form == 4:
        bit = 1 << chance.randrange(8)
        return f"bit {bit} of byte {at} flipped", body[:at] + bytes([body[at] ^ bit]) + body[at + 1 :]
    if form == 5:
        shuffled = chance.sample(records, len(records))
        return "records in another order", b"".join(map(_joined, shuffled))
    return "no records", b""


def _damage_header(chance: random.Random, header: BatchHeader) -> tuple[str, BatchHeader]:
    count = header.record_count
    changes: list[Callable[[], dict[str, int]]] = [
        lambda: {"record_count": chance.choice([count + 1, count - 1, 0, -1, 1 << 30, (1 << 31) - 1])},
        lambda: {"last_offset_delta": chance.choice([count, count - 2, -1, 0, (1 << 31) - 1, -(1 << 31)])},
        lambda: {
            "record_count": (off := chance.choice([count + 1, count - 1, 1 << 20])), "last_offset_delta": off - 1
        },
        lambda: {"base_offset": chance.choice([1, -1, FAR, 1 << 40, -(1 << 63)])},
        lambda: {"leader_epoch": chance.choice([0, 7, -2])},
        lambda: {"attributes": header.attributes ^ chance.choice([8, 8, 0x10, 0x20, 0x20, 0x30, 0x40, 0x80, 0x100])},
        lambda: {"attributes": header.attributes & ~7 | chance.randrange(8)},
        lambda: {"base_timestamp": header.base_timestamp + chance.choice([1, -1, 2000, -2000, 1 << 62, -NOW_MS])},
        lambda: {"max_timestamp": chance.choice([-1, 0, -2, NOW_MS - 5000, NOW_MS + 5000, NOW_MS + 9 * _HOUR_MS, FAR])},
        lambda: {"max_timestamp": NOW_MS + chance.choice([999, 1000, 1001])},
        lambda: {"producer_id": chance.choice([0, 5, -2]), "base_sequence": chance.choice([-1, -2, 0, FAR >> 32])},
        lambda: {"producer_epoch": chance.choice([0, -1, -2, 9])},
        lambda: {"magic": chance.choice([-1, 0, 1, 3, 127])},
    ]  # fmt: skip
    change = chance.choice(changes)()
    return " ".join(f"{name}={value}" for name, value in change.items()), header._replace(**change)


def _draw_batch(chance: random.Random, transactional: bool) -> tuple[str, bytes]:
    codec = chance.choice([NONE, NONE, NONE, GZIP, SNAPPY, LZ4, ZSTD])
    records = _draw_records(chance)
    labels = [CODEC_NAMES[codec]]
    times = [_time(fields[1]) for fields in records]
    body = b"".join(map(_joined, records))
    header = BatchHeader(
        0, 0, -1, 2, 0, codec | 0x10 * transactional, len(records) - 1, NOW_MS, NOW_MS + max(times), -1, -1, -1,
        len(records),
    )  # fmt: skip
    if transactional or chance.random() < 0.1:
        header = header._replace(producer_id=7, producer_epoch=0, base_sequence=chance.choice([0, 5, (1 << 31) - 1]))
    if (damage := chance.random()) < 0.5:
        label, body = (_damage_record if damage < 0.35 else _damage_body)(chance, records)
        labels.append(label)
    if chance.random() < 0.25:
        label, header = _damage_header(chance, header)
        labels.append(label)
    if codec and chance.random() < 0.25:
        label, packed = draw_frame(chance, codec, body)
        labels.append(label)
    else:
        packed = compress(codec, body)
    return _damage_data(chance, labels, assemble(header, packed), lambda data: struct.pack(">I", compute_crc(data)))


def _time(field: bytes) -> int:
    value = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(field))
    return value >> 1 ^ -(value & 1)


def _damage_data(
    chance: random.Random, labels: list[str], data: bytearray, crc: Callable[[bytes], bytes]
) -> tuple[str, bytes]:
    """The whole of it: its length, its checksum, and what is behind it."""
    if chance.random() < 0.08:
        length = chance.choice([len(data) - 13, len(data) - 11, 0, -1, 13, 14, 20, 48, 49, 50, 0x7FFFFFFF])
        labels.append(f"length {length} of {len(data) - 12}")
        struct.pack_into(">i", data, 8, length)
        if 61 <= length + 12 <= len(data):
            data[17:21] = crc(data[: length + 12])
    if chance.random() < 0.03:
        labels.append("a wrong checksum")
        data[17] ^= 1
    whole = bytes(data)
    if chance.random() < 0.08:
        more = chance.choice([b"\0", b"x" * 11, bytes(12), bytes(16), bytes(17), b"\xff" * 30, whole, whole[:-1]])
        labels.append(f"{len(more)} bytes behind")
        whole += more
    if chance.random() < 0.05:
        cut = chance.randrange(len(whole) + 1)
        labels.append(f"cut to {cut} of {len(whole)}")
        whole = whole[:cut]
    return ", ".join(labels), whole


def _draw_message_set(chance: random.Random, magic: int) -> tuple[str, bytes]:
    codec = chance.choice([NONE, NONE, GZIP, SNAPPY, LZ4])
    labels = [CODEC_NAMES[codec]]
    count = chance.choice([1, 2, 3, 10])
    first = 0
    inner_magic, inner_bits = magic, 0
    if chance.random() < 0.2:
        first = chance.choice([5, 1 << 40, -3])
        labels.append(f"offsets from {first}")
    if chance.random() < 0.1:
        inner_magic = 1 - magic
        labels.append(f"a message of v{inner_magic}")
    if chance.random() < 0.15:
        inner_bits = chance.choice([8, GZIP, ZSTD, 5, 7, 16, 32])
        labels.append(f"a message with attributes {inner_bits}")
    odd = chance.randrange(count)
    has_keys = chance.random() < 0.8
    messages = []
    times = []
    for number in range(count):
        key = _draw_bytes(chance) if has_keys else None
        value = _draw_bytes(chance) if chance.random() < 0.9 else None
        time = _draw_time(chance)
        times.append(time)
        form, bits = (inner_magic, inner_bits) if number == odd else (magic, 0)
        messages.append(bytearray(build_message(first + number, key, value, time, magic=form, attributes=bits)))
    if chance.random() < 0.3:
        labels.append(_damage_message(chance, messages[odd]))
    inside = b"".join(messages)
    if codec == NONE:
        return _damage_data_of_old(chance, labels, inside)
    if chance.random() < 0.2 and (codec != LZ4 or magic):
        label, packed = draw_frame(chance, codec, inside)
        labels.append(label)
    else:
        packed = pack(codec, inside, magic)
    bits = codec
    if chance.random() < 0.1:
        bits ^= chance.choice([8, 16, 32, 1, 4])
        labels.append(f"a wrapper with attributes {bits}")
    last = chance.choice([0, count - 1, 100])
    wrapper = build_message(last, None, packed, max(times), magic=magic, attributes=bits)
    if chance.random() < 0.1:
        labels.append("another message behind")
        wrapper += chance.choice([bytes(messages[0]), wrapper])
    return _damage_data_of_old(chance, labels, wrapper)


def _damage_message(chance: random.Random, message: bytearray) -> str:
    """Changes one byte or one size of a message, under a right checksum or the old one."""
    from zlib import crc32

    if chance.random() < 0.5:
        at = 18 if message[16] == 0 else 26
        size = chance.choice([-2, -1, 0, 1, 300, 0x7FFFFFFF])
        struct.pack_into(">i", message, at, size)
        label = f"a key of {size} bytes"
    else:
        at = chance.randrange(16, len(message))
        message[at] ^= 1 << chance.randrange(8)
        label = f"byte {at} changed"
    if chance.random() < 0.8:
        struct.pack_into(">I", message, 12, crc32(message[16:]))
    else:
        label += " under the old checksum"
    return label


def _damage_data_of_old(chance: random.Random, labels: list[str], data: bytes) -> tuple[str, bytes]:
    if chance.random() < 0.1:
        more = chance.choice([b"\0", bytes(12), bytes(17), b"\xff" * 30, data[:-1], b"\0" * 8 + b"\0\0\1\0\0"])
        labels.append(f"{len(more)} bytes behind")
        data += more
    if chance.random() < 0.1:
        cut = chance.randrange(len(data) + 1)
        labels.append(f"cut to {cut} of {len(data)}")
        data = data[:cut]
    return ", ".join(labels), data
