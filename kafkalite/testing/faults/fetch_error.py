"""Errors of fetches. A fetch in a session names only the partitions that have changed; the others are the session's
(KIP-227). A fetch changes nothing, so it is executed as a whole, without a wait, and partitions of its answer fail:
the session goes on as it would have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from uuid import UUID

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kafkalite.testing.faults.request_split import copy_of

if TYPE_CHECKING:
    from kafkalite.protocol.codec.schema import Message
    from kafkalite.server.broker_server import BrokerServer

_OF_SESSION = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_FIRST_VERSION_OF_SESSIONS = 7


def is_of_partitions(code: ErrorCode, version: int) -> bool:
    """Whether such an error is one of partitions, and not of the fetch as a whole."""
    return version < _FIRST_VERSION_OF_SESSIONS or code not in _OF_SESSION


def is_in_session(server: BrokerServer, request: FetchRequest, topic: str, topic_id: UUID | None) -> bool:
    """Whether the topic is one of the fetch's session."""
    return any(key in (topic, topic_id) for key, _ in server.fetch_sessions.partitions(request.session_id))


def at_once(request: FetchRequest) -> Message:
    """The same fetch without a wait: one with an error does not wait."""
    request = cast(FetchRequest, copy_of(request))
    request.max_wait_ms = 0
    return request


def with_error(
    server: BrokerServer,
    request: FetchRequest,
    answer: FetchResponse,
    topic: str | None,
    topic_id: UUID | None,
    code: ErrorCode,
) -> FetchResponse:
    """The answer with partitions that failed: those of the topic, or all. An answer that has failed as a whole stays
    as it is."""
    if answer.error_code:
        return answer
    wanted = {
        (each.topic or each.topic_id, part.partition): None for each in request.topics for part in each.partitions
    }
    wanted.update(dict.fromkeys(server.fetch_sessions.partitions(request.session_id)))
    failed: dict[str | UUID, list[PartitionData]] = {}
    for key, index in wanted:
        if topic is None or key in (topic, topic_id):
            data = PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")
            failed.setdefault(key, []).append(data)
    answer.responses = [each for each in answer.responses if (each.topic or each.topic_id) not in failed]
    for key, partitions in failed.items():
        one = FetchableTopicResponse(partitions=partitions)
        if isinstance(key, UUID):
            one.topic_id = key
        else:
            one.topic = key
        answer.responses.append(one)
    return answer
