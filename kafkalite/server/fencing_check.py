"""Has the cluster gone on without us? Asked of the other brokers, when ZooKeeper cannot be.

A broker that is cut off from ZooKeeper does not see its own session expire. If the others still reach ZooKeeper, they
have it out of their list of brokers by then, and say so; if ZooKeeper is down for everybody, their list is the old one
with us in it. So one who misses us is reason enough to stop leading, and silence, or a list with us in it, is none.
An answer counts only if it comes from our cluster, from a broker that is in its own list, and from one that knows
everything up to our registration: who lost ZooKeeper before that has not got us in its list either. (Nor can the
ordinary answer be taken, a list of those brokers that have the listener on which was asked.)
Kafka has nothing like it: its brokers go on leading, on their own, until ZooKeeper tells them.
Source: Metadata, with a tagged field of our own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from kafkalite.common.clock import Clock
from kafkalite.common.errors import Malformed
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import BrokerRecord
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse

logger = logging.getLogger(__name__)

_QUESTIONS_MAX = 32  # one who knows is enough
_ANSWER_BYTES_MAX = 1 << 20  # some thousand brokers and no topic
_VERSION = 9  # the first with tagged fields
_CORRELATION_ID = 1


async def who_misses_us(
    us: BrokerRecord,
    cluster_id: str,
    others: Iterable[BrokerRecord],
    clock: Clock,
    timeout_ms: float,
    *,
    listener: str | None = None,
) -> int | None:
    """The first of `others`, the ones last heard of, who says that `us` is no member of `cluster_id`; None if nobody
    says so within `timeout_ms`. All are asked at the same time, at their `listener` if they have it, else at every
    address of theirs. Never raises but when cancelled."""
    places = [(each.broker_id, endpoint) for each in others for endpoint in _endpoints(each, listener)]
    questions: dict[asyncio.Future[Any], int] = {
        asyncio.ensure_future(_misses(us, cluster_id, broker_id, endpoint)): broker_id
        for broker_id, endpoint in places[:_QUESTIONS_MAX]
    }
    overtime: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(timeout_ms, lambda: None if overtime.done() else overtime.set_result(None))
    open_questions = set(questions)
    try:
        while open_questions and not overtime.done():
            done, _ = await asyncio.wait({*open_questions, overtime}, return_when=asyncio.FIRST_COMPLETED)
            open_questions -= done
            for question in done & questions.keys():
                if question.result():
                    return questions[question]
        return None
    finally:
        timer.cancel()
        overtime.cancel()
        for question in open_questions:
            question.cancel()
        await asyncio.gather(*open_questions, return_exceptions=True)


def _endpoints(peer: BrokerRecord, listener: str | None) -> list[ListenerConfig]:
    plain = [each for each in peer.endpoints if each.protocol == "PLAINTEXT"]
    wanted = [each for each in plain if listener is not None and each.name == listener.upper()]
    return wanted or plain


async def _misses(us: BrokerRecord, cluster_id: str, broker_id: int, endpoint: ListenerConfig) -> bool:
    """Whether the peer there knows the cluster and has no such broker in it. False if it cannot be asked."""
    try:
        answer = await _metadata(us.broker_id, endpoint)
    except (OSError, EOFError, Malformed, ValueError) as error:
        logger.debug("broker %d at %s cannot say whether we are a member: %r", broker_id, endpoint.address, error)
        return False
    return answer.cluster_id == cluster_id and answer.missing_at >= us.epoch


async def _metadata(broker_id: int, endpoint: ListenerConfig) -> MetadataResponse:
    """All brokers and no topic. Raises OSError, EOFError, Malformed, or ValueError for an answer that is too long."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        question = MetadataRequest(topics=[], is_missing=broker_id)
        writer.write(request_frame(question, _VERSION, _CORRELATION_ID, "kafkalite-peer"))
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > _ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of {size} bytes")
        correlation_id, answer = decode_response(MetadataRequest, _VERSION, memoryview(await reader.readexactly(size)))
        if correlation_id != _CORRELATION_ID:
            raise ValueError("an answer to another question")
        assert isinstance(answer, MetadataResponse)
        return answer
    finally:
        writer.close()
