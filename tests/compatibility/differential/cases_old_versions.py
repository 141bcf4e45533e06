"""Produce 0-2 and Fetch 0-3: message sets v0 and v1, converted on their way in and out."""

from __future__ import annotations

import struct

from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.record.compression import CODECS
from kafkalite.record.message_set import build_message, build_set
from tests.compatibility.differential.asking import BEGINNING_MS, batch, fetch, list_offsets, produce
from tests.compatibility.differential.engine import Explained, Teller, in_versions, once

Row = tuple[int, int, bytes | None, bytes | None]


def rows(*values: bytes | None, key: bytes | None = None, time: int = BEGINNING_MS) -> list[Row]:
    """(offset, timestamp, key, value), counted from 0 and a second apart."""
    return [(i, time + 1000 * i, key, value) for i, value in enumerate(values)]


def bent(data: bytes, at: int = -1) -> bytes:
    """The same with a bit of one byte turned."""
    out = bytearray(data)
    out[at] ^= 1
    return bytes(out)


NO_NULL = Explained(
    "a partition that a reader of old cannot have has no records, as any with an error",
    "Kafka has null there, which librdkafka takes for a broken answer",
    "responses.*.partitions.*.records",
)


def look(t: Teller, topic: str, label: str = "what is there now", *, packed: bool = False) -> None:
    """As a client of today reads it, and as those of then. A recompressed set has other bytes with each library."""
    if not packed:
        t.ask(f"{label}", fetch(topic), 11)
    for version in (0, 3):
        t.ask(f"{label}, Fetch {version}", fetch(topic), version)


@in_versions(0, 1, 2)
def sets_of_every_codec(t: Teller) -> None:
    magic = t.v // 2
    for name, codec in CODECS.items():
        if name != "zstd":
            topic = t.topic(name)
            t.ask(name, produce(topic, build_set(rows(b"one" * 30, None, b"three" * 30, key=b"k"), magic, codec=codec)))
            t.ask(f"{name} again", produce(topic, build_set(rows(b"four", b""), magic, codec=codec)))
            t.ask("what is there now", fetch(topic), 3)
            t.ask("what is there now, v0", fetch(topic), 0)
            t.ask("from within", fetch(topic, 1), 1)
            t.ask("from within, v1", fetch(topic, 1), 2)


@in_versions(0, 1, 2)
def another_format_than_the_versions_own(t: Teller) -> None:
    topic = t.topic()
    t.ask("v1 in any", produce(topic, build_set(rows(b"a", b"b"), 1)))
    t.ask("v0 in any", produce(topic, build_set(rows(b"c", b"d"), 0)))
    t.ask("v2 in any", produce(topic, batch(b"e", b"f")))
    t.ask("v2 with zstd", produce(t.topic("zstd"), batch(b"e", b"f", codec=CODECS["zstd"])))
    t.ask("two v2", produce(topic, batch(b"e") + batch(b"f")))
    t.ask("v2, then v1", produce(topic, bytes(batch(b"e")) + build_set(rows(b"g"), 1)))
    t.ask("v0, then v1", produce(topic, build_set(rows(b"g"), 0) + build_set(rows(b"g"), 1)))
    t.ask("v1, then v0", produce(topic, build_set(rows(b"g"), 1) + build_set(rows(b"g"), 0)))
    look(t, topic)


@in_versions(0, 2)
def where_there_is_little(t: Teller) -> None:
    topic = t.topic()
    whole = build_set(rows(b"value"), t.v // 2)
    t.ask("nothing", produce(topic, b""))
    t.ask("a few bytes", produce(topic, b"\0" * 11))
    t.ask("up to the size", produce(topic, whole[:12]))
    t.ask("up to the magic", produce(topic, whole[:16]))
    t.ask("a part of a message", produce(topic, whole[:-1]))
    t.ask("a message and a part", produce(topic, whole + whole[:-1]))
    t.ask("a message and some bytes", produce(topic, whole + b"\0" * 7))
    t.ask("a size of 13", produce(topic, struct.pack(">qi", 0, 13) + whole[12:]))
    t.ask("magic 3", produce(topic, whole[:16] + b"\3" + whole[17:]))
    look(t, topic)


@in_versions(0, 1, 2)
def sets_that_are_wrong(t: Teller) -> None:
    magic = t.v // 2
    topic = t.topic()
    two = build_set(rows(b"a", b"b"), magic)
    packed = build_set(rows(b"a" * 50, b"b" * 50), magic, codec=CODECS["gzip"])
    t.ask("a wrong checksum", produce(topic, bent(two)))
    t.ask("in the first", produce(topic, bent(two, 14)))
    t.ask("of a wrapper", produce(topic, bent(packed)))
    t.ask("two wrappers", produce(topic, packed + packed))
    t.ask("a wrapper and a message", produce(topic, packed + two))
    t.ask("a message and a wrapper", produce(topic, two + packed))
    inner = build_set(rows(b"a", b"b"), magic)
    t.ask("a wrong checksum inside", produce(topic, wrapper(bent(inner), magic)))
    t.ask("a wrapper in a wrapper", produce(topic, wrapper(packed, magic)))
    t.ask("the other format inside", produce(topic, wrapper(build_set(rows(b"a"), 1 - magic), magic)))
    t.ask("nothing inside", produce(topic, wrapper(b"", magic)))
    t.ask("a part inside", produce(topic, wrapper(inner + inner[:-1], magic)))
    t.ask("zstd", produce(topic, wrapper(inner, magic, codec=4)))
    look(t, topic, packed=True)


def wrapper(inner: bytes, magic: int, offset: int = 0, codec: int = 1, time: int = BEGINNING_MS) -> bytes:
    from kafkalite.record.compression import compress

    return build_message(offset, None, compress(codec, inner), time, magic=magic, attributes=codec)


@in_versions(2)
def offsets_inside(t: Teller) -> None:
    """Some clients did not number what is inside, or the wrapper."""
    topic = t.topic()
    all_0 = b"".join(build_set([(0, BEGINNING_MS, None, b"%d" % i)], 1) for i in range(3))
    t.ask("all 0", produce(topic, wrapper(all_0, 1)))
    counted = build_set(rows(b"a", b"b", b"c"), 1)
    for offset in (0, 1, 2, 7):
        t.ask(f"wrapper at {offset}", produce(topic, wrapper(counted, 1, offset)))
    look(t, topic, packed=True)


@in_versions(0, 2)
def times(t: Teller) -> None:
    magic = t.v // 2
    topic, stamped = t.topic(), t.topic("stamped", message_timestamp_type="LogAppendTime")
    for codec in (0, 1):
        t.ask(f"of the broker, codec {codec}", produce(stamped, build_set(rows(b"a", b"b"), magic, codec=codec)))
    look(t, stamped, "stamped")
    t.ask("no time", produce(topic, build_set(rows(b"a", time=-1), magic)))
    t.ask("time 0", produce(topic, build_set(rows(b"a", time=0), magic)))
    late = t.topic("late", message_timestamp_after_max_ms=1000)
    t.ask("too late", produce(late, build_set(rows(b"a", time=4_000_000_000_000), magic)))
    early = t.topic("early", message_timestamp_before_max_ms=1000)
    t.ask("too early", produce(early, build_set(rows(b"a"), magic)))
    bit = build_set(rows(b"a", b"b"), magic, timestamp_type=1)
    t.ask("LogAppendTime by the producer", produce(topic, bit))
    t.ask("LogAppendTime by the producer, of a topic that has it", produce(stamped, bit))
    packed = build_set(rows(b"a", b"b"), magic, timestamp_type=1, codec=1)
    t.ask("LogAppendTime of a wrapper", produce(topic, packed))
    t.ask("LogAppendTime of a wrapper, of a topic that has it", produce(stamped, packed))
    look(t, topic, packed=True)
    t.ask("found by its time", list_offsets(topic, BEGINNING_MS), 1)


@in_versions(0, 2)
def the_topics_rules(t: Teller) -> None:
    magic = t.v // 2
    compacted = t.topic("compacted", cleanup_policy="compact")
    t.ask("no key", produce(compacted, build_set(rows(b"a"), magic)))
    t.ask("no key inside", produce(compacted, build_set(rows(b"a"), magic, codec=1)))
    t.ask("a key", produce(compacted, build_set(rows(b"a", None, key=b"k"), magic, codec=1)))
    small = t.topic("small", max_message_bytes=200)
    t.ask("a large message", produce(small, build_set(rows(b"a" * 200), magic)))
    t.ask("many small ones", produce(small, build_set(rows(*[b"a" * 20] * 20), magic)))
    t.ask("a few small ones", produce(small, build_set(rows(*[b"a" * 20] * 3), magic)))
    for name in ("gzip", "uncompressed", "zstd"):
        topic = t.topic(name, compression_type=name)
        t.ask(f"to {name}", produce(topic, build_set(rows(b"a" * 100, b"b" * 100), magic)))
        t.ask(f"snappy to {name}", produce(topic, build_set(rows(b"a" * 100, b"b" * 100), magic, codec=2)))
        t.ask(f"{name}, read", fetch(topic), 2, but=NO_NULL if name == "zstd" else None)


@in_versions(0, 1, 2)
def acks_0(t: Teller) -> None:
    topic = t.topic()
    two = build_set(rows(b"a", b"b"), t.v // 2)
    t.silent("acks=0", produce(topic, two, acks=0))
    t.ask("what is there now", fetch(topic), 3)
    t.silent("a wrong checksum", produce(topic, bent(two), acks=0), by="b")


def filled(t: Teller, codec: str = "none", **settings: str) -> str:
    """Batches of today: keys, headers, tombstones, a producer's id."""
    topic = t.topic(codec, **settings)
    for i in range(3):
        records = batch(b"a%d" % i * 20, None, b"c" * 20, key=b"k", time=BEGINNING_MS + 10 * i, codec=CODECS[codec])
        t.aside(produce(topic, records), 8)
    return topic


@in_versions(0, 1, 2, 3)
def batches_of_today(t: Teller) -> None:
    for codec in CODECS:
        topic = filled(t, codec)
        for offset in (0, 1, 3, 8, 9, 10, -1):
            but = NO_NULL if codec == "zstd" and 0 <= offset < 9 else None
            t.ask(f"{codec} from {offset}", fetch(topic, offset), but=but)


PARTS = Explained(
    "a reader of before Fetch 3 that asks for less than the first batch is given as much of it as it asks for",
    "brokers of its age did so, and it asks for more then or says what is wrong; Kafka 3.9 gives it nothing for ever",
    "responses.*.partitions.*.records.*",
)


@in_versions(0, 1, 2, 3)
def sizes(t: Teller) -> None:
    for codec in ("none", "gzip"):
        topic = filled(t, codec)
        one = len(batch(b"a0" * 20, None, b"c" * 20, key=b"k", codec=CODECS[codec]))
        for size in (0, 1, 16, 17, one - 1, one, one + 1, 2 * one, 1000):
            label = f"{codec}, {size - one:+d} to a batch" if size < 1000 else f"{codec}, {size}"
            but = PARTS if t.v < 3 and 0 < size < one else None
            t.ask(label, fetch(topic, 0, partition_max_bytes=size), but=but)
            if t.v >= 3:
                t.ask(f"{label}, of the answer", fetch(topic, 0, max_bytes=size))


@in_versions(0, 2, 3)
def several_partitions(t: Teller) -> None:
    topic = t.topic(partitions=2)
    for i in range(4):
        t.aside(produce(topic, batch(b"value" * 10, time=BEGINNING_MS + i), partition=i % 2), 8)

    def both(size: int, **more: int) -> FetchRequest:
        asked = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=size) for i in (1, 0)]
        return FetchRequest(**{"min_bytes": 1} | more, topics=[FetchTopic(topic=topic, partitions=asked)])

    one = len(batch(b"value" * 10))
    for size in (1, one, 1 << 20):
        t.ask(f"{size - one:+d} to a batch", both(size), but=PARTS if t.v < 3 and size < one else None)
    if t.v >= 3:
        for size in (0, 1, one, 2 * one):
            t.ask(f"{size - one:+d} to a batch, of the answer", both(1 << 20, max_bytes=size))


@in_versions(0, 1, 2, 3)
def conversion_forbidden(t: Teller) -> None:
    topic = filled(t, message_downconversion_enable="false")
    for offset in (0, 9, 99):
        t.ask(f"from {offset}", fetch(topic, offset), but=NO_NULL)
    zstd = t.topic("zstd-only", compression_type="zstd")
    t.ask("nothing there, and zstd", fetch(zstd, 0), but=NO_NULL)
    t.ask("unknown partition", fetch(topic, 0, 9))
    t.ask("unknown topic", fetch(t.name("none")), but=NO_NULL)


ALL_BEFORE_ZSTD = Explained(
    "a reader of old is given all that stands before a batch with zstd",
    "Kafka gives the first batch alone, and so goes on one by one up to it",
    "responses.*.partitions.*.records.*",
)


@in_versions(1, 3)
def zstd_behind_others(t: Teller) -> None:
    topic = t.topic()
    for codec in ("none", "zstd", "gzip", "gzip", "zstd"):
        t.aside(produce(topic, batch(b"value" * 10, codec=CODECS[codec])), 8)
    for offset, but in enumerate((None, NO_NULL, ALL_BEFORE_ZSTD, None, NO_NULL)):
        t.ask(f"from {offset}", fetch(topic, offset), but=but)


@in_versions(0, 3)
def waiting(t: Teller) -> None:
    topic = filled(t)
    t.send(fetch(topic, 9, max_wait_ms=10_000), by="reader")
    t.ask("meanwhile", produce(topic, build_set(rows(b"late"), 1)), 2)
    t.take("what came", by="reader")
    t.ask("nothing came", fetch(topic, 10, max_wait_ms=50))
    t.ask("an error does not wait", fetch(topic, 99, min_bytes=1 << 20, max_wait_ms=10_000))


@once
def where_a_time_is(t: Teller) -> None:
    topic = t.topic(segment_bytes=1_048_576)
    for timestamp in (-1, -2, 0, BEGINNING_MS):
        t.ask(f"{timestamp} of nothing", list_offsets(topic, timestamp), 0)
    t.aside(produce(topic, build_set(rows(b"a", b"b", b"c"), 1)), 2)
    for timestamp in (-1, -2, -3, 0, BEGINNING_MS + 1000, 4_000_000_000_000):
        t.ask(f"{timestamp}", list_offsets(topic, timestamp), 0)
        t.ask(f"{timestamp}, version 1", list_offsets(topic, timestamp), 1)
