"""Cost of encoding and decoding messages. In the test suite every case just runs once.

`python tests/bench/test_message_codec_cost.py` prints microseconds, the best of many rounds.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalite.common.region import FileRegion, OpenFile
from kafkalite.protocol.codec.codec import decoder, encoder
from kafkalite.protocol.header import decode_request_header, request_frame, response_frame
from kafkalite.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kafkalite.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from kafkalite.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkalite.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

Case = tuple[str, Callable[[], Any]]


def produce_request(partition_count: int) -> ProduceRequest:
    batch = memoryview(bytearray(168))
    data = [PartitionProduceData(index=i, records=batch) for i in range(partition_count)]
    return ProduceRequest(
        acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(name="topic-one", partition_data=data)]
    )


def produce_response(partition_count: int) -> ProduceResponse:
    answers = [
        PartitionProduceResponse(index=i, base_offset=1000 + i, log_start_offset=0) for i in range(partition_count)
    ]
    return ProduceResponse(responses=[TopicProduceResponse(name="topic-one", partition_responses=answers)])


def fetch_request(partition_count: int) -> FetchRequest:
    partitions = [
        FetchPartition(partition=i, fetch_offset=i, partition_max_bytes=1 << 20) for i in range(partition_count)
    ]
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, session_id=7, topics=[FetchTopic(topic="topic-one", partitions=partitions)]
    )


def fetch_response(partition_count: int, records: Any) -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=i, high_watermark=9, last_stable_offset=9, aborted_transactions=None, records=records
        )
        for i in range(partition_count)
    ]
    return FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic="topic-one", partitions=partitions)])


def metadata_response(partition_count: int) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=i, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        for i in range(partition_count)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)],
        cluster_id="x" * 22,
        topics=[MetadataResponseTopic(name="topic-one", partitions=partitions)],
    )


def decoding(message: Any, version: int) -> Callable[[], Any]:
    frame = memoryview(bytearray(request_frame(message, version, 1, "client")))[4:]
    _, start = decode_request_header(frame)
    decode = decoder(type(message), version)
    return lambda: decode(frame, start)


def encoding(message: Any, version: int) -> Callable[[], Any]:
    encode = encoder(type(message), version)
    return lambda: encode(message, [])


def framing(message: Any, version: int) -> Callable[[], Any]:
    return lambda: response_frame(message, version, 1)


def cases() -> Iterator[Case]:
    frame = memoryview(bytearray(request_frame(produce_request(1), 9, 1, "client")))[4:]
    yield "request header v2: decode", lambda: decode_request_header(frame)
    for version in (7, 9):
        for count in (1, 100):
            yield f"Produce v{version} x {count}: decode request", decoding(produce_request(count), version)
            yield f"Produce v{version} x {count}: encode response", encoding(produce_response(count), version)
            yield f"Produce v{version} x {count}: response frame", framing(produce_response(count), version)
    region = FileRegion(OpenFile("/dev/null", 0), 0, 1 << 20)
    for version in (4, 11, 12):
        for count in (1, 100):
            yield f"Fetch v{version} x {count}: decode request", decoding(fetch_request(count), version)
            yield f"Fetch v{version} x {count}: response frame, empty", framing(fetch_response(count, None), version)
            yield (
                f"Fetch v{version} x {count}: response frame, regions",
                framing(fetch_response(count, region), version),
            )
    yield "Metadata v9 x 100: response frame", framing(metadata_response(100), 9)
    yield "Heartbeat v4: decode request", decoding(HeartbeatRequest(group_id="group", member_id="x" * 40), 4)
    yield "Heartbeat v4: response frame", framing(HeartbeatResponse(), 4)
    yield "PartitionProduceResponse(...)", lambda: PartitionProduceResponse(index=1, error_code=0, base_offset=5)


@pytest.mark.parametrize("case", [pytest.param(run, id=name) for name, run in cases()])
def test_every_measured_case_runs(case: Callable[[], Any]) -> None:
    case()


def main() -> None:
    for name, run in cases():
        timer = timeit.Timer(run)
        number = max(1, int(0.004 / max(timer.timeit(20) / 20, 1e-7)))
        best = min(timer.repeat(repeat=40, number=number)) / number
        print(f"{best * 1e6:9.2f} us  {name}")


if __name__ == "__main__":
    main()
