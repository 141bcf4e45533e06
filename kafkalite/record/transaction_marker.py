"""Transaction markers: the control batch of one record that ends a transaction in a partition.

    key    version i16 = 0 | type i16: 0 abort, 1 commit          value    version i16 = 0 | coordinator epoch i32

The batch has the transactional and the control bit, the producer's id and epoch, and no sequence. Keys and values may
grow, so only their first bytes are read; control records of other types are none of these.
Source: org.apache.kafka.common.record.EndTransactionMarker, ControlRecordType, MemoryRecords.withEndTransactionMarker;
KIP-98.
"""

from __future__ import annotations

import struct

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import HEADER_BYTES, Buffer, NewRecord, build_batch, parse_header
from kafkalite.record.record import read_records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
ABORT, COMMIT = 0, 1

_WHOLE = struct.Struct(">5shhbhib")  # the record of a marker of version 0, behind the header
_BEFORE_KEY = b"\x20\0\0\0\x08"  # length 16, no attributes, deltas of 0, a key of 4 bytes
_VALUE_SIZE = 12  # as a varint


class TransactionMarker(NamedTuple):
    """The content of a marker. `commit`: the transaction is committed, else aborted."""

    commit: bool
    coordinator_epoch: int
    timestamp_ms: int


def build_marker(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int, *, commit: bool
) -> bytearray:
    """A marker's batch, in memory that may be stamped."""
    record = NewRecord(_KEY.pack(0, commit), _VALUE.pack(0, coordinator_epoch), (), now_ms)
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def control_key(key: bytes | None) -> tuple[int, int] | None:
    """(version, type) in the key of a control record; None for a key that is too short."""
    return _KEY.unpack_from(key) if key is not None and len(key) >= _KEY.size else None


def read_marker(batch: Buffer) -> TransactionMarker | None:
    """The marker in a control batch; None for another type, and for a batch whose record compaction has removed.

    Raises Malformed.
    """
    if len(batch) == HEADER_BYTES + _WHOLE.size:
        # 0.9 us instead of 4.2 us for a marker as Kafka and this broker write it
        before, _, kind, size, _, coordinator_epoch, headers = _WHOLE.unpack_from(batch, HEADER_BYTES)
        if before == _BEFORE_KEY and size == _VALUE_SIZE and headers == 0 and kind in (ABORT, COMMIT):
            header = parse_header(batch)
            if header.record_count == 1 and not header.codec:
                return TransactionMarker(kind == COMMIT, coordinator_epoch, header.max_timestamp)
    records = read_records(batch)
    if not records:
        return None
    record = records[0]
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (ABORT, COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error:
        sizes = f"a key of {len(record.key or b'')} bytes and a value of {len(record.value or b'')}"
        raise Malformed(f"the control record at offset {record.offset} is cut off: it has {sizes}") from None
    return TransactionMarker(kind == COMMIT, coordinator_epoch, record.timestamp)
