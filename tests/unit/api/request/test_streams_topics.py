"""Internal topics of groups of Kafka Streams: created once at a time, and not again at once after an error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.api.handlers.streams_groups import StreamsGroupApi
from kafkalite.api.request import streams_topics
from kafkalite.api.request.streams_topics import StreamsTopics
from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.streams.configured_topology import Fault, Status
from kafkalite.coordinator.group.streams.streams_heartbeat import StreamsHeartbeatResult
from kafkalite.coordinator.group.streams.topology import InternalTopic
from kafkalite.protocol.messages.topics import CreatableTopicResult
from tests.support.manual_clock import ManualClock

A, B = InternalTopic("a", 2, 3, (("cleanup.policy", "compact"),)), InternalTopic("b", 2)


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked: list[Any] = []
        self.errors: dict[str, str | None] = {}
        self.fault: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        runtime: Any = SimpleNamespace(loop=asyncio.get_running_loop(), clock=self.clock)
        self.topics = StreamsTopics(runtime, self.create)

    async def create(self, topics: Any, context: Any) -> list[CreatableTopicResult]:
        self.asked.append([each.name for each in topics])
        self.wanted = topics
        await self.may_answer.wait()
        if self.fault is not None:
            raise self.fault
        return [
            CreatableTopicResult(
                name=each.name,
                error_code=ErrorCode.INVALID_CONFIG if each.name in self.errors else 0,
                error_message=self.errors.get(each.name),
            )
            for each in topics
        ]

    async def ask(self, *topics: InternalTopic) -> None:
        context: Any = None
        self.topics.create(topics, context, 10_000)
        await asyncio.sleep(0)


def test_a_topic_is_created_once_at_a_time() -> None:
    async def story() -> None:
        scene = Scene()
        scene.may_answer.clear()
        await scene.ask(A)
        await scene.ask(A, B)
        assert scene.asked == [["a"], ["b"]]
        scene.may_answer.set()
        await scene.topics.close()
        await scene.ask(A)
        assert scene.asked[2:] == [["a"]]
        await scene.topics.close()
        [topic] = scene.wanted
        assert (topic.num_partitions, topic.replication_factor, topic.configs[0].name) == (2, 3, "cleanup.policy")
        await scene.ask(B)
        assert scene.wanted[0].replication_factor == -1
        await scene.topics.close()

    asyncio.run(story())


def test_an_error_is_kept_for_a_time() -> None:
    async def story() -> None:
        scene = Scene()
        scene.errors = {"a": "why", "b": None}
        await scene.ask(A, B)
        await scene.topics.close()
        assert scene.topics.errors_of(["a", "b", "c"]) == {"a": "why", "b": "INVALID_CONFIG"}
        await scene.ask(A)
        assert scene.asked == [["a", "b"]]
        scene.clock.advance(10_000)
        assert scene.topics.errors_of(["a"]) == {}
        scene.errors = {}
        scene.fault = RuntimeError("broken")
        await scene.ask(A)
        await scene.topics.close()
        assert scene.topics.errors_of(["a"]) == {"a": "broken"}

    asyncio.run(story())


def test_errors_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        scene = Scene()
        scene.errors = dict.fromkeys("abcd", "why")
        for name in "abcd":
            await scene.ask(InternalTopic(name))
            scene.clock.advance(1)
        await scene.topics.close()
        assert list(scene.topics.errors_of("abcd")) == ["b", "c", "d"]

    monkeypatch.setattr(streams_topics, "ERRORS_MAX", 3)
    asyncio.run(story())


def test_a_client_without_the_right_creates_none() -> None:
    async def story() -> None:
        scene = Scene()
        nothing: Any = None
        api = StreamsGroupApi(nothing, nothing, nothing, nothing, scene.topics)
        result = StreamsHeartbeatResult(
            statuses=(Fault(Status.MISSING_INTERNAL_TOPICS, "Internal topics are missing: a, b"),),
            missing_topics=(A, B),
        )
        context: Any = SimpleNamespace(
            may_cluster=lambda *operations, is_logged: False, may=lambda operation, type_, name: name != "b"
        )
        [status] = api._respond(context, result).status or ()
        assert status.status_detail == "Internal topics are missing: a, b; Unauthorized to CREATE on topics b."
        assert not scene.asked
        context.may = lambda operation, type_, name: True
        [status] = api._respond(context, result).status or ()
        assert status.status_detail == "Internal topics are missing: a, b"
        await scene.topics.close()
        assert scene.asked == [["a", "b"]]

    asyncio.run(story())
