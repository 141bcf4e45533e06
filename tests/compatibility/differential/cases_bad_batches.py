"""Produce: batches that are refused."""

from __future__ import annotations

import struct

from kafkalite.record.batch import HEADER_BYTES
from kafkalite.record.compression import CODEC_NAMES, CODECS, compress, lz4_head_checksum
from tests.compatibility.differential.asking import bad, batch, fetch, message_set, produce
from tests.compatibility.differential.engine import Explained, Teller, in_versions

TRUSTED_TIME = Explained(
    "the largest time of a batch is taken as its header tells it",
    "times of records are read on the way of a produce only where the topic is compacted or says how old they may be; "
    "Kafka writes the right one, which means a new checksum",
    "responses.**",
)
TORN_FRAME = Explained(
    "compressed data that cannot be unpacked are refused with INVALID_RECORD",
    "Kafka fails on them with UNKNOWN_SERVER_ERROR",
    "responses.*.partition_responses.*.error_code",
    "responses.*.partition_responses.*.log_start_offset",
)
NO_VARINTS = Explained(
    "records whose numbers have too many bytes are refused with INVALID_RECORD",
    "Kafka fails on them with UNKNOWN_SERVER_ERROR where the batch is not compressed",
    "responses.*.partition_responses.*.error_code",
)
OTHER_NULL = Explained(
    "a key or a value of a length below -1 is refused with INVALID_RECORD",
    "Kafka takes it for null; consumers in C do not, and ask for the batch again and again",
    "responses.**",
)
OTHER_LENGTH = Explained(
    "a compressed record of another length than it says is refused with INVALID_RECORD",
    "Kafka's broker goes by the fields and takes it; its consumers fail on it at every poll",
    "responses.**",
)
OTHER_OFFSETS = Explained(
    "compressed records whose offsets do not count from 0 are taken as they came, as they are without compression",
    "Kafka fails on them with UNKNOWN_SERVER_ERROR, since it passes over the keys that it then wants to write anew",
    "responses.**",
)
OVERFLOW = Explained(
    "a batch whose length is near 2^31 is refused as one that is cut off",
    "Kafka's sum overflows, and it answers UNKNOWN_SERVER_ERROR",
    "responses.*.partition_responses.*.error_code",
)
OTHER_CODECS = Explained(
    "a codec that there is not is refused with UNSUPPORTED_COMPRESSION_TYPE",
    "Kafka fails on it with UNKNOWN_SERVER_ERROR",
    "responses.*.partition_responses.*.error_code",
    "responses.*.partition_responses.*.log_start_offset",
)
NOT_ITS_TO_SET = Explained(
    "a batch that says LogAppendTime itself is refused with INVALID_TIMESTAMP",
    "Kafka clears the bit, which means a new checksum; batches are stored as they came",
    "responses.*.partition_responses.*.error_code",
    "responses.*.partition_responses.*.base_offset",
)
BYTES_BEHIND = Explained(
    "bytes behind a batch are refused with INVALID_RECORD",
    "Kafka cuts off, without a word, what is too short to be another batch",
    "responses.*.partition_responses.*.error_code",
    "responses.*.partition_responses.*.base_offset",
    "responses.*.partition_responses.*.log_start_offset",
)
NULL_RECORDS = Explained(
    "null instead of a batch is answered with INVALID_RECORD",
    "Kafka's broker fails on it and never answers",
)

VERSIONS = in_versions(3, 7, 8, 9)


def refused(t: Teller, label: str, records: bytes | bytearray, *but: Explained) -> None:
    """One batch to a topic of its own, so that one that is taken moves nobody's offsets."""
    t.ask(label, produce(t.name(), records), but=but)


@VERSIONS
def headers_that_lie(t: Teller) -> None:
    t.topic()
    good = batch(b"one", b"two")
    refused(t, "a bad checksum", bad(good, crc=1))
    refused(t, "magic 3", bad(good, magic=3))
    refused(t, "magic -1", bad(good, magic=-1))
    refused(t, "magic 0", bad(good, magic=0))
    refused(t, "magic 1", bad(good, magic=1))
    refused(t, "length one too small", bad(good, length=len(good) - 13))
    refused(t, "length one too large", bad(good, length=len(good) - 11))
    refused(t, "length 0", bad(good, length=0))
    refused(t, "length -1", bad(good, length=-1))
    refused(t, "length 48, less than a header", bad(good, length=48))
    refused(t, "length 2^31-1", bad(good, length=0x7FFFFFFF), OVERFLOW)
    refused(t, "a base offset", bad(good, base_offset=5))
    refused(t, "a leader epoch", bad(good, leader_epoch=12))


@VERSIONS
def counts_that_lie(t: Teller) -> None:
    t.topic()
    good = batch(b"one", b"two")
    empty = bad(batch(b"x")[:HEADER_BYTES], length=49, count=0, last_offset_delta=0)
    refused(t, "3 records in a header of 2", bad(good, count=3))
    refused(t, "0 records", bad(good, count=0))
    refused(t, "-1 records", bad(good, count=-1))
    refused(t, "last offset delta 5", bad(good, last_offset_delta=5))
    refused(t, "last offset delta -1", bad(good, last_offset_delta=-1))
    refused(t, "last offset delta 0", bad(good, last_offset_delta=0))
    refused(t, "an empty batch", empty)


@VERSIONS
def bits_that_are_the_brokers(t: Teller) -> None:
    t.topic()
    good = batch(b"one")
    refused(t, "control", bad(good, attributes=0x20))
    refused(t, "control and transactional", bad(good, attributes=0x30))
    refused(t, "transactional", bad(good, attributes=0x10))
    refused(t, "bit 15", bad(good, attributes=-0x8000))
    refused(t, "a delete horizon", bad(good, attributes=0x40))
    refused(t, "codec 5", bad(good, attributes=5), OTHER_CODECS)
    refused(t, "codec 7", bad(good, attributes=7), OTHER_CODECS)
    refused(t, "LogAppendTime", bad(good, attributes=0x08), NOT_ITS_TO_SET)


@VERSIONS
def bytes_that_are_no_batch(t: Teller) -> None:
    t.topic()
    good = batch(b"one", b"two")
    t.ask("null", produce(t.name(), None), but=NULL_RECORDS, may_hang=True)
    refused(t, "nothing", b"")
    refused(t, "one byte", b"\0")
    refused(t, "16 bytes", good[:16])
    refused(t, "17 bytes", good[:17])
    refused(t, "a header cut", good[:40])
    refused(t, "a header alone", good[:HEADER_BYTES])
    refused(t, "the last byte missing", good[:-1])
    refused(t, "two batches", good + good)
    refused(t, "zeros", bytes(100))
    refused(t, "a message set v1", message_set(1, b"one"))
    refused(t, "a message set v0", message_set(0, b"one"))
    refused(t, "a byte behind", good + b"x", BYTES_BEHIND)


@in_versions(3, 6)
def zstd_before_its_version(t: Teller) -> None:
    t.topic()
    refused(t, "zstd", batch(b"one", codec=CODECS["zstd"]))


@in_versions(3, 8, 9)
def sizes(t: Teller) -> None:
    t.topic(max_message_bytes=500)
    refused(t, "too large", batch(b"x" * 500))
    refused(t, "just right", batch(b"x" * (500 - 70)))
    segment = t.topic("segment", segment_bytes=1_048_576, max_message_bytes=3_000_000)
    t.ask("larger than a segment", produce(segment, batch(b"x" * 1_500_000)))
    large = t.topic("large")
    t.ask("larger than message.max.bytes", produce(large, batch(b"x" * 1_100_000)))


@in_versions(8)
def records_that_lie(t: Teller) -> None:
    """The header is right, what is behind it is not."""
    t.topic()
    good = batch(b"one", b"two")
    body = bytes(good[HEADER_BYTES:])
    record, second = body[: len(body) // 2], body[len(body) // 2 :]

    def told(label: str, records: bytes, plain: Explained | None = None, packed: Explained | None = None) -> None:
        for name in CODEC_NAMES:
            header = bytearray(good[:HEADER_BYTES]) + compress(CODECS[name], records)
            whole = bad(header, length=len(header) - 12, attributes=CODECS[name])
            but = plain if name == "none" else packed
            refused(t, f"{label}, {name}", whole, *((but,) if but is not None else ()))

    told("two records", body)
    told("one record for two", record)
    told("three records for two", body + record)
    told("a byte behind the records", body + b"x")
    told("half a record behind", body[: len(body) * 3 // 4])
    told("no records", b"")
    told("a header without a key", bytes.fromhex("10 00 00 00 01 01 02 01 00") + record)
    told("a count of headers that is negative", bytes.fromhex("0c 00 00 00 01 01 01") + record)
    told("bytes that are no records", b"\xff" * len(body), plain=NO_VARINTS)
    told("a key of length -2", b"\x16\0\0\0\3\2x\2\2h\2x" + second, plain=OTHER_NULL, packed=OTHER_NULL)
    told("a record longer than the batch", b"\x7e" + body[1:], packed=OTHER_LENGTH)
    told("a record of length -1", b"\x01" + body[1:], packed=OTHER_LENGTH)
    refused(t, "another largest time", bad(good, max_timestamp=5), TRUSTED_TIME)
    t.ask("what was taken", fetch(t.name()), 11, but=OTHER_LENGTH)


@in_versions(8)
def offsets_that_lie(t: Teller) -> None:
    t.topic()
    good = batch(b"one", b"two")
    record = good[HEADER_BYTES : HEADER_BYTES + (len(good) - HEADER_BYTES) // 2]
    for name in CODEC_NAMES:
        header = good[:HEADER_BYTES] + compress(CODECS[name], record + record)
        whole = bad(header, length=len(header) - 12, attributes=CODECS[name])
        refused(t, f"two records of one offset, {name}", whole, *([OTHER_OFFSETS] if name != "none" else []))


@in_versions(8)
def frames_that_are_torn(t: Teller) -> None:
    t.topic()
    good = batch(b"one", b"two")
    body = bytes(good[HEADER_BYTES:])

    def told(label: str, codec: str, packed: bytes, *but: Explained) -> None:
        header = bytearray(good[:HEADER_BYTES]) + packed
        whole = bad(header, length=len(header) - 12, attributes=CODECS[codec])
        refused(t, f"{label}, {codec}", whole, *but)

    for name in CODEC_NAMES[1:]:
        packed = compress(CODECS[name], body)
        told("no frame", name, body, TORN_FRAME)
        told("nothing", name, b"", *([TORN_FRAME] if name != "zstd" else []))
        told("half of it", name, packed[: len(packed) // 2], TORN_FRAME)
        told("the last byte missing", name, packed[:-1], TORN_FRAME)
    told("bytes behind", "gzip", compress(CODECS["gzip"], body) + b"bytes behind it")
    told("bytes behind", "lz4", compress(CODECS["lz4"], body) + b"bytes behind it")
    told("bytes behind", "zstd", compress(CODECS["zstd"], body) + b"bytes behind it", TORN_FRAME)
    told("three bytes behind", "snappy", compress(CODECS["snappy"], body) + b"abc")
    told("linked blocks", "lz4", linked_lz4(body), TORN_FRAME)
    told("raw", "snappy", raw_snappy(body))
    t.ask("what was taken", fetch(t.name()), 11)


def linked_lz4(body: bytes) -> bytes:
    """One block in a frame that says that its blocks are linked."""
    frame = bytearray(compress(CODECS["lz4"], body))
    frame[4] &= ~0x20
    frame[6:7] = lz4_head_checksum(frame[4:6])
    return bytes(frame)


def raw_snappy(body: bytes) -> bytes:
    """Without xerial's framing: `compress` makes one block."""
    return compress(CODECS["snappy"], body)[20:]


@in_versions(3, 9)
def good_after_bad(t: Teller) -> None:
    topic = t.topic()
    t.ask("good", produce(topic, batch(b"a")))
    t.ask("bad", produce(topic, bad(batch(b"b"), crc=7)))
    t.ask("good again", produce(topic, batch(b"c")))
    t.ask("both are there", fetch(topic), 11)
    data = struct.pack(">q", 9)
    t.ask("8 bytes", produce(topic, data))
