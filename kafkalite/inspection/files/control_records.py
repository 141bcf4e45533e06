"""Control records: the end of a transaction, or a control record of KRaft.

The key is a version and a type, both i16, and may grow; the value of a transaction marker is a version (i16) and the
coordinator's epoch (i32). Unknown types are shown by their number.
Source: org.apache.kafka.common.record.{ControlRecordType, EndTransactionMarker}, SnapshotHeaderRecord.json,
SnapshotFooterRecord.json, KRaftVersionRecord.json, VotersRecord.json; KIP-98, KIP-630, KIP-853.
"""

from __future__ import annotations

import struct

from kafkalite.common.errors import Malformed
from kafkalite.inspection.files.internal_topics import as_json
from kafkalite.inspection.files.record_decoders import to_json
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.schema import Message, int16, int64
from kafkalite.record.transaction_marker import ABORT, COMMIT

_KEY = struct.Struct(">hh")
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
    return _KEY.unpack_from(key)[1] if key is not None and len(key) >= _KEY.size else -1


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
