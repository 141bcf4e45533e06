"""The records of a partition as its log has them: exact, without a client.

A reader sees what a consumer sees: no control batches, nothing above the high watermark, and with
isolation="read_committed" nothing of aborted transactions and nothing above the last stable offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kafkalite.record.batch import BatchHeader, parse_header
from kafkalite.record.compression import UNPACKED_BYTES_MAX
from kafkalite.record.record import read_records

if TYPE_CHECKING:
    from kafkalite.replication.partition import Partition

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
