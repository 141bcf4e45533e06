"""Four clients write one topic with one codec; each of the four then reads what all of them wrote.

The records are compared as the readers saw them, so a byte that the broker (or a codec) bends shows up as a
difference between two libraries that never met. kcat cannot write a null beside an empty value in one run, nor read
binary keys: its share of the topic is text.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import aiokafka
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from tests.support.wait import DEADLINE_S

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
HEADERS = [("trace", b"7f"), ("trace", b"80"), ("empty", b"")]
START_MS = int(time.time() * 1000) - 86_400_000  # yesterday: known to differ from now, kept by retention


class Seen(NamedTuple):
    """A record as every library can tell it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def story(author: str) -> list[dict[str, Any]]:
    """Twelve records: keyed and not, with and without value, empty, long; none without both, as kafka-python wants."""
    values = [b"plain", b"", None, (f"{author} " * 400).encode()] * 3
    keys = [b"", None, f"{author}-key".encode(), b"key"] * 3
    return [
        {"key": key, "value": value, "headers": HEADERS, "timestamp": START_MS + number}
        for number, (key, value) in enumerate(zip(keys, values, strict=True))
    ]


def written_by_confluent(confluent: Any, topic: str, codec: str) -> None:
    confluent.send(topic, story("confluent"), compression_codec=codec, linger_ms=20)


def written_by_kafka_python(kafka_python: Any, topic: str, codec: str) -> None:
    producer = kafka_python.producer(compression_type=None if codec == "none" else codec, linger_ms=20)
    sent = [
        producer.send(topic, r["value"], r["key"], r["headers"], timestamp_ms=r["timestamp"])
        for r in story("kafka-python")
    ]
    for future in sent:
        future.get(timeout=DEADLINE_S)


def written_by_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    async def write() -> None:
        compression = None if codec == "none" else codec
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=compression, linger_ms=20
        ) as producer:
            sent = [
                await producer.send(
                    topic, r["value"], r["key"], timestamp_ms=r["timestamp"], headers=r["headers"], partition=0
                )
                for r in story("aiokafka")
            ]
            await asyncio.gather(*sent)

    asyncio.run(asyncio.wait_for(write(), DEADLINE_S))


def written_by_kcat(kcat: Any, topic: str, codec: str) -> None:
    lines = "".join(f"key-{n}:{'kcat ' * 80}{n}\n" for n in range(10))
    kcat("-P", "-t", topic, "-z", codec, "-K:", "-H", "trace=7f", "-H", "trace=80", typed=lines)
    kcat("-P", "-t", topic, "-z", codec, "-K:", "-Z", typed="tombstone:\n")


def seen_by_confluent(confluent: Any, topic: str, count: int) -> list[Seen]:
    messages = confluent.read(topic, count)
    assert {m.timestamp()[0] for m in messages} == {TIMESTAMP_CREATE_TIME}
    return [Seen(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())) for m in messages]


def seen_by_kafka_python(kafka_python: Any, topic: str, count: int) -> list[Seen]:
    records = kafka_python.take(kafka_python.consumer(topic), count)
    return [Seen(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]


def seen_by_aiokafka(bootstrap: str, topic: str, count: int) -> list[Seen]:
    async def read() -> list[Seen]:
        async with aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100
        ) as consumer:
            records = [await consumer.getone() for _ in range(count)]
        return [Seen(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]

    return asyncio.run(asyncio.wait_for(read(), DEADLINE_S))


def seen_by_kcat(kcat: Any, topic: str, count: int) -> list[Seen]:
    def as_bytes(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    def as_seen(line: str) -> Seen:
        told = json.loads(line)
        names_and_values = told.get("headers", [])
        headers = zip(names_and_values[::2], map(as_bytes, names_and_values[1::2]), strict=True)
        return Seen(told["offset"], told["ts"], as_bytes(told["key"]), as_bytes(told["payload"]), tuple(headers))

    printed = kcat("-C", "-t", topic, "-o", "beginning", "-c", str(count), "-e", "-J", "-q")
    return [as_seen(line) for line in printed.splitlines()]


@pytest.mark.parametrize("codec", CODECS)
def test_what_four_clients_write_four_clients_read_alike(
    bootstrap: str, topic: str, codec: str, confluent: Any, kafka_python: Any, kcat: Any
) -> None:
    written_by_confluent(confluent, topic, codec)
    written_by_kafka_python(kafka_python, topic, codec)
    written_by_aiokafka(bootstrap, topic, codec)
    written_by_kcat(kcat, topic, codec)
    count = 12 * 3 + 11

    seen = seen_by_confluent(confluent, topic, count)

    assert [record.offset for record in seen] == list(range(count)), "neither gap nor repeat"
    for author, first in (("confluent", 0), ("kafka-python", 12), ("aiokafka", 24)):
        told = [(r["timestamp"], r["key"], r["value"], tuple(r["headers"])) for r in story(author)]
        assert [record[1:] for record in seen[first : first + 12]] == told, author
    assert [record.key for record in seen[36:46]] == [f"key-{n}".encode() for n in range(10)]
    assert (seen[46].key, seen[46].value) == (b"tombstone", None)
    assert seen_by_kafka_python(kafka_python, topic, count) == seen
    assert seen_by_aiokafka(bootstrap, topic, count) == seen
    assert seen_by_kcat(kcat, topic, count) == seen


def test_the_append_time_of_the_broker_replaces_the_time_that_a_client_claims(
    bootstrap: str, create_topic: Callable[..., str], confluent: Any, kafka_python: Any, kcat: Any
) -> None:
    topic = create_topic(bootstrap, message_timestamp_type="LogAppendTime")
    for codec in CODECS:
        written_by_confluent(confluent, topic, codec)
    count = 12 * len(CODECS)

    messages = confluent.read(topic, count)
    times = [m.timestamp()[1] for m in messages]

    assert {m.timestamp()[0] for m in messages} == {2}, "timestamp type LogAppendTime"
    assert all(time_ms > START_MS + 80_000_000 for time_ms in times), (
        "no record keeps the time that its producer claimed"
    )
    assert times == sorted(times)
    as_seen = [record.timestamp for record in seen_by_kafka_python(kafka_python, topic, count)]
    assert as_seen == times == [record.timestamp for record in seen_by_kcat(kcat, topic, count)]
    assert times == [record.timestamp for record in seen_by_aiokafka(bootstrap, topic, count)]
    producer = kafka_python.producer()
    answer = producer.send(topic, b"now", timestamp_ms=START_MS).get(timeout=DEADLINE_S)
    assert answer.timestamp >= times[-1], "the produce answer tells the append time"
