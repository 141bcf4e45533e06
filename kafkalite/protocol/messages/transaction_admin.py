"""DescribeProducers (61), DescribeTransactions (65), ListTransactions (66): transactions seen from outside."""

from __future__ import annotations

from kafkalite.protocol.codec.primitives import INT32, INT64, STRING
from kafkalite.protocol.codec.schema import Message, array, int16, int32, int64, string


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


class ListedTransaction(Message):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


class ListTransactionsResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: list[str] = array(STRING, "0+")
    transaction_states: list[ListedTransaction] = array(ListedTransaction, "0+")
