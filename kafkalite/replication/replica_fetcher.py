r"""Fetches from one leader for the followers here: one request in flight, over a connection of its own.

    connect -> [ask where epochs end] -> [ask for offsets] -> fetch, wait at the leader -> append, all in one turn --.
                       ^______________________________________________________________________________________________|

The fetch names only partitions whose parameters have changed since the one before (a fetch session), so an idle
partition costs nothing here. A partition is polled again when it was answered, added, is ready (`on_ready`) or is due.
An answer is decoded in the turn in which it was read; a large one is spread over turns. It counts only for a partition
that was fetched here ever since the request was sent.

A partition that becomes ready while a fetch waits at the leader does not wait with it: a second, empty request ends the
wait (`api` answers a fetch of a replica when its connection has sent more). Kafka's leader ignores that, and the
partition waits up to replica.fetch.wait.max.ms, as it does in Kafka.
Source: kafka.server.{AbstractFetcherThread, ReplicaFetcherThread}, KIP-227, KIP-320, KIP-595, KIP-903.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kafkalite.client.broker_channel import BrokerConnection
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import ErrorCode, Malformed
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafkalite.replication import leader_requests as wire
from kafkalite.replication.leader_requests import FetchSession, Key, WaitAtLeader
from kafkalite.replication.replica.epoch_divergence import EpochEndOffset
from kafkalite.replication.replica.follower_replica import AskEpochEnd, AskOffset, Fetch

if TYPE_CHECKING:
    from kafkalite.client.broker_channel import FindEndpoint, SecurityTo
    from kafkalite.common.clock import Clock, Timer
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.config.listeners import ListenerConfig
    from kafkalite.replication.follower_partition import FollowerPartition
    from kafkalite.replication.replica.replication_quota import ReplicationQuota

logger = logging.getLogger(__name__)

TURN_BYTES = 1 << 20
TURN_SECONDS = 0.005
_FIRST_PAUSE_MS = 50
_SETUP_TIMEOUT_S = 10.0  # as socket.connection.setup.timeout.ms: the kernel's own tries may be a minute apart
_CORRELATION_ID_MAX = (1 << 31) - 1
_NO_END = EpochEndOffset(-1, -1)


class ReplicaFetcher:
    """`bytes_in` are the bytes that were appended, `reassignment_bytes_in` those of replicas that are being added among
    them, `requests` the fetches that were sent.

    Invariants: `_changed` and `_delayed` hold partitions of `_followed` (or removed ones, which are skipped);
    `_is_busy` from the sending of a request until its answer is dealt with; `_wait` is on while that is a fetch without
    an answer.
    """

    def __init__(
        self,
        leader_id: int,
        number: int,
        find: FindEndpoint,
        clock: Clock,
        settings: Callable[[], BrokerConfig],
        quota: ReplicationQuota,
        broker_id: int,
        registration: Callable[[], int],
        security_to: SecurityTo,
    ) -> None:
        self.leader_id = leader_id
        self.bytes_in = self.reassignment_bytes_in = self.requests = 0
        self._client_id = b"broker-%d-fetcher-%d" % (broker_id, number)
        self._find, self._security_to = find, security_to
        self._clock = clock
        self._settings = settings
        self._quota = quota
        self._broker_id = broker_id
        self._registration = registration
        self._followed: dict[Key, FollowerPartition] = {}
        self._changed: dict[Key, None] = {}
        self._delayed: list[tuple[float, int, Key]] = []
        self._delayed_count = 0
        self._removed: set[Key] = set()  # since the request in flight was sent
        self._session = FetchSession()
        self._connection: BrokerConnection | None = None
        self._endpoint: ListenerConfig | None = None
        self._opening: asyncio.Task[None] | None = None
        self._answers: deque[tuple[int, Callable[[memoryview], None]]] = deque()  # the responses that are expected
        self._correlation_id = 0
        self._is_busy = False
        self._wait = WaitAtLeader()
        self._asked: Sequence[Key] = ()  # by the request in flight, if it is no fetch
        self._unprocessed: Iterator[wire.FetchedData] | None = None  # of the answer that is being taken apart
        self._continued: tuple[Key, int] | None = None  # further records of that partition begin at this offset
        self._failures = 0  # since the last answer
        self._session_errors = 0
        self._paused_until_ms = float("-inf")
        self._timer: Timer | None = None
        self._timer_ms = 0.0
        self._is_scheduled = self._is_closed = False

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def partitions(self) -> Iterator[FollowerPartition]:
        return iter(self._followed.values())

    def add(self, partition: FollowerPartition) -> None:
        key = (partition.topic_id.bytes, partition.index)
        self._followed[key] = partition
        partition.on_ready = partial(self._on_ready, key, partition)
        self._mark(key)

    def remove(self, partition: FollowerPartition) -> None:
        """From now on no answer reaches the partition."""
        key = (partition.topic_id.bytes, partition.index)
        if self._followed.get(key) is partition:
            del self._followed[key]
            self._changed.pop(key, None)
            self._session.forget(key)
            if self._is_busy:
                self._removed.add(key)

    def on_brokers(self) -> None:
        """Brokers have come, gone or moved: the leader may be reachable now, or may lead no more."""
        endpoint = self._find(self.leader_id)
        if self._connection is not None and endpoint != self._endpoint:
            self._connection.fail("its address has changed" if endpoint else "it is not registered any more")
        if self._connection is None:
            self._paused_until_ms = float("-inf")
        self._schedule()

    async def close(self) -> None:
        self._is_closed = True
        self._followed.clear()
        self._unprocessed = None
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)

    # The next request

    def _on_ready(self, key: Key, partition: FollowerPartition) -> None:
        if self._followed.get(key) is partition:
            self._mark(key)

    def _mark(self, key: Key) -> None:
        """Checks the partition before the next request, and sends that soon."""
        self._changed[key] = None
        if self._unprocessed is None:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._on_schedule)

    def _on_schedule(self) -> None:
        self._is_scheduled = False
        self._resume()

    def _wake_at(self, time_ms: float) -> None:
        if self._timer is None or time_ms < self._timer_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ms = time_ms
            self._timer = self._clock.call_later(time_ms - self._clock.monotonic_ms(), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._resume()

    def _resume(self) -> None:
        """Sends the next request if none is in flight; otherwise ends the wait of a fetch in favour of partitions that
        are ready now."""
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        while self._delayed and self._delayed[0][0] <= now_ms:
            self._changed[heappop(self._delayed)[2]] = None
        if self._delayed:
            self._wake_at(self._delayed[0][0])
        if self._is_busy:
            if self._wait.is_on and self._changed:
                self._end_wait(now_ms)
            return
        if now_ms < self._paused_until_ms:
            self._wake_at(self._paused_until_ms)
        elif self._connection is None:
            if self._opening is None and self._followed:
                self._opening = asyncio.ensure_future(self._open())
        else:
            self._send_next(self._connection, now_ms)

    def _end_wait(self, now_ms: float) -> None:
        if self._wait.end(now_ms):
            self._send(OffsetForLeaderEpochRequest(replica_id=self._broker_id, topics=[]), wire.EPOCH_VERSION, _skip)
        if (again_ms := self._wait.again_ms) is not None:
            self._wake_at(again_ms)

    def _send_next(self, connection: BrokerConnection, now_ms: float) -> None:
        self._removed.clear()
        epochs, offsets = self._look_at_changed(now_ms)
        if epochs or offsets:
            self._is_busy = True
            self._asked = [(partition.topic_id.bytes, partition.index) for partition in epochs or offsets]
        if epochs:
            self._send(
                wire.epoch_request(epochs, self._broker_id), wire.EPOCH_VERSION, partial(self._on_epochs, epochs)
            )
        elif offsets:
            asks = wire.offsets_request(offsets, self._broker_id)
            self._send(asks, wire.OFFSETS_VERSION, partial(self._on_offsets, offsets))
        elif len(self._session):
            session = self._session.next_request()
            self._is_busy = True
            self._wait.begin(now_ms)
            self.requests += 1
            correlation_id = self._expect(self._on_fetched)
            connection.send(
                wire.fetch_frame(
                    session, self._settings(), self._broker_id, self._registration(), correlation_id, self._client_id
                )
            )

    def _look_at_changed(
        self, now_ms: float
    ) -> tuple[dict[FollowerPartition, AskEpochEnd], dict[FollowerPartition, AskOffset]]:
        """Brings the session up to date. Returns the questions that come before the next fetch; of two kinds, the
        second is asked later."""
        epochs: dict[FollowerPartition, AskEpochEnd] = {}
        offsets: dict[FollowerPartition, AskOffset] = {}
        session = self._session
        changed, self._changed = self._changed, {}
        for key in changed:
            partition = self._followed.get(key)
            if partition is None:
                continue
            request = partition.next_request(now_ms)
            if type(request) is Fetch:
                delayed_ms = self._throttled_until_ms(partition, now_ms)
                if delayed_ms <= now_ms:
                    session.want(key, request)
                    continue
            else:
                delayed_ms = partition.retry_at_ms
                if type(request) is AskEpochEnd:
                    epochs[partition] = request
                elif type(request) is AskOffset:
                    offsets[partition] = request
                    self._changed[key] = None
            session.forget(key)
            if delayed_ms > now_ms:
                self._delayed_count += 1
                heappush(self._delayed, (delayed_ms, self._delayed_count, key))
                self._wake_at(delayed_ms)
        if not epochs:
            for partition in offsets:
                del self._changed[partition.topic_id.bytes, partition.index]
        return epochs, offsets

    def _throttled_until_ms(self, partition: FollowerPartition, now_ms: float) -> float:
        """A replica that is in sync is never throttled, lest it leave the ISR (KIP-73)."""
        replicas = partition.throttled_replicas
        if not replicas or partition.lag == 0 or not self._quota.covers(replicas, partition.index):
            return now_ms
        return self._quota.exceeded_until_ms(now_ms)

    # The connection

    async def _open(self) -> None:
        endpoint = self._endpoint = self._find(self.leader_id)
        try:
            if endpoint is None:
                return  # until `on_brokers`
            settings = self._settings()
            connection = BrokerConnection(
                self._on_frame, self._on_lost, self._clock, settings.replica_socket_timeout_ms
            )
            try:
                async with asyncio.timeout(_SETUP_TIMEOUT_S):
                    buffer_bytes, security = settings.replica_socket_receive_buffer_bytes, self._security_to(endpoint)
                    await connection.open(endpoint.host, endpoint.port, buffer_bytes, security)
            except (OSError, UnicodeError) as error:  # the latter of a name that can be none of a host
                connection.close()
                why = getattr(error, "strerror", None) or str(error) or f"no connection within {_SETUP_TIMEOUT_S:g} s"
                self._on_lost(f"{endpoint.address}: {why}")
                return
            self._connection = connection
        finally:
            self._opening = None
        if self._is_closed:
            connection.close()
        else:
            self._resume()

    def _send(self, request: Message, version: int, on_answer: Callable[[memoryview], None]) -> None:
        assert self._connection is not None
        self._connection.send(request_frame(request, version, self._expect(on_answer), self._client_id.decode()))

    def _expect(self, on_answer: Callable[[memoryview], None]) -> int:
        """The correlation id of a request to be sent now."""
        self._correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
        self._answers.append((self._correlation_id, on_answer))
        return self._correlation_id

    def _on_frame(self, frame: memoryview) -> None:
        try:
            expected_id, on_answer = self._answers.popleft()
            if int.from_bytes(frame[:4], "big") != expected_id:
                raise Malformed("a response to another request")
            on_answer(frame)
        except Malformed as error:
            if self._connection is not None:
                self._connection.fail(str(error))

    def _on_lost(self, why: str) -> None:
        """Begins a new session: the leader may have handled any of the open requests."""
        is_expected = self._failures or self._find(self.leader_id) is None
        log = logger.info if is_expected else logger.warning
        log("the connection to broker %d, to fetch from it, is lost: %s", self.leader_id, why)
        self._connection = None
        self._answers.clear()
        self._session.restart()
        self._changed.update(dict.fromkeys(self._asked))
        self._asked = ()
        pause_ms = min(self._settings().replica_fetch_backoff_ms, _FIRST_PAUSE_MS << min(self._failures, 10))
        self._failures += 1
        self._paused_until_ms = self._clock.monotonic_ms() + pause_ms
        self._wait.is_on = False
        if self._unprocessed is None:
            self._is_busy = False
            self._schedule()

    # Answers

    def _on_fetched(self, frame: memoryview) -> None:
        self._wait.is_on = False
        answer = wire.fetched(frame)
        self._failures = 0
        if answer.error:
            self._on_session_error(answer.error)
            return
        self._session_errors = 0
        self._unprocessed = iter(answer.partitions)
        self._session.on_answer(answer.session_id)
        self._process_answer()

    def _on_session_error(self, error: ErrorCode) -> None:
        """The next request opens a new session: at once the first time, later after a pause."""
        self._session.restart(closes=error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._session_errors += 1
        if self._session_errors > 1:
            logger.warning("broker %d refuses to be fetched from: %s", self.leader_id, error.name)
            self._paused_until_ms = self._clock.monotonic_ms() + self._settings().replica_fetch_backoff_ms
        self._is_busy = False
        self._resume()

    def _process_answer(self) -> None:
        """Deals with partitions of the answer, as many as a turn of the loop may have."""
        if self._unprocessed is None or self._is_closed:
            return
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        size_bytes = 0
        until = monotonic_s() + TURN_SECONDS
        for data in self._unprocessed:
            size_bytes += self._process(data, now_ms, wall_ms)
            if size_bytes >= TURN_BYTES or monotonic_s() > until:
                if self._connection is not None:
                    self._connection.pause()
                asyncio.get_running_loop().call_soon(self._process_answer)
                return
        self._unprocessed = self._continued = None
        self._is_busy = False
        if self._connection is not None:
            self._connection.resume()
        self._resume()

    def _process(self, data: wire.FetchedData, now_ms: float, wall_ms: int) -> int:
        """Hands one partition's part to it; returns the bytes that it has appended."""
        key, answer, records, is_more = data
        partition, sent = self._followed.get(key), self._session.sent(key)
        if partition is None or sent is None or key in self._removed:
            return 0
        if is_more:
            if self._continued is None or self._continued[0] != key:
                return 0
            sent = sent._replace(fetch_offset=self._continued[1])
        try:
            size_bytes = partition.on_fetch(sent, answer, records, now_ms, wall_ms)
        except Exception:  # one partition must not end the replication of the others
            logger.exception("cannot follow %s-%d; trying again", partition.topic, partition.index)
            partition.on_failure(ErrorCode.UNKNOWN_SERVER_ERROR, now_ms)
            size_bytes = 0
        self._changed[key] = None
        self._continued = (key, partition.end_offset) if size_bytes else None
        if size_bytes:
            self.bytes_in += size_bytes
            if partition.is_being_added:
                self.reassignment_bytes_in += size_bytes
            if (replicas := partition.throttled_replicas) and self._quota.covers(replicas, partition.index):
                self._quota.record(size_bytes, now_ms)
        return size_bytes

    def _on_epochs(self, asked: dict[FollowerPartition, AskEpochEnd], frame: memoryview) -> None:
        ends = wire.epoch_ends(decode_response(OffsetForLeaderEpochRequest, wire.EPOCH_VERSION, frame)[1])
        now_ms = self._clock.monotonic_ms()
        for partition in self._still_asking(asked):
            error, end = ends.get((partition.topic, partition.index), (ErrorCode.UNKNOWN_SERVER_ERROR, _NO_END))
            partition.on_epoch_end(error, end, now_ms)
        self._resume()

    def _on_offsets(self, asked: dict[FollowerPartition, AskOffset], frame: memoryview) -> None:
        offsets = wire.offsets(decode_response(ListOffsetsRequest, wire.OFFSETS_VERSION, frame)[1])
        now_ms = self._clock.monotonic_ms()
        for partition in self._still_asking(asked):
            error, offset = offsets.get((partition.topic, partition.index), (ErrorCode.UNKNOWN_SERVER_ERROR, -1))
            partition.on_offset(asked[partition], error, offset, now_ms)
        self._resume()

    def _still_asking(self, asked: Iterable[FollowerPartition]) -> list[FollowerPartition]:
        """The partitions that an answer is for. They are polled before the next request."""
        self._failures = 0
        self._is_busy = False
        self._changed.update(dict.fromkeys(self._asked))
        self._asked = ()
        keys = {partition: (partition.topic_id.bytes, partition.index) for partition in asked}
        return [each for each, key in keys.items() if self._followed.get(key) is each and key not in self._removed]


def _skip(frame: memoryview) -> None:
    """The answer to the request that ended a wait."""
