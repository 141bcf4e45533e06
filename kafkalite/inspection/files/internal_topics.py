"""Records of `__consumer_offsets` and `__transaction_state` as text, in the form of kafka-dump-log's decoders.

A key is a version, which tells the kind of the record, and a message; a value is a version and a message; a null value
is a deletion. Group records become JSON with the names of Kafka's own schemas; subscriptions and assignments of the
consumer protocol are decoded, too.
Source: kafka.tools.DumpLogSegments.OffsetsMessageParser, CoordinatorRecordSerde, ConsumerProtocol*.json, the *Key.json
and *Value.json of group-coordinator, TransactionLog.formatRecordKeyAndValue (3.9); KIP-848.
"""

from __future__ import annotations

import base64
import struct
import uuid
from typing import Any

from kafkalite.common.errors import Malformed
from kafkalite.common.names import TopicPartition, format_uuid, java_hash
from kafkalite.inspection.files.record_decoders import DecodedRecord, to_json
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.records.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkalite.protocol.records.group_records import GROUP_RECORDS, GroupMetadataValue
from kafkalite.protocol.records.transaction_records import TRANSACTION_STATES, TransactionLogKey, TransactionLogValue

_VERSION = struct.Struct(">h")
_CONSUMER = "consumer"

_TRANSACTION_VALUE_VERSION_MAX = 1


def decode_group_record(key: bytes | None, value: bytes | None, offset: int) -> DecodedRecord:
    """Text of a record of `__consumer_offsets`."""
    if key is None:
        return f"Error at offset {offset}, skipping. it has no key", None
    try:
        kind = _version(key, "key")
        if kind not in GROUP_RECORDS:
            return f"Unknown record type {kind} at offset {offset}, skipping.", None
        key_type, value_type, version_max = GROUP_RECORDS[kind]
        about = to_json({"type": str(kind), "data": as_json(_read(key_type, kind, key, "key"), kind)})
        if value is None:
            return about, "<DELETE>"
        version = _version(value, "value")
        if not 0 <= version <= version_max:
            raise Malformed(f"value version {version} is not known")
        message = _read(value_type, version, value, "value")
        data = as_json(message, version)
        if isinstance(message, GroupMetadataValue) and message.protocol_type == _CONSUMER:
            for shown, member in zip(data["members"], message.members, strict=True):
                shown["subscription"] = _embedded(ConsumerProtocolSubscription, member.subscription)
                shown["assignment"] = _embedded(ConsumerProtocolAssignment, member.assignment)
        return about, to_json({"version": str(version), "data": data})
    except Malformed as error:
        return f"Error at offset {offset}, skipping. {error}", None


def decode_transaction_record(key: bytes | None, value: bytes | None, offset: int) -> DecodedRecord:
    """Text of a record of `__transaction_state`."""
    try:
        version = _version(key or b"", "key")
        if version != 0:
            return f"unknown::version={version}", None
        name = _read(TransactionLogKey, version, key or b"", "key").transactional_id
        about = f"transaction_metadata::transactionalId={name}"
        if value is None:
            return about, "<DELETE>"
        version = _version(value, "value")
        if not 0 <= version <= _TRANSACTION_VALUE_VERSION_MAX:
            raise Malformed(f"Unknown version {version} from the transaction log message value")
        state = _read(TransactionLogValue, version, value, "value")
    except Malformed as error:
        return f"Error at offset {offset}, skipping. {error}", None
    status = state.transaction_status
    known = 0 <= status < len(TRANSACTION_STATES)
    parts = state.transaction_partitions if status else None
    partitions = _as_scala_orders({(part.topic, number) for part in parts or () for number in part.partition_ids})
    return about, (
        f"producerId:{state.producer_id},producerEpoch:{state.producer_epoch},"
        f"state={TRANSACTION_STATES[status] if known else status},partitions=[{','.join(partitions)}],"
        f"txnLastUpdateTimestamp={state.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={state.transaction_timeout_ms}"
    )


def as_json(message: Message, version: int) -> dict[str, Any]:
    """A message as Kafka's JSON converters show it: the fields of that version, tagged ones unless they are unset."""
    shown = {}
    for name, field in message.__fields__.items():
        value = getattr(message, name)
        if version not in field.versions or (field.tag is not None and value == field.default):
            continue
        head, *tail = name.split("_")
        shown[head + "".join(map(str.capitalize, tail))] = _json_value(value, version)
    return shown


def _json_value(value: Any, version: int) -> Any:
    if isinstance(value, Message):
        return as_json(value, version)
    if isinstance(value, list):
        return [_json_value(one, version) for one in value]
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    return format_uuid(value) if isinstance(value, uuid.UUID) else value


def _version(data: bytes, name: str) -> int:
    if len(data) < _VERSION.size:
        raise Malformed(f"Could not read version from {name}'s buffer.")
    return int(_VERSION.unpack_from(data)[0])


def _read(message_type: type[Message], version: int, data: bytes, name: str) -> Any:
    try:
        return decode(message_type, version, memoryview(data), _VERSION.size)[0]
    except Malformed as error:
        raise Malformed(f"Could not read record with version {version} from {name}'s buffer due to: {error}.") from None


def _embedded(message_type: type[Message], data: bytes) -> Any:
    """The message as JSON, decoded in the version that it begins with; base64 of the bytes where that fails."""
    try:
        version = _version(data, "embedded")
        # a newer version may only add fields
        message, _ = decode(message_type, min(version, 3), memoryview(data), _VERSION.size)
    except Malformed:
        return _json_value(data, 0)
    return as_json(message, version)


def _as_scala_orders(partitions: set[TopicPartition]) -> list[str]:
    """The names in the order of a mutable.HashSet[TopicPartition] of Scala 2.13: by bucket, then by hash."""
    buckets = 16
    while buckets * 3 // 4 <= len(partitions):
        buckets *= 2

    def place(one: TopicPartition) -> tuple[int, int]:
        topic, number = one
        hashed = (31 * (31 + number) + java_hash(topic)) & 0xFFFFFFFF
        mixed = hashed ^ hashed >> 16
        return mixed & (buckets - 1), mixed - (1 << 32) if mixed >= 1 << 31 else mixed

    return [f"{topic}-{number}" for topic, number in sorted(partitions, key=place)]
