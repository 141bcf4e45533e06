"""DescribeTopicPartitions: a client that follows the cursors sees each partition once, whatever the size of a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

COUNTS = {"b": 5, "a": 1, "c": 3, "B": 2}


def described(names: list[str], limit: int, cursor: Cursor | None) -> DescribeTopicPartitionsRequest:
    topics = [TopicRequest(name=name) for name in names]
    return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 10, 11, 12, 2000])
@pytest.mark.parametrize("names", [["c", "b", "B", "a"], []], ids=["named", "all"])
def test_pages_follow_each_other_without_a_gap(tell: Callable[..., None], names: list[str], limit: int) -> None:
    async def story(asker: Any, broker: Any) -> None:
        made = [CreatableTopic(name=name, num_partitions=n, replication_factor=1) for name, n in COUNTS.items()]
        await asker.ask(CreateTopicsRequest(topics=made), 7)
        seen: list[tuple[str, int]] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            answer = await asker.ask(described(names, limit, cursor), 0)
            page = [(topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions]
            assert 0 < len(page) <= limit
            seen += page
            cursor, pages = answer.next_cursor, pages + 1
        assert seen == [(name, index) for name in sorted(COUNTS) for index in range(COUNTS[name])]
        assert pages == -(-len(seen) // limit)

    tell(story)


def test_a_page_has_no_more_partitions_than_the_broker_allows(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await asker.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=9, replication_factor=1)]), 7
        )
        answer = await asker.ask(described(["t"], 2000, None), 0)
        assert [one.partition_index for one in answer.topics[0].partitions] == [0, 1, 2, 3]
        assert answer.next_cursor == Cursor(topic_name="t", partition_index=4)

    tell(story, max_request_partition_size_limit=4)


def test_a_cursor_that_points_nowhere_is_refused(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        for names, cursor in ((["t"], ("u", 0)), (["t"], ("t", -1))):
            request = described(names, 10, Cursor(topic_name=cursor[0], partition_index=cursor[1]))
            answer = await asker.ask(request, 0)
            assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]
            assert answer.next_cursor is None
        past_the_end = await asker.ask(described([], 10, Cursor(topic_name="zzz", partition_index=3)), 0)
        assert past_the_end.topics == [] and past_the_end.next_cursor is None

    tell(story)
