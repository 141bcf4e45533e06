"""Keys and values of records as text: plain data and control records; `protocol/internal_records` has internal topics.

A decoder takes (key, value, offset) and returns the two texts; None is not printed. Bytes that are no UTF-8 become
replacement characters exactly as in Java, so that a dump can be compared with Kafka's own.
A control record ends a transaction, or is one of KRaft's. Unknown types are printed as their number.
Source: org.apache.kafka.tools.api.{StringDecoder, IntegerDecoder, LongDecoder}, kafka.tools.DumpLogSegments,
org.apache.kafka.common.record.{ControlRecordType, EndTransactionMarker}, SnapshotHeaderRecord.json,
SnapshotFooterRecord.json, KRaftVersionRecord.json; KIP-98, KIP-630, KIP-853.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from kafkalite.common.errors import ConfigError, Malformed
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.schema import Message, int16, int64
from kafkalite.protocol.internal_records import DecodedRecord, RecordDecoder, as_json, to_json
from kafkalite.record.transaction_marker import ABORT, COMMIT, control_key

FieldDecoder = Callable[[bytes], str]

_REPLACEMENT = "�".encode()
# Java makes one replacement of a whole encoded surrogate, Python one of each of its bytes
_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]?")


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
