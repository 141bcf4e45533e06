"""ShareFetch and ShareAcknowledge: members of share groups read records and say what became of them (KIP-932).

The acknowledgements of a fetch are made while it reads, and both are answered together. A fetch waits as a consumer's
does, and also for records of others that become available.
Source: kafka.server.KafkaApis (handleShareFetchRequest, handleShareAcknowledgeRequest), kafka.server.share.
SharePartitionManager (4.3); KIP-1222 for locks that are renewed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kafkalite.api.request.broker_endpoints import BrokerEndpoints, node_endpoints
from kafkalite.api.request.long_poll import WAIT_MS_MAX, LongPoll
from kafkalite.api.request.request_context import GROUP, TOPIC, RequestContext, Runtime
from kafkalite.api.request.share_acknowledgements import (
    FIRST_VERSION_WITH_RENEWAL,
    Outcomes,
    ShareAcknowledgements,
    has_acknowledgements,
)
from kafkalite.api.request.share_fetch_reader import SharedRecords, ShareFetchReader, ShareRequest
from kafkalite.api.request.share_sessions import (
    CLOSING_EPOCH,
    OPENING_EPOCH,
    ShareSession,
    ShareSessions,
    TopicIdPartition,
)
from kafkalite.api.request.share_traffic import ShareTraffic
from kafkalite.api.request.throttling import quotas_of
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.finalized_features import SHARE_VERSION, FinalizedFeatures
from kafkalite.network.client_connection import Pending
from kafkalite.protocol.messages import share_fetch as wire
from kafkalite.protocol.messages.metadata import NodeEndpoint
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.share.led_share_partition import LedSharePartition
from kafkalite.replication.share.share_partitions import SharePartitions
from kafkalite.security.acl.acl import Operation

_MEMBER_ID_LENGTH_MAX = 36
_RECORD_LIMIT = 1  # share.acquire.mode
_WITH_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

R = TypeVar("R")


class ShareFetchApi(NamedTuple):
    """The APIs of records of share groups."""

    runtime: Runtime
    config: Callable[[], BrokerConfig]
    brokers: BrokerEndpoints
    replica_manager: ReplicaManager
    shares: SharePartitions
    sessions: ShareSessions
    features: FinalizedFeatures
    traffic: ShareTraffic
    acknowledgements: ShareAcknowledgements

    def share_fetch(
        self, request: wire.ShareFetchRequest, context: RequestContext
    ) -> wire.ShareFetchResponse | Pending:
        is_renewal = context.api_version >= FIRST_VERSION_WITH_RENEWAL and request.is_renew_ack
        try:
            group_id, member_id = self._member(request, context)
            if is_renewal and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            session = self._session(request, context, group_id, member_id)
        except KafkaError as error:
            refused = wire.ShareFetchResponse(error_code=error.code, error_message=error.message)
            if error.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
                return self._answer_later(refused, request.max_wait_ms)
            return refused
        exchange = _Exchange(self, request, context, session)
        acknowledged = request.topics if has_acknowledgements(request.topics) else ()
        self.acknowledgements.acknowledge(
            acknowledged, context, session, exchange.on_acknowledged, is_renewal=is_renewal
        )
        if is_renewal or request.share_session_epoch == CLOSING_EPOCH:
            exchange.on_fetched({})
        else:
            exchange.fetch()
        return exchange.outcome()

    def share_acknowledge(
        self, request: wire.ShareAcknowledgeRequest, context: RequestContext
    ) -> wire.ShareAcknowledgeResponse | Pending:
        try:
            group_id, member_id = self._member(request, context)
            if request.share_session_epoch == OPENING_EPOCH:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session = self._continued(request.share_session_epoch, group_id, member_id)
        except KafkaError as error:
            return wire.ShareAcknowledgeResponse(error_code=error.code)
        is_renewal = context.api_version >= FIRST_VERSION_WITH_RENEWAL and request.is_renew_ack
        reply: _Reply[wire.ShareAcknowledgeResponse] = _Reply()

        def on_acknowledged(outcomes: Outcomes) -> None:
            if request.share_session_epoch == CLOSING_EPOCH:
                self.sessions.end(session)
            reply.answer(self._acknowledged(outcomes, context, group_id))

        self.acknowledgements.acknowledge(request.topics, context, session, on_acknowledged, is_renewal=is_renewal)
        return reply.outcome()

    # --- sessions

    def _member(
        self, request: wire.ShareFetchRequest | wire.ShareAcknowledgeRequest, context: RequestContext
    ) -> tuple[str, str]:
        """The group and the member of a request. Raises KafkaError."""
        if not self.features.level(SHARE_VERSION):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if request.group_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not context.may(Operation.READ, GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not request.member_id or len(request.member_id) > _MEMBER_ID_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return request.group_id, request.member_id

    def _session(
        self, request: wire.ShareFetchRequest, context: RequestContext, group_id: str, member_id: str
    ) -> ShareSession:
        added = [
            TopicIdPartition(topic.topic_id, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        ]
        epoch = request.share_session_epoch
        if epoch == OPENING_EPOCH:
            if has_acknowledgements(request.topics):
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            return self.sessions.open(group_id, member_id, added, context.connection)
        session = self._continued(epoch, group_id, member_id)
        if epoch != CLOSING_EPOCH:
            forgotten = [
                TopicIdPartition(topic.topic_id, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ]
            session.update(added, forgotten)
        return session

    def _continued(self, epoch: int, group_id: str, member_id: str) -> ShareSession:
        if epoch == CLOSING_EPOCH:
            return self.sessions.closing(group_id, member_id)
        return self.sessions.continued(group_id, member_id, epoch)

    def _answer_later(self, response: wire.ShareFetchResponse, wait_ms: int) -> Pending:
        timer = self.runtime.clock.call_later(min(wait_ms, WAIT_MS_MAX), lambda: pending.answer(response))
        pending = Pending(timer.cancel)
        return pending

    def _acknowledged(
        self, outcomes: Outcomes, context: RequestContext, group_id: str
    ) -> wire.ShareAcknowledgeResponse:
        topics: dict[object, wire.ShareAcknowledgedTopic] = {}
        leaders: list[wire.ShareLeader] = []
        for key, error in outcomes.items():
            topic = topics.setdefault(key.topic_id, wire.ShareAcknowledgedTopic(topic_id=key.topic_id))
            row = wire.ShareAcknowledgedPartition(partition_index=key.partition)
            if error is not None:
                row.error_code, row.error_message = error.code, error.message
                row.current_leader = self.current_leader(key, error)
                leaders.append(row.current_leader)
            topic.partitions.append(row)
        return wire.ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.shares.reading_of(group_id).limits.lock_duration_ms,
            responses=[*topics.values()],
            node_endpoints=self.endpoints_of(leaders, context),
        )

    # --- leaders that answers name

    def current_leader(self, key: TopicIdPartition, error: KafkaError) -> wire.ShareLeader:
        topic = self.replica_manager.by_id.get(key.topic_id)
        if error.code not in _WITH_LEADER or topic is None:
            return wire.ShareLeader()
        leader, epoch = self.brokers.leader_of(topic.name, key.partition)
        return wire.ShareLeader(leader_id=leader, leader_epoch=epoch)

    def endpoints_of(self, leaders: Iterable[wire.ShareLeader], context: RequestContext) -> list[NodeEndpoint]:
        ids = {each.leader_id for each in leaders}
        return node_endpoints(ids, self.brokers.finder_for(context.connection)) if ids else []


class _Exchange:
    """One ShareFetch: what it has read, and what became of its acknowledgements."""

    def __init__(
        self, api: ShareFetchApi, request: wire.ShareFetchRequest, context: RequestContext, session: ShareSession
    ) -> None:
        self._api = api
        self._request = request
        self._context = context
        self._session = session
        self._reply: _Reply[wire.ShareFetchResponse] = _Reply()
        self._throttle_ms = 0  # by a quota: then the answer has acknowledgements only, and leaves the session unchanged
        self._found: dict[TopicIdPartition, SharedRecords] | None = None
        self._outcomes: Outcomes | None = None

    def outcome(self) -> wire.ShareFetchResponse | Pending:
        return self._reply.outcome()

    def on_acknowledged(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._complete()

    def on_fetched(self, found: dict[TopicIdPartition, SharedRecords]) -> None:
        self._found = found
        self._complete()

    def fetch(self) -> None:
        """Read now, or when there is something to acquire."""
        api, request = self._api, self._request
        refused, shares, loading = self._shares()
        reading = api.shares.reading_of(self._session.group_id)
        config = api.config()
        max_bytes = min(request.max_bytes, config.fetch_max_bytes)
        may_read = bool(shares) and request.max_records > 0 and max_bytes > 0
        if (quotas := quotas_of(self._context.connection)) is not None:
            max_bytes = min(max_bytes, max(1, quotas.fetch_bytes_max))
        reader = ShareFetchReader(
            ShareRequest(
                self._session.member_id,
                max_bytes,
                min(request.min_bytes, max_bytes),
                request.max_records,
                request.batch_size,
                request.share_acquire_mode == _RECORD_LIMIT,
            ),
            shares,
            loading,
            reading.reads_committed,
        )
        if quotas is not None:
            reader.limit(quotas.fetch_wait_ms)
        if not may_read:
            self.on_fetched(refused)
            return
        api.traffic.fetches += len({key.topic_id for key, _ in shares})
        found, missing_bytes = reader.read(is_over=request.max_wait_ms <= 0)
        if missing_bytes:
            self._wait(reader, missing_bytes, refused)
        else:
            self._on_read(reader, refused, found)

    def _on_read(
        self,
        reader: ShareFetchReader,
        refused: dict[TopicIdPartition, SharedRecords],
        found: dict[TopicIdPartition, SharedRecords],
    ) -> None:
        self._throttle_ms = reader.throttle_ms
        self._count(reader, found)
        self.on_fetched({} if reader.throttle_ms else refused | found)

    def _count(self, reader: ShareFetchReader, found: dict[TopicIdPartition, SharedRecords]) -> None:
        traffic = self._api.traffic
        traffic.count_ratio(self._session.group_id, reader.ready_count, reader.share_count)
        traffic.failed_fetches += len({key.topic_id for key, each in found.items() if each.error is not None})

    def _wait(
        self, reader: ShareFetchReader, missing_bytes: int, refused: dict[TopicIdPartition, SharedRecords]
    ) -> None:
        reply = self._reply

        def poll_shares(is_over: bool) -> int:
            if reply.is_done:
                return 0
            found, missing_bytes = reader.read(is_over=is_over)
            if missing_bytes:
                reader.watch(poll)
            else:
                reply.release = _nothing
                poll.stop()
                self._on_read(reader, refused, found)
                self._api.traffic.expired_fetches += is_over
            reader.pass_on()
            return missing_bytes

        def stop() -> None:
            poll.stop()
            reader.pass_on()  # it may have been woken, and not polled yet

        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        poll = LongPoll(self._api.runtime, wait_ms, missing_bytes, poll_shares, reader.reads_committed)
        reply.release = stop
        reader.watch(poll)

    def _shares(
        self,
    ) -> tuple[
        dict[TopicIdPartition, SharedRecords],
        list[tuple[TopicIdPartition, LedSharePartition]],
        list[TopicIdPartition],
    ]:
        """The partitions of the session that may not be read, those that are, and which of these were not loaded."""
        api, context, group_id = self._api, self._context, self._session.group_id
        refused: dict[TopicIdPartition, SharedRecords] = {}
        shares, loading = [], []
        for key in self._session.rotated():
            topic = api.replica_manager.by_id.get(key.topic_id)
            if topic is None:
                refused[key] = _failed(ErrorCode.UNKNOWN_TOPIC_ID)
            elif not context.may(Operation.READ, TOPIC, topic.name):
                refused[key] = _failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif (found := topic.partitions.get(key.partition)) is None:
                refused[key] = _failed(api.replica_manager.missing_partition_error(topic.name, key.partition))
            else:
                led, is_new = api.shares.get(group_id, key.topic_id, found)
                if is_new or led.state is None:
                    loading.append(key)
                shares.append((key, led))
        return refused, shares, loading

    def _complete(self) -> None:
        if self._found is None or self._outcomes is None:
            return
        response = self._response(self._found, self._outcomes)
        if self._request.share_session_epoch == CLOSING_EPOCH:
            self._api.sessions.end(self._session)
        self._reply.answer(response)

    def _response(self, found: dict[TopicIdPartition, SharedRecords], outcomes: Outcomes) -> wire.ShareFetchResponse:
        session = self._session
        topics: dict[object, wire.ShareFetchedTopic] = {}
        leaders: list[wire.ShareLeader] = []
        is_whole = self._request.share_session_epoch != CLOSING_EPOCH and not self._throttle_ms
        keys = [*session.partitions] if is_whole else []
        for key in dict.fromkeys((*found, *keys, *outcomes)):
            records = found.get(key, _NOTHING)
            is_news = (
                not self._throttle_ms
                and key in session.partitions
                and session.is_news(key, has_records=bool(records.acquired), has_error=records.error is not None)
            )
            if not is_news and key not in outcomes and records.error is None:
                continue
            row = wire.ShareFetchedPartition(
                partition_index=key.partition,
                records=records.records,
                acquired_records=[
                    wire.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in records.acquired
                ],
            )
            if records.error is not None:
                row.error_code, row.error_message = records.error.code, records.error.message
                row.current_leader = self._api.current_leader(key, records.error)
                leaders.append(row.current_leader)
            outcome = outcomes.get(key)
            if outcome is not None:
                row.acknowledge_error_code, row.acknowledge_error_message = outcome.code, outcome.message
            topic = topics.setdefault(key.topic_id, wire.ShareFetchedTopic(topic_id=key.topic_id))
            topic.partitions.append(row)
        return wire.ShareFetchResponse(
            throttle_time_ms=self._throttle_ms,
            acquisition_lock_timeout_ms=self._api.shares.reading_of(session.group_id).limits.lock_duration_ms,
            responses=[*topics.values()],
            node_endpoints=self._api.endpoints_of(leaders, self._context),
        )


class _Reply(Generic[R]):
    """An answer that is there already, or comes later. `release` ends the wait if the client leaves."""

    __slots__ = ("_pending", "_response", "is_done", "release")

    def __init__(self) -> None:
        self.is_done = False
        self.release: Callable[[], object] = _nothing
        self._response: R | None = None
        self._pending: Pending | None = None

    def answer(self, response: R) -> None:
        self.is_done = True
        self._response = response
        if self._pending is not None:
            self._pending.answer(response)

    def outcome(self) -> R | Pending:
        if self._response is not None:
            return self._response
        self._pending = Pending(self._end)
        return self._pending

    def _end(self) -> None:
        self.is_done = True
        self.release()


_NOTHING = SharedRecords()


def _nothing() -> None:
    """Nothing waits."""


def _failed(code: ErrorCode) -> SharedRecords:
    return SharedRecords(error=KafkaError(code))
