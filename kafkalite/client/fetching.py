"""Fetches: requests for one or many partitions of a leader, their responses, and which transactions are aborted.

Source: org.apache.kafka.clients.consumer.internals.{AbstractFetch, CompletedFetch}.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import ErrorCode, Malformed, Refused, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.record.batch import BatchHeader
from kafkalite.record.batches import whole_batches
from kafkalite.record.transaction_marker import read_marker

FETCH_BYTES = 1 << 20
COMMITTED, UNCOMMITTED = 1, 0
FETCH_VERSION = 11
_CONSUMER = -1


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
    """The offset is not in the log any more, or not yet."""


def fetch_request(
    positions: Mapping[TopicPartition, int],
    *,
    isolation: int,
    max_wait_ms: int = 0,
    max_bytes: int = FETCH_BYTES,
    partition_bytes: int = FETCH_BYTES,
) -> FetchRequest:
    """A request for these partitions, each from its offset on; the leader answers in their order."""
    topics: dict[str, FetchTopic] = {}
    for (topic, index), offset in positions.items():
        one = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_bytes)
        topics.setdefault(topic, FetchTopic(topic=topic)).partitions.append(one)
    return FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=list(topics.values()),
    )


def answered_partitions(answer: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """The partitions of a response, for `fetched`. Raises Unanswered for an error of the whole response."""
    if answer.error_code:
        raise Unanswered(f"the fetch is refused: {name_of_error(answer.error_code)}")
    for topic in answer.responses:
        for data in topic.partitions:
            yield (topic.topic, data.partition_index), data


def fetched(key: TopicPartition, data: Any) -> Fetched:
    """A partition of a response. Raises OutOfRange, Refused, Unanswered, Malformed."""
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OutOfRange
    if data.error_code:
        fault = Unanswered if ErrorCode.of(data.error_code).is_retriable else Refused
        raise fault(f"{key[0]}-{key[1]} cannot be read: {name_of_error(data.error_code)}")
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
    """One response of the leader of one partition. Raises OutOfRange, Refused, Unanswered, ConfigError."""
    key = topic, partition
    request = fetch_request(
        {key: offset}, isolation=isolation, max_wait_ms=max_wait_ms, max_bytes=max_bytes, partition_bytes=max_bytes
    )
    answer = cluster.client(cluster.leader_of(key)).ask(request, FETCH_VERSION)
    if answer.error_code:
        fault = Unanswered if ErrorCode.of(answer.error_code).is_retriable else Refused
        raise fault(f"{topic}-{partition} cannot be read: {name_of_error(answer.error_code)}")
    return fetched(key, answer.responses[0].partitions[0])


class AbortedTransactions:
    """The producers whose transaction is aborted at a reader's position, tracked as a consumer does."""

    def __init__(self, aborted: list[tuple[int, int]]) -> None:
        self._waiting = deque(aborted)
        self._producers: set[int] = set()

    def has(self, header: BatchHeader) -> bool:
        self._begin_up_to(header.last_offset)
        return header.producer_id in self._producers

    def passed(self, header: BatchHeader, batch: memoryview) -> None:
        """The reader has passed this batch. A response may begin with the marker that ends a transaction."""
        if header.is_control and is_commit(batch) is False:
            self._begin_up_to(header.last_offset)
            self._producers.discard(header.producer_id)

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            self._producers.add(self._waiting.popleft()[1])


def is_commit(batch: memoryview) -> bool | None:
    """Whether a control batch commits a transaction, False if it aborts one, None for any other."""
    try:
        marker = read_marker(batch)
    except Malformed:
        return None
    return None if marker is None else marker.commit
