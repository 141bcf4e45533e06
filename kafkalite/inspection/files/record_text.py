"""Keys and values of records as text: plain data, control records, and the records of internal topics.

A decoder takes (key, value, offset) and returns the two texts; None is not printed. Bytes that are no UTF-8 become
replacement characters exactly as in Java, so that a dump can be compared with Kafka's own.
In an internal topic a key is a version, which is the kind of the record, and a message; a value is a version and a
message; a null value is a deletion. Group records become JSON with the names of Kafka's own schemas; subscriptions and
assignments of the consumer protocol are decoded, too.
A control record ends a transaction, or is one of KRaft's. Unknown types are printed as their number.
Source: org.apache.kafka.tools.api.{StringDecoder, IntegerDecoder, LongDecoder}, kafka.tools.DumpLogSegments,
CoordinatorRecordSerde, ConsumerProtocol*.json, the *Key.json and *Value.json of group-coordinator,
TransactionLog.formatRecordKeyAndValue (3.9), org.apache.kafka.common.record.{ControlRecordType, EndTransactionMarker},
SnapshotHeaderRecord.json, SnapshotFooterRecord.json, KRaftVersionRecord.json; KIP-98, KIP-630, KIP-848, KIP-853.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import uuid
from collections.abc import Callable
from typing import Any

from kafkalite.common.errors import ConfigError, Malformed
from kafkalite.common.names import TopicPartition, format_uuid, java_hash
from kafkalite.protocol import records
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.schema import Message, int16, int64
from kafkalite.record.transaction_marker import ABORT, COMMIT, control_key

DecodedRecord = tuple[str | None, str | None]
RecordDecoder = Callable[[bytes | None, bytes | None, int], DecodedRecord]
FieldDecoder = Callable[[bytes], str]

_REPLACEMENT = "�".encode()
# Java makes one replacement of a whole encoded surrogate, Python one of each of its bytes
_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]?")
_CONTROL = re.compile(r"\\u00[0-9a-f]{2}")


def decode_string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return (_SURROGATE.sub(_REPLACEMENT, data) if b"\xed" in data else data).decode(errors="replace")


def decode_integer(data: bytes) -> str:
    return _number(data, 4)


def decode_long(data: bytes) -> str:
    return _number(data, 8)


def _number(data: bytes, width: int) -> str:
    if len(data) < width:
        return f"({len(data)} bytes are no number of {width}: {data.hex()})"
    return str(int.from_bytes(data[:width], "big", signed=True))


FIELD_DECODERS: dict[str, FieldDecoder] = {
    "string": decode_string,
    "integer": decode_integer,
    "long": decode_long,
    "hex": bytes.hex,
}


def field_decoder(name: str) -> FieldDecoder:
    """The decoder with this short name, or of this class of Kafka's. Raises ConfigError."""
    short = name.rpartition(".")[2].removesuffix("Decoder").lower()
    decoder = FIELD_DECODERS.get(short)
    if decoder is None:
        raise ConfigError(f"there is no decoder {name}; there are {', '.join(FIELD_DECODERS)}")
    return decoder


def plain_decoder(key: FieldDecoder, value: FieldDecoder) -> RecordDecoder:
    def decode(key_bytes: bytes | None, value_bytes: bytes | None, _: int) -> DecodedRecord:
        return (
            None if key_bytes is None else key(key_bytes),
            None if value_bytes is None else value(value_bytes),
        )

    return decode


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
        version = _version(key or b"", "key")
        if version != 0:
            return f"unknown::version={version}", None
        name = _read(records.TransactionLogKey, version, key or b"", "key").transactional_id
        about = f"transaction_metadata::transactionalId={name}"
        if value is None:
            return about, "<DELETE>"
        version = _version(value, "value")
        if not 0 <= version <= _TRANSACTION_VALUE_VERSION_MAX:
            raise Malformed(f"Unknown version {version} from the transaction log message value")
        state = _read(records.TransactionLogValue, version, value, "value")
    except Malformed as error:
        return f"Error at offset {offset}, skipping. {error}", None
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


_MARKER = struct.Struct(">hi")
_TYPES = (
    "ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS",
)  # fmt: skip


class SnapshotHeader(Message, flexible="0+"):
    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")


class SnapshotFooter(Message, flexible="0+"):
    version: int = int16("0+")


class KRaftVersion(Message, flexible="0+"):
    version: int = int16("0+")
    k_raft_version: int = int16("0+")


_KRAFT: dict[int, tuple[str, type[Message]]] = {
    3: ("SnapshotHeader", SnapshotHeader),
    4: ("SnapshotFooter", SnapshotFooter),
    5: ("KRaftVersion", KRaftVersion),
}


def control_type(key: bytes | None) -> int:
    """The type's number; -1 for a key that is none."""
    found = control_key(key)
    return -1 if found is None else found[1]


def control_text(key: bytes | None, value: bytes | None) -> str:
    """The text that a dump adds to the line of a control record."""
    number = control_type(key)
    name = _TYPES[number] if 0 <= number < len(_TYPES) else "UNKNOWN"
    if number in (ABORT, COMMIT):
        epoch = _MARKER.unpack_from(value)[1] if value is not None and len(value) >= _MARKER.size else "(unreadable)"
        return f" endTxnMarker: {name} coordinatorEpoch: {epoch}"
    if number in _KRAFT:
        title, message_type = _KRAFT[number]
        try:
            message, _ = decode(message_type, 0, memoryview(value or b""))
        except Malformed as error:
            return f" {title} (unreadable: {error})"
        return f" {title} {to_json(as_json(message, 0))}"
    return f" controlType: {name}({number})"
