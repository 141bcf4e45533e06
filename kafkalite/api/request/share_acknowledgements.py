"""The acknowledgements of a ShareFetch or ShareAcknowledge: checked, then given to the share partitions (KIP-932).

Source: kafka.server.KafkaApis (handleAcknowledgements, validateAcknowledgementBatches),
kafka.server.share.SharePartitionManager (4.3); KIP-1222 for locks that are renewed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from kafkalite.api.request.request_context import TOPIC, RequestContext
from kafkalite.api.request.share_sessions import ShareSession, TopicIdPartition
from kafkalite.api.request.share_traffic import ShareTraffic
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.protocol.messages import share_fetch as wire
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.share.in_flight import RENEW, Acknowledgement
from kafkalite.replication.share.share_partitions import SharePartitions
from kafkalite.security.acl.acl import Operation

FIRST_VERSION_WITH_RENEWAL = 2

Outcomes = dict[TopicIdPartition, KafkaError | None]
"""What became of the acknowledgements of each partition."""
AckTopics = Iterable[wire.ShareFetchTopic] | Iterable[wire.ShareAcknowledgeTopic]


class ShareAcknowledgements(NamedTuple):
    """Takes the acknowledgements of members for the share partitions that are led here."""

    replica_manager: ReplicaManager
    shares: SharePartitions
    traffic: ShareTraffic

    def acknowledge(
        self,
        topics: AckTopics,
        context: RequestContext,
        session: ShareSession,
        done: Callable[[Outcomes], object],
        *,
        is_renewal: bool,
    ) -> None:
        """Calls `done` once, when every acknowledgement is durable or refused."""
        rows = [(key, each) for key, each in _rows(topics)]
        has_any = any(each.acknowledgement_batches for _, each in rows)
        outcomes: Outcomes = {}
        waiting = {key for key, _ in rows}
        is_begun = False
        traffic = self.traffic
        if has_any:
            traffic.acknowledgements += len({key.topic_id for key, _ in rows})

        def on_done(
            key: TopicIdPartition, batches: Sequence[wire.AcknowledgementBatch], error: KafkaError | None
        ) -> None:
            if error is not None or has_any:
                outcomes[key] = error
            if error is None and batches:
                traffic.count_acknowledged(batches)
            waiting.discard(key)
            if is_begun and not waiting:
                complete()

        def complete() -> None:
            traffic.failed_acknowledgements += len(
                {key.topic_id for key, error in outcomes.items() if error is not None}
            )
            done(outcomes)

        for key, each in rows:
            batches = each.acknowledgement_batches
            self._acknowledge_one(key, batches, context, session, partial(on_done, key, batches), is_renewal=is_renewal)
        is_begun = True
        if not waiting:
            complete()

    def _acknowledge_one(
        self,
        key: TopicIdPartition,
        batches: Sequence[wire.AcknowledgementBatch],
        context: RequestContext,
        session: ShareSession,
        done: Callable[[KafkaError | None], None],
        *,
        is_renewal: bool,
    ) -> None:
        topic = self.replica_manager.by_id.get(key.topic_id)
        may_renew = context.api_version >= FIRST_VERSION_WITH_RENEWAL
        if topic is None:
            done(KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
        elif not _are_valid(batches, may_renew=may_renew, is_renewal=is_renewal):
            done(KafkaError(ErrorCode.INVALID_REQUEST))
        elif not context.may(Operation.READ, TOPIC, topic.name):
            done(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif not batches:
            done(None)
        elif (led := self.shares.find(session.group_id, key.topic_id, key.partition)) is None:
            code = self.replica_manager.missing_partition_error(topic.name, key.partition)
            done(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if code == ErrorCode.NONE else code))
        else:
            given = [Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches]
            led.acknowledge(session.member_id, given, done)


def _rows(
    topics: AckTopics,
) -> Iterator[tuple[TopicIdPartition, wire.ShareFetchPartition | wire.ShareAcknowledgePartition]]:
    for topic in topics:
        for each in topic.partitions:
            yield TopicIdPartition(topic.topic_id, each.partition_index), each


def has_acknowledgements(topics: AckTopics) -> bool:
    return any(each.acknowledgement_batches for _, each in _rows(topics))


def _are_valid(batches: Sequence[wire.AcknowledgementBatch], *, may_renew: bool, is_renewal: bool) -> bool:
    """Whether the batches are in order, and each has a type for all of its offsets or for each of them."""
    before = -1
    for first, last, types in ((each.first_offset, each.last_offset, each.acknowledge_types) for each in batches):
        if first > last or first < before or not types:
            return False
        if len(types) > 1 and len(types) != last - first + 1:
            return False
        if not all(0 <= each <= (RENEW if may_renew else RENEW - 1) for each in types):
            return False
        if RENEW in types and not is_renewal:
            return False
        before = last
    return True
