"""The records of a partition as its log has them: exact, without a client.

A reader sees what a consumer sees: no control batches, nothing above the high watermark, and with
isolation="read_committed" nothing of aborted transactions and nothing above the last stable offset. `RecordWatch` reads
each partition on from its last end as soon as it has more. A new topic or more partitions notify no one, and are polled
for every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kafkalite.record.batch import BatchHeader, parse_header
from kafkalite.record.compression import UNPACKED_BYTES_MAX
from kafkalite.record.record import read_records
from kafkalite.replication.delayed_operations import DelayedOperation

if TYPE_CHECKING:
    from kafkalite.replication.partition import Partition
    from kafkalite.server.broker_server import BrokerServer

Isolation = Literal["read_uncommitted", "read_committed"]

READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"

Decode = Callable[[bytes], Any]


class StoredRecord(NamedTuple):
    """One record. `timestamp` is in milliseconds. `key` and `value` are bytes or None, or what a decoder made of the
    bytes; headers are (name, bytes or None) in their order."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def decoded(self, key: Decode | None, value: Decode | None) -> StoredRecord:
        """With the key and the value decoded, where there is a decoder and something to decode."""
        record = self
        try:
            if key is not None and record.key is not None:
                record = record._replace(key=key(record.key))
            if value is not None and record.value is not None:
                record = record._replace(value=value(record.value))
        except Exception as error:
            error.add_note(f"record {self.offset} of {self.topic}-{self.partition}: {self.key!r}, {self.value!r}"[:500])
            raise
        return record


def check_isolation(isolation: str) -> None:
    """Raises ValueError."""
    if isolation not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise ValueError(f"isolation is {READ_UNCOMMITTED!r} or {READ_COMMITTED!r}, not {isolation!r}")


def end_offset(partition: Partition, isolation: str) -> int:
    """The offset at which a reader's records end."""
    return partition.last_stable_offset if isolation == READ_COMMITTED else partition.high_watermark


def stored_records(partition: Partition, from_offset: int, isolation: str) -> Iterator[StoredRecord]:
    """The records from `from_offset` on. Raises StorageError, Malformed."""
    topic, index = partition.topic, partition.index
    first = max(from_offset, partition.log.start_offset)
    for _, batch in _visible_batches(partition, first, isolation):
        for record in read_records(batch, UNPACKED_BYTES_MAX, UNPACKED_BYTES_MAX):
            if record.offset >= first:
                yield StoredRecord(
                    topic, index, record.offset, record.timestamp, record.key, record.value, record.headers
                )


def count_records(partition: Partition, from_offset: int, isolation: str) -> int:
    """The number of `stored_records`; only a first batch that begins before `from_offset` is decoded."""
    first = max(from_offset, partition.log.start_offset)
    count = 0
    for header, batch in _visible_batches(partition, first, isolation):
        if header.base_offset >= first:
            count += header.record_count
        else:
            records = read_records(batch, UNPACKED_BYTES_MAX, UNPACKED_BYTES_MAX)
            count += sum(record.offset >= first for record in records)
    return count


def _visible_batches(partition: Partition, first: int, isolation: str) -> Iterator[tuple[BatchHeader, memoryview]]:
    limit = end_offset(partition, isolation)
    if first >= limit:
        return
    aborted = partition.aborted_transactions(first, limit) if isolation == READ_COMMITTED else []
    for batch in partition.log.batches(first):
        header = parse_header(batch)
        if header.last_offset >= limit:
            return
        if not header.is_control and not any(txn.covers(header) for txn in aborted):
            yield header, batch


_POLL_S = 0.005


class RecordWatch:
    """Reads one topic of a broker, on its loop."""

    def __init__(self, server: BrokerServer, topic: str, isolation: str) -> None:
        self._server = server
        self._topic = topic
        self._isolation = isolation
        self._read_to: dict[int, int] = {}
        self._records: dict[int, list[StoredRecord]] = {}
        self._topic_id: object = None

    def poll(self) -> list[StoredRecord]:
        """All records by partition and offset; none if there is no such topic. Raises StorageError."""
        topic = self._server.replica_manager.by_name.get(self._topic)
        topic_id = None if topic is None else topic.topic_id
        if topic_id != self._topic_id:  # deleted, perhaps made again
            self._read_to.clear()
            self._records.clear()
            self._topic_id = topic_id
        for index, partition in sorted(topic.partitions.items()) if topic is not None else ():
            end = end_offset(partition, self._isolation)
            start = self._read_to.get(index, 0)
            if end > start:
                self._records.setdefault(index, []).extend(stored_records(partition, start, self._isolation))
                self._read_to[index] = end
        return [record for index in sorted(self._records) for record in self._records[index]]

    async def until(
        self, is_enough: Callable[[list[StoredRecord]], object], timeout_s: float
    ) -> list[StoredRecord] | None:
        """The records when they are enough; None if they are not within that time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            records = self.poll()
            if is_enough(records):
                return records
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return None
            await self._more(min(left_s, _POLL_S if self._topic_id is None else 10 * _POLL_S))

    async def _more(self, wait_s: float) -> None:
        """Wait until a partition has more, at most so long."""
        changed = asyncio.Event()
        waiting = DelayedOperation(
            1, changed.set, asyncio.get_running_loop().call_soon, self._isolation == READ_COMMITTED
        )
        topic = self._server.replica_manager.by_name.get(self._topic)
        for partition in topic.partitions.values() if topic is not None else ():
            if not partition.is_offline:
                partition.watch(waiting)
        try:
            await asyncio.wait_for(changed.wait(), wait_s)
        except TimeoutError:
            pass
        finally:
            waiting.withdraw()
