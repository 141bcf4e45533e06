"""Answers of a coordinator about several partitions: an error of one of them is not taken for nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafkalite.client.group_admin import GroupAdmin
from kafkalite.client.group_rows import lag_of
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)


class Coordinator:
    """Answers about two partitions with these error codes; the codes of one answer after the other."""

    def __init__(self, *codes: tuple[ErrorCode, ErrorCode]) -> None:
        self.codes = list(codes)

    def find_coordinator(self, key: str, key_type: int) -> tuple[int, int]:
        return 0, 1

    def client(self, broker_id: int) -> Coordinator:
        return self

    def ask(self, request: Any, version: int) -> Any:
        codes = self.codes.pop(0)
        if isinstance(request, OffsetFetchRequest):
            fetched = [
                OffsetFetchResponsePartition(partition_index=index, committed_offset=7, error_code=code)
                for index, code in enumerate(codes)
            ]
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=fetched)])
        committed = [
            OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes)
        ]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=committed)])


def admin(*codes: tuple[ErrorCode, ErrorCode]) -> GroupAdmin:
    return GroupAdmin(cast("Any", Coordinator(*codes)), 10.0)


NONE, DENIED, MOVED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NOT_COORDINATOR


def test_an_offset_that_cannot_be_read_is_not_left_out() -> None:
    assert admin((NONE, NONE)).offsets("g") == {("t", 0): 7, ("t", 1): 7}
    with pytest.raises(Unanswered, match="the offset of g in t-1 cannot be read: TOPIC_AUTHORIZATION_FAILED"):
        admin((NONE, DENIED)).offsets("g")


def test_a_commit_is_sent_again_whichever_partition_says_so() -> None:
    offsets = {("t", 0): 1, ("t", 1): 1}
    assert admin((DENIED, MOVED), (NONE, NONE)).commit("g", offsets) == []
    assert admin((NONE, DENIED)).commit("g", offsets) == ["t-1 keeps its offset: TOPIC_AUTHORIZATION_FAILED"]


def test_a_lag_without_an_offset_or_an_end_is_none() -> None:
    assert (lag_of(None, 3), lag_of(3, None), lag_of(1, 3), lag_of(5, 3)) == (None, None, 2, -2)
