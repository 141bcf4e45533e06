"""Clients that speak as they did years ago: pinned protocol versions down to 0.8, long before record batches v2.

kafka-python takes the versions of its requests from `api_version`, librdkafka from `broker.version.fallback` when it
is told not to ask (`api.version.request=false`). Both then use the oldest requests that modern libraries still carry:
kafka-python those of 0.11, librdkafka message sets v0. Libraries that are themselves that old are in
tests/compatibility/interop/test_oldest_clients.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import TopicPartition
from kafka.admin import NewTopic

from tests.support.wait import DEADLINE_S

START_MS = int(time.time() * 1000) - 86_400_000  # yesterday: known to differ from now, kept by retention


@pytest.mark.parametrize("version", [(0, 11), (1, 0), (1, 1), (2, 0), (2, 3), (2, 8), (3, 0), (3, 5)], ids=str)
def test_kafka_python_speaks_as_of(
    version: tuple[int, ...], topic: str, kafka_python: Any, unique: Callable[[str], str], until: Callable[..., Any]
) -> None:
    pinned = {"api_version": version}
    producer = kafka_python.producer(**pinned, compression_type="lz4", enable_idempotence=False)
    headers = [("h", b"1")]
    answers = [
        producer.send(topic, b"%d" % n, b"key", headers, timestamp_ms=START_MS + n).get(timeout=DEADLINE_S)
        for n in range(20)
    ]
    assert [a.offset for a in answers] == list(range(20))
    idempotent = kafka_python.producer(**pinned, enable_idempotence=True, acks="all")
    assert idempotent.send(topic, b"20").get(timeout=DEADLINE_S).offset == 20

    partition = TopicPartition(topic, 0)
    consumer = kafka_python.consumer(topic, **pinned, group_id=unique("old"))
    records = kafka_python.take(consumer, 21)
    assert [int(r.value) for r in records] == list(range(21))
    assert records[0].headers in (headers, tuple(headers))
    assert consumer.offsets_for_times({partition: START_MS + 7})[partition].offset == 7
    assert consumer.end_offsets([partition]) == {partition: 21}
    consumer.commit()
    assert consumer.committed(partition) == 21

    admin = kafka_python.admin(**pinned)
    name = unique("old")
    admin.create_topics([NewTopic(name, 2, 1)])
    until(lambda: name in admin.list_topics(), "the topic in the list")
    admin.delete_topics([name])


@pytest.mark.parametrize("version", ["0.11.0.0", "1.0.0", "2.0.0"])
def test_librdkafka_that_does_not_ask(version: str, topic: str, confluent: Any, unique: Callable[[str], str]) -> None:
    pinned = {"api_version_request": False, "broker_version_fallback": version}
    records = [{"value": b"%d" % n, "headers": [("h", b"1")], "timestamp": START_MS + n} for n in range(100)]
    sent = confluent.send(topic, records, **pinned, compression_codec="snappy")
    assert [m.offset() for m in sent] == list(range(100))
    assert confluent.send(topic, [{"value": b"100"}], **pinned, enable_idempotence=True)[0].offset() == 100

    group = unique("old")
    consumer = confluent.consumer(**pinned, group_id=group)
    consumer.subscribe([topic])
    messages = confluent.take(consumer, 101)
    assert [int(m.value()) for m in messages] == list(range(101))
    assert messages[0].headers() == [("h", b"1")]
    assert messages[5].timestamp() == (1, START_MS + 5)
    consumer.commit(asynchronous=False)
    told = confluent.consumer(**pinned, group_id=group).committed(consumer.assignment(), timeout=DEADLINE_S)
    assert told[0].offset == 101


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_librdkafka_of_message_sets(
    version: str, codec: str, topic: str, confluent: Any, unique: Callable[[str], str]
) -> None:
    """Format v0: what is written so is read by anyone, and what anyone writes is read so. (From 0.10 on it asks.)"""
    pinned = {"api_version_request": False, "broker_version_fallback": version}
    records = [
        {"value": None if n == 7 else b"%d" % n, "key": None if n % 2 else b"k%d" % n, "timestamp": START_MS + n}
        for n in range(50)
    ]
    sent = confluent.send(topic, records, **pinned, compression_codec=codec, linger_ms=20)
    assert [m.offset() for m in sent] == list(range(50))
    modern = [record | {"headers": [("h", b"1")]} for record in records]
    sent = confluent.send(topic, modern, compression_codec=codec, linger_ms=20, enable_idempotence=True)
    assert [m.offset() for m in sent] == list(range(50, 100))

    for settings, with_headers in ((pinned, False), ({}, True)):
        consumer = confluent.consumer(**settings, group_id=unique("old"))
        if settings and version.startswith("0.8"):  # groups came with 0.9
            consumer.assign([ConfluentPartition(topic, 0, 0)])
        else:
            consumer.subscribe([topic])
        messages = confluent.take(consumer, 100)
        assert [(m.key(), m.value()) for m in messages] == 2 * [(r["key"], r["value"]) for r in records]
        assert [m.offset() for m in messages] == list(range(100))
        assert messages[60].headers() == ([("h", b"1")] if with_headers else None)
        times = [m.timestamp()[1] if m.timestamp()[0] else None for m in messages]
        assert times == ([-1] * 50 + [START_MS + n for n in range(50)] if with_headers else [None] * 100)


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_an_old_reader_meets_every_codec_and_a_size_that_is_too_small(
    version: str, topic: str, confluent: Any, unique: Callable[[str], str]
) -> None:
    """Batches larger than what the reader asks for at first: it asks for more, and comes on."""
    for codec in ("none", "gzip", "snappy", "lz4"):
        values = [{"value": b"%d " % n * 2000} for n in range(20)]
        confluent.send(topic, values, compression_codec=codec, linger_ms=20, enable_idempotence=True)
    pinned = {"api_version_request": False, "broker_version_fallback": version}
    consumer = confluent.consumer(**pinned, group_id=unique("small"), fetch_message_max_bytes=3_000)
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    messages = confluent.take(consumer, 80)
    assert [m.value() for m in messages] == 4 * [b"%d " % n * 2000 for n in range(20)]
