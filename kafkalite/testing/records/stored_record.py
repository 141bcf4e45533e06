"""The records of a partition as its log has them: exact, without a client.

A reader sees what a consumer sees: no control batches, nothing above the high watermark, and with
isolation="read_committed" nothing of aborted transactions and nothing above the last stable offset. `RecordWatch`
continues at the last end of each partition as soon as it grows. There is no notification of new topics and partitions,
so they are polled every few milliseconds.

Keys and values may be written and compared as text, JSON or bytes (`Payload`, `RecordPattern`). Arguments may come from
a file, a marker or a request that no type checker sees, so their types are checked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import read_json
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
    """One record. `timestamp` is in milliseconds. `key` and `value` are bytes or None, or decoded values; headers are
    (name, bytes or None) in their order."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def decoded(self, key: Decode | None, value: Decode | None) -> StoredRecord:
        """The record with its key and value decoded, if there is a decoder and they are not None."""
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
    """The offset before which a consumer's records end."""
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
    aborted = partition.log.transactions.aborted(first, limit) if isolation == READ_COMMITTED else []
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
        """The records once they are enough; None after the timeout."""
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
        """Wait until a partition grows, at most `wait_s`."""
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


# --- keys and values as tests write them

Payload = bytes | str | Mapping[str, Any] | list[Any] | None
"""Bytes as they are, text in UTF-8, a mapping or a list as JSON; None is no key, or a tombstone."""

HeadersGiven = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


def encoded(payload: Payload) -> bytes | None:
    """The bytes of a key or a value. Raises TypeError."""
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, (Mapping, list)):
        return json.dumps(payload, separators=(",", ":")).encode()
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    raise TypeError(f"a key or a value is bytes, str, a mapping, a list or None, not {type(payload).__name__}")


def encoded_headers(headers: HeadersGiven) -> tuple[tuple[str, bytes | None], ...]:
    """Raises TypeError."""
    found = []
    for header in headers.items() if isinstance(headers, Mapping) else _listed(headers):
        if not isinstance(header, (tuple, list)) or len(header) != 2 or not isinstance(header[0], str):
            raise TypeError(f"a header is a name and a value, not {header!r}")
        found.append((header[0], encoded(header[1])))
    return tuple(found)


def _listed(headers: object) -> Iterable[object]:
    if isinstance(headers, (str, bytes)) or not isinstance(headers, Iterable):
        raise TypeError(f"headers are a mapping, or pairs of name and value, not {headers!r}")
    return headers


def matches(stored: bytes | None, wanted: Payload | Callable[[Any], object]) -> bool:
    """Whether the bytes equal `wanted`; a mapping or a list is compared with their JSON, and a function is called with
    them."""
    if callable(wanted):
        return bool(wanted(stored))
    if isinstance(wanted, (Mapping, list)):
        try:
            return stored is not None and bool(read_json(stored) == wanted)
        except ValueError:
            return False
    return stored == encoded(wanted)


_SHOWN_MAX = 20


class Anything:
    """Matches every key and every value."""

    def __repr__(self) -> str:
        return "ANYTHING"


ANYTHING = Anything()

Wanted = Payload | Callable[[Any], object] | Anything


class RecordPattern(NamedTuple):
    """Matches records with this key and value, in this partition if one is given, and with at least these `headers`.
    Keys and values are compared as `Broker.produce` would write them, mappings and lists as JSON; a function gets the
    bytes and decides."""

    key: Wanted
    value: Wanted
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None

    def fits(self, record: StoredRecord) -> bool:
        return (
            (self.partition is None or record.partition == self.partition)
            and (isinstance(self.key, Anything) or matches(record.key, self.key))
            and (isinstance(self.value, Anything) or matches(record.value, self.value))
            and all(header in record.headers for header in self.headers)
        )

    def first(self, records: Iterable[StoredRecord]) -> StoredRecord | None:
        """The first record that matches."""
        return next(filter(self.fits, records), None)

    def __str__(self) -> str:
        parts = [f"key={self.key!r}", f"value={self.value!r}"]
        if self.headers:
            parts.append(f"headers={dict(self.headers)!r}")
        if self.partition is not None:
            parts.append(f"partition={self.partition}")
        return ", ".join(parts)

    def missing(self, topic: str, within_s: float, topics: Mapping[str, int], records: list[StoredRecord]) -> str:
        """The message of a test that fails without such a record, with the `topics` and the `records` that exist."""
        message = f"{topic} has no record with {self} within {within_s:g} s. "
        if topic not in topics:
            return message + f"There is no such topic; there are: {', '.join(sorted(topics)) or 'none'}"
        if not records:
            return message + "It is empty."
        more = f" (the last {_SHOWN_MAX})" if len(records) > _SHOWN_MAX else ""
        lines = [f"  {r.partition}@{r.offset} key={r.key!r} value={r.value!r}" for r in records[-_SHOWN_MAX:]]
        return message + "\n".join([f"It has {len(records)}{more}:", *lines])


# --- types of arguments: all raise TypeError with the name of the argument


def check_text(name: str, value: object, *, or_none: bool = False) -> None:
    if not isinstance(value, str) and not (or_none and value is None):
        raise TypeError(f"{name} is text, not {value!r}")


def check_integer(name: str, value: object, *, or_none: bool = False) -> None:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer and not (or_none and value is None):
        raise TypeError(f"{name} is a whole number{' or None' if or_none else ''}, not {value!r}")


def check_number(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} is a number, not {value!r}")


def check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is true or false, not {value!r}")
