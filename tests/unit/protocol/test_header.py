"""A frame is a size, a header that depends on the version, and a message; file regions travel as they are."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import HeartbeatRequest as KafkaPythonHeartbeat

from kafkalite.common.errors import Malformed
from kafkalite.common.region import FileRegion, OpenFile, Part
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.header import (
    RequestHeader,
    decode_request_header,
    decode_response,
    request_frame,
    response_frame,
)
from kafkalite.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kafkalite.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from kafkalite.protocol.messages.metadata import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def received(frame: bytes) -> memoryview:
    """A frame as the network passes it on: the frame without its size."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return memoryview(bytearray(frame))[4:]


def region(path: Path, content: bytes) -> FileRegion:
    path.write_bytes(content)
    return FileRegion(OpenFile(str(path), 0), 0, len(content))


def fetched(*records: Part | list[Part] | None) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, records=each) for i, each in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", range(5))
def test_a_request_frame_is_what_kafka_python_sends(version: int) -> None:
    theirs = KafkaPythonHeartbeat(group_id="g", generation_id=3, member_id="m", version=version)
    theirs.with_header(correlation_id=7, client_id="me")
    ours = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    assert request_frame(ours, version, 7, "me") == theirs.encode(header=True, framed=True)

    header, position = decode_request_header(received(request_frame(ours, version, 7, "me")))
    assert header == RequestHeader(12, version, 7, "me")
    assert isinstance(header, RequestHeader)
    assert decode(HeartbeatRequest, version, received(request_frame(ours, version, 7, "me")), position)[0] == ours


def test_a_client_need_not_have_a_name() -> None:
    header, position = decode_request_header(received(request_frame(HeartbeatRequest(), 0, 1, None)))
    assert header.client_id is None
    assert position == 10


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = memoryview(b"\x00\x0c\x00\x04\x00\x00\x00\x01\x00\x01c" + b"\x01\x07\x02ab" + b"rest")
    assert decode_request_header(frame) == (RequestHeader(12, 4, 1, "c"), len(frame) - 4)


def test_a_version_that_nobody_answers_still_has_a_header() -> None:
    frame = memoryview(b"\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff\x00")
    assert decode_request_header(frame) == (RequestHeader(18, 99, 1, None), 11)
    frame = memoryview(b"\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff")
    assert decode_request_header(frame) == (RequestHeader(999, 0, 1, None), 10)


@given(st.binary(max_size=24), st.sampled_from(sorted(APIS)), st.integers(0, 12))
def test_noise_is_a_header_or_malformed(noise: bytes, key: int, version: int) -> None:
    try:
        _, position = decode_request_header(
            memoryview(key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1" + noise)
        )
    except Malformed:
        return
    assert position <= 8 + len(noise)


def test_every_cut_header_is_malformed() -> None:
    whole = received(request_frame(HeartbeatRequest(), 4, 1, "client"))
    _, end = decode_request_header(whole)
    for cut in range(end):
        with pytest.raises(Malformed, match=r"request header: its \d+ bytes end inside a field|client id of"):
            decode_request_header(whole[:cut])


def test_answers_have_tags_in_their_header_when_flexible_but_api_versions_never_has() -> None:
    assert response_frame(HeartbeatResponse(error_code=27), 3, 7) == [
        bytes.fromhex("0000000a 00000007 00000000 001b"),
    ]
    assert response_frame(HeartbeatResponse(error_code=27), 4, 7) == [
        bytes.fromhex("0000000c 00000007 00 00000000 001b 00"),
    ]
    versions = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=3)])
    assert response_frame(versions, 3, 7) == [
        bytes.fromhex("00000013 00000007 0000 02 0012 0000 0003 00 00000000 00"),
    ]


@pytest.mark.parametrize("version", [4, 11, 12])
def test_file_regions_travel_between_bytes(tmp_path: Path, version: int) -> None:
    a, b, nothing = (region(tmp_path / name, content) for name, content in (("a", b"AAAA"), ("b", b"B"), ("n", b"")))
    response = fetched(a, None, b"bytes", [b, memoryview(b"tail"), b], nothing)
    parts = response_frame(response, version, 7)

    assert [part for part in parts if isinstance(part, FileRegion)] == [a, b, b]
    kinds = [isinstance(part, FileRegion) for part in parts]
    assert all(one or other for one, other in itertools.pairwise(kinds))  # no two parts of bytes in a row
    assert not kinds[0]

    sent = b"".join(part.read() if isinstance(part, FileRegion) else bytes(part) for part in parts)
    in_memory = fetched(b"AAAA", None, b"bytes", b"BtailB", b"")
    assert [sent] == response_frame(in_memory, version, 7)
    correlation_id, answer = decode_response(FetchRequest, version, received(sent))
    assert correlation_id == 7
    assert [each.records.tobytes() for each in answer.responses[0].partitions] == [
        b"AAAA",
        b"",
        b"bytes",
        b"BtailB",
        b"",
    ]


def test_a_request_with_records_in_a_file_is_one_piece(tmp_path: Path) -> None:
    def request(records: Part) -> ProduceRequest:
        data = [PartitionProduceData(records=records)]
        return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])

    in_file = request_frame(request(region(tmp_path / "a", b"batch")), 9, 1, "c")
    assert in_file == request_frame(request(b"batch"), 9, 1, "c")


def test_an_answer_is_read_whole_or_not_at_all() -> None:
    frame = response_frame(HeartbeatResponse(error_code=27), 4, 7)[0]
    assert decode_response(HeartbeatRequest, 4, received(bytes(frame))) == (7, HeartbeatResponse(error_code=27))
    assert decode_response(APIS[12], 4, received(bytes(frame))) == (7, HeartbeatResponse(error_code=27))
    for wrong in (bytes(frame[4:]) + b"\0", b"", b"\0\0\0\7", bytes(frame[4:-1])):
        with pytest.raises(Malformed):
            decode_response(HeartbeatRequest, 4, memoryview(wrong))


def test_api_versions_is_asked_with_header_two_from_version_three_on() -> None:
    assert request_frame(ApiVersionsRequest(), 2, 1, "c") == bytes.fromhex("0000000b 0012 0002 00000001 0001 63")
    assert request_frame(ApiVersionsRequest(), 3, 1, "c").endswith(b"c\0\1\1\0")
