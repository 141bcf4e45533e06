"""Reads a partition of `__consumer_offsets`: the last record of each key counts, a tombstone deletes the key.

Only last values are decoded, at the end. Offsets committed in a transaction count from its commit marker on, those of
an aborted transaction never; a transaction that is open at the end of the log stays open in the `OffsetStore`. A
tombstone also deletes the offsets that open transactions have committed before it. Unreadable records are logged and
skipped: one bad record must not make a partition's groups unavailable. 100,000 batches/s of one commit each; 160,000
records/s in large batches.
Source: kafka.coordinator.group.GroupMetadataManager.doLoadGroupsAndOffsets (3.9);
org.apache.kafka.coordinator.group.OffsetMetadataManager.replay (4.0) for tombstones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from kafkalite.common.errors import Malformed
from kafkalite.coordinator.group.offset_store import NO_PRODUCER_ID, OffsetStore
from kafkalite.coordinator.group.record_codec import (
    OffsetKey,
    is_known_value,
    read_group_value,
    read_key,
    read_offset_value,
)
from kafkalite.protocol.records.group_records import GroupMetadataValue
from kafkalite.record.batch import CONTROL, HEADER_BYTES, MAGIC, MAGIC_AT, TRANSACTIONAL, BatchHeader, iter_batches
from kafkalite.record.compression import NONE
from kafkalite.record.message_set import entry_header, read_messages
from kafkalite.record.record import read_body, read_records
from kafkalite.record.transaction_marker import read_marker

logger = logging.getLogger(__name__)

KEYS_PER_TURN = 1_000
_OLD_OFFSET_KEY, _OFFSET_KEY, _GROUP_KEY = b"\0\0", b"\0\1", b"\0\2"

LastValue = tuple[bytes, int]  # a value, and its order in the log


class GroupLoader:
    """The groups and offsets of one partition, read from its log.

    `read` the log from start to end in any number of turns, then `finish`. Until then a later record may delete any
    key, so `groups` and `offsets` are empty.
    """

    __slots__ = ("_last", "_last_of_groups", "_open", "_order", "groups", "offsets")

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets: dict[str, OffsetStore] = {}  # by group id; also of groups that never had members
        self._last: dict[bytes, LastValue] = {}
        self._last_of_groups: dict[bytes, LastValue] = {}
        self._open: dict[int, dict[bytes, LastValue]] = {}  # transactions by producer id
        self._order = 0

    def read(self, batches: Iterable[memoryview]) -> None:
        """Read more of the log: each of `batches` is one or more whole batches."""
        for data in batches:
            try:
                if len(data) > MAGIC_AT and data[MAGIC_AT] in (0, 1):  # a message of v0 or v1: never more than one
                    self._read_batch(entry_header(data), data)
                    continue
                for header, batch in iter_batches(data):
                    self._read_batch(header, batch)
            except Malformed as fault:
                logger.error("skipped up to %d bytes of __consumer_offsets: %s", len(data), fault)

    def finish(self) -> Iterator[None]:
        """Decodes the last values once the log is read. Yields after every `KEYS_PER_TURN` keys, about 5 ms."""
        count = 0
        decoded: list[tuple[dict[bytes, LastValue], Callable[[bytes, bytes, int], None]]] = [
            (self._last, self._decode_offset),
            (self._last_of_groups, self._decode_group),
        ]
        for producer_id, pending in self._open.items():
            decoded.append((pending, partial(self._decode_offset, producer_id=producer_id)))
        for values, decode in decoded:
            for key, value in values.items():
                try:
                    decode(key, *value)
                except Malformed as fault:
                    logger.warning("skipped the last value of key %r: %s", key, fault)
                count += 1
                if count % KEYS_PER_TURN == 0:
                    yield

    def _decode_offset(self, key: bytes, value: bytes, order: int, producer_id: int = NO_PRODUCER_ID) -> None:
        decoded = read_key(key)
        assert isinstance(decoded, OffsetKey)
        committed = read_offset_value(value, order)
        store = self.offsets.setdefault(decoded.group_id, OffsetStore())
        store.load(decoded.topic, decoded.partition, committed, producer_id)

    def _decode_group(self, key: bytes, value: bytes, _: int) -> None:
        decoded = read_key(key)
        assert decoded is not None
        self.groups[decoded.group_id] = read_group_value(value)

    def _read_batch(self, header: BatchHeader, batch: memoryview) -> None:
        attributes = header.attributes
        try:
            if header.magic != MAGIC:
                records = read_messages(batch)
            elif attributes & CONTROL:
                if (marker := read_marker(batch)) is not None:
                    self._end_transaction(header.producer_id, is_committed=marker.commit)
                return
            elif header.codec == NONE:
                records = read_body(header, batch[HEADER_BYTES:])
            else:
                records = read_records(batch)
        except Malformed as fault:
            logger.error("skipped %d bytes of __consumer_offsets: %s", len(batch), fault)
            return
        last = self._open.setdefault(header.producer_id, {}) if attributes & TRANSACTIONAL else self._last
        for record in records:
            self._order += 1
            key, value = record.key, record.value
            kind = key[:2] if key is not None else b""
            if key is None or len(kind) < 2 or (value is not None and not is_known_value(value)):
                if kind <= _GROUP_KEY:  # else a record of a newer group protocol
                    logger.warning(
                        "skipped the record at offset %d of __consumer_offsets: its version is unknown", record.offset
                    )
            elif kind in (_OFFSET_KEY, _OLD_OFFSET_KEY):
                key = _OFFSET_KEY + key[2:]
                if value is not None:
                    last[key] = value, self._order
                    continue
                last.pop(key, None)
                if last is self._last:
                    for pending in self._open.values():
                        pending.pop(key, None)
            elif kind == _GROUP_KEY:
                if value is None:
                    self._last_of_groups.pop(key, None)
                else:
                    self._last_of_groups[key] = value, self._order

    def _end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        pending = self._open.pop(producer_id, {})
        if not is_committed:
            return
        for key, value in pending.items():
            known = self._last.get(key)
            if known is None or known[1] < value[1]:
                self._last[key] = value
