"""The transaction at the target that is open now: batches of many partitions, and how far each one gets.

A commit makes the records, the progress and the pairs of offsets of all partitions visible at once, or nothing of it.
Pairs of a transaction that is aborted are too early for the records that follow, so they harm no reader that sees them.
The progress is that of a group's member (KIP-447): the coordinator refuses it if the group has divided the partitions
again meanwhile.

A small transaction takes three round trips: partitions and group are added; records and pairs are written while the
progress is committed; it ends. The pairs need not wait for the records' answers, since the offset of a copy's next
record is known: only this mirror writes there, and each transaction leaves one marker. An answer with another offset
ends the session, and from then on pairs of this copy are written after its records.
Source: org.apache.kafka.clients.producer.KafkaProducer (sendOffsetsToTransaction); KIP-98, KIP-447.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.fetching import Fetched
from kafkalite.client.group_member import Membership
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.mirror.committed_batches import CommittedBatch, Part, committed_batches
from kafkalite.client.mirror.copied_partition import CopiedPartition
from kafkalite.client.mirror.offset_map import extend
from kafkalite.client.mirror.state_records import OffsetSync, Run
from kafkalite.client.producer.options import ProducerOptions
from kafkalite.client.producer.producer import Producer
from kafkalite.client.producer.transactions import CommittedOffset, GroupOffsets, Identity, Transactions
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.record.batch import encode_records
from kafkalite.record.compression import NONE

_SYNCS_IN_BATCH = 1000


@dataclass(slots=True)
class _Pending:
    """One partition's part of the transaction."""

    copied: CopiedPartition
    runs: list[Run] = field(default_factory=list)
    unplaced: int = 0  # batches whose offset is not known before their answer
    records: int = 0
    size_bytes: int = 0
    newest_timestamp: int = -1


class _Sent(NamedTuple):
    """A batch without an answer; `base_offset` is the one that it is to have at the target, if that is known."""

    parts: tuple[Part, ...]
    record_count: int
    base_offset: int | None


class OpenTransaction:
    """Raises WriteFailed if the target refuses, or is away for too long; the object is of no use then."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        options: ProducerOptions,
        progress: GroupOffsets,
        transactional_id: str,
        source_name: str,
        offset_syncs: str,
        retries: Retries,
        wall_ms: Callable[[], int],
    ) -> None:
        self._source = source
        self._target = target
        self._retries = retries
        self._transactions = Transactions(target, retries)
        self._identity: Identity = self._transactions.begin(transactional_id, options.transaction_timeout_ms)
        self._producer = Producer(options, target, retries, self._identity, self._on_stored)
        self._progress = progress
        self._source_name = source_name
        self._offset_syncs = offset_syncs
        self._monotonic_s = retries.monotonic_s
        self._wall_ms = wall_ms
        self._pending: dict[TopicPartition, _Pending] = {}
        self._sent: dict[tuple[TopicPartition, int], _Sent] = {}
        self._ends: dict[TopicPartition, int] = {}  # the offset of the next record, if it is known
        self.began_s: float | None = None
        self.size_bytes = 0
        self.has_records = False

    def begin(self, partitions: Sequence[CopiedPartition], member: Membership) -> None:
        """Sets the position of each partition to its progress, or gives it a fault. Copies that are empty begin."""
        self._target.refresh()
        found = self._progress.committed_in([one.target for one in partitions])
        for one in partitions:
            if one.target in found:
                self._resume(one, found[one.target])
        if fresh := [one for one in partitions if one.target not in found]:
            self._begin(fresh, member)

    def _resume(self, one: CopiedPartition, progress: CommittedOffset) -> None:
        if progress.metadata != self._source_name:
            one.fail(f"{one.target[0]} is a copy from {progress.metadata}, and this source is {self._source_name}")
        one.position = progress.offset

    def _begin(self, fresh: list[CopiedPartition], member: Membership) -> None:
        """Begins copies at the start of their logs. That is committed first: records of a transaction that is never
        committed make a log that is not empty."""
        targets = LogOffsets(self._target, self._retries.timeout_s)
        keys = [one.target for one in fresh]
        starts, ends = targets.starts(keys), targets.ends(keys)
        empty = [one for one in fresh if starts[one.target] == ends[one.target]]
        for one in fresh:
            if one not in empty:
                one.fail(
                    f"{one.target[0]}-{one.target[1]} has records, and no progress of this mirror: it is another "
                    "topic, or the mirror was away for longer than offsets.retention.minutes"
                )
        first = LogOffsets(self._source, self._retries.timeout_s).starts([one.source for one in empty])
        for one in empty:
            one.position = first[one.source]
            one.offsets.clear()  # of a copy that was deleted
            self.add(one, [])
            self._pending[one.target].runs.append(Run(one.position, starts[one.target], 0))
        self.commit(member)

    def batches(self, fetched: Fetched, position: int) -> tuple[list[CommittedBatch], int]:
        """The batches of a response as a producer sends them, and the offset behind it. Raises Malformed."""
        return committed_batches(fetched, position)

    def add(self, copied: CopiedPartition, batches: list[CommittedBatch]) -> None:
        """Queues batches of a partition, whose position is behind them."""
        if self.began_s is None:
            self.began_s = self._monotonic_s()
        pending = self._pending.get(copied.target)
        if pending is None:
            pending = self._pending[copied.target] = _Pending(copied)
        if batches:
            self.has_records = True
            self._producer.open_topic(copied.target[0])
        for one in batches:
            number = self._producer.add_batch(copied.target, *one[:5])
            base_offset = None if copied.is_shared else self._ends.get(copied.target)
            self._sent[copied.target, number] = sent = _Sent(one.parts, one.record_count, base_offset)
            if base_offset is None:
                pending.unplaced += 1
            else:
                self._place(pending, sent, base_offset)
            pending.records += one.record_count
            pending.size_bytes += len(one.records)
            pending.newest_timestamp = max(pending.newest_timestamp, one.max_timestamp)
            self.size_bytes += len(one.records)

    def send(self) -> None:
        """Sends the batches that are queued, without waiting for the last answers."""
        self._producer.send()

    def commit(self, member: Membership) -> None:
        """Commits records and progress; notifies the partitions."""
        if self.began_s is None:
            return
        if any(pending.unplaced for pending in self._pending.values()):
            self._producer.flush()
        self._queue_offset_syncs()
        progress = {
            target: CommittedOffset(pending.copied.position, self._source_name)
            for target, pending in self._pending.items()
        }
        self._producer.add_to_transaction(self._progress.group_id)
        self._producer.send()
        self._progress.commit(self._identity, progress, member)  # while the leaders write
        self._producer.flush()
        self._transactions.end(self._identity, commit=True)
        self._producer.begin_transaction()
        now_ms = self._wall_ms()
        for pending in self._pending.values():
            _count(pending, now_ms)
            if pending.records and pending.copied.target in self._ends:
                self._ends[pending.copied.target] += 1  # the marker
        self._pending.clear()
        self._sent.clear()
        self.began_s, self.size_bytes, self.has_records = None, 0, False

    def _queue_offset_syncs(self) -> None:
        now_ms = self._wall_ms()
        records = [
            OffsetSync(pending.copied.source, run).record(now_ms)
            for pending in self._pending.values()
            for run in pending.runs
        ]
        for at in range(0, len(records), _SYNCS_IN_BATCH):
            some = records[at : at + _SYNCS_IN_BATCH]
            self._producer.open_topic(self._offset_syncs)
            body = encode_records(some, range(len(some)), now_ms)
            self._producer.add_batch((self._offset_syncs, 0), NONE, len(some), now_ms, now_ms, body)

    def _on_stored(self, partition: TopicPartition, number: int, base_offset: int) -> None:
        sent = self._sent.pop((partition, number), None)
        if sent is None:  # pairs of offsets
            return
        pending = self._pending[partition]
        if sent.base_offset is None:
            pending.unplaced -= 1
            if base_offset >= 0:
                self._place(pending, sent, base_offset)
        elif base_offset != sent.base_offset:
            pending.copied.is_shared = True
            raise WriteFailed(
                f"{partition[0]}-{partition[1]} has got records of others: the next one of the mirror is at offset "
                f"{base_offset} instead of {sent.base_offset}; the transaction is aborted, and written again"
            )

    def _place(self, pending: _Pending, sent: _Sent, base_offset: int) -> None:
        """Notes the offsets of a batch at the target."""
        for part in sent.parts:
            extend(pending.runs, Run(part.source, base_offset + part.place, part.records))
        if not pending.unplaced:
            self._ends[pending.copied.target] = base_offset + sent.record_count


def _count(pending: _Pending, now_ms: int) -> None:
    copied = pending.copied
    for run in pending.runs:
        copied.offsets.append(run)
    copied.counts.records += pending.records
    copied.counts.size_bytes += pending.size_bytes
    if pending.newest_timestamp >= 0:
        copied.counts.latency_ms = max(0, now_ms - pending.newest_timestamp)
