"""Copies that keep the offsets of their source, at brokers of kafkalite: by AppendAt, and without transactions.

The end of a copy's log is its whole state. A batch is appended on the condition that the log ends where this mirror
expects. So a mirror that begins after a kill reads the end and continues there, and if two have a partition for a
moment, one of them is refused. Consumers see a record when it is committed, and all of them are of committed
transactions.

A copy with records continues only if its last one is the source's record at that offset: a topic of others, and one to
which producers write since a fail-over, stay as they are. If there is none to compare (it is deleted at either end, or
a batch without records is the last), the pair of offsets decides that a mirror writes before it begins.

Batches are appended as they are, if possible: gaps, where compaction has removed records, and the time of an append
stay, as a follower keeps them. Only the producer is taken out of the header, for its id may be another producer's at
the target. Batches of formats v0 and v1, and those whose first records are deleted, are encoded again. Markers and
aborted transactions are left out: the next batch begins at its own offset, and the log lacks those before it, as one
that was compacted. Consumers skip such offsets. Where nothing follows yet, a batch without records takes the last
offset, as the cleaner leaves one: so the copy ends where its source does, and no offset that was committed there lies
behind the copy's end.
Source: kafka.log.Cleaner; org.apache.kafka.common.record.DefaultRecordBatch.writeEmptyHeader. MirrorMaker 2 cannot keep
offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kafkalite.client.blocking_client import BlockingClient, name_of_error
from kafkalite.client.broker_reports import is_kafkalite
from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.fetching import Fetched
from kafkalite.client.group_member import Membership
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.mirror.committed_batches import committed, position_behind, records_from
from kafkalite.client.mirror.copied_partition import CopiedPartition
from kafkalite.client.mirror.state_records import OffsetSync, Run
from kafkalite.client.mirror.state_topics import StateTopics
from kafkalite.client.partition_scan import PartitionScan, ScannedRecord
from kafkalite.common.errors import ConfigError, ErrorCode, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.append_at import (
    AppendAtPartition,
    AppendAtPartitionResult,
    AppendAtRequest,
    AppendAtResponse,
    AppendAtTopic,
)
from kafkalite.record.batch import HEADER_BYTES, MAGIC, TRANSACTIONAL, BatchHeader, Buffer, assemble, build_batch

_VERSION = 0
_REQUEST_BYTES = 4 << 20


def require_kafkalite(target: ClusterClient) -> None:
    """Raises ConfigError if the brokers of a cluster cannot append batches at given offsets. Raises Unanswered."""
    client = target.first
    is_ours = is_kafkalite(client)
    if is_ours is None:  # the user may not describe the cluster
        try:
            client.ask(AppendAtRequest(), _VERSION)
        except Unanswered:
            is_ours = False
    if is_ours is False:
        raise ConfigError(
            f"the target {client.address} is not kafkalite: --preserve-offsets needs its brokers, since Apache Kafka "
            "gives every record a new offset"
        )


@dataclass(slots=True, eq=False)
class _Tail:
    """The end of one copy. `end_offset` is that of its log, all of which is committed, without `in_flight` and
    `queued`; up to `paired_offset` the topic of offset syncs has a pair."""

    copied: CopiedPartition
    end_offset: int
    paired_offset: int
    in_flight: list[PreservedBatch] = field(default_factory=list)
    queued: deque[PreservedBatch] = field(default_factory=deque)

    @property
    def queued_end(self) -> int:
        """The end of the log when all is appended."""
        for batches in (self.queued, self.in_flight):
            if batches:
                return batches[-1].end_offset
        return self.end_offset


class _Logs(NamedTuple):
    """Where a copy's log and its source begin and end."""

    start: int
    end: int
    source_start: int
    source_end: int


class PreservedCopies:
    """The copies of one source; see `Copies`."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        state: StateTopics,
        offset_syncs: str,
        retries: Retries,
        wall_ms: Callable[[], int],
        *,
        pair_interval_ms: int,
    ) -> None:
        """A pair of offsets of each partition is written every `pair_interval_ms` for MirrorMaker's readers."""
        self._source = source
        self._target = target
        self._state = state
        self._offset_syncs = offset_syncs
        self._timeout_s = retries.timeout_s
        self._monotonic_s = retries.monotonic_s
        self._wall_ms = wall_ms
        self._pair_interval_s = pair_interval_ms / 1000
        self._paired_s = self._monotonic_s()
        self._tails: dict[TopicPartition, _Tail] = {}
        self._in_flight: dict[int, BlockingClient] = {}  # by broker id
        self.began_s: float | None = None
        self.size_bytes = 0
        self.has_records = False

    # --- the beginning

    def begin(self, partitions: Sequence[CopiedPartition], member: Membership) -> None:
        """Sets the position of each partition to the end of its copy, or gives it a fault. An empty copy begins where
        its source does."""
        before, self._tails = self._tails, {}
        self._target.refresh()
        fresh = []
        for one, logs in self._logs_of(partitions).items():
            known = before.get(one.target)
            if logs.end == 0:
                fresh.append((one, logs.source_start))
            elif known is not None and known.end_offset == logs.end:  # this mirror's own batch is still the last
                self._continue(one, logs.end)
            elif fault := self._fault(one, logs):
                one.fail(fault)
            else:
                self._continue(one, logs.end)
        self._begin(fresh)

    def _logs_of(self, partitions: Sequence[CopiedPartition]) -> dict[CopiedPartition, _Logs]:
        """The offsets of those that the target does not refuse, when all that their logs have is committed."""
        found = self._answers({one: AppendAtPartition(index=one.target[1]) for one in partitions})
        committed = LogOffsets(self._target, self._timeout_s).ends([one.target for one in found])
        late = {
            one: AppendAtPartition(index=one.target[1], end_offset=answer.end_offset)
            for one, answer in found.items()
            if committed[one.target] < answer.end_offset
        }
        usable = [one for one in found if one not in late] + list(self._answers(late))
        here = LogOffsets(self._source, self._timeout_s)
        sources = [one.source for one in usable]
        starts, ends = here.starts(sources), here.ends(sources, committed=True)
        return {
            one: _Logs(found[one].start_offset, found[one].end_offset, starts[one.source], ends[one.source])
            for one in usable
        }

    def _answers(
        self, wanted: Mapping[CopiedPartition, AppendAtPartition]
    ) -> dict[CopiedPartition, AppendAtPartitionResult]:
        """The answers of the leaders but their refusals, which are faults of the partitions. Raises WriteFailed."""
        answers = self._ask({one.target: asked for one, asked in wanted.items()})
        for one in wanted:
            if answers[one.target].error_code:
                self._refuse(one, answers[one.target])
        return {one: answers[one.target] for one in wanted if not one.fault}

    def _begin(self, fresh: Sequence[tuple[CopiedPartition, int]]) -> None:
        """Begins copies that are empty, each at its source's start, with a pair of offsets that says so first."""
        if not fresh:
            return
        now_ms = self._wall_ms()
        pairs = [OffsetSync(one.source, Run(start, start, 0)) for one, start in fresh]
        self._state.write(self._offset_syncs, [pair.record(now_ms) for pair in pairs])
        beginnings = {
            one: AppendAtPartition(index=one.target[1], end_offset=0, start_offset=start)
            for one, start in fresh
            if start
        }
        self._answers(beginnings)
        for one, start in fresh:
            if not one.fault:
                self._continue(one, start)

    def _continue(self, one: CopiedPartition, end_offset: int) -> None:
        one.position = end_offset
        one.offsets.clear()
        one.offsets.append(Run(0, 0, end_offset))
        self._tails[one.target] = _Tail(one, end_offset, end_offset)

    def _fault(self, one: CopiedPartition, logs: _Logs) -> str:
        """The reason why a log with records, or with deleted ones, is no copy that may be continued; "" if it is."""
        name = f"{one.target[0]}-{one.target[1]}"
        if logs.end > logs.source_end:
            return f"{name} ends at offset {logs.end}, its source at {logs.source_end}: the source lacks these records"
        is_same = self._has_same_last_record(one, logs)
        if is_same is None:
            last = one.offsets.last
            is_same = last is not None and last.source == last.target
        if is_same:
            return ""
        return (
            f"{name} has records that are not its source's at these offsets: it is another topic, a copy without "
            "--preserve-offsets, or has got records of others"
        )

    def _has_same_last_record(self, one: CopiedPartition, logs: _Logs) -> bool | None:
        """None if there is no record to compare."""
        if logs.end == logs.start:
            return None
        last = _record_at(self._target, one.target, logs.end - 1)
        if last is None:
            return None
        if last.marker is not None or last.batch.producer_id >= 0:
            return False
        if last.offset < logs.source_start:
            return None
        original = _record_at(self._source, one.source, last.offset)
        return None if original is None else _content(original) == _content(last)

    # --- batches

    def batches(self, fetched: Fetched, position: int) -> tuple[list[PreservedBatch], int]:
        """The batches of a response with their offsets, and the offset behind it. Raises Malformed."""
        return preserved_batches(fetched, position)

    def add(self, copied: CopiedPartition, batches: list[PreservedBatch]) -> None:
        """Queues batches of a partition, whose position is behind them."""
        tail = self._tails.get(copied.target)
        if tail is None:
            return
        if self.began_s is None:
            self.began_s = self._monotonic_s()
        tail.queued += batches
        self.size_bytes += sum(len(one.data) for one in batches)
        self.has_records |= bool(batches)

    def send(self) -> None:
        """Sends a request to each leader that has none in flight."""
        led: dict[int, list[_Tail]] = {}
        for target, tail in self._tails.items():
            if tail.queued and not tail.in_flight:
                led.setdefault(self._target.leader_of(target), []).append(tail)
        for broker_id, tails in led.items():
            if broker_id not in self._in_flight:
                self._send(broker_id, tails)

    def _send(self, broker_id: int, tails: Sequence[_Tail]) -> None:
        left_bytes = _REQUEST_BYTES
        wanted: dict[TopicPartition, AppendAtPartition] = {}
        for tail in tails:
            while tail.queued and (left_bytes >= len(tail.queued[0].data) or not wanted):
                tail.in_flight.append(one := tail.queued.popleft())
                left_bytes -= len(one.data)
                if left_bytes <= 0:
                    break
            if tail.in_flight:
                records = memoryview(b"".join(one.data for one in tail.in_flight))
                target = tail.copied.target
                wanted[target] = AppendAtPartition(index=target[1], end_offset=tail.end_offset, records=records)
            if left_bytes <= 0:
                break
        client = self._target.leader(broker_id)
        client.send(self._request(wanted), _VERSION)
        self._in_flight[broker_id] = client

    def commit(self, member: Membership) -> None:
        """Returns when all that was added is committed; notifies the partitions."""
        if self.began_s is None:
            return
        self._fill_up()
        while self._in_flight or any(tail.queued for tail in self._tails.values()):
            self.send()
            for broker_id in list(self._in_flight):
                self._receive(broker_id)
        self._write_pairs()
        self.began_s, self.size_bytes, self.has_records = None, 0, False

    def _fill_up(self) -> None:
        """Where the source has nothing more behind a gap, the copy gets as long as it."""
        for tail in self._tails.values():
            copied = tail.copied
            if copied.counts.lag == 0 and copied.position > tail.queued_end:
                tail.queued.append(filler(copied.position))

    def _receive(self, broker_id: int) -> None:
        client = self._in_flight.pop(broker_id)
        for target, answer in _results(client.receive(AppendAtRequest, _VERSION)).items():
            tail = self._tails[target]
            if answer.error_code:
                self._refuse(tail.copied, answer)
                del self._tails[target]
            else:
                self._on_appended(tail)

    def _on_appended(self, tail: _Tail) -> None:
        before, tail.end_offset = tail.end_offset, tail.in_flight[-1].end_offset
        tail.copied.offsets.append(Run(before, before, tail.end_offset - before))
        counts = tail.copied.counts
        counts.records += sum(one.record_count for one in tail.in_flight)
        counts.size_bytes += sum(len(one.data) for one in tail.in_flight)
        newest = max(one.max_timestamp for one in tail.in_flight)
        if newest >= 0:
            counts.latency_ms = max(0, self._wall_ms() - newest)
        tail.in_flight = []

    def _write_pairs(self) -> None:
        now_s = self._monotonic_s()
        if now_s - self._paired_s < self._pair_interval_s:
            return
        self._paired_s, now_ms = now_s, self._wall_ms()
        changed = [tail for tail in self._tails.values() if tail.end_offset > tail.paired_offset]
        pairs = [OffsetSync(tail.copied.source, Run(tail.end_offset, tail.end_offset, 0)) for tail in changed]
        if pairs:
            self._state.write(self._offset_syncs, [pair.record(now_ms) for pair in pairs])
        for tail in changed:
            tail.paired_offset = tail.end_offset

    # --- requests

    def _refuse(self, copied: CopiedPartition, answer: AppendAtPartitionResult) -> None:
        """Gives the partition the fault of its leader's refusal. Raises WriteFailed for one that passes: the session
        ends, and the next one reads the ends again."""
        why = answer.error_message or name_of_error(answer.error_code)
        text = f"{copied.target[0]}-{copied.target[1]} is refused: {why}"
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or ErrorCode.of(answer.error_code).is_retriable:
            raise WriteFailed(text)
        copied.fail(text)

    def _ask(self, wanted: Mapping[TopicPartition, AppendAtPartition]) -> dict[TopicPartition, AppendAtPartitionResult]:
        """The answers of the leaders about these partitions. Raises Unanswered, ConfigError."""
        led: dict[int, dict[TopicPartition, AppendAtPartition]] = {}
        for target, one in wanted.items():
            led.setdefault(self._target.leader_of(target), {})[target] = one
        found: dict[TopicPartition, AppendAtPartitionResult] = {}
        for broker_id, some in led.items():
            found |= _results(self._target.leader(broker_id).ask(self._request(some), _VERSION))
        return found

    def _request(self, wanted: Mapping[TopicPartition, AppendAtPartition]) -> AppendAtRequest:
        topics: dict[str, AppendAtTopic] = {}
        for (topic, _), one in wanted.items():
            topics.setdefault(topic, AppendAtTopic(name=topic)).partitions.append(one)
        return AppendAtRequest(timeout_ms=int(self._timeout_s * 500), topics=list(topics.values()))


def _results(response: AppendAtResponse) -> dict[TopicPartition, AppendAtPartitionResult]:
    return {(topic.name, one.index): one for topic in response.topics for one in topic.partitions}


def _record_at(cluster: ClusterClient, partition: TopicPartition, offset: int) -> ScannedRecord | None:
    """The record with this offset, None if the log lacks it. Raises Unanswered."""
    scan = PartitionScan(cluster, *partition, committed_only=False)
    return next((one for one in scan.read(offset, offset + 1, max_bytes=1) if one.offset == offset), None)


def _content(record: ScannedRecord) -> tuple[object, ...]:
    return record.timestamp, record.key, record.value, record.headers


_NO_PRODUCER = -1


class PreservedBatch(NamedTuple):
    """A whole batch with its offsets; `end_offset` is the one behind it."""

    data: Buffer
    end_offset: int
    record_count: int
    max_timestamp: int


def preserved_batches(fetched: Fetched, position: int) -> tuple[list[PreservedBatch], int]:
    """The batches with committed records from `position` on, and the offset behind all that was read. Raises Malformed
    for a batch that is damaged."""
    found = []
    for header, batch in committed(fetched, position):
        if header.magic == MAGIC and header.base_offset >= position:
            if header.record_count:
                data = _without_producer(header, batch)
                found.append(PreservedBatch(data, header.last_offset + 1, header.record_count, header.max_timestamp))
        elif (encoded := _encoded_again(header, batch, position)) is not None:
            found.append(encoded)
    return found, position_behind(fetched, position)


def filler(end_offset: int) -> PreservedBatch:
    """A batch without records, behind which the log ends at `end_offset`."""
    return PreservedBatch(build_batch([], base_offset=end_offset - 1), end_offset, 0, -1)


def _without_producer(header: BatchHeader, batch: memoryview) -> Buffer:
    if header.producer_id == _NO_PRODUCER and not header.is_transactional:
        return batch
    plain = header._replace(
        attributes=header.attributes & ~TRANSACTIONAL,
        producer_id=_NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
    )
    return assemble(plain, batch[HEADER_BYTES:])


def _encoded_again(header: BatchHeader, batch: memoryview, position: int) -> PreservedBatch | None:
    """None if no record is left."""
    records = records_from(batch, position)
    if not records:
        return None
    base_offset = records[0].offset
    data = build_batch(
        records,
        base_offset=base_offset,
        codec=header.codec,
        timestamp_type=header.timestamp_type,
        offset_deltas=[one.offset - base_offset for one in records],
        last_offset_delta=header.last_offset - base_offset,
    )
    newest = max(one.timestamp for one in records)
    return PreservedBatch(data, header.last_offset + 1, len(records), newest)
