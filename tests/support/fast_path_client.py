"""A client of a dispatcher without the network, which takes the fast path where its connection may."""

from __future__ import annotations

from typing import Any

from kafkalite.common.errors import Disconnect, Malformed
from kafkalite.common.region import FileRegion
from kafkalite.network.client_connection import ClientConnection
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kafkalite.record.batch import NewRecord, build_batch

PRODUCE_VERSIONS = range(5, APIS[0].max_version + 1)
FETCH_VERSIONS = range(5, APIS[1].max_version + 1)
BY_ID = range(13, FETCH_VERSIONS.stop)
FIRST_PRODUCE_BY_ID = 13


class Client:
    """One connection, without the network."""

    def __init__(self, broker: Any) -> None:
        self.dispatch = broker._running.server._handler
        self.topics = broker._running.replica_manager
        self.connection = ClientConnection("PLAINTEXT", "127.0.0.1", 1, "127.0.0.1", 2)

    def send(self, frame: bytes) -> Any:
        """The bytes of the answer; the reply if it waits; the kind of refusal."""
        try:
            answer = self.dispatch(self.connection, memoryview(bytearray(frame)))
        except (Malformed, Disconnect) as reason:
            return type(reason)
        return joined(answer) if isinstance(answer, list) else answer

    def ask(self, request: Message, version: int, correlation_id: int = 7) -> Any:
        """Requests name their topics, which become ids where that is the way to say it."""
        if isinstance(request, ProduceRequest) and version >= FIRST_PRODUCE_BY_ID:
            for data in request.topic_data:
                if data.name in self.topics.by_name:
                    data.topic_id = self.topics.by_name[data.name].topic_id
        if isinstance(request, FetchRequest) and version in BY_ID:
            for wanted in request.topics:
                if wanted.topic in self.topics.by_name:
                    wanted.topic_id = self.topics.by_name[wanted.topic].topic_id
        return self.send(request_frame(request, version, correlation_id, "somebody")[4:])


def joined(parts: Any) -> bytes:
    return b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in parts)


def batch(value: bytes = b"value", **how: Any) -> bytes:
    return bytes(build_batch([NewRecord(None, value, timestamp=1_700_000_000_000)], **how))


def produce(records: bytes | None, topic: str = "t", partition: int = 0, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=None if records is None else memoryview(records))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch(offset: int, **how: Any) -> FetchRequest:
    wanted = FetchPartition(
        partition=how.pop("partition", 0),
        fetch_offset=offset,
        partition_max_bytes=how.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=how.pop("current_leader_epoch", -1),
    )
    how.setdefault("max_wait_ms", 60_000)
    how.setdefault("min_bytes", 1)
    return FetchRequest(topics=[FetchTopic(topic=how.pop("topic", "t"), partitions=[wanted])], **how)


async def topics(broker: Any, *names: str, **settings: str) -> None:
    for name in names:
        await broker._running.topic_admin.create(
            name, 2, {key.replace("_", "."): value for key, value in settings.items()}
        )
