"""Record batches that are small on the wire and enormous when unpacked, with headers and checksums that are right.

Two kinds of content: one record with a giant value, and as many of the smallest records as fit.
"""

from __future__ import annotations

from functools import cache
from struct import pack_into

from kafkalite.record.batch import HEADER_BYTES, NewRecord, append_varint, build_batch, compute_crc
from kafkalite.record.compression import CODEC_NAMES, GZIP, NONE, SNAPPY, ZSTD, compress
from kafkalite.record.message_set import build_message, pack

BATCH_BYTES_MAX = 1_000_000  # below max.message.bytes
UNPACKED_BYTES = 1 << 30
_SLAB_BYTES = 16 << 20


def _smallest() -> bytes:
    """A record of eight bytes that every check of a producer's records lets pass: an empty key, no value."""
    body = bytearray(1)  # attributes
    for value in (0, 0, 0, -1, 0):  # time, offset, key of no bytes, null value, no headers
        append_varint(body, value)
    out = bytearray()
    append_varint(out, len(body))
    return bytes(out + body)


def _batch(codec: int, body: bytes, record_count: int) -> bytes:
    shell = build_batch([NewRecord(b"k", b"v", (), 1_700_000_000_000)])[:HEADER_BYTES]
    data = bytearray(shell + body)
    pack_into(">i", data, 8, len(data) - 12)
    pack_into(">h", data, 21, codec)
    pack_into(">i", data, 23, record_count - 1)
    pack_into(">i", data, 57, record_count)
    pack_into(">I", data, 17, compute_crc(data))
    return bytes(data)


def many_records(codec: int, record_count: int) -> bytes:
    """As many of the smallest records."""
    return _batch(codec, compress(codec, _smallest() * record_count), record_count)


def giant_value(codec: int, unpacked_bytes: int) -> bytes:
    """One record whose value is zeros."""
    body = bytearray(1)
    for value in (0, 0):
        append_varint(body, value)
    append_varint(body, 1)
    body += b"k"
    append_varint(body, unpacked_bytes)
    size = bytearray()
    append_varint(size, len(body) + unpacked_bytes + 1)
    return _batch(codec, _repeated(codec, bytes(size + body), unpacked_bytes + 1), 1)


def many_messages(codec: int, magic: int, message_count: int) -> bytes:
    """As many of the smallest messages of an old format in one wrapper, its checksums right."""
    smallest = build_message(0, b"", None, 1_700_000_000_000, magic=magic)
    packed = pack(codec, smallest * message_count, magic)
    return build_message(0, None, packed, 1_700_000_000_000, magic=magic, attributes=codec)


def _repeated(codec: int, head: bytes, zeros: int) -> bytes:
    """`head` and `zeros` zero bytes, packed. gzip, zstd and snappy may be concatenated: gigabytes cost nothing."""
    if codec == NONE or codec not in (GZIP, ZSTD, SNAPPY):
        return compress(codec, head + bytes(min(zeros, 200 << 20)))
    slab = compress(codec, bytes(_SLAB_BYTES))
    if codec == SNAPPY:
        slab = slab[16:]  # the head of the stream stands once
    times, rest = divmod(zeros, _SLAB_BYTES)
    tail = compress(codec, bytes(rest))
    return compress(codec, head) + slab * times + (tail[16:] if codec == SNAPPY else tail)


@cache
def bombs() -> tuple[bytes, ...]:
    """Bombs of each codec, none of them larger than a batch may be."""
    made = []
    for codec in range(1, len(CODEC_NAMES)):
        made += [many_records(codec, 200_000), many_records(codec, 2_000_000), giant_value(codec, 60 << 20)]
        if codec != SNAPPY:  # whose ratio is 20: a megabyte of it makes 20 MB
            made.append(giant_value(codec, UNPACKED_BYTES))
    return tuple(bomb for bomb in made if len(bomb) <= BATCH_BYTES_MAX)


@cache
def bombs_of_sets() -> tuple[bytes, ...]:
    """The same in message sets of v0 and v1: what is taken, the most that is looked at, and far too many."""
    counts = (40_000, 250_000, 1_000_000)
    made = [many_messages(codec, magic, n) for codec in range(1, ZSTD) for magic in (0, 1) for n in counts]
    for magic in (0, 1):
        zeros = _repeated(GZIP, build_message(0, None, b"", magic=magic), 60 << 20)
        made.append(build_message(0, None, zeros, magic=magic, attributes=GZIP))
    return tuple(bomb for bomb in made if len(bomb) <= BATCH_BYTES_MAX)
