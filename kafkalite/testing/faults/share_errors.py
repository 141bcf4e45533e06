"""Errors of partitions in the answers of ShareFetch and ShareAcknowledge.

The requests of a member follow each other in one session (KIP-932), so one whose partitions fail is still executed:
without what it says of them. A ShareFetch then acquires nothing, and its acknowledgements of them are not made; the
next request of the member is in order. With `has_effect` the request is executed as it is: what it acquires stays
locked, though its member does not learn of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from kafkalite.api.request.share_sessions import CLOSING_EPOCH, TopicIdPartition
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages import share_fetch as wire
from kafkalite.server.broker_server import BrokerServer

_OF_ACKNOWLEDGEMENTS = (ErrorCode.INVALID_RECORD_STATE,)
_NO_LEADER = {"leader_id": -1, "leader_epoch": -1}

ShareRequest = wire.ShareFetchRequest | wire.ShareAcknowledgeRequest


class ShareErrors:
    """An error for the partitions of one request: those of a topic, or all of them."""

    def __init__(self, server: BrokerServer, request: ShareRequest, topic_id: UUID | None, code: ErrorCode) -> None:
        """`topic_id` is None for all topics."""
        self._request = request
        self._topic_id = topic_id
        self._code = code
        self._acknowledged = dict.fromkeys(self._chosen(_acknowledged(request)))
        self._failed = self._acknowledged
        if isinstance(request, wire.ShareFetchRequest) and code not in _OF_ACKNOWLEDGEMENTS:
            self._failed = dict.fromkeys((*self._acknowledged, *self._chosen(_fetched(server, request))))

    @property
    def has_any(self) -> bool:
        """Whether the request is about a partition that is to fail."""
        return bool(self._failed)

    def _chosen(self, partitions: Iterable[TopicIdPartition]) -> Iterable[TopicIdPartition]:
        return (each for each in partitions if self._topic_id is None or each.topic_id == self._topic_id)

    def harmless_request(self) -> Message:
        """The request without its acknowledgements of these partitions; a fetch of records acquires nothing."""
        if isinstance(self._request, wire.ShareAcknowledgeRequest):
            return _changed(self._request, topics=[self._without(each) for each in self._request.topics])
        topics = [self._without(each) for each in self._request.topics]
        if self._code in _OF_ACKNOWLEDGEMENTS:
            return _changed(self._request, topics=topics)
        return _changed(self._request, topics=topics, max_wait_ms=0, min_bytes=0, max_records=0)

    def _without(self, topic: Message) -> Message:
        if self._topic_id not in (None, topic.topic_id):  # type: ignore[attr-defined]
            return topic
        partitions = [_changed(each, acknowledgement_batches=[]) for each in topic.partitions]  # type: ignore[attr-defined]
        return _changed(topic, partitions=partitions)

    def fail(self, answer: Message) -> Message:
        """The answer in which the partitions have failed. One that has failed as a whole stays as it is."""
        if answer.error_code:  # type: ignore[attr-defined]
            return answer
        if isinstance(answer, wire.ShareAcknowledgeResponse):
            self._fail_rows(answer.responses, wire.ShareAcknowledgedTopic, self._acknowledged_row)
        elif isinstance(answer, wire.ShareFetchResponse):
            self._fail_rows(answer.responses, wire.ShareFetchedTopic, self._fetched_row)
        return answer

    def _fail_rows(
        self,
        topics: list[wire.ShareFetchedTopic] | list[wire.ShareAcknowledgedTopic],
        new_topic: Callable[..., object],
        row: Callable[[TopicIdPartition, object], object],
    ) -> None:
        by_id = {topic.topic_id: topic for topic in topics}
        for key in self._failed:
            if key.topic_id not in by_id:
                by_id[key.topic_id] = new_topic(topic_id=key.topic_id)  # type: ignore[assignment]
                topics.append(by_id[key.topic_id])  # type: ignore[arg-type]
            rows = by_id[key.topic_id].partitions
            before = next((each for each in rows if each.partition_index == key.partition), None)
            failed = row(key, before)
            if before is None:
                rows.append(failed)  # type: ignore[arg-type]
            else:
                rows[rows.index(before)] = failed  # type: ignore[call-overload, arg-type]

    def _acknowledged_row(self, key: TopicIdPartition, _: object) -> wire.ShareAcknowledgedPartition:
        return wire.ShareAcknowledgedPartition(
            partition_index=key.partition, error_code=self._code, current_leader=wire.ShareLeader(**_NO_LEADER)
        )

    def _fetched_row(self, key: TopicIdPartition, before: object) -> wire.ShareFetchedPartition:
        code = int(self._code) if key in self._acknowledged else 0
        if self._code in _OF_ACKNOWLEDGEMENTS and isinstance(before, wire.ShareFetchedPartition):
            before.acknowledge_error_code = code
            return before
        return wire.ShareFetchedPartition(
            partition_index=key.partition,
            error_code=0 if self._code in _OF_ACKNOWLEDGEMENTS else self._code,
            acknowledge_error_code=code,
            current_leader=wire.ShareLeader(**_NO_LEADER),
            records=b"",
        )


def _acknowledged(request: ShareRequest) -> Iterable[TopicIdPartition]:
    for topic in request.topics:
        for each in topic.partitions:
            if each.acknowledgement_batches:
                yield TopicIdPartition(topic.topic_id, each.partition_index)


def _fetched(server: BrokerServer, request: wire.ShareFetchRequest) -> Iterable[TopicIdPartition]:
    """The partitions that the request reads: those of its session and those that it adds."""
    if request.share_session_epoch == CLOSING_EPOCH:
        return
    forgotten = {
        TopicIdPartition(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    }
    for each in session_partitions(server, request):
        if each not in forgotten:
            yield each
    for topic in request.topics:
        yield from (TopicIdPartition(topic.topic_id, each.partition_index) for each in topic.partitions)


def session_partitions(server: BrokerServer, request: wire.ShareFetchRequest) -> Iterable[TopicIdPartition]:
    """The partitions of the session that the request continues."""
    used = server.apis.shares.used_fetches
    return () if used is None else used.sessions.partitions(request.group_id or "", request.member_id or "")


def _changed(message: Message, **fields: object) -> Message:
    values = {name: getattr(message, name) for name in message.__fields__}
    return type(message)(**{**values, **fields})
