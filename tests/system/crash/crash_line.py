"""One blocking connection to the daemon, spoken to in frames: a request, then its answer."""

from __future__ import annotations

import socket
from typing import Any

from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import build_batch, iter_batches
from kafkalite.record.record import Record, read_records
from tests.support.wait import DEADLINE_S

EARLIEST, LATEST = -2, -1


class Line:
    """A connection to the daemon. `ask` raises ConnectionError when there is nobody any more."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int) -> Any:
        self._correlation_id += 1
        self._socket.sendall(request_frame(request, version, self._correlation_id, "player"))
        size = int.from_bytes(self._read(4), "big")
        correlation_id, response = decode_response(type(request), version, memoryview(self._read(size)))
        assert correlation_id == self._correlation_id
        return response

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the daemon is gone")
            data += piece
        return data

    # what more than one player asks

    def produce(self, topic: str, partition: int, values: list[bytes]) -> int:
        """Append with acks=all; the offset of the first one."""
        batch = build_batch([Record(0, 1_700_000_000_000, None, value, ()) for value in values])
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        request = ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        told = self.ask(request, 9).responses[0].partition_responses[0]
        assert told.error_code == 0, f"produce to {topic}-{partition}: {told}"
        return int(told.base_offset)

    def offset(self, topic: str, partition: int, which: int, *, read_committed: bool = False) -> int:
        wanted = ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=which)]
        )
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=[wanted])
        told = self.ask(request, 5).topics[0].partitions[0]
        assert told.error_code == 0, f"offset of {topic}-{partition}: {told}"
        return int(told.offset)

    def read(self, topic: str, partition: int) -> dict[int, bytes]:
        """Everything that is in a partition: offset -> value."""
        found: dict[int, bytes] = {}
        position, end = self.offset(topic, partition, EARLIEST), self.offset(topic, partition, LATEST)
        while position < end:
            wanted = FetchPartition(partition=partition, fetch_offset=position, partition_max_bytes=1 << 20)
            told = self.ask(FetchRequest(topics=[FetchTopic(topic=topic, partitions=[wanted])]), 11)
            data = told.responses[0].partitions[0]
            assert data.error_code == 0, f"fetch from {topic}-{partition} at {position}: {data.error_code}"
            before = position
            for header, batch in iter_batches(memoryview(data.records)):
                for record in read_records(batch):
                    if record.offset >= position:
                        found[record.offset] = record.value or b""
                position = header.last_offset + 1
            assert position > before, f"nothing at {topic}-{partition} {position}, which ends at {end}"
        return found
