"""The messages about transactions are these bytes, in the oldest and in the newest version, and kafka-python reads them
alike. (`codec/test_codec.py` compares random messages of every version that is served.)"""

from __future__ import annotations

import kafka.protocol.admin as kafka_admin
import kafka.protocol.producer as kafka_producer
import pytest

from kafkalite.protocol.codec.codec import decode, encoder
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribedProducer,
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TOPIC = AddPartitionsToTxnTopic(name="t", partitions=[1, 2])
TRANSACTION = AddPartitionsToTxnTransaction(
    transactional_id="x", producer_id=7, producer_epoch=3, verify_only=True, topics=[TOPIC]
)
TOPIC_RESULT = AddPartitionsToTxnTopicResult(
    name="t", results_by_partition=[AddPartitionsToTxnPartitionResult(partition_index=1, partition_error_code=55)]
)
IDENTITY = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 3}
MARKER = WritableTxnMarker(
    producer_id=7,
    producer_epoch=3,
    transaction_result=True,
    topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[1])],
    coordinator_epoch=9,
)
MARKER_RESULT = WritableTxnMarkerResult(
    producer_id=7,
    topics=[
        WritableTxnMarkerTopicResult(
            name="t", partitions=[WritableTxnMarkerPartitionResult(partition_index=1, error_code=52)]
        )
    ],
)
PRODUCER = DescribedProducer(
    producer_id=7,
    producer_epoch=3,
    last_sequence=5,
    last_timestamp=1_700_000_000_000,
    coordinator_epoch=9,
    current_txn_start_offset=42,
)
PARTITION = DescribeProducersPartition(partition_index=1, active_producers=[PRODUCER])
DESCRIBED = DescribedTransaction(
    transactional_id="x",
    transaction_state="Ongoing",
    transaction_timeout_ms=60_000,
    transaction_start_time_ms=1_700_000_000_000,
    producer_id=7,
    producer_epoch=3,
    topics=[DescribedTransactionTopic(topic="t", partitions=[1, 2])],
)
LISTED = ListedTransaction(transactional_id="x", producer_id=7, transaction_state="Ongoing")

GOLDEN: list[tuple[Message, int, str]] = [
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=7,
            v3_and_below_producer_epoch=3,
            v3_and_below_topics=[TOPIC],
        ),
        0,
        "00 01 78 00 00 00 00 00 00 00 07 00 03 00 00 00 01 00 01 74 00 00 00 02 00 00 00 01 00 00 00 02",
    ),
    (
        AddPartitionsToTxnRequest(transactions=[TRANSACTION]),
        5,
        "02 02 78 00 00 00 00 00 00 00 07 00 03 01 02 02 74 03 00 00 00 01 00 00 00 02 00 00 00",
    ),
    (
        AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[TOPIC_RESULT]),
        0,
        "00 00 00 00 00 00 00 01 00 01 74 00 00 00 01 00 00 00 01 00 37",
    ),
    (
        AddPartitionsToTxnResponse(
            error_code=31,
            results_by_transaction=[AddPartitionsToTxnResult(transactional_id="x", topic_results=[TOPIC_RESULT])],
        ),
        5,
        "00 00 00 00 00 1f 02 02 78 02 02 74 02 00 00 00 01 00 37 00 00 00 00",
    ),
    (AddOffsetsToTxnRequest(**IDENTITY, group_id="g"), 0, "00 01 78 00 00 00 00 00 00 00 07 00 03 00 01 67"),
    (AddOffsetsToTxnRequest(**IDENTITY, group_id="g"), 4, "02 78 00 00 00 00 00 00 00 07 00 03 02 67 00"),
    (AddOffsetsToTxnResponse(error_code=90), 0, "00 00 00 00 00 5a"),
    (AddOffsetsToTxnResponse(error_code=90), 4, "00 00 00 00 00 5a 00"),
    (EndTxnRequest(**IDENTITY, committed=True), 0, "00 01 78 00 00 00 00 00 00 00 07 00 03 01"),
    (EndTxnRequest(**IDENTITY, committed=True), 5, "02 78 00 00 00 00 00 00 00 07 00 03 01 00"),
    (EndTxnResponse(error_code=51), 0, "00 00 00 00 00 33"),
    (EndTxnResponse(producer_id=7, producer_epoch=4), 5, "00 00 00 00 00 00 00 00 00 00 00 00 00 07 00 04 00"),
    (
        WriteTxnMarkersRequest(markers=[MARKER]),
        0,
        "00 00 00 01 00 00 00 00 00 00 00 07 00 03 01 00 00 00 01 00 01 74 00 00 00 01 00 00 00 01 00 00 00 09",
    ),
    (
        WriteTxnMarkersRequest(markers=[MARKER]),
        1,
        "02 00 00 00 00 00 00 00 07 00 03 01 02 02 74 02 00 00 00 01 00 00 00 00 09 00 00",
    ),
    (
        WriteTxnMarkersResponse(markers=[MARKER_RESULT]),
        0,
        "00 00 00 01 00 00 00 00 00 00 00 07 00 00 00 01 00 01 74 00 00 00 01 00 00 00 01 00 34",
    ),
    (
        WriteTxnMarkersResponse(markers=[MARKER_RESULT]),
        1,
        "02 00 00 00 00 00 00 00 07 02 02 74 02 00 00 00 01 00 34 00 00 00 00",
    ),
    (
        DescribeProducersRequest(topics=[DescribeProducersTopicRequest(name="t", partition_indexes=[1])]),
        0,
        "02 02 74 02 00 00 00 01 00 00",
    ),
    (
        DescribeProducersResponse(topics=[DescribeProducersTopic(name="t", partitions=[PARTITION])]),
        0,
        "00 00 00 00 02 02 74 02 00 00 00 01 00 00 00 02 00 00 00 00 00 00 00 07 00 00 00 03 00 00 00 05 "
        "00 00 01 8b cf e5 68 00 00 00 00 09 00 00 00 00 00 00 00 2a 00 00 00 00",
    ),
    (DescribeTransactionsRequest(transactional_ids=["x", "y"]), 0, "03 02 78 02 79 00"),
    (
        DescribeTransactionsResponse(transaction_states=[DESCRIBED]),
        0,
        "00 00 00 00 02 00 00 02 78 08 4f 6e 67 6f 69 6e 67 00 00 ea 60 00 00 01 8b cf e5 68 00 00 00 00 "
        "00 00 00 00 07 00 03 02 02 74 03 00 00 00 01 00 00 00 02 00 00 00",
    ),
    (
        ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[7]),
        0,
        "02 08 4f 6e 67 6f 69 6e 67 02 00 00 00 00 00 00 00 07 00",
    ),
    (
        ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[7], duration_filter=5),
        1,
        "02 08 4f 6e 67 6f 69 6e 67 02 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00 05 00",
    ),
    (
        ListTransactionsResponse(unknown_state_filters=["?"], transaction_states=[LISTED]),
        1,
        "00 00 00 00 00 00 02 02 3f 02 02 78 00 00 00 00 00 00 00 07 08 4f 6e 67 6f 69 6e 67 00 00",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "expected"), GOLDEN, ids=[f"{type(message).__name__}-{v}" for message, v, _ in GOLDEN]
)
def test_a_message_is_these_bytes(message: Message, version: int, expected: str) -> None:
    parts: list[bytes] = []
    encoder(type(message), version)(message, parts)
    data = b"".join(parts)
    assert data.hex(" ") == expected
    again, end = decode(type(message), version, memoryview(bytearray(data)))
    assert (again, end) == (message, len(data))
    name = type(message).__name__
    theirs = getattr(kafka_producer, name, None) or getattr(kafka_admin, name)
    read = theirs.decode(data, version=version)
    read._header = None  # its decoder leaves this unset, its encoder asks for it
    assert read.encode(version=version) == data
