"""Fetches of followers. First the leader's view of the follower is updated from each partition of the request, then
records are read.

    record_progress   once for each partition of a request: the follower has all below its fetch offset
    read              up to the end of the log; in a session only news; partitions without news become idle
    wait              for an append, the high watermark, or the election of this broker that the follower knows of

Every broker watches the metadata for itself, so a follower may know of an election before the leader does. Its fetch
waits for that until max_wait_ms. Then the partition gets UNKNOWN_LEADER_EPOCH, after which the follower retries, or in
a session is left out: a broker that is elected for 10,000 partitions would spend half of its time on such errors.
Source: kafka.server.ReplicaManager (fetchMessages, readFromLog, shouldLeaderThrottle, delayedFetchPurgatory),
kafka.cluster.Partition (fetchRecords), kafka.server.DelayedFetch, kafka.server.QuotaFactory (leader); KIP-73, KIP-227,
KIP-903.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.api.request.broker_endpoints import FindBroker
from kafkalite.api.request.fetch_reader import NO_REPLICA, FetchParts, FetchReader, Found
from kafkalite.api.request.fetch_sessions import FetchContext, FollowerSession, Key, WantedPartition, replica_of
from kafkalite.api.request.long_poll import LongPoll
from kafkalite.api.request.request_context import Runtime
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.network.client_connection import PreemptiblePending, ignore
from kafkalite.protocol.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse, PartitionData
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica.epoch_divergence import NO_EPOCH
from kafkalite.replication.replica.leader_replica import ReplicaFetch

_NEWS_WAIT_MS = 3


def is_ahead(broker_id: int, topic: Topic | None, index: int, leader_epoch: int) -> bool:
    """Whether a follower with this epoch may know of an election that this broker has not seen, or not applied yet."""
    state = topic.states.get(index) if topic is not None else None
    if state is None:
        return leader_epoch != NO_EPOCH
    is_elected = state.leader == broker_id
    return leader_epoch > state.leader_epoch or (is_elected and leader_epoch == state.leader_epoch)


class ReplicaFetchReader(FetchReader):
    """Reads for one request of a follower.

    Invariant: after `record_progress` each active partition has a leader that has counted it, or is in one of `_final`,
    with its final answer, and `_newer_epoch`.
    """

    __slots__ = (
        "_broker_id",
        "_fetches",
        "_final",
        "_newer_epoch",
        "_registration",
        "_throttled_bytes",
        "has_news",
    )  # fmt: skip

    def __init__(
        self, parts: FetchParts, request: FetchRequest, context: FetchContext, version: int, find: FindBroker
    ) -> None:
        super().__init__(parts, request, context, version, find)
        self._broker_id, self._registration = replica_of(request)
        self._fetches = parts.follower_fetches
        self._final: dict[Key, PartitionData] = {}
        self._newer_epoch: dict[Key, WantedPartition] = {}
        self._throttled_bytes = 0
        self.has_news = False

    @property
    def has_partitions(self) -> bool:
        return bool(self._context.partitions)

    def record_progress(self) -> None:
        """Reports the request's fetch offsets to the leaders. Called once, and does not wait."""
        session = self._context.session
        if isinstance(session, FollowerSession):
            session.on_fetch(self._broker_id, self._registration, self._parts.runtime.clock.monotonic_ms())
        for wanted in tuple(self._context.active.values()):
            wanted.counted_by = None
            self._record(wanted)

    def record_deferred(self) -> None:
        """Reports to the leaders that were not elected before, as far as they are now."""
        ahead, self._newer_epoch = self._newer_epoch, {}
        if ahead and self._by_id:
            self._find_names()
        for wanted in ahead.values():
            self._record(wanted)

    def _record(self, wanted: WantedPartition) -> None:
        parts, key, epoch = self._parts, wanted.key, wanted.current_leader_epoch
        topic = parts.replica_manager.by_name.get(wanted.topic)
        if topic is not None and self._by_id and wanted.topic_id is not topic.topic_id:
            self._final[key] = self._refused(wanted, ErrorCode.INCONSISTENT_TOPIC_ID)
            return
        partition = topic.partitions.get(wanted.index) if topic is not None else None
        if partition is None:
            if is_ahead(parts.brokers.broker_id, topic, wanted.index, epoch):
                self._newer_epoch[key] = wanted
            else:
                missing = parts.replica_manager.missing_partition_error(wanted.topic, wanted.index)
                self._final[key] = self._refused(wanted, missing if wanted.topic else ErrorCode.UNKNOWN_TOPIC_ID)
            return
        if epoch > partition.leader_epoch:
            self._newer_epoch[key] = wanted
            return
        try:
            self._count(partition, wanted)
        except KafkaError as error:
            self._final[key] = self._refused(wanted, error.code)

    def _count(self, partition: Partition, wanted: WantedPartition) -> None:
        """The follower's news for a partition that is led here. Raises KafkaError."""
        epoch = wanted.current_leader_epoch
        partition.check_epoch(epoch)
        if not isinstance(partition, LeaderPartition):
            raise KafkaError(_not_assigned(epoch))
        fetch = ReplicaFetch(
            self._broker_id,
            self._registration,
            epoch,
            wanted.fetch_offset,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
        )
        decision = partition.on_replica_fetch(fetch)
        error = decision.error
        if error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            error = _not_assigned(epoch)
        if error:
            raise KafkaError(error)
        if decision.diverging_epoch is None:
            wanted.counted_by = partition
        else:
            data = self._final[wanted.key] = _offsets_of(partition, wanted.index)
            epoch, end_offset = decision.diverging_epoch
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)

    def read(self, *, is_over: bool) -> tuple[Found, int]:
        """As in FetchReader. In a session partitions without news are left out, and `has_news` says whether there are
        new offsets: an idle follower needs the high watermark. Offsets without records are in the data if the wait
        `is_over`, or if other partitions have records; otherwise the next read returns them.
        """
        session = self._context.session if self._context.incremental else None
        budget = self.max_bytes
        size_bytes = 0
        urgent = False
        found: Found = []
        idle: list[WantedPartition] = []
        self._throttled_bytes = 0
        self.has_news = False
        for key, wanted in self._context.active.items():
            partition = wanted.counted_by
            if partition is None:
                if (data := self._final.get(key)) is not None:
                    urgent = True
                    found.append((wanted, data))
                continue
            log = partition.log
            if session is not None and wanted.fetch_offset == log.end_offset and not partition.is_retired:
                if wanted.is_sent(partition.high_watermark, log.start_offset):
                    idle.append(wanted)
                    continue
                self.has_news = True
                if not (is_over or size_bytes):
                    continue
            data = self._read_arrived(partition, wanted, budget, not size_bytes)
            length = len(data.records or b"")
            size_bytes += length
            budget -= length
            urgent = urgent or data.error_code != 0
            found.append((wanted, data))
        if isinstance(session, FollowerSession):
            for wanted in idle:
                session.begin_idle(wanted)
        return found, 0 if is_over or urgent else self._missing_bytes(found, size_bytes)

    def _countable_bytes(self, wanted: WantedPartition, data: PartitionData) -> int:
        """The bytes up to the end of the log, as far as the follower's quota allows any."""
        partition = wanted.counted_by
        if partition is None or partition.log.end_offset == wanted.fetch_offset or self._is_held_back(partition):
            return 0
        return partition.countable_bytes(wanted.fetch_offset, partition.log.end_offset, wanted.max_bytes)

    def _read_arrived(
        self, partition: LeaderPartition, wanted: WantedPartition, budget: int, min_one: bool
    ) -> PartitionData:
        if partition.is_retired:
            return self._refused(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        data = _offsets_of(partition, wanted.index)
        max_bytes = min(wanted.max_bytes, budget)
        if max_bytes <= 0 and not min_one:
            return data
        if self._is_held_back(partition):
            return data
        try:
            data.records = partition.read_as_replica(wanted.fetch_offset, max(max_bytes, 0), min_one)
        except KafkaError as error:
            return self._refused(wanted, error.code)
        if self._is_throttled(partition):
            self._throttled_bytes += len(data.records or b"")
        return data

    def _is_throttled(self, partition: LeaderPartition) -> bool:
        throttled = partition.log.config.leader_replication_throttled_replicas
        return bool(throttled) and self._fetches.quota.covers(throttled, partition.index)

    def _is_held_back(self, partition: LeaderPartition) -> bool:
        """Whether the follower gets nothing now: it is throttled, and not in sync. Source: shouldLeaderThrottle."""
        return (
            self._is_throttled(partition)
            and self._broker_id not in partition.replica.in_sync.isr
            and self._fetches.quota.is_exceeded(self._parts.runtime.clock.monotonic_ms())
        )

    def response(self, found: Found) -> FetchResponse:
        for wanted in () if self._context.incremental else self._newer_epoch.values():
            found.append((wanted, self._refused(wanted, ErrorCode.UNKNOWN_LEADER_EPOCH)))
        if self._throttled_bytes:
            self._fetches.quota.record(self._throttled_bytes, self._parts.runtime.clock.monotonic_ms())
        for wanted, data in found:
            if data.records:
                self._count_sent(wanted.counted_by, len(data.records))
        return super().response(found)

    def _count_sent(self, partition: LeaderPartition | None, size_bytes: int) -> None:
        self._fetches.bytes_out += size_bytes
        if partition is not None and self._broker_id in partition.adding:
            self._fetches.reassignment_bytes_out += size_bytes

    def watch(self, poll: LongPoll, partitions: Sequence[Partition] | None = None) -> None:
        """Wake `poll` when there may be more to answer. Called again after each poll: other partitions are active."""
        poll.withdraw()
        if self._newer_epoch:
            poll.wait_in(self._fetches.ahead)
        if isinstance(session := self._context.session, FollowerSession):
            poll.wait_in(session.waiting)
        for wanted in self._context.active.values():
            if wanted.counted_by is not None:
                poll.wait_in(wanted.counted_by.replica_fetches)


class DelayedReplicaFetch(PreemptiblePending):
    """The answer of `reader`, deferred until the fetch is satisfied or there is other news, or `max_wait_ms` are over,
    or the follower sends more.

    New offsets wait for records for `_NEWS_WAIT_MS`. Otherwise each record that is produced alone would cost each
    follower two fetches: one for the record, and one for the new high watermark.
    """

    __slots__ = ("_has_news", "_poll", "_reader", "_runtime")

    def __init__(self, runtime: Runtime, reader: ReplicaFetchReader, missing_bytes: int, max_wait_ms: int) -> None:
        super().__init__(self._stop_waiting, self._preempt)
        self._runtime = runtime
        self._reader = reader
        self._has_news = reader.has_news
        wait_ms = min(max_wait_ms, _NEWS_WAIT_MS) if reader.has_news else max_wait_ms
        self._poll = LongPoll(runtime, wait_ms, missing_bytes, self._poll_partitions)
        reader.watch(self._poll)

    def _preempt(self) -> None:
        self._poll.complete()

    def _poll_partitions(self, is_over: bool) -> int:
        if self.is_done:
            return 0
        reader = self._reader
        try:
            reader.record_deferred()
            found, missing_bytes = reader.read(is_over=is_over)
            response = None if missing_bytes else reader.response(found)
        except Exception as error:
            self.fail(error)
            return 0
        if response is not None:
            self.answer(response)
            return 0
        if reader.has_news and not self._has_news:
            self._has_news = True
            self._poll.complete_in(_NEWS_WAIT_MS, self._runtime)
        reader.watch(self._poll)
        return missing_bytes

    def _stop_waiting(self) -> None:  # answered, or the follower has disconnected
        self._poll.stop()
        self.preempt = ignore
        del self._poll  # it refers to this


def _offsets_of(partition: LeaderPartition, index: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.start_offset,
        aborted_transactions=None,
        preferred_read_replica=NO_REPLICA,
    )


def _not_assigned(epoch: int) -> ErrorCode:
    """The error for a broker that is no replica of the partition in this broker's view."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH
