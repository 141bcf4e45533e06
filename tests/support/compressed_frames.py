"""Compressed data as other programs write them, whole and spoiled, by a seed: what readers of the five codecs meet.

A form is a good frame of some writer with one thing done to it. Nothing here knows which forms a reader accepts.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence

from kafkalite.record.batch import BatchHeader, NewRecord, assemble, encode_records
from kafkalite.record.compression import GZIP, LZ4, SNAPPY, ZSTD
from kafkalite.record.message_set import build_message

Form = tuple[str, bytes]

_XERIAL = b"\x82SNAPPY\x00"


def gzip_member(body: bytes, flags: int = 0, fields: bytes = b"", level: int = 6) -> bytes:
    """One member, with `fields` behind its fixed head."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    packed = packer.compress(body) + packer.flush()
    head = struct.pack("<HBBIBB", 0x8B1F, 8, flags, 0, 0, 255) + fields
    return head + packed + struct.pack("<II", zlib.crc32(body), len(body) & 0xFFFFFFFF)


def _gzip(chance: random.Random, body: bytes) -> Form:
    member = gzip_member(body, level=chance.choice([0, 1, 6, 9]))
    cut = chance.randrange(len(body) + 1)
    return chance.choice(
        [
            lambda: ("plain", member),
            lambda: ("two members", gzip_member(body[:cut]) + gzip_member(body[cut:])),
            lambda: ("an empty member behind", member + gzip_member(b"")),
            lambda: ("an empty member in front", gzip_member(b"") + member),
            lambda: ("three members", gzip_member(body[:cut]) + gzip_member(b"") + gzip_member(body[cut:])),
            lambda: ("two members and zeros", gzip_member(body[:cut]) + gzip_member(body[cut:]) + bytes(30)),
            lambda: ("a broken member behind", member + gzip_member(b"x")[:-1] + b"\xff"),
            lambda: ("a cut member behind", member + gzip_member(body)[: chance.randrange(1, 40)]),
            lambda: ("a member behind with a comment", member + gzip_member(b"", 0x10, b"c" * 40 + b"\0")),
            lambda: ("a name", gzip_member(body, 0x08, b"name\0")),
            lambda: ("a name and a comment", gzip_member(body, 0x18, b"name\0comment\0")),
            lambda: ("an extra field", gzip_member(body, 0x04, b"\3\0abc")),
            lambda: ("an extra field that is cut", gzip_member(body, 0x04, b"\xff\xff")),
            lambda: ("a checksum of the head", _gzip_with_head_checksum(body, 0)),
            lambda: ("a wrong checksum of the head", _gzip_with_head_checksum(body, 1)),
            lambda: ("reserved flags", gzip_member(body, chance.choice([0x20, 0x40, 0x80, 0x01]))),
            lambda: ("another method", member[:2] + b"\7" + member[3:]),
            lambda: ("a wrong checksum", member[:-8] + bytes([member[-8] ^ 1]) + member[-7:]),
            lambda: ("a wrong size", member[:-1] + bytes([member[-1] ^ 1])),
            lambda: ("no trailer", member[:-8]),
            lambda: ("zlib", zlib.compress(body)),
        ]
    )()


def _gzip_with_head_checksum(body: bytes, wrong_by: int) -> bytes:
    member = gzip_member(body, 0x02)
    checksum = (zlib.crc32(member[:10]) + wrong_by) & 0xFFFF
    return member[:10] + struct.pack("<H", checksum) + member[10:]


def _raw_snappy(body: bytes) -> bytes:
    import snappy

    packed: bytes = snappy.compress(body)
    return packed


def xerial(blocks: Sequence[bytes], head: bytes = _XERIAL + struct.pack(">ii", 1, 1)) -> bytes:
    """`blocks` of raw snappy in xerial's framing."""
    return head + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _snappy(chance: random.Random, body: bytes) -> Form:
    cut = chance.randrange(len(body) + 1)
    whole, first, second = _raw_snappy(body), _raw_snappy(body[:cut]), _raw_snappy(body[cut:])
    return chance.choice(
        [
            lambda: ("raw", whole),
            lambda: ("one block", xerial([whole])),
            lambda: ("two blocks", xerial([first, second])),
            lambda: ("an empty block", xerial([first, _raw_snappy(b""), second])),
            lambda: ("two streams", xerial([first]) + xerial([second])),
            lambda: ("a second head cut off", xerial([whole]) + _XERIAL + bytes(chance.randrange(8))),
            lambda: ("a second head alone", xerial([whole]) + xerial([])),
            lambda: ("another second head", xerial([whole]) + b"\x82SNA" + bytes(12) + xerial([whole])),
            lambda: ("version 0", xerial([whole], _XERIAL + struct.pack(">ii", 0, 0))),
            lambda: ("version 9", xerial([whole], _XERIAL + struct.pack(">ii", 9, 9))),
            lambda: ("another magic", xerial([whole], b"\x82SNAPPX\0" + struct.pack(">ii", 1, 1))),
            lambda: ("no blocks", xerial([])),
            lambda: ("half a head", xerial([])[: chance.randrange(16)]),
            lambda: ("a block of size 0", xerial([whole]) + bytes(4)),
            lambda: ("a block of size -1", xerial([whole]) + b"\xff" * 4),
            lambda: ("a block longer than the data", xerial([whole]) + b"\0\0\1\0abc"),
            lambda: ("a wrong size inside", xerial([bytes([whole[0] ^ 1]) + whole[1:]])),
            lambda: ("raw with a wrong size", bytes([whole[0] ^ 1]) + whole[1:]),
        ]
    )()


def _lz4_frame(body: bytes, **how: object) -> bytes:
    import lz4.frame

    packed: bytes = lz4.frame.compress(body, **{"block_linked": False, "store_size": False, **how})
    return packed


def _lz4(chance: random.Random, body: bytes) -> Form:
    frame = _lz4_frame(body, block_size=chance.choice([4, 5, 6, 7]))
    checked = _lz4_frame(body, content_checksum=True)
    blocks = _lz4_frame(body, block_checksum=True)
    sized = _lz4_frame(body, store_size=True)
    skippable = struct.pack("<II", 0x184D2A50 + chance.randrange(16), 5) + b"12345"
    cut = chance.randrange(len(body) + 1)
    return chance.choice(
        [
            lambda: ("plain", frame),
            lambda: ("linked blocks", _lz4_frame(body, block_linked=True)),
            lambda: ("a checksum of the content", checked),
            lambda: ("a wrong checksum of the content", checked[:-1] + bytes([checked[-1] ^ 1])),
            lambda: ("no checksum of the content", checked[: -chance.randrange(1, 5)]),
            lambda: ("checksums of blocks", blocks),
            lambda: ("a wrong checksum of a block", blocks[:-5] + bytes([blocks[-5] ^ 1]) + blocks[-4:]),
            lambda: ("a size", sized),
            lambda: ("a wrong size", _lz4_with(sized, 6, sized[6] ^ 1)),
            lambda: ("a wrong checksum of the head", frame[:6] + bytes([frame[6] ^ 1]) + frame[7:]),
            lambda: ("no end mark", frame[: -chance.randrange(1, 5)]),
            lambda: ("an end mark of another kind", frame[:-1] + b"\x80"),
            lambda: ("another version", _lz4_with(frame, 4, frame[4] ^ 0x80)),
            lambda: ("a reserved bit", _lz4_with(frame, 4, frame[4] | 2)),
            lambda: ("a dictionary", _lz4_with_dictionary(frame)),
            lambda: ("blocks of size 3", _lz4_with(frame, 5, 0x30)),
            lambda: ("a reserved bit of the sizes", _lz4_with(frame, 5, frame[5] | 1)),
            lambda: ("two frames", _lz4_frame(body[:cut]) + _lz4_frame(body[cut:])),
            lambda: ("a skippable frame in front", skippable + frame),
            lambda: ("a skippable frame behind", frame + skippable),
            lambda: ("the old format", struct.pack("<II", 0x184C2102, 5) + frame[7:]),
            lambda: ("an empty frame", _lz4_frame(b"")),
            lambda: ("a stored block", frame[:7] + struct.pack("<I", len(body) | 1 << 31) + body + bytes(4)),
            lambda: ("an empty block behind", frame[:-4] + b"\1\0\0\0\0" + bytes(4)),
            lambda: ("a block longer than the data", frame[:7] + b"\xff\xff\0\0" + frame[11:]),
        ]
    )()


def _lz4_with(frame: bytes, at: int, value: int) -> bytes:
    """The frame with another byte in its head, and the right checksum of it."""
    from kafkalite.record.compression import lz4_head_checksum

    head_bytes = 14 if frame[4] & 0x08 else 6
    changed = frame[:at] + bytes([value]) + frame[at + 1 :]
    return changed[:head_bytes] + lz4_head_checksum(changed[4:head_bytes]) + changed[head_bytes + 1 :]


def _lz4_with_dictionary(frame: bytes) -> bytes:
    from kafkalite.record.compression import lz4_head_checksum

    head = frame[:4] + bytes([frame[4] | 1]) + frame[5:6] + b"\1\2\3\4"
    return head + lz4_head_checksum(head[4:]) + frame[7:]


def _zstd_frame(body: bytes, **how: object) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(**how).compress(body)  # type: ignore[arg-type]


def _zstd(chance: random.Random, body: bytes) -> Form:
    import zstandard

    frame = _zstd_frame(body, level=chance.choice([1, 3, 19]))
    checked = _zstd_frame(body, write_checksum=True)
    cut = chance.randrange(len(body) + 1)
    skippable = struct.pack("<II", 0x184D2A50 + chance.randrange(16), 5) + b"12345"
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    unsized = stream.compress(body) + stream.flush()
    dictionary = zstandard.ZstdCompressionDict(bytes(range(256)) * 8, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return chance.choice(
        [
            lambda: ("plain", frame),
            lambda: ("no size", unsized),
            lambda: ("a checksum", checked),
            lambda: ("a wrong checksum", checked[:-1] + bytes([checked[-1] ^ 1])),
            lambda: ("no checksum", checked[: -chance.randrange(1, 5)]),
            lambda: ("two frames", _zstd_frame(body[:cut]) + _zstd_frame(body[cut:])),
            lambda: ("two frames without sizes", unsized + _zstd_frame(b"")),
            lambda: ("a skippable frame in front", skippable + frame),
            lambda: ("a skippable frame behind", frame + skippable),
            lambda: ("a skippable frame cut off", frame + skippable[: chance.randrange(1, 13)]),
            lambda: ("a skippable frame alone", skippable),
            lambda: ("a raw dictionary", zstandard.ZstdCompressor(dict_data=dictionary).compress(body)),
            lambda: ("a dictionary's id", frame[:4] + bytes([frame[4] | 1]) + frame[5:6] + b"\7" + frame[6:]),
            lambda: ("a reserved bit", frame[:4] + bytes([frame[4] | 8]) + frame[5:]),
            lambda: ("a wrong size", frame[:5] + bytes([frame[5] ^ 1]) + frame[6:]),
            lambda: ("a block of the reserved type", unsized[:6] + bytes([unsized[6] | 6]) + unsized[7:]),
            lambda: ("another magic", b"\x27" + frame[1:]),
        ]
    )()


_FORMS: dict[int, Callable[[random.Random, bytes], Form]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
_BEHIND = (0, 1, 2, 3, 4, 7, 8, 12, 17, 18, 19, 26, 27, 40, 300, 9_000)


def draw_frame(chance: random.Random, codec: int, body: bytes) -> Form:
    """(what was done, data) of one drawn form of `body`."""
    label, data = _FORMS[codec](chance, body)
    match chance.randrange(10):
        case 0:
            count = chance.choice(_BEHIND)
            return f"{label}, {count} zeros behind", data + bytes(count)
        case 1:
            count = chance.choice(_BEHIND)
            return f"{label}, {count} bytes behind", data + chance.randbytes(count)
        case 2 if data:
            size = chance.randrange(len(data))
            return f"{label}, cut to {size} of {len(data)}", data[:size]
        case 3 if data:
            at = chance.randrange(len(data))
            bit = 1 << chance.randrange(8)
            return f"{label}, bit {bit} of byte {at} flipped", data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
    return label, data


def draw_records(chance: random.Random) -> list[NewRecord]:
    """One record at least; small and large, that compress well or not at all."""
    records = []
    for number in range(chance.choice([1, 1, 2, 5, 40])):
        size = chance.choice([0, 1, 20, 300, 9_000, 40_000] if chance.random() < 0.3 else [0, 3, 20])
        value = chance.randbytes(size) if chance.random() < 0.5 else b"ab" * (size // 2)
        key = chance.choice([None, b"", b"k%d" % number])
        records.append(NewRecord(key, chance.choice([None, value]), (("h", value[:5]),) * chance.randrange(2), number))
    return records


def draw_batch(chance: random.Random) -> tuple[str, bytes]:
    """(what was done, one batch of v2, or one wrapper of v0 or v1) whose records are in a drawn frame."""
    codec = chance.choice([GZIP, SNAPPY, LZ4, ZSTD])
    records = draw_records(chance)
    magic = chance.choice([2, 2, 2, 1, 0]) if codec != ZSTD else 2
    if magic == 2:
        label, packed = draw_frame(chance, codec, bytes(encode_records(records, range(len(records)), 0)))
        count = len(records)
        header = BatchHeader(100, 0, 3, 2, 0, codec, count - 1, 0, count - 1, -1, -1, -1, count)
        return f"v2 {codec} {label}", bytes(assemble(header, packed))
    inside = b"".join(
        build_message(offset, record.key, record.value, record.timestamp, magic=magic)
        for offset, record in enumerate(records, 0 if magic else 100)
    )
    label, packed = draw_frame(chance, codec, inside)
    last = 100 + len(records) - 1
    return f"v{magic} {codec} {label}", build_message(last, None, packed, 5, magic=magic, attributes=codec)
