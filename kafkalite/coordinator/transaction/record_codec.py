"""Keys and values of `__transaction_state`: a version as i16, then the message in that version.

The key is the transactional id; a record without a value is a tombstone. Version 0 of the value is all that Kafka knew
before 3.9, and all that most transactions need. Version 1 adds the fields of transaction.version=2 (KIP-890), and is
written only where they say something, so that a directory may go back to any Kafka.
Source: kafka.coordinator.transaction.TransactionLog (3.9, 4.0), TransactionLogKey.json, TransactionLogValue.json.
"""

from __future__ import annotations

from kafkalite.common.errors import Malformed
from kafkalite.coordinator.transaction.transaction_state import (
    EMPTY,
    ID_OF_STATE,
    NO_PRODUCER_ID,
    STATE_OF_ID,
    TransactionMetadata,
)
from kafkalite.protocol.codec.codec import known_version_of, read_versioned, version_of, versioned
from kafkalite.protocol.records import TransactionLogKey, TransactionLogValue, TransactionPartitions

KEY_VERSION = 0
VALUE_VERSION = 0
VALUE_VERSION_WITH_CLIENT_VERSION = 1


def transaction_key(transactional_id: str) -> bytes:
    return versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def transaction_value(metadata: TransactionMetadata) -> bytes:
    """Partitions are sorted: equal metadata have equal bytes."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(index)
    partitions = [TransactionPartitions(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()]
    is_new = metadata.client_version >= 2 or metadata.next_producer_id != NO_PRODUCER_ID
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=ID_OF_STATE[metadata.state],
        transaction_partitions=None if metadata.state is EMPTY else partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )
    return versioned(value, VALUE_VERSION_WITH_CLIENT_VERSION if is_new else VALUE_VERSION)


def read_key(data: bytes) -> str | None:
    """The transactional id; None for a key of an unknown version. Raises Malformed."""
    if version_of(data) != KEY_VERSION:
        return None
    return read_versioned(TransactionLogKey, KEY_VERSION, data).transactional_id


def read_value(data: bytes) -> TransactionMetadata:
    """Raises Malformed, also for an unknown version or state."""
    version = known_version_of(data, VALUE_VERSION_WITH_CLIENT_VERSION)
    value = read_versioned(TransactionLogValue, version, data)
    if not 0 <= value.transaction_status < len(STATE_OF_ID):
        raise Malformed(f"the state {value.transaction_status} is not known")
    state = STATE_OF_ID[value.transaction_status]
    topics = () if state is EMPTY else value.transaction_partitions or ()
    return TransactionMetadata(
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_last_update_timestamp_ms,
        state,
        frozenset((each.topic, index) for each in topics for index in each.partition_ids),
        value.transaction_start_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        client_version=value.client_transaction_version,
    )
