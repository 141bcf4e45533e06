"""Reads the partitions of one fetch: regions of segment files, or an error for each.

A consumer reads from the leader; from version 11 on also from a follower, up to the high watermark that this one knows
(KIP-392). With replica.selector.class a leader names the in-sync replica in the consumer's rack instead of records. A
follower that is asked for an offset past the end of its log answers OFFSET_NOT_AVAILABLE: the consumer returns to the
leader, and does not reset its offset, as it might after OFFSET_OUT_OF_RANGE. A leader without recent contact to
ZooKeeper answers NOT_LEADER_OR_FOLLOWER for the same reason: another leader may have the records.
Source: kafka.server.ReplicaManager (readFromLog, findPreferredReadReplica), KIP-74, KIP-320, KIP-392, KIP-951.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalite.api.request.admission import AdmissionEpoch
from kafkalite.api.request.broker_endpoints import BrokerEndpoints, FindBroker, node_endpoints
from kafkalite.api.request.fetch_sessions import (
    ConsumerSession,
    FetchContext,
    FetchSessions,
    FollowerFetches,
    WantedPartition,
)
from kafkalite.api.request.long_poll import LongPoll
from kafkalite.api.request.request_context import Runtime
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.region import FileRegion
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.metadata.cluster_metadata import ClusterMetadata, may_be_led_elsewhere
from kafkalite.protocol.messages import fetch as wire
from kafkalite.protocol.messages.metadata import LeaderIdAndEpoch
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import ReplicaManager

READ_COMMITTED = 1
FIRST_VERSION_WITH_MIN_ONE = 3
FIRST_VERSION_OF_BATCHES = 4
FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_FROM_FOLLOWERS = 11
FIRST_VERSION_WITH_ENDPOINTS = 16
NO_REPLICA = -1

_WITH_LEADER = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
Found = list[tuple[WantedPartition, wire.PartitionData]]


class FetchParts(NamedTuple):
    """The parts of the broker that fetches use."""

    runtime: Runtime
    config: Callable[[], BrokerConfig]
    metadata: ClusterMetadata
    brokers: BrokerEndpoints
    replica_manager: ReplicaManager
    sessions: FetchSessions
    follower_fetches: FollowerFetches
    admission_epoch: AdmissionEpoch


class FetchReader:
    """Reads the partitions of a consumer's request, possibly several times."""

    __slots__ = (
        "_by_id", "_context", "_denied", "_find", "_is_old", "_min_bytes", "_parts", "_rack", "_racks", "_version",
        "_wait_ms", "max_bytes", "reads_committed",
    )  # fmt: skip

    def __init__(
        self,
        parts: FetchParts,
        request: wire.FetchRequest,
        context: FetchContext,
        version: int,
        find: FindBroker,
    ) -> None:
        self._parts = parts
        config = parts.config()
        self._context = context
        self._by_id = context.by_id
        self._find = find
        self.reads_committed = request.isolation_level == READ_COMMITTED
        self.max_bytes = min(request.max_bytes, config.fetch_max_bytes)
        self._min_bytes = request.min_bytes
        self._version = version
        self._is_old = version < FIRST_VERSION_WITH_ZSTD
        # empty: no replica is preferred to the leader
        self._rack = request.rack_id if config.replica_selector_class else ""
        self._racks: dict[int, str | None] | None = None
        self._denied: frozenset[str] = frozenset()
        self._wait_ms: Callable[[int], int] | None = None
        if context.by_id:
            self._find_names()

    def _find_names(self) -> None:
        by_id = self._parts.replica_manager.by_id
        for wanted in self._context.active.values():
            if not wanted.topic and (topic := by_id.get(wanted.topic_id)) is not None:
                wanted.topic = topic.name
                wanted.topic_id = topic.topic_id  # the same object, so that `is` suffices to compare ids

    def deny(self, may_read: Callable[[str], bool]) -> None:
        """Refuse the topics that the client may not read, in this request and those of its session."""
        names = {wanted.topic for wanted in self._context.active.values() if wanted.topic}
        self._denied = frozenset(name for name in names if not may_read(name))

    def limit(self, max_bytes: int, wait_ms: Callable[[int], int]) -> None:
        """Read within a quota: `wait_ms` maps bytes to the wait before they may be sent."""
        self.max_bytes = min(self.max_bytes, max_bytes)
        self._wait_ms = wait_ms

    @property
    def min_bytes(self) -> int:
        """At least so many bytes satisfy the request; a response never holds more than `max_bytes`."""
        return min(self._min_bytes, self.max_bytes)

    def watch(self, poll: LongPoll, partitions: Sequence[Partition] | None = None) -> None:
        """Wake `poll` when `partitions` have more, and no others; None: the requested ones that may be read here."""
        poll.withdraw()
        if (session := self._context.session) is not None:
            poll.wait_in(session.waiting)
        if partitions is None:
            wanted = self._context.active.values()
            partitions = [found for each in wanted if (found := self._partition_of(each)) is not None]
        for partition in partitions:
            partition.watch(poll)

    def _partition_of(self, wanted: WantedPartition) -> Partition | None:
        topic = self._parts.replica_manager.by_name.get(wanted.topic)
        if topic is None:
            return None
        return topic.partitions.get(wanted.index) or self._followed(topic, wanted.index)

    def _followed(self, topic: Topic, index: int) -> Partition | None:
        """A follower's partition, if clients of this version read from followers."""
        return topic.followers.get(index) if self._version >= FIRST_VERSION_FROM_FOLLOWERS else None

    def exhausted(self) -> list[Partition] | None:
        """The partitions to be read if each fetch offset is the first that may not be read: there is nothing to read.

        This is the usual fetch of a consumer without lag; it needs no `PartitionData`. None: a read is necessary.
        """
        if self._denied or (self._rack and self._context.active):
            return None  # a replica may be preferred, or a topic is refused
        partitions = []
        for wanted in self._context.active.values():
            topic = self._parts.replica_manager.by_name.get(wanted.topic)
            partition = topic.partitions.get(wanted.index) if topic is not None else None
            if topic is None or partition is None or not self._is_exhausted(wanted, topic, partition):
                return None
            partitions.append(partition)
        return partitions

    def _is_exhausted(self, wanted: WantedPartition, topic: Topic, partition: Partition) -> bool:
        return (
            wanted.fetch_offset == (partition.last_stable_offset if self.reads_committed else partition.high_watermark)
            and (wanted.topic_id is topic.topic_id or not self._by_id)
            and wanted.last_fetched_epoch < 0
            and (wanted.current_leader_epoch in (-1, partition.leader_epoch))
            and not (self._is_old and _refusal(self._version, topic.config) is not None)
        )

    def begin_idle(self, session: ConsumerSession) -> None:
        """Leave out from now on the partitions of which the client has everything, and knows it."""
        by_name = self._parts.replica_manager.by_name
        idle = []
        for wanted in session.active.values():
            topic = by_name.get(wanted.topic)
            if topic is None or wanted.topic in self._denied:
                continue
            partition = topic.partitions.get(wanted.index) or self._followed(topic, wanted.index)
            if (
                partition is not None
                and not partition.is_offline
                and self._is_exhausted(wanted, topic, partition)
                and wanted.is_sent(partition.high_watermark, partition.log.start_offset)
                and (not self._rack or self._preferred_replica(partition, wanted) == NO_REPLICA)
            ):
                idle.append((wanted, partition))
        for wanted, partition in idle:
            session.begin_idle(wanted, partition)

    def read(self, *, is_over: bool) -> tuple[Found, int]:
        """The current data, and the bytes that are missing until the request is satisfied. It is, with 0, if the wait
        `is_over`, or with an error, a diverging epoch or a preferred replica."""
        budget = self.max_bytes
        # KIP-74: the first batch of the first non-empty partition is sent regardless of its size
        min_one = self._version >= FIRST_VERSION_WITH_MIN_ONE
        size_bytes = 0
        urgent = False
        found: Found = []
        for wanted in self._context.active.values():
            _, data = self._data_of(wanted, budget, min_one)
            records = data.records
            if records:
                length = len(records)
                size_bytes += length
                budget -= length
                min_one = False
            elif data.error_code != 0 or data.diverging_epoch is not None or data.preferred_read_replica != NO_REPLICA:
                urgent = True
            found.append((wanted, data))
        return found, 0 if is_over or urgent else self._missing_bytes(found, size_bytes)

    def _missing_bytes(self, found: Found, size_bytes: int) -> int:
        """The bytes that are missing until `found`, of `size_bytes`, satisfies the request: those that can be read
        count, even if not all of them fit into one response."""
        missing_bytes = self.min_bytes
        if size_bytes >= missing_bytes:
            return 0
        for wanted, data in found:
            missing_bytes -= self._countable_bytes(wanted, data)
            if missing_bytes <= 0:
                return 0
        return missing_bytes

    def _countable_bytes(self, wanted: WantedPartition, data: wire.PartitionData) -> int:
        limit_offset = data.last_stable_offset if self.reads_committed else data.high_watermark
        if limit_offset == wanted.fetch_offset:
            return 0
        partition = self._partition_of(wanted)
        assert partition is not None, "it has just been read"
        return partition.countable_bytes(wanted.fetch_offset, limit_offset, wanted.max_bytes)

    async def read_converted(self) -> Found:
        """The current data for versions below `FIRST_VERSION_OF_BATCHES`."""
        from kafkalite.api.request.down_conversion import DownConversion

        runtime = self._parts.runtime
        old = DownConversion(self._version, self.max_bytes, runtime.clock, runtime.readers)
        size_bytes = 0
        found: Found = []
        for wanted in self._context.active.values():
            budget = self.max_bytes - size_bytes
            min_one = not size_bytes
            if self._version < FIRST_VERSION_WITH_MIN_ONE:  # earlier versions send part of a batch that is too large
                min_one = wanted.max_bytes > 0 and budget > 0
            partition, data = self._data_of(wanted, budget, min_one)
            if partition is not None and type(data.records) is FileRegion:
                region = data.records
                try:
                    data.records = await old.convert(partition, region, wanted.fetch_offset, wanted.max_bytes) or None
                except KafkaError as error:
                    data = self._refused(wanted, error.code)
            size_bytes += len(data.records or b"")
            found.append((wanted, data))
        return found

    def _data_of(
        self, wanted: WantedPartition, budget: int, min_one: bool
    ) -> tuple[Partition | None, wire.PartitionData]:
        """One partition and its data, in at most `budget` bytes; None if the request for it is refused."""
        if wanted.topic in self._denied:
            refused = _failure(wanted.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            refused.aborted_transactions = []
            return None, refused
        topic = self._parts.replica_manager.by_name.get(wanted.topic)
        partition = None
        if topic is not None:
            partition = topic.partitions.get(wanted.index) or self._followed(topic, wanted.index)
        if topic is None or partition is None:
            known = wanted.topic or not self._by_id
            topics = self._parts.replica_manager
            code = topics.missing_partition_error(wanted.topic, wanted.index) if known else ErrorCode.UNKNOWN_TOPIC_ID
        elif self._by_id and wanted.topic_id is not topic.topic_id:
            code = ErrorCode.INCONSISTENT_TOPIC_ID
        elif self._is_old and (refusal := _refusal(self._version, topic.config)) is not None:
            code = refusal
        else:
            try:
                return partition, self._read_one(partition, wanted, budget, min_one)
            except KafkaError as error:
                code = error.code
                if code is ErrorCode.OFFSET_OUT_OF_RANGE and wanted.fetch_offset > partition.log.end_offset:
                    code = self._beyond_the_end(wanted, is_led=wanted.index in topic.partitions)
                return partition, self._refused(wanted, code)
        return None, self._refused(wanted, code)

    def _beyond_the_end(self, wanted: WantedPartition, *, is_led: bool) -> ErrorCode:
        """The error beyond the end. A leader that cannot know whether it was replaced resets no consumer's offset."""
        if not is_led:
            return ErrorCode.OFFSET_NOT_AVAILABLE
        is_doubtful = may_be_led_elsewhere(self._parts.metadata, wanted.topic, wanted.index)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_doubtful else ErrorCode.OFFSET_OUT_OF_RANGE

    def _refused(self, wanted: WantedPartition, code: ErrorCode) -> wire.PartitionData:
        sent = code
        if code == ErrorCode.KAFKA_STORAGE_ERROR and self._version < FIRST_VERSION_WITH_STORAGE_ERROR:
            sent = ErrorCode.NOT_LEADER_OR_FOLLOWER  # makes the client refresh its metadata, as it should
        data = _failure(wanted.index, sent)
        if code in _WITH_LEADER and self._version >= FIRST_VERSION_WITH_ENDPOINTS:
            leader, epoch = self._parts.brokers.leader_of(wanted.topic, wanted.index)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return data

    def _read_one(
        self, partition: Partition, wanted: WantedPartition, budget: int, min_one: bool
    ) -> wire.PartitionData:
        partition.check_epoch(wanted.current_leader_epoch)
        log = partition.log
        data = wire.PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=[] if self.reads_committed else None,
            preferred_read_replica=self._preferred_replica(partition, wanted) if self._rack else NO_REPLICA,
        )
        if data.preferred_read_replica != NO_REPLICA:
            return data
        if wanted.last_fetched_epoch >= 0:
            end = partition.diverging_epoch(wanted.fetch_offset, wanted.last_fetched_epoch)
            if end is not None:
                data.diverging_epoch = wire.EpochEndOffset(epoch=end.leader_epoch, end_offset=end.end_offset)
                return data
        max_bytes = min(wanted.max_bytes, budget)
        if max_bytes > 0 or min_one:
            region = partition.read(
                wanted.fetch_offset, max(max_bytes, 0), min_one, read_committed=self.reads_committed
            )
            if region is not None:
                data.records = region
                if self.reads_committed:
                    data.aborted_transactions = [
                        wire.AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                        for txn in partition.log.transactions.aborted_in(region, wanted.fetch_offset)
                    ]
        elif not log.start_offset <= wanted.fetch_offset <= log.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return data

    def _preferred_replica(self, partition: Partition, wanted: WantedPartition) -> int:
        """The replica that the consumer should read from; NO_REPLICA: this one."""
        if not isinstance(partition, LeaderPartition):
            return NO_REPLICA
        if self._racks is None:
            self._racks = {each.broker_id: each.rack for each in self._parts.metadata.brokers.values()}
        preferred = partition.preferred_read_replica(self._rack, wanted.fetch_offset, self._racks)
        return NO_REPLICA if preferred is None or self._find(preferred) is None else preferred

    def response(self, found: Found) -> wire.FetchResponse:
        """The response with these data. Beyond a quota it is empty, with the throttle time, and leaves the session
        unchanged.
        """
        context = self._context
        session = context.session
        if self._wait_ms is not None:
            wait_ms = self._wait_ms(sum(len(data.records or b"") for _, data in found))
            if wait_ms > 0:
                if not context.incremental:
                    self._parts.sessions.abandon(context)
                return wire.FetchResponse(throttle_time_ms=wait_ms, session_id=context.session_id)
        topics: list[wire.FetchableTopicResponse] = []
        current: wire.FetchableTopicResponse | None = None
        with_data: list[WantedPartition] = []
        by_id = self._by_id
        names_leader = False
        for wanted, data in found:
            if session is not None:
                if not wanted.is_news(data) and context.incremental:
                    continue
                if data.records:
                    with_data.append(wanted)
            if current is None or current.topic != wanted.topic or (by_id and current.topic_id != wanted.topic_id):
                current = wire.FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
                topics.append(current)
            current.partitions.append(data)
            names_leader = names_leader or data.current_leader is not None
        if session is not None and context.incremental:
            session.served(with_data)
        response = wire.FetchResponse(session_id=context.session_id, responses=topics)
        if names_leader:
            leaders = (data.current_leader.leader_id for _, data in found if data.current_leader is not None)
            response.node_endpoints = node_endpoints(leaders, self._find)
        return response


def _refusal(version: int, config: TopicConfig) -> ErrorCode | None:
    """The error for a client of a version before zstd, or before batches where down-conversion is disabled."""
    if config.compression_type == "zstd":
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if version < FIRST_VERSION_OF_BATCHES and not config.message_downconversion_enable:
        return ErrorCode.UNSUPPORTED_VERSION
    return None


def _failure(index: int, code: ErrorCode) -> wire.PartitionData:
    return wire.PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        preferred_read_replica=NO_REPLICA,
    )
