"""Reads the partitions of one ShareFetch: record batches, and which of their records the member acquires.

Each share partition is read where something may be available in it. Whole record batches are sent, from the one with
the first acquired record to the one with the last.
Source: kafka.server.share.{DelayedShareFetch, ShareFetchUtils} (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from kafkalite.api.request.long_poll import LongPoll
from kafkalite.api.request.share_sessions import TopicIdPartition
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.region import FileRegion
from kafkalite.log.segment.segment_file import CutOff, iter_headers
from kafkalite.replication.share.acquisition import AcquiredRange, AcquisitionRequest, FetchedBatch
from kafkalite.replication.share.led_share_partition import LedSharePartition


class ShareRequest(NamedTuple):
    """One ShareFetch of a member."""

    member_id: str
    max_bytes: int
    min_bytes: int
    max_records: int
    batch_size: int
    is_record_limited: bool


class SharedRecords(NamedTuple):
    """The outcome for one partition: nothing, records, or an error."""

    records: FileRegion | None = None
    acquired: Sequence[AcquiredRange] = ()
    error: KafkaError | None = None
    is_beyond_quota: bool = False  # there is more, which may not be sent now


class _Batches(NamedTuple):
    """The headers of what was read, and where each batch is in the file."""

    batches: list[FetchedBatch]
    aborted: list[FetchedBatch]
    places: list[tuple[int, int]]


class ShareFetchReader:
    """The share partitions of one request, in the order in which they are read."""

    def __init__(
        self,
        request: ShareRequest,
        shares: Sequence[tuple[TopicIdPartition, LedSharePartition]],
        loading: Sequence[TopicIdPartition],
        reads_committed: bool,
    ) -> None:
        """`loading` are those of `shares` that this request began to load, or that others did and that are not yet
        loaded. As in Apache Kafka the first of them that has records completes the request, without the others."""
        self.reads_committed = reads_committed
        self.share_count = len(shares)
        self.ready_count = 0  # of the partitions that the last read could acquire from
        self.throttle_ms = 0  # for how long the client has to wait; then nothing was acquired
        self._request = request
        self._shares = shares
        self._loading = list(loading)
        self._wait_ms: Callable[[int], int] | None = None
        self._sent_bytes = 0

    def limit(self, wait_ms: Callable[[int], int]) -> None:
        """Read within a quota: `wait_ms` maps bytes to the wait before they may be sent. What may not be sent is not
        acquired, unlike in Apache Kafka, where it stays locked."""
        self._wait_ms = wait_ms

    def _is_beyond_quota(self, size_bytes: int) -> bool:
        """Whether so many bytes more may not be sent now; the client has to wait if that is true of the first ones."""
        if self._wait_ms is None:
            return False
        wait_ms = self._wait_ms(self._sent_bytes + size_bytes)
        if wait_ms > 0 and not self._sent_bytes:
            self.throttle_ms = wait_ms
        return wait_ms > 0

    def watch(self, poll: LongPoll) -> None:
        """Wake `poll` when there is more in the logs, or something becomes available."""
        poll.withdraw()
        for _, led in self._shares:
            if led.fenced is None:
                led.partition.watch(poll)
                poll.wait_in(led.delayed_fetches)

    def pass_on(self) -> None:
        """Other fetches may have what this one has left."""
        for _, led in self._shares:
            led.wake_next()

    def read(self, *, is_over: bool) -> tuple[dict[TopicIdPartition, SharedRecords], int]:
        """The acquired records, and the bytes that are missing until the request is satisfied; then nothing was
        acquired. It is satisfied, with 0, if the wait `is_over`, with an error, and beyond a quota."""
        found, missing_bytes = self._read_loaded(is_over=is_over)
        while self._loading and not found and not self.throttle_ms and self._admit_loaded():
            found, missing_bytes = self._read_loaded(is_over=is_over)
        return found, missing_bytes

    def _admit_loaded(self) -> bool:
        """Read one more of the share partitions that were loading, if it is loaded."""
        leds = dict(self._shares)
        loaded = next((key for key in self._loading if leds[key].state is not None), None)
        if loaded is not None:
            self._loading.remove(loaded)
        return loaded is not None

    def _read_loaded(self, *, is_over: bool) -> tuple[dict[TopicIdPartition, SharedRecords], int]:
        found = {key: SharedRecords(error=led.fenced) for key, led in self._shares if led.fenced is not None}
        ready = [
            (key, led, offset)
            for key, led in self._shares
            if led.fenced is None and key not in self._loading and (offset := led.fetch_offset()) is not None
        ]
        self.ready_count, self._sent_bytes = len(ready), 0
        if not is_over and not found:
            missing_bytes = self._missing_bytes(ready)
            if missing_bytes > 0:
                return {}, missing_bytes
        remaining = self._request.max_records
        for at, (key, led, offset) in enumerate(ready):
            if remaining <= 0:
                break
            max_bytes = self._request.max_bytes // (len(ready) - at)
            try:
                records = self._read_one(led, offset, max_bytes, remaining)
            except KafkaError as error:
                records = SharedRecords(error=error)
            remaining -= sum(each.last - each.first + 1 for each in records.acquired)
            if records.acquired or records.error is not None:
                found[key] = records
            if records.is_beyond_quota:
                break
            self._sent_bytes += 0 if records.records is None else records.records.size
        if is_over and not found:
            self._is_beyond_quota(0)
        if self.throttle_ms:
            return {}, 0
        return found, 0 if found or is_over else 1

    def _missing_bytes(self, ready: Sequence[tuple[TopicIdPartition, LedSharePartition, int]]) -> int:
        missing_bytes = max(1, self._request.min_bytes)
        is_one_enough = missing_bytes == 1
        for _, led, offset in ready:
            partition = led.partition
            limit = partition.last_stable_offset if self.reads_committed else partition.high_watermark
            if limit == offset:
                continue
            if is_one_enough:
                return 0  # the usual case, without a look at the log
            try:
                missing_bytes -= partition.countable_bytes(offset, limit, self._request.max_bytes)
            except KafkaError:
                return 0  # the read meets the error
            if missing_bytes <= 0:
                return 0
        return missing_bytes

    def _read_one(self, led: LedSharePartition, offset: int, max_bytes: int, max_records: int) -> SharedRecords:
        partition = led.partition
        try:
            region = partition.read(offset, max_bytes, True, read_committed=self.reads_committed)
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE or offset >= partition.log.start_offset:
                raise
            led.on_log_start()
            next_offset = led.fetch_offset()
            if next_offset is None:
                return SharedRecords()
            return self._read_one(led, max(next_offset, partition.log.start_offset), max_bytes, max_records)
        if region is None:
            return SharedRecords()
        request = self._request
        found = self._headers(led, region, offset, max_records)
        if self._wait_ms is not None and self._is_beyond_quota(sum(size_bytes for _, size_bytes in found.places)):
            return SharedRecords(is_beyond_quota=True)
        acquired = led.acquire(
            AcquisitionRequest(request.member_id, offset, max_records, request.batch_size, request.is_record_limited),
            found.batches,
            found.aborted,
        )
        if not acquired:
            return SharedRecords()
        return SharedRecords(_slice(region, found, acquired[0].first, acquired[-1].last), acquired)

    def _headers(self, led: LedSharePartition, region: FileRegion, offset: int, max_records: int) -> _Batches:
        """The batches of the region, up to the one in which the limit of records is reached."""
        transactions = led.partition.log.transactions.aborted_in(region, offset) if self.reads_committed else []
        found = _Batches([], [], [])
        last = led.last_acquirable(offset, max_records)
        with suppress(CutOff):  # by the limit of bytes, after the first batch
            for position, header in iter_headers(region.file.fd, region.position, region.position + region.size):
                batch = FetchedBatch(header.base_offset, header.last_offset)
                found.batches.append(batch)
                found.places.append((position, header.size_bytes))
                if transactions and not header.is_control and any(each.covers(header) for each in transactions):
                    found.aborted.append(batch)
                if batch.last >= last:
                    break
        return found


def _slice(region: FileRegion, found: _Batches, first: int, last: int) -> FileRegion:
    """The batches from the one with `first` to the one with `last`."""
    begin = next(at for at, batch in enumerate(found.batches) if batch.last >= first)
    end = next((at for at, batch in enumerate(found.batches) if batch.first > last), len(found.batches))
    position = found.places[begin][0]
    last_position, last_size = found.places[end - 1]
    return FileRegion(region.file, position, last_position + last_size - position, region.is_fresh)
