"""The messages of TxnOffsetCommit are these bytes in the oldest and newest version; kafka-python reads them alike."""

from __future__ import annotations

import kafka.protocol.producer as kafka_producer
import pytest

from kafkalite.protocol.codec.codec import decode, encoder
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def request(**changes: object) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=42, committed_metadata=None)
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=7,
        producer_epoch=3,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        **changes,
    )


RESPONSE = TxnOffsetCommitResponse(
    topics=[
        TxnOffsetCommitResponseTopic(
            name="t", partitions=[TxnOffsetCommitResponsePartition(partition_index=1, error_code=22)]
        )
    ]
)


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [
        (
            request(),
            0,
            "00 01 78 00 01 67 00 00 00 00 00 00 00 07 00 03 00 00 00 01 00 01 74 00 00 00 01 00 00 00 01 "
            "00 00 00 00 00 00 00 2a ff ff",
        ),
        (
            request(generation_id=2, member_id="m", group_instance_id="i"),
            5,
            "02 78 02 67 00 00 00 00 00 00 00 07 00 03 00 00 00 02 02 6d 02 69 02 02 74 02 00 00 00 01 "
            "00 00 00 00 00 00 00 2a ff ff ff ff 00 00 00 00",
        ),
        (RESPONSE, 0, "00 00 00 00 00 00 00 01 00 01 74 00 00 00 01 00 00 00 01 00 16"),
        (RESPONSE, 5, "00 00 00 00 02 02 74 02 00 00 00 01 00 16 00 00 00"),
    ],
)
def test_a_message_is_these_bytes(message: Message, version: int, expected: str) -> None:
    parts: list[bytes] = []
    encoder(type(message), version)(message, parts)
    data = b"".join(parts)
    assert data.hex(" ") == expected
    again, end = decode(type(message), version, memoryview(bytearray(data)))
    assert (again, end) == (message, len(data))
    theirs = getattr(kafka_producer, type(message).__name__)
    read = theirs.decode(data, version=version)
    read._header = None  # its decoder leaves this unset, its encoder asks for it
    assert read.encode(version=version) == data
