"""The values of a coordinator by id, in the partitions of its topic that this broker leads, and their loading.

An id belongs to the partition that it hashes to, and is served while that partition is `owned`. While the partition is
`loading`, requests for its ids get COORDINATOR_LOAD_IN_PROGRESS.

A partition is read from start to end: the last record of each key counts, a tombstone deletes the key. Only last values
are decoded, at the end. Records of a transaction count from its commit marker on, those of an aborted transaction
never; a tombstone also deletes the key in open transactions. Unreadable records are logged and skipped: one bad record
must not make a partition unavailable.
Source: kafka.coordinator.group.GroupMetadataManager.doLoadGroupsAndOffsets, kafka.coordinator.transaction.
TransactionStateManager.loadTransactionMetadata (3.9); org.apache.kafka.coordinator.group.OffsetMetadataManager.replay
(4.0) for tombstones.
"""

from __future__ import annotations

import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkalite.common.errors import ErrorCode, Malformed
from kafkalite.common.names import partition_for_id
from kafkalite.coordinator.runtime.effects import Owner
from kafkalite.coordinator.runtime.last_values import TAIL_BYTES, LastValues, Part, Runs, join, split
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

if TYPE_CHECKING:
    from kafkalite.record.columns.batch_columns import Flags
    from kafkalite.record.columns.record_columns import Columns

logger = logging.getLogger(__name__)

NO_PRODUCER_ID = -1

PIECE_BYTES = 1 << 20
"""The log is read as columns in pieces of this size, since each step over columns has a fixed cost. A piece
of records of 90 bytes takes 5 ms."""


class PartitionLoader(ABC):
    """The last values of one partition. `read` the log from start to end in any number of turns, then `finish`: until
    then a later record may delete any key, so nothing is decoded."""

    topic: str
    keys_per_turn = 500

    def __init__(self) -> None:
        self._last = LastValues()
        self._open: dict[int, LastValues] = {}  # transactions by producer id
        self._order = 0

    @abstractmethod
    def known_key(self, key: bytes | None, value: bytes | None, offset: int) -> bytes | None:
        """The key under which the record counts; None if it is skipped."""

    @abstractmethod
    def decode(self, key: bytes, value: bytes, order: int, producer_id: int) -> None:
        """Decode a last value, within the open transaction of `producer_id` if there is one. Raises Malformed."""

    @property
    def last_order(self) -> int:
        """The highest order of a value."""
        return self._order

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

    def counted_rows(self, columns: Columns) -> Flags | None:
        """The records that count, under their own keys; None if `known_key` has to be asked about each."""
        is_null = columns.key_is_null
        return None if is_null.any() else ~is_null

    def begin_orders(self, count: int) -> int:
        """The order of the next record; the other orders of `count` records follow it."""
        first = self._order + 1
        self._order += count
        return first

    def put_runs(self, producer_id: int | None, runs: Runs, *, has_tombstones: bool) -> None:
        """Records of the open transaction of `producer_id`, or of none. Their orders are from `begin_orders`."""
        values = self._last if producer_id is None else self._open.setdefault(producer_id, LastValues())
        if not has_tombstones:
            values.put_runs(runs)
            return
        for prefix, (start, end) in zip(runs.prefixes, runs.bounds, strict=True):
            for index in range(start, end):
                value, order = runs.entries[index]
                if value is None:
                    self._remove(values, prefix, runs.tails[index])
                else:
                    values.put(join(prefix, runs.tails[index]), (value, order))

    def finish(self) -> Iterator[None]:
        """Decodes the last values once the log is read. Yields after every `keys_per_turn` keys, about 5 ms."""
        for producer_id, values in ((NO_PRODUCER_ID, self._last), *self._open.items()):
            for parts in values.take_parts(self.keys_per_turn):
                self.decode_parts(parts, producer_id)
                if sum(len(entries) for _, entries in parts) == self.keys_per_turn:
                    yield

    def decode_parts(self, parts: Iterable[Part], producer_id: int) -> None:
        """Decode last values."""
        for prefix, entries in parts:
            for tail, (value, order) in entries:
                key = join(prefix, tail)
                try:
                    self.decode(key, value, order, producer_id)
                except Malformed as fault:
                    logger.warning("skipped the last value of key %r of %s: %s", key, self.topic, fault)

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
        values = self._open.setdefault(header.producer_id, LastValues()) if attributes & TRANSACTIONAL else self._last
        for record in records:
            self._put(values, record.key, record.value, record.offset)

    def _put(self, values: LastValues, key: bytes | None, value: bytes | None, offset: int) -> None:
        self._order += 1
        key = self.known_key(key, value, offset)
        if key is None:
            return
        if len(key) < TAIL_BYTES:
            logger.warning("skipped the record at offset %d of %s: its key has %d bytes", offset, self.topic, len(key))
        elif value is not None:
            values.put(key, (value, self._order))
        else:
            self._remove(values, *split(key))

    def _remove(self, values: LastValues, prefix: bytes, tail: int) -> None:
        values.pop(prefix, tail)
        if values is self._last:
            for pending in self._open.values():
                pending.pop(prefix, tail)

    def _end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        pending = self._open.pop(producer_id, None)
        if pending is not None and is_committed:
            self._last.merge(pending)


V = TypeVar("V", bound=Owner)
L = TypeVar("L", bound=PartitionLoader)


class PartitionedStore(ABC, Generic[V, L]):
    """Values by id. An id may get another value, such as a group of another kind.

    Invariant: the partition of each value is owned, and no partition is owned and loading.
    """

    def __init__(self, partition_count: int) -> None:
        self.partition_count = partition_count  # of the topic, which may differ from the configuration
        self.by_id: dict[str, V] = {}
        self.owned: set[int] = set()
        self.loading: set[int] = set()
        self.is_closed = False

    def __iter__(self) -> Iterator[V]:
        """Over a copy: values may be removed during the iteration."""
        return iter(list(self.by_id.values()))

    def partition_for(self, identity: str) -> int:
        """The partition of the topic that keeps this id."""
        return partition_for_id(identity, self.partition_count)

    def error_without_value(self, identity: str) -> ErrorCode:
        """The error for an id without a value: NONE if this broker owns its partition, so that it is not in use."""
        if self.is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = self.partition_for(identity)
        if partition in self.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if partition in self.owned else ErrorCode.NOT_COORDINATOR

    def values_of(self, partition: int) -> list[V]:
        return [value for value in self.by_id.values() if value.partition == partition]

    def add_loading_partition(self, partition: int) -> None:
        """Requests for the partition's ids get COORDINATOR_LOAD_IN_PROGRESS until it is loaded, instead of
        NOT_COORDINATOR."""
        if not self.is_closed:
            self.loading.add(partition)

    def build(self, partition: int, loader: L) -> Iterator[None]:
        """Makes the values of the partition from `loader`, which is finished; `load` makes those that are not made
        yet. Yields where other work may go on."""
        return iter(())

    def load(self, partition: int, loader: L) -> None:
        """Own the partition with the values that `loader` has read."""
        if self.is_closed:
            return
        if partition in self.owned:
            self.unload(partition)
        self.loading.discard(partition)
        self.owned.add(partition)
        self._add_loaded(partition, loader)

    def unload(self, partition: int) -> None:
        """This broker no longer leads the partition: drops its values, which another coordinator has."""
        is_owned = partition in self.owned
        self.owned.discard(partition)
        self.loading.discard(partition)
        for value in self.values_of(partition) if is_owned else ():
            self._drop(value, ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        """Every waiting and later request gets COORDINATOR_NOT_AVAILABLE. A second call has no effect."""
        self.is_closed = True
        for value in self:
            self._drop(value, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.owned.clear()
        self.loading.clear()

    @abstractmethod
    def _add_loaded(self, partition: int, loader: L) -> None:
        """Add the values that were read from the partition."""

    @abstractmethod
    def _drop(self, value: V, error: ErrorCode) -> None:
        """Remove the value; its waiting requests get `error`."""


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
