"""Reads a partition of a coordinator's topic: the last record of each key counts, a tombstone deletes the key.

Only last values are decoded, at the end. Records of a transaction count from its commit marker on, those of an aborted
transaction never; a tombstone also deletes the key in open transactions. Unreadable records are logged and skipped: one
bad record must not make a partition unavailable.
Source: kafka.coordinator.group.GroupMetadataManager.doLoadGroupsAndOffsets, kafka.coordinator.transaction.
TransactionStateManager.loadTransactionMetadata (3.9); org.apache.kafka.coordinator.group.OffsetMetadataManager.replay
(4.0) for tombstones.
"""

from __future__ import annotations

import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import (
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    iter_batches,
)
from kafkalite.record.compression import NONE
from kafkalite.record.message_set import entry_header, read_messages
from kafkalite.record.record import read_body, read_records
from kafkalite.record.transaction_marker import read_marker

logger = logging.getLogger(__name__)

NO_PRODUCER_ID = -1

LastValues = dict[bytes, tuple[bytes, int]]
"""By key: a value, and its order in the log."""


class PartitionLoader(ABC):
    """The last values of one partition. `read` the log from start to end in any number of turns, then `finish`: until
    then a later record may delete any key, so nothing is decoded."""

    topic: str
    keys_per_turn = 500

    def __init__(self) -> None:
        self._last: LastValues = {}
        self._open: dict[int, LastValues] = {}  # transactions by producer id
        self._order = 0

    @abstractmethod
    def known_key(self, key: bytes | None, value: bytes | None, offset: int) -> bytes | None:
        """The key under which the record counts; None if it is skipped."""

    @abstractmethod
    def decode(self, key: bytes, value: bytes, order: int, producer_id: int) -> None:
        """Decode a last value, within the open transaction of `producer_id` if there is one. Raises Malformed."""

    def read(self, batches: Iterable[memoryview]) -> None:
        """Read more of the log: each of `batches` is one or more whole batches."""
        for data in batches:
            try:
                if len(data) > MAGIC_AT and data[MAGIC_AT] in (0, 1):  # a message of v0 or v1: never more than one
                    self._read_batch(entry_header(data), data)
                elif (single := single_record(data)) is not None:
                    self._put(self._last, *single, int.from_bytes(data[:8]))
                else:
                    for header, batch in iter_batches(data):
                        self._read_batch(header, batch)
            except Malformed as fault:
                logger.error("skipped up to %d bytes of %s: %s", len(data), self.topic, fault)

    def finish(self) -> Iterator[None]:
        """Decodes the last values once the log is read. Yields after every `keys_per_turn` keys, about 5 ms."""
        count = 0
        for producer_id, values in ((NO_PRODUCER_ID, self._last), *self._open.items()):
            for key, value in values.items():
                try:
                    self.decode(key, *value, producer_id)
                except Malformed as fault:
                    logger.warning("skipped the last value of key %r of %s: %s", key, self.topic, fault)
                count += 1
                if count % self.keys_per_turn == 0:
                    yield

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
            logger.error("skipped %d bytes of %s: %s", len(batch), self.topic, fault)
            return
        values = self._open.setdefault(header.producer_id, {}) if attributes & TRANSACTIONAL else self._last
        for record in records:
            self._put(values, record.key, record.value, record.offset)

    def _put(self, values: LastValues, key: bytes | None, value: bytes | None, offset: int) -> None:
        self._order += 1
        key = self.known_key(key, value, offset)
        if key is None:
            return
        if value is not None:
            values[key] = value, self._order
            return
        values.pop(key, None)
        if values is self._last:
            for pending in self._open.values():
                pending.pop(key, None)

    def _end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        pending = self._open.pop(producer_id, {})
        if not is_committed:
            return
        for key, value in pending.items():
            known = self._last.get(key)
            if known is None or known[1] < value[1]:
                self._last[key] = value


# 1.4 us instead of 5 us for a batch of one record, as most commits and all changes of a transaction are (tests compare)
_SHAPE = struct.Struct(">8xi9xh34xi")  # batch length, attributes, record count
_FIRST_RECORD = b"\0\0\0"  # attributes, timestamp delta, offset delta


def single_record(batch: memoryview) -> tuple[bytes, bytes] | None:
    """Key and value of a plain record that is alone in its batch; None for any other batch."""
    if len(batch) <= HEADER_BYTES:
        return None
    length, attributes, count = _SHAPE.unpack_from(batch)
    if attributes or count != 1 or length + PREFIX_BYTES != len(batch):
        return None
    data = bytes(batch[HEADER_BYTES:])
    try:
        size, at = _short_varint(data, 0)
        key_size, key_at = _short_varint(data, at + len(_FIRST_RECORD))
        value_size, value_at = _short_varint(data, key_at + key_size)
    except IndexError:
        return None
    if key_size < 0 or value_size < 0 or size != len(data) - at or not data.startswith(_FIRST_RECORD, at):
        return None
    if value_at + value_size + 1 != len(data) or data[-1]:  # headers
        return None
    return data[key_at : key_at + key_size], data[value_at:-1]


def _short_varint(data: bytes, at: int) -> tuple[int, int]:
    """A length of up to two bytes, and the position behind it. -1 for a negative or longer one."""
    low = data[at]
    if low < 0x80:
        return -1 if low & 1 else low >> 1, at + 1
    high = data[at + 1]
    return -1 if low & 1 or high >= 0x80 else (low & 0x7F | high << 7) >> 1, at + 2
