"""Has the cluster gone on without us? Asked of the other brokers, when ZooKeeper cannot be.

A broker that is cut off from ZooKeeper does not see its own session expire. If the others still reach ZooKeeper, they
have it out of their list of brokers by then, and say so in any answer to Metadata; if ZooKeeper is down for everybody,
their list is the old one with us in it. So one who leaves us out is reason enough to stop leading, and silence, or a
list with us in it, is none. An answer counts only if it comes from our cluster and from a broker that is in its own
list: one that has just begun, or was thrown out itself, knows nothing about others.
Kafka has nothing like it: its brokers go on leading, on their own, until ZooKeeper tells them.
Source: MetadataRequest version 2, the first that names the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from kafkalite.clock import Clock
from kafkalite.errors import Malformed
from kafkalite.listeners import ListenerConfig
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.zk.registry import BrokerRecord

logger = logging.getLogger(__name__)

_PEERS_MAX = 16  # one who knows is enough
_ANSWER_BYTES_MAX = 1 << 20  # some thousand brokers and no topic
_VERSION = 2
_CORRELATION_ID = 1


async def who_misses_us(
    broker_id: int, cluster_id: str, brokers: Iterable[BrokerRecord], clock: Clock, timeout_ms: float
) -> int | None:
    """The first of `brokers`, the ones last heard of, who says that `broker_id` is no member of `cluster_id`; None if
    nobody says so within `timeout_ms`. All are asked at the same time. Never raises but when cancelled."""
    others = [each for each in brokers if each.broker_id != broker_id][:_PEERS_MAX]
    questions: dict[asyncio.Future[Any], int] = {
        asyncio.ensure_future(_misses(broker_id, cluster_id, each)): each.broker_id for each in others
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


async def _misses(broker_id: int, cluster_id: str, peer: BrokerRecord) -> bool:
    """Whether `peer` knows the cluster and has no such broker in it. False if it cannot be asked."""
    endpoint = next((each for each in peer.endpoints if each.protocol == "PLAINTEXT"), None)
    if endpoint is None:
        return False
    try:
        answer = await _metadata(endpoint)
    except (OSError, EOFError, Malformed, ValueError) as error:
        logger.debug("broker %d at %s cannot say whether we are a member: %r", peer.broker_id, endpoint.address, error)
        return False
    members = {each.node_id for each in answer.brokers}
    return answer.cluster_id == cluster_id and peer.broker_id in members and broker_id not in members


async def _metadata(endpoint: ListenerConfig) -> MetadataResponse:
    """All brokers and no topic. Raises OSError, EOFError, Malformed, or ValueError for an answer that is too long."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(request_frame(MetadataRequest(topics=[]), _VERSION, _CORRELATION_ID, "kafkalite-peer"))
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
