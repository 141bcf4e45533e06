"""One producer cannot stop the consumers of another: what librdkafka would ask for again and again is not taken."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import HEADER_BYTES, NewRecord, assemble, build_batch, parse_header
from kafkalite.record.compression import CODECS, compress
from tests.support.wait import DEADLINE_S

GOOD = build_batch([NewRecord(b"k", b"v" * 30, (), 1_700_000_000_000)] * 2)
BODY = bytes(GOOD[HEADER_BYTES:])
FORMS = {
    "gzip, no frame": (CODECS["gzip"], b"no frame of gzip"),
    "gzip, no records": (CODECS["gzip"], compress(CODECS["gzip"], b"\x02" * 100)),
    "no records": (0, b"\x02" * 100),
    "a key longer than its record": (0, BODY[:4] + b"\x7e" + BODY[5:]),
    "one record for two": (0, BODY[: len(BODY) // 2]),
    "three records for two": (0, BODY + BODY[: len(BODY) // 2]),
}


def produce(address: tuple[str, int], topic: str, batch: bytes) -> int:
    """The error code of a raw Produce to the leader."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
    with socket.create_connection(address, timeout=DEADLINE_S) as sock:
        sock.sendall(request_frame(request, 7, 1, "raw"))
        with sock.makefile("rb") as answers:
            answer = answers.read(struct.unpack(">i", answers.read(4))[0])
    # correlation id, topic count, name, partition count, partition; then the error code
    code: int = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0]
    return code


@pytest.mark.parametrize("form", FORMS)
def test_a_consumer_in_c_gets_what_others_send(confluent: Any, unique: Callable[[str], str], form: str) -> None:
    codec, body = FORMS[form]
    topic = unique("unreadable")
    confluent.send(topic, [{"value": b"before", "partition": 0}])
    spoiled = assemble(parse_header(GOOD)._replace(attributes=codec), body)
    known = confluent.admin().list_topics(topic, timeout=DEADLINE_S)
    leader = known.brokers[known.topics[topic].partitions[0].leader]
    assert produce((leader.host, leader.port), topic, bytes(spoiled)) == ErrorCode.INVALID_RECORD
    confluent.send(topic, [{"value": b"after", "partition": 0}])
    consumer = confluent.consumer()
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [message.value() for message in confluent.take(consumer, 2)] == [b"before", b"after"]
