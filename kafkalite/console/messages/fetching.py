"""Batches of one partition from an offset on, as its leader sends them, and the transactions that were aborted there.

Both halves of a log are read: up to the last stable offset as a consumer of committed records does, since only that
request is told about aborted transactions; above it as any other.
Source: org.apache.kafka.clients.consumer.internals.Fetcher, AbstractFetch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.client.blocking_client import Unanswered, name_of_error
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.record.batch import MAGIC, MAGIC_AT, PREFIX_BYTES, BatchHeader, parse_header
from kafkalite.record.message_set import entry_header

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient

FETCH_BYTES = 1 << 20
_VERSION = 11
_CONSUMER = -1
_LENGTH_AT, _LENGTH_END = 8, 12
COMMITTED, UNCOMMITTED = 1, 0


class Fetched(NamedTuple):
    """`batches`: whole ones, with their headers (of formats before v2 as `entry_header` has them).
    `aborted`: (first offset, producer id) of transactions in the range, ascending."""

    batches: list[tuple[BatchHeader, memoryview]]
    high_watermark: int
    last_stable_offset: int
    start_offset: int
    aborted: list[tuple[int, int]]
    size_bytes: int


class OutOfRange(Exception):
    """The offset is no longer in the log, or not yet."""


def fetch(
    cluster: ClusterClient,
    topic: str,
    partition: int,
    offset: int,
    *,
    isolation: int,
    max_wait_ms: int = 0,
    max_bytes: int = FETCH_BYTES,
) -> Fetched:
    """Raises OutOfRange, Unanswered, ConfigError."""
    one = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[one])],
    )
    leader = cluster.leader_of((topic, partition))
    answer = cluster.client(leader).ask(request, _VERSION)
    if answer.error_code:
        raise Unanswered(f"{topic}-{partition} cannot be read: {name_of_error(answer.error_code)}")
    data = answer.responses[0].partitions[0]
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OutOfRange
    if data.error_code:
        raise Unanswered(f"{topic}-{partition} cannot be read: {name_of_error(data.error_code)}")
    records = memoryview(data.records or b"")
    aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
    return Fetched(
        list(whole_batches(records)),
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        aborted,
        len(records),
    )


def whole_batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches in the records of a response, whose last one may be cut off."""
    position = 0
    while position + MAGIC_AT < len(data):
        length = int.from_bytes(data[position + _LENGTH_AT : position + _LENGTH_END], "big", signed=True)
        end = position + PREFIX_BYTES + length
        if length <= MAGIC_AT - PREFIX_BYTES or end > len(data):
            return
        batch = data[position:end]
        yield (parse_header(batch) if batch[MAGIC_AT] >= MAGIC else entry_header(batch)), batch
        position = end
