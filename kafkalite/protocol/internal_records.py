"""Records of `__consumer_offsets` and `__transaction_state` as text.

A decoder takes (key, value, offset) and returns the two texts; None is not printed. A key is a version, which is the
kind of the record, and a message; a value is a version and a message; a null value is a deletion. Group records become
JSON with the names of Kafka's own schemas; subscriptions and assignments of the consumer protocol are decoded, too.
Source: kafka.tools.DumpLogSegments, CoordinatorRecordSerde, ConsumerProtocol*.json, the *Key.json and *Value.json of
group-coordinator, TransactionLog.formatRecordKeyAndValue (3.9); KIP-98, KIP-848.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import uuid
from collections.abc import Callable
from typing import Any

from kafkalite.common.errors import Malformed
from kafkalite.common.names import TopicPartition, format_uuid, java_hash
from kafkalite.protocol import records
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.schema import Message

DecodedRecord = tuple[str | None, str | None]
RecordDecoder = Callable[[bytes | None, bytes | None, int], DecodedRecord]

_CONTROL = re.compile(r"\\u00[0-9a-f]{2}")


def to_json(value: object) -> str:
    """JSON as Jackson writes it: nothing between the tokens, every letter as it is, control characters in capitals."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{found[0][2:].upper()}", text) if "\\u00" in text else text


_VERSION = struct.Struct(">h")
_CONSUMER = "consumer"

_TRANSACTION_VALUE_VERSION_MAX = 1


def decode_group_record(key: bytes | None, value: bytes | None, offset: int) -> DecodedRecord:
    """Text of a record of `__consumer_offsets`."""
    if key is None:
        return f"Error at offset {offset}, skipping. it has no key", None
    try:
        kind = _version(key, "key")
        if kind not in records.GROUP_RECORDS:
            return f"Unknown record type {kind} at offset {offset}, skipping.", None
        key_type, value_type, version_max = records.GROUP_RECORDS[kind]
        about = to_json({"type": str(kind), "data": as_json(_read(key_type, kind, key, "key"), kind)})
        if value is None:
            return about, "<DELETE>"
        version = _version(value, "value")
        if not 0 <= version <= version_max:
            raise Malformed(f"value version {version} is not known")
        message = _read(value_type, version, value, "value")
        data = as_json(message, version)
        if isinstance(message, records.GroupMetadataValue) and message.protocol_type == _CONSUMER:
            for described, member in zip(data["members"], message.members, strict=True):
                described["subscription"] = _embedded(records.ConsumerProtocolSubscription, member.subscription)
                described["assignment"] = _embedded(records.ConsumerProtocolAssignment, member.assignment)
        return about, to_json({"version": str(version), "data": data})
    except Malformed as error:
        return f"Error at offset {offset}, skipping. {error}", None


def decode_transaction_record(key: bytes | None, value: bytes | None, offset: int) -> DecodedRecord:
    """Text of a record of `__transaction_state`."""
    try:
        version, name, state = _transaction(key, value)
    except Malformed as error:
        return f"Error at offset {offset}, skipping. {error}", None
    if name is None:
        return f"unknown::version={version}", None
    about = f"transaction_metadata::transactionalId={name}"
    if state is None:
        return about, "<DELETE>"
    status = state.transaction_status
    known = 0 <= status < len(records.TRANSACTION_STATES)
    parts = state.transaction_partitions if status else None
    partitions = _as_scala_orders({(part.topic, number) for part in parts or () for number in part.partition_ids})
    return about, (
        f"producerId:{state.producer_id},producerEpoch:{state.producer_epoch},"
        f"state={records.TRANSACTION_STATES[status] if known else status},partitions=[{','.join(partitions)}],"
        f"txnLastUpdateTimestamp={state.transaction_last_update_timestamp_ms},"
        f"txnTimeoutMs={state.transaction_timeout_ms}"
    )


def decode_transaction_json(key: bytes | None, value: bytes | None, offset: int) -> DecodedRecord:
    """The same record as JSON with the names of Kafka's schemas, as group records are."""
    try:
        version, name, state = _transaction(key, value)
    except Malformed as error:
        return f"Error at offset {offset}, skipping. {error}", None
    if name is None:
        return f"unknown::version={version}", None
    about = to_json({"transactionalId": name})
    if state is None:
        return about, "<DELETE>"
    data = as_json(state, version)
    if 0 <= state.transaction_status < len(records.TRANSACTION_STATES):
        data["transactionStatus"] = records.TRANSACTION_STATES[state.transaction_status]
    return about, to_json({"version": str(version), "data": data})


def _transaction(key: bytes | None, value: bytes | None) -> tuple[int, str | None, Any]:
    """The version (of the value if there is one), the transactional id and the state; None for an unknown key, and for
    a deletion. Raises Malformed."""
    version = _version(key or b"", "key")
    if version != 0:
        return version, None, None
    name = _read(records.TransactionLogKey, version, key or b"", "key").transactional_id
    if value is None:
        return version, name, None
    version = _version(value, "value")
    if not 0 <= version <= _TRANSACTION_VALUE_VERSION_MAX:
        raise Malformed(f"Unknown version {version} from the transaction log message value")
    return version, name, _read(records.TransactionLogValue, version, value, "value")


def as_json(message: Message, version: int) -> dict[str, Any]:
    """A message as Kafka's JSON converters show it: the fields of that version, tagged ones unless they are unset."""
    members = {}
    for name, field in message.__fields__.items():
        value = getattr(message, name)
        if version not in field.versions or (field.tag is not None and value == field.default):
            continue
        head, *tail = name.split("_")
        members[head + "".join(map(str.capitalize, tail))] = _json_value(value, version)
    return members


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
