"""Schemas of the records in __transaction_state.

Source: TransactionLogKey.json, TransactionLogValue.json of Apache Kafka (4.0).
"""

from __future__ import annotations

from kafkalite.protocol.codec.primitives import INT32
from kafkalite.protocol.codec.schema import Message, array, int8, int16, int32, int64, string

TRANSACTION_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
)  # fmt: skip
"""The names of the states, by `transaction_status`."""


class TransactionLogKey(Message):
    transactional_id: str = string("0+")


class TransactionPartitions(Message):
    topic: str = string("0+")
    partition_ids: list[int] = array(INT32, "0+")


class TransactionLogValue(Message, flexible="1+"):
    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[TransactionPartitions] | None = array(TransactionPartitions, "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2)
