"""Records of a mirror's state topics: offset syncs, checkpoints, heartbeats, as MirrorMaker 2 writes them.

    offset sync   topic string, partition i32                  upstream offset i64, offset i64
    checkpoint    group string, topic string, partition i32    version i16 = 0, upstream offset i64, offset i64,
                                                               metadata string
    heartbeat     source string, target string                 version i16 = 0, time i64

A string has its length before it, as i16. The topic of an offset sync is the source's, of a checkpoint the target's. An
offset sync has the header `records` of ours: how many records from these offsets on lie without a gap at both ends,
which MirrorMaker does not read.
Source: org.apache.kafka.connect.mirror.{OffsetSync, Checkpoint, Heartbeat}.
"""

from __future__ import annotations

import struct

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.record.batch import NewRecord

_RECORDS = "records"
_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_OFFSETS = struct.Struct(">qq")
_CHECKPOINT = struct.Struct(">hqq")
_HEARTBEAT = struct.Struct(">hq")


class Run(NamedTuple):
    """Records that lie without a gap in both logs: the first one's offsets, and their number."""

    source: int
    target: int
    records: int


class OffsetSync(NamedTuple):
    """A run of records that a partition of the source and its copy have in common."""

    partition: TopicPartition
    run: Run

    def record(self, now_ms: int) -> NewRecord:
        key = _string(self.partition[0]) + _PARTITION.pack(self.partition[1])
        headers = ((_RECORDS, b"%d" % self.run.records),)
        return NewRecord(key, _OFFSETS.pack(self.run.source, self.run.target), headers, now_ms)

    @classmethod
    def read(cls, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> OffsetSync:
        """Raises Malformed. One that MirrorMaker wrote counts as one record."""
        try:
            topic, at = _read_string(key or b"", 0)
            (index,) = _PARTITION.unpack_from(key or b"", at)
            source, target = _OFFSETS.unpack_from(value or b"")
            records = int(dict(headers).get(_RECORDS) or b"1")
        except (struct.error, ValueError) as fault:
            raise Malformed(f"no offset sync: {fault}") from None
        return cls((topic, index), Run(source, target, max(0, records)))


class Checkpoint(NamedTuple):
    """The offset of a group at the source, and the one at the target that it corresponds to."""

    group: str
    partition: TopicPartition
    source: int
    target: int
    metadata: str = ""

    def record(self, now_ms: int) -> NewRecord:
        key = _string(self.group) + _string(self.partition[0]) + _PARTITION.pack(self.partition[1])
        value = _CHECKPOINT.pack(0, self.source, self.target) + _string(self.metadata)
        return NewRecord(key, value, (), now_ms)


def heartbeat(source: str, target: str, now_ms: int) -> NewRecord:
    """The record that says that the mirror from `source` to `target` is alive."""
    return NewRecord(_string(source) + _string(target), _HEARTBEAT.pack(0, now_ms), (), now_ms)


def _string(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if not 0 <= size <= len(data) - at:
        raise ValueError(f"a string of {size} bytes")
    return data[at : at + size].decode(), at + size
