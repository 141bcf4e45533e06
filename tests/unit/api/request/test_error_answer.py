"""The answer with an error, for every API and version: it can be sent, names what was asked for, and says the error
where clients look for it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.api.request.error_answer import error_answer, merged
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.apis import SERVED, Api
from kafkalite.protocol.codec.schema import INT32, STRING, Message
from kafkalite.protocol.header import decode_response, response_frame
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkalite.protocol.messages.group_offsets import OffsetFetchResponse
from kafkalite.testing.requests.recorded_request import fields_of

BY_ID = ("Produce", "OffsetCommit", "OffsetFetch")  # their newest versions have ids for names
APIS = [api for api in SERVED.values() if api.key < 1000]  # Kafka's


def filled(kind: type[Message], version: int, depth: int = 0) -> Message:
    """A request that names two of everything."""
    message = kind()
    for name, field in kind.__fields__.items():
        if version not in field.versions:
            continue
        if isinstance(field.kind, type) and issubclass(field.kind, Message):
            if field.is_array:
                setattr(message, name, [filled(field.kind, version, depth + 1) for _ in range(2)])
        elif field.is_array:
            setattr(message, name, ["one", "two"] if field.kind is STRING else [1, 2])
        elif field.kind is STRING:
            setattr(message, name, f"{name} {depth}")
        elif field.kind is INT32 and name in ("index", "partition", "partition_index"):
            setattr(message, name, 7)
    return message


def answer_of(api: Api, version: int, code: ErrorCode) -> Message:
    """As a client decodes it."""
    answer = error_answer(api.response, filled(api.request, version), code, version)
    frame = b"".join(response_frame(answer, version, 1))  # type: ignore[arg-type]
    decoded: Message = decode_response(api, version, memoryview(frame)[4:])[1]
    return decoded


def codes(answer: Message) -> list[int]:
    return [code for name, code in fields_of(answer) if name.endswith("error_code")]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_can_say_an_error(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        answer = answer_of(api, version, ErrorCode.NOT_COORDINATOR)
        if api.name == "DescribeLogDirs" and version < 3:
            continue  # its elements are directories, which a request does not name
        assert ErrorCode.NOT_COORDINATOR in codes(answer), f"version {version}: {answer}"


def test_topics_and_partitions_are_named() -> None:
    for api in APIS:
        answer = answer_of(api, api.max_version, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for name, value in fields_of(answer):
            if name in ("partition_index", "index", "partition", "partition_id") and api.name != "Metadata":
                assert value in (1, 2, 7), f"{api.name}: {answer}"
            if name in ("name", "topic_name") and api.name not in BY_ID:
                assert value, f"{api.name}: {answer}"


@pytest.mark.parametrize(
    ("code", "whole"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
    ],
)
def test_a_fetch_has_errors_of_its_session_and_of_partitions(code: ErrorCode, whole: bool) -> None:
    answer = answer_of(SERVED[1], 17, code)
    assert isinstance(answer, FetchResponse)
    assert answer.error_code == (code if whole else 0)
    assert [partition.error_code for topic in answer.responses for partition in topic.partitions] == (
        [] if whole else [code] * 4
    )


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_have_errors_of_the_group_and_of_partitions(version: int) -> None:
    group = answer_of(SERVED[9], version, ErrorCode.NOT_COORDINATOR)
    assert isinstance(group, OffsetFetchResponse)
    assert [group.error_code, *(each.error_code for each in group.groups)] == ([0, 16, 16] if version >= 8 else [16])
    partitions = answer_of(SERVED[9], version, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert isinstance(partitions, OffsetFetchResponse)
    assert partitions.error_code == 0 and set(codes(partitions)) == {0, 88}


def test_what_has_failed_takes_the_place_of_what_names_the_same() -> None:
    def request(*topics: str) -> FetchRequest:
        return FetchRequest(
            topics=[FetchTopic(topic=topic, partitions=[FetchPartition(partition=7)]) for topic in topics]
        )

    def answer(code: ErrorCode, *topics: str) -> Any:
        return error_answer(FetchResponse, request(*topics), code, 11)

    both = merged(answer(ErrorCode.NONE, "a", "b"), answer(ErrorCode.KAFKA_STORAGE_ERROR, "b", "c"))
    assert [(each.topic, each.partitions[0].error_code) for each in both.responses] == [("a", 0), ("b", 56), ("c", 56)]
