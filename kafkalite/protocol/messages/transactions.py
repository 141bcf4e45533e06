"""InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), WriteTxnMarkers (27): from the id of
a producer, idempotent or transactional, to the markers of its transactions. DescribeProducers (61),
DescribeTransactions (65), ListTransactions (66): transactions as tools see them.
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import (
    INT32,
    INT64,
    STRING,
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
)


class InitProducerIdRequest(Message, flexible="2+"):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")


class AddPartitionsToTxnTopic(Message):
    name: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


class AddPartitionsToTxnRequest(Message, flexible="3+"):
    """Clients send versions up to 3. Brokers send 4 and 5, to verify or to add the partitions of a produce."""

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


class AddPartitionsToTxnTopicResult(Message):
    name: str = string("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult, "0+")


class AddPartitionsToTxnResult(Message):
    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")


class AddPartitionsToTxnResponse(Message, flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3")


class AddOffsetsToTxnRequest(Message, flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    group_id: str = string("0+")


class AddOffsetsToTxnResponse(Message, flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


class EndTxnRequest(Message, flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = boolean("0+")


class EndTxnResponse(Message, flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    # The identity for the next transaction (KIP-890).
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)


class WritableTxnMarkerTopic(Message):
    name: str = string("0+")
    partition_indexes: list[int] = array(INT32, "0+")


class WritableTxnMarker(Message):
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    transaction_result: bool = boolean("0+")  # true: commit
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+")
    transaction_version: int = int8("2+")  # 2: every transaction has an epoch of its own (KIP-1228)


class WriteTxnMarkersRequest(Message, flexible="1+"):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+")


class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class WritableTxnMarkerTopicResult(Message):
    name: str = string("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult, "0+")


class WritableTxnMarkerResult(Message):
    producer_id: int = int64("0+")
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, "0+")


class WriteTxnMarkersResponse(Message, flexible="1+"):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+")


class DescribeProducersTopicRequest(Message):
    name: str = string("0+")
    partition_indexes: list[int] = array(INT32, "0+")


class DescribeProducersRequest(Message, flexible="0+"):
    topics: list[DescribeProducersTopicRequest] = array(DescribeProducersTopicRequest, "0+")


class DescribedProducer(Message):
    producer_id: int = int64("0+")
    producer_epoch: int = int32("0+")
    last_sequence: int = int32("0+", default=-1)
    last_timestamp: int = int64("0+", default=-1)
    coordinator_epoch: int = int32("0+")
    current_txn_start_offset: int = int64("0+", default=-1)


class DescribeProducersPartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    active_producers: list[DescribedProducer] = array(DescribedProducer, "0+")


class DescribeProducersTopic(Message):
    name: str = string("0+")
    partitions: list[DescribeProducersPartition] = array(DescribeProducersPartition, "0+")


class DescribeProducersResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic, "0+")


class DescribeTransactionsRequest(Message, flexible="0+"):
    transactional_ids: list[str] = array(STRING, "0+")


class DescribedTransactionTopic(Message):
    topic: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class DescribedTransaction(Message):
    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    # The partitions of the current transaction; while it ends, the ones that still miss the marker.
    topics: list[DescribedTransactionTopic] = array(DescribedTransactionTopic, "0+")


class DescribeTransactionsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction, "0+")


class ListTransactionsRequest(Message, flexible="0+"):
    state_filters: list[str] = array(STRING, "0+")
    producer_id_filters: list[int] = array(INT64, "0+")
    duration_filter: int = int64("1+", default=-1)  # milliseconds; negative: transactions of any age
    transactional_id_pattern: str | None = string("2+", nullable="2+")  # null: any id


class ListedTransaction(Message):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


class ListTransactionsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: list[str] = array(STRING, "0+")
    transaction_states: list[ListedTransaction] = array(ListedTransaction, "0+")
