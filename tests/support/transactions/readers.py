"""The records that consumers find in a partition: all of them, or the committed ones, as Kafka's clients tell them from
the batches and the list of aborted transactions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.record.batch import HEADER_BYTES, BatchHeader, parse_header
from kafkalite.record.record import read_records
from kafkalite.record.transaction_marker import COMMIT
from tests.support.transactions.driver import Driver

UNCOMMITTED, COMMITTED = 0, 1
_FETCHES_MAX = 10_000
_RETRIABLE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # a new topic
_RETRY_MS = 50
_RETRIES = 100


class Found(NamedTuple):
    """A record. `header` is that of its batch."""

    offset: int
    key: bytes | None
    value: bytes
    header: BatchHeader


@dataclass
class Read:
    """`records` from the offset that was asked for on. The last two offsets are those of the last answer; `position`
    is where the next read goes on; it began at `begin_offset`. `markers` are (offset, producer id, whether it commits).
    """

    records: list[Found] = field(default_factory=list)
    markers: list[tuple[int, int, bool]] = field(default_factory=list)
    position: int = 0
    begin_offset: int = 0
    stable_offset: int = 0
    high_watermark: int = 0


def read(
    driver: Driver, client: str, partition: TopicPartition, isolation: int, *, offset: int = 0,
    max_bytes: int = 1 << 20, version: int = 11, fetches: int = _FETCHES_MAX,
) -> Read:  # fmt: skip
    """Everything from `offset` on, or from the log's start if that is later; `fetches` limits how far. Raises
    NoAnswer."""
    found = Read(position=offset, begin_offset=offset)
    for _ in range(fetches):
        answer = _fetch(driver, client, partition, isolation, found.position, max_bytes, version)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not found.records:
            start_offset = _start(driver, client, partition)
            assert start_offset > found.position, f"{partition} has nothing at {found.position}, its end"
            found.position = found.begin_offset = start_offset
            continue
        assert not answer.error_code, f"{partition} at {found.position}: {answer}"
        found.high_watermark, found.stable_offset = answer.high_watermark, answer.last_stable_offset
        assert found.stable_offset <= found.high_watermark
        limit = found.stable_offset if isolation else found.high_watermark
        before = found.position
        _take(found, answer, limit)
        if found.position >= limit:
            return found
        if found.position == before:  # a power cut has left the next segment, and not the end of the one before it
            found.position = limit
    return found


def _fetch(
    driver: Driver, client: str, partition: TopicPartition, isolation: int, offset: int, max_bytes: int, version: int
) -> Any:
    asked = FetchPartition(partition=partition[1], fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, isolation_level=isolation,
        topics=[FetchTopic(topic=partition[0], partitions=[asked])],
    )  # fmt: skip
    for _ in range(_RETRIES):
        answer = driver.ask(client, request, version).responses[0].partitions[0]
        if answer.error_code not in _RETRIABLE:
            break
        driver.wait(_RETRY_MS)
    return answer


def _start(driver: Driver, client: str, partition: TopicPartition) -> int:
    asked = ListOffsetsPartition(partition_index=partition[1], timestamp=-2)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=partition[0], partitions=[asked])])
    offset: int = driver.ask(client, request, 5).topics[0].partitions[0].offset
    return offset


def _take(found: Read, answer: Any, limit: int) -> None:
    """As the Java client's Fetcher: transactions of the list are aborted from their first offset to their marker."""
    data = memoryview(b"".join(bytes(part) for part in _parts(answer.records)))
    aborted = sorted(answer.aborted_transactions or (), key=lambda each: each.first_offset)
    is_aborted: set[int] = set()
    while len(data) >= HEADER_BYTES:  # the last batch may be cut off
        header = parse_header(data)
        if header.size_bytes > len(data):
            break
        batch, data = data[: header.size_bytes], data[header.size_bytes :]
        assert header.last_offset < limit, f"offset {header.last_offset} is not below {limit}"
        while aborted and aborted[0].first_offset <= header.last_offset:
            is_aborted.add(aborted.pop(0).producer_id)
        records = read_records(batch)
        if header.is_control:
            for record in records:
                commits = int.from_bytes((record.key or b"")[2:4], "big") == COMMIT
                if not commits:
                    is_aborted.discard(header.producer_id)
                if record.offset >= found.position:
                    found.markers.append((record.offset, header.producer_id, commits))
        elif not (header.is_transactional and header.producer_id in is_aborted):
            for record in records:
                if record.offset >= found.position:
                    assert record.value is not None
                    found.records.append(Found(record.offset, record.key, bytes(record.value), header))
        found.position = header.last_offset + 1


def _parts(records: Any) -> list[Any]:
    return [] if records is None else records if isinstance(records, list) else [records]
