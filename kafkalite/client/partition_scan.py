"""Records of one partition for a scan: with their batch, and the outcome of their transaction.

Up to the last stable offset the log is read as by a consumer of committed records, since only that response lists
aborted transactions; above it as by any other consumer, and a bounded scan ahead finds the markers.
Source: org.apache.kafka.clients.consumer.internals.{Fetcher, AbstractFetch, CompletedFetch}.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.fetching import (
    COMMITTED,
    FETCH_BYTES,
    UNCOMMITTED,
    AbortedTransactions,
    Fetched,
    OutOfRange,
    fetch,
    is_commit,
)
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import MAGIC, BatchHeader, sequence_at
from kafkalite.record.batches import read_batch
from kafkalite.record.json_lines import Shown
from kafkalite.record.record import Record, read_body, unpacked_batch

OPEN, ENDED_COMMITTED, ENDED_ABORTED = "open", "committed", "aborted"
_AHEAD_BYTES_MAX = 64 << 20
_ASK_S = 10.0

MayMatch = Callable[[bytes], bool]
"""Whether the bytes of some records may have one that a search wants."""


class ScannedRecord(NamedTuple):
    """One record. `state` is the outcome of its transaction, None outside of transactions or if unknown. `marker`
    is "commit" or "abort" for the record that ends one. `fault`: the batch could not be read, and the record stands for
    all of it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    sequence: int
    batch: BatchHeader
    state: str | None
    marker: str | None = None
    fault: str | None = None

    def shown(self) -> Shown:
        """The record as a line of JSON has it."""
        return Shown(self.topic, self.partition, self.offset, self.timestamp, self.key, self.value, self.headers)


class Markers:
    """The ends of transactions above the last stable offset, where no response lists aborted ones: found by one scan
    ahead, over a bounded number of bytes."""

    def __init__(self) -> None:
        self._ends: dict[int, list[tuple[int, str]]] | None = None  # by producer id: (offset, state), ascending
        self._is_whole = True

    def find(self, cluster: ClusterClient, topic: str, partition: int, start: int, end: int) -> None:
        if self._ends is not None:
            return
        self._ends, offset, left = {}, start, _AHEAD_BYTES_MAX
        while offset < end and left > 0:
            fetched = fetch(cluster, topic, partition, offset, isolation=UNCOMMITTED)
            if not fetched.batches:
                break
            left -= fetched.size_bytes
            for header, batch in fetched.batches:
                if header.is_control and (commits := is_commit(batch)) is not None:
                    state = ENDED_COMMITTED if commits else ENDED_ABORTED
                    self._ends.setdefault(header.producer_id, []).append((header.base_offset, state))
                offset = header.last_offset + 1
        self._is_whole = offset >= end

    def state_of(self, header: BatchHeader) -> str | None:
        """The outcome of a batch's transaction. OPEN if no marker follows up to the end of the log; None if the scan
        did not read that far.
        """
        ends = (self._ends or {}).get(header.producer_id, [])
        at = bisect_right(ends, header.base_offset, key=itemgetter(0))
        if at < len(ends):
            return ends[at][1]
        return OPEN if self._is_whole else None


class PartitionScan:
    """Reads one partition, a piece at a time. `position` is the offset that is read next, `size_bytes` how much was
    read, `record_count` how many records. `committed_only` leaves out open and aborted transactions, as with
    read_committed. The records of a batch of which `may_match` denies it are counted as its header does, and not
    decoded: a batch of 64 KiB takes some 20 us instead of 300 us (64 records) to 2 ms (600).
    `is_overtaken`: the records at the offset of the last read were deleted before it. `first` is the offset from which
    on the last read has all records."""

    def __init__(
        self,
        cluster: ClusterClient,
        topic: str,
        partition: int,
        *,
        committed_only: bool,
        may_match: MayMatch | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.size_bytes = 0
        self.record_count = 0
        self.position = 0
        self.first = 0
        self.is_overtaken = False
        self._cluster = cluster
        self._committed_only = committed_only
        self._may_match = may_match
        self._markers = Markers()

    def read(
        self,
        offset: int,
        end: int,
        *,
        max_wait_ms: int = 0,
        max_bytes: int = FETCH_BYTES,
        floor: int | None = None,
    ) -> list[ScannedRecord]:
        """The records of one response from `offset` on, markers included, below `end`; `position` advances. With
        `floor` also the records before `offset` in the first batch, from this offset on. An empty
        list may mean that this piece had none. If the log has no such offset, `position` becomes its start if
        records were deleted meanwhile, else `end`. Raises Unanswered, ConfigError."""
        self.position = self.first = offset
        fetched, is_behind_stable = self._fetch(offset, max_wait_ms, max_bytes)
        if fetched is None:
            key = self.topic, self.partition
            start = LogOffsets(self._cluster, _ASK_S).starts([key])[key]
            self.is_overtaken = start > offset
            self.position = min(start, end) if self.is_overtaken else end
            return []
        self.is_overtaken = False
        found: list[ScannedRecord] = []
        aborted = AbortedTransactions(fetched.aborted)
        if floor is not None and fetched.batches:
            self.first = max(floor, min(offset, fetched.batches[0][0].base_offset))
        for header, batch in fetched.batches:
            if header.base_offset >= end and header.magic >= MAGIC:
                self.position = end
                break
            self.position = max(self.position, header.last_offset + 1)
            state = self._state(header, aborted, is_behind_stable)
            is_hidden = self._committed_only and state in (OPEN, ENDED_ABORTED)
            if not is_hidden:
                # a record behind the last offset of its batch, as brokers of old took some, comes with the batch
                last = header.last_offset
                is_whole = self.first <= header.base_offset and last < end
                records = self._records(header, batch, state, is_whole=is_whole)
                if records is None:
                    self.record_count += header.record_count
                else:
                    within = [one for one in records if self.first <= one.offset and min(one.offset, last) < end]
                    self.record_count += len(within)
                    found += within
            aborted.passed(header, batch)
        if not fetched.batches and max_wait_ms == 0:
            self.position = end  # no record remains below it, such as after compaction at the end
        return found

    def _fetch(self, offset: int, max_wait_ms: int, max_bytes: int) -> tuple[Fetched | None, bool]:
        """The response, and whether the offset is at or above the last stable offset; None if the log has no such
        offset.
        """
        is_behind_stable = False
        try:
            where = self._cluster, self.topic, self.partition, offset
            fetched = fetch(*where, isolation=COMMITTED, max_wait_ms=max_wait_ms, max_bytes=max_bytes)
            at_stable_end = not fetched.batches and offset >= fetched.last_stable_offset
            if at_stable_end and not self._committed_only and offset < fetched.high_watermark:
                end = fetched.high_watermark
                self._markers.find(self._cluster, self.topic, self.partition, offset, end)
                fetched = fetch(*where, isolation=UNCOMMITTED, max_bytes=max_bytes)
                is_behind_stable = True
        except OutOfRange:
            return None, False
        self.size_bytes += fetched.size_bytes
        return fetched, is_behind_stable

    def _state(self, header: BatchHeader, aborted: AbortedTransactions, behind_stable: bool) -> str | None:
        if not header.is_transactional or header.is_control:
            return None
        if behind_stable:
            return self._markers.state_of(header)
        return ENDED_ABORTED if aborted.has(header) else ENDED_COMMITTED

    def _records(
        self, header: BatchHeader, batch: memoryview, state: str | None, *, is_whole: bool
    ) -> list[ScannedRecord] | None:
        """The records of a batch; None if all of it is read and none of them may match."""
        topic, partition, base = self.topic, self.partition, header.base_offset
        try:
            records = self._decoded(batch) if is_whole and header.magic == MAGIC else read_batch(batch)
        except Malformed as fault:
            time_ms = header.max_timestamp
            return [ScannedRecord(topic, partition, base, time_ms, None, None, (), -1, header, state, None, str(fault))]
        if records is None:
            return None
        marker = _marker_of(header, batch)
        return [
            ScannedRecord(
                topic, partition, one.offset, one.timestamp, one.key, one.value, one.headers,
                sequence_at(header.base_sequence, one.offset - base), header, state, marker,
            )
            for one in records
        ]  # fmt: skip

    def _decoded(self, batch: memoryview) -> list[Record] | None:
        """The records of a batch of v2; None if none of them may match. Raises Malformed."""
        if self._may_match is None:
            return read_batch(batch)
        header, body = unpacked_batch(batch)
        data = bytes(body)
        return read_body(header, data) if self._may_match(data) else None


def _marker_of(header: BatchHeader, batch: memoryview) -> str | None:
    if not header.is_control:
        return None
    return "abort" if is_commit(batch) is False else "commit"
