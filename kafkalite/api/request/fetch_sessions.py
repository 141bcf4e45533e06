"""Fetch sessions: a client names its partitions once, and then only changes (KIP-227).

A session keeps the partitions of one client in order, with the offsets last sent for each, so that an incremental
response can leave out partitions without news. Partitions that returned data move to the end of the order, so that
none starves behind a busy one. At most `slots` sessions exist. A new session replaces the longest idle one if that has
been idle for `EVICTION_MS`; otherwise the client is served without a session. So is a client with too many partitions
for the memory limit of all sessions together; Kafka limits only the number of sessions. Sessions of followers replace
those of consumers, busy or not. Sessions know which of their partitions are idle: a fetch reads the others only, so
that it costs as much as there is news, however many partitions the client reads.
From version 13 on topics are named by id (KIP-516); a session uses either names or ids.
Source: kafka.server.FetchSession, KIP-227, KIP-516.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from uuid import UUID

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kafkalite.replication.delayed_operations import DelayedOperation
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica.replication_quota import ReplicationQuota

EVICTION_MS = 120_000
PARTITIONS_MAX = 100_000  # of one session; a client with more is served without a session
PARTITIONS_OF_ALL_MAX = 200_000  # of all sessions: some 160 MB
IDLE_MIN = 8  # a consumer's session with fewer partitions reads them all: that is quicker than to note idle ones
FIRST_VERSION_BY_ID = 13
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
_UNSENT = -1  # no partition has this offset, so the next response has news


Key = tuple[str | UUID, int]
"""The key of a partition in a session: the topic's name or id, and the partition's index."""


class WantedPartition:
    """The parameters of a fetch of one partition, and the offsets last sent to the client. `counted_by`: the leader
    that the follower's latest fetch has given these parameters. `idle`: the consumer has everything.

    In a request by id, `topic` is empty until a topic of that id is found, and keeps its name from then on. So a client
    whose topic is deleted and created again meanwhile gets INCONSISTENT_TOPIC_ID.
    """

    __slots__ = (
        "counted_by",
        "current_leader_epoch",
        "fetch_offset",
        "idle",
        "index",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "sent_high_watermark",
        "sent_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, key: Key, topic: FetchTopic, wanted: FetchPartition) -> None:
        self.key = key
        self.topic = topic.topic
        self.topic_id = topic.topic_id
        self.index = wanted.partition
        self.sent_high_watermark = _UNSENT
        self.sent_start_offset = _UNSENT
        self.idle: IdlePartition | None = None
        self.update(wanted)

    def update(self, wanted: FetchPartition) -> None:
        self.counted_by: LeaderPartition | None = None
        self.fetch_offset = wanted.fetch_offset
        self.log_start_offset = wanted.log_start_offset
        self.max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def is_sent(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the client knows these offsets."""
        return self.sent_high_watermark == high_watermark and self.sent_start_offset == log_start_offset

    def is_news(self, data: PartitionData) -> bool:
        """Whether an incremental response must include `data`; records its offsets as sent."""
        news = bool(data.records) or data.error_code != 0 or data.diverging_epoch is not None
        if data.error_code != 0:
            self.sent_high_watermark = _UNSENT  # the next response after an error is always news
        elif not self.is_sent(data.high_watermark, data.log_start_offset):
            news = True
            self.sent_high_watermark = data.high_watermark
            self.sent_start_offset = data.log_start_offset
        return news


Partitions = dict[Key, WantedPartition]

_NO_REGISTRATION = -1


def replica_of(request: FetchRequest) -> tuple[int, int]:
    """The broker id of the follower that fetches, negative for a consumer, and its registration."""
    state = request.replica_state
    return (request.replica_id, _NO_REGISTRATION) if state is None else (state.replica_id, state.replica_epoch)


def wanted_partitions(request: FetchRequest, by_id: bool) -> Partitions:
    """All partitions of a request."""
    return {
        (key := (topic.topic_id if by_id else topic.topic, wanted.partition)): WantedPartition(key, topic, wanted)
        for topic in request.topics
        for wanted in topic.partitions
    }


class FetchSession:
    """One client's partitions in the order to serve them. `epoch` is the epoch expected in its next request. `active`
    are the partitions that a fetch reads, the others are idle. `waiting` are the delayed fetches of the session.
    """

    __slots__ = ("active", "by_id", "epoch", "partitions", "session_id", "used_ms", "waiting")

    def __init__(self, session_id: int, partitions: Partitions, by_id: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.partitions = partitions
        self.active = dict(partitions)
        self.epoch = 1
        self.used_ms = now_ms
        self.waiting: dict[DelayedOperation, None] = {}

    def apply(self, request: FetchRequest) -> None:
        """Add, change and remove partitions according to an incremental request."""
        partitions, by_id = self.partitions, self.by_id
        for topic in request.topics:
            called = topic.topic_id if by_id else topic.topic
            for wanted in topic.partitions:
                key = (called, wanted.partition)
                known = partitions.get(key)
                if known is None:
                    partitions[key] = known = WantedPartition(key, topic, wanted)
                    self.activate(known)
                else:
                    self.activate(known)
                    known.update(wanted)
        for forgotten in request.forgotten_topics_data:
            called = forgotten.topic_id if by_id else forgotten.topic
            for index in forgotten.partitions:
                known = partitions.pop((called, index), None)
                if known is not None:
                    self.active.pop(known.key, None)
                    self._end_idle(known)

    def activate(self, wanted: WantedPartition) -> None:
        """The client names the partition, or there is news of it: a fetch reads it."""
        if wanted.key not in self.active:
            self._end_idle(wanted)
            self.active[wanted.key] = wanted

    def activate_all(self) -> None:
        for wanted in self.partitions.values():
            self.activate(wanted)

    def _end_idle(self, wanted: WantedPartition) -> None:
        """No news of the partition is awaited any more."""
        raise NotImplementedError

    def served(self, partitions: Iterable[WantedPartition]) -> None:
        """Move partitions that returned data to the end of the order, so that others come first next time."""
        active = self.active
        for wanted in partitions:
            key = wanted.key
            # not removed or replaced while the request waited
            if active.get(key) is wanted:
                del active[key]
                active[key] = wanted

    def close(self) -> None:
        """Drop all state of the session."""
        for wanted in self.partitions.values():
            self._end_idle(wanted)
        self.active = {}
        for operation in tuple(self.waiting):  # it answers once more, with nothing
            operation.complete()


class IdlePartition(DelayedOperation):
    """A partition of which a consumer has everything, and knows it: no fetch reads it until there is news. It waits in
    the partition as a delayed fetch does; the first news ends it, and passes on to the fetches that wait for the
    session.
    """

    __slots__ = ("_partition", "_session", "_wanted")

    def __init__(self, session: ConsumerSession, wanted: WantedPartition, partition: Partition) -> None:
        self.read_committed = session.reads_committed
        self._session = session
        self._wanted = wanted
        self._partition = partition
        partition.watch(self)

    def wait_in(self, operations: dict[DelayedOperation, None]) -> None:
        operations[self] = None

    def withdraw(self) -> None:
        self._partition.delayed_operations.pop(self, None)

    def accumulate(self, size_bytes: int) -> None:
        for operation in self._end():
            self._partition.watch(operation)
            operation.accumulate(size_bytes)

    def wake(self) -> None:
        for operation in self._end():
            operation.wake()

    def complete(self) -> None:
        for operation in self._end():
            operation.complete()

    def _end(self) -> tuple[DelayedOperation, ...]:
        """The fetches that wait for news."""
        self._session.activate(self._wanted)
        return tuple(self._session.waiting)


class ConsumerSession(FetchSession):
    """A session of a consumer. A partition is idle when the consumer has everything and knows the offsets.

    Invariant: a partition is in `active`, or has an `idle` that waits in the partition.
    """

    __slots__ = ("_reader", "reads_committed")

    def __init__(self, session_id: int, partitions: Partitions, by_id: bool, now_ms: int) -> None:
        super().__init__(session_id, partitions, by_id, now_ms)
        self.reads_committed = False
        self._reader: object = None

    @property
    def has_idle(self) -> bool:
        return len(self.partitions) >= IDLE_MIN

    def on_fetch(self, reads_committed: bool, reader: object) -> None:
        """A fetch has arrived. `reader` equals that of the last fetch as long as the same topics may be read."""
        if (reads_committed, reader) != (self.reads_committed, self._reader):
            self.reads_committed, self._reader = reads_committed, reader
            self.activate_all()

    def begin_idle(self, wanted: WantedPartition, partition: Partition) -> None:
        """The consumer has all records and offsets of the partition."""
        del self.active[wanted.key]
        wanted.idle = IdlePartition(self, wanted, partition)

    def _end_idle(self, wanted: WantedPartition) -> None:
        if wanted.idle is not None:
            wanted.idle.withdraw()
            wanted.idle = None


class FollowerSession(FetchSession):
    """A session of a follower. A partition in which the follower has everything, and knows it, is idle until its leader
    calls `end_idle` at the first news. Each fetch until then says that the follower still has everything.

    Invariant: a partition is in `active`, or in the `idle_followers` of `counted_by` under this session.
    """

    __slots__ = ("_broker_id", "_fetched_ms", "_registration")

    def __init__(self, session_id: int, partitions: Partitions, by_id: bool, now_ms: int) -> None:
        super().__init__(session_id, partitions, by_id, now_ms)
        self._broker_id = self._registration = _NO_REGISTRATION
        self._fetched_ms = now_ms

    def on_fetch(self, broker_id: int, registration: int, now_ms: int) -> None:
        """A fetch has arrived. After another registration of its broker all partitions are active."""
        if (broker_id, registration) != (self._broker_id, self._registration):
            self._broker_id, self._registration = broker_id, registration
            self.activate_all()
        self._fetched_ms = now_ms

    def begin_idle(self, wanted: WantedPartition) -> None:
        """The follower has all records and offsets; it stays active if its fetches may have effects."""
        leader = wanted.counted_by
        if leader is not None and leader.replica.is_idle(self._broker_id, self._registration, wanted.fetch_offset):
            leader.idle_followers[self] = wanted
            del self.active[wanted.key]

    def end_idle(self, wanted: WantedPartition) -> None:
        """Activate a partition that has news. Until now the follower had everything."""
        leader = wanted.counted_by
        assert leader is not None
        leader.replica.on_idle_fetch(self._broker_id, self._fetched_ms)
        self.active[wanted.key] = wanted
        for operation in self.waiting:
            operation.wait_in(leader.replica_fetches)

    def _end_idle(self, wanted: WantedPartition) -> None:
        if wanted.counted_by is not None:
            wanted.counted_by.idle_followers.pop(self, None)


class FetchContext:
    """The partitions of one fetch request, whether topics are named by id, and the session, if any."""

    __slots__ = ("by_id", "incremental", "partitions", "session")

    def __init__(self, partitions: Partitions, by_id: bool, session: FetchSession | None, incremental: bool) -> None:
        self.by_id = by_id
        self.partitions = partitions
        self.session = session
        self.incremental = incremental

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session is not None else NO_SESSION

    @property
    def active(self) -> Partitions:
        """The partitions to be read. Invariant: in a full fetch none is idle."""
        return self.session.active if self.session is not None and self.incremental else self.partitions


class FetchSessions:
    """All sessions, the longest idle first."""

    __slots__ = ("_by_id", "_partition_count", "_slots")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._by_id: dict[int, FetchSession] = {}
        self._partition_count = 0  # Invariant: the sum over `_by_id`

    def __len__(self) -> int:
        return len(self._by_id)

    def partitions(self, session_id: int) -> list[Key]:
        """The partitions of a session; none if there is no such session."""
        session = self._by_id.get(session_id)
        return [] if session is None else list(session.partitions)

    def context(self, request: FetchRequest, version: int, now_ms: int) -> FetchContext:
        """Find, open or close the session of `request`.

        Raises KafkaError: 70 FETCH_SESSION_ID_NOT_FOUND, 71 INVALID_FETCH_SESSION_EPOCH, 106 (only one of session and
        request uses topic ids).
        """
        by_id = version >= FIRST_VERSION_BY_ID
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            partitions = wanted_partitions(request, by_id)
            session = None
            if epoch == INITIAL_EPOCH:
                kind = FollowerSession if replica_of(request)[0] >= 0 else ConsumerSession
                session = self._open(kind, partitions, by_id, now_ms)
            return FetchContext(partitions, by_id, session, incremental=False)
        session = self._by_id.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        count_before = len(session.partitions)
        session.apply(request)
        self._partition_count += len(session.partitions) - count_before
        if len(session.partitions) > PARTITIONS_MAX or self._partition_count > PARTITIONS_OF_ALL_MAX:
            self._close(session.session_id)  # the client sends a full request next, and is served without a session
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._close(session.session_id)
            return FetchContext(wanted_partitions(request, by_id), by_id, None, incremental=False)
        session.epoch = 1 if epoch == 0x7FFFFFFF else epoch + 1
        session.used_ms = now_ms
        del self._by_id[session.session_id]  # move to the end: most recently used
        self._by_id[session.session_id] = session
        return FetchContext(session.partitions, by_id, session, incremental=True)

    def abandon(self, context: FetchContext) -> None:
        """Close the session that a request was to open: its client gets an answer without it."""
        self._close(context.session_id)
        context.session = None

    def _open(self, kind: type[FetchSession], partitions: Partitions, by_id: bool, now_ms: int) -> FetchSession | None:
        if not partitions or len(partitions) > PARTITIONS_MAX:
            return None
        while len(self._by_id) >= self._slots or self._partition_count + len(partitions) > PARTITIONS_OF_ALL_MAX:
            replaced = self._replaceable(now_ms, privileged=kind is FollowerSession)
            if replaced is None:
                return None
            self._close(replaced.session_id)
        session_id = 0
        while not session_id or session_id in self._by_id:  # random: a client that guesses it could end the session
            session_id = int.from_bytes(os.urandom(4), "big") & 0x7FFFFFFF
        session = kind(session_id, partitions, by_id, now_ms)
        self._by_id[session_id] = session
        self._partition_count += len(partitions)
        return session

    def _replaceable(self, now_ms: int, *, privileged: bool) -> FetchSession | None:
        """The session to replace by a new one: the longest idle, if it is idle; a follower's may replace any of a
        consumer."""
        idle = next(iter(self._by_id.values()), None)
        if idle is None or now_ms - idle.used_ms > EVICTION_MS or not privileged:
            return idle if idle is not None and now_ms - idle.used_ms > EVICTION_MS else None
        return next((each for each in self._by_id.values() if type(each) is not FollowerSession), None)

    def _close(self, session_id: int) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)
            session.close()


class FollowerFetches:
    """The quota, the bytes that followers got, `reassignment_bytes_out` among them for replicas that are being added,
    and `ahead`: fetches and produces that wait until this broker is elected, which they know already."""

    __slots__ = ("ahead", "bytes_out", "quota", "reassignment_bytes_out")

    def __init__(self, quota: ReplicationQuota) -> None:
        self.quota = quota
        self.bytes_out = self.reassignment_bytes_out = 0
        self.ahead: dict[DelayedOperation, None] = {}

    def on_election(self) -> None:
        """This broker was elected for a partition."""
        for operation in tuple(self.ahead):
            operation.wake()
