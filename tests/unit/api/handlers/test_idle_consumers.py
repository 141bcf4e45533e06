"""Fetch sessions of consumers with many partitions: a fetch reads those with news, and answers as if it read all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.api.request import fetch_sessions
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.server.broker import Broker
from tests.support.loop import until
from tests.unit.api.conftest import Asker, scene

COUNT = 4
NEVER_OVER_MS = 2**31 - 1
BATCH = bytes(build_batch([NewRecord(None, b"value", timestamp=1)]))
VERSION = 13
Tell = Callable[..., None]


@pytest.fixture(autouse=True)
def idle_from_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "IDLE_MIN", 1)


class Consumer:
    """All partitions of topic t in a session, each from the beginning."""

    def __init__(self, broker: Any, asker: Asker, isolation_level: int = 0) -> None:
        self._broker, self._asker = broker, asker
        self.isolation_level = isolation_level
        self._topic_id = broker._running.replica_manager.by_name["t"].topic_id
        self._session = {"session_epoch": 0}
        self.offsets = dict.fromkeys(range(COUNT), 0)
        self.changed = set(range(COUNT))
        self.forgotten: list[int] = []

    def request(self, **how: Any) -> FetchRequest:
        wanted = [
            FetchPartition(partition=i, fetch_offset=self.offsets[i], partition_max_bytes=1 << 20)
            for i in sorted(self.changed)
        ]
        gone = [ForgottenTopic(topic_id=self._topic_id, partitions=self.forgotten)] if self.forgotten else []
        named = [FetchTopic(topic_id=self._topic_id, partitions=wanted)] if wanted else []
        self.changed, self.forgotten = set(), []
        how = {"max_wait_ms": 0, "min_bytes": 1, "isolation_level": self.isolation_level} | how
        return FetchRequest(topics=named, forgotten_topics_data=gone, **self._session, **how)

    async def fetch(self, **how: Any) -> dict[int, tuple[int, int, int, int, int]]:
        """By partition: error, high watermark, last stable offset, start and the bytes of records."""
        answer = await self._asker.ask(self.request(**how), VERSION)
        assert not answer.error_code
        if self._session["session_epoch"]:
            self._session["session_epoch"] += 1
        else:
            self._session = {"session_id": answer.session_id, "session_epoch": 1}
        found = {}
        for data in (each for topic in answer.responses for each in topic.partitions):
            index, size_bytes = data.partition_index, len(data.records or b"")
            if size_bytes:
                self.offsets[index] += size_bytes // len(BATCH)
                self.changed.add(index)
            found[index] = (
                data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset, size_bytes
            )  # fmt: skip
        return found

    async def settle(self) -> None:
        """Fetch until there is no news, and once more, so that all partitions are idle."""
        while await self.fetch():
            pass
        await self.fetch()


async def begin(broker: Any, asker: Asker, **topic: str) -> tuple[Consumer, list[Any]]:
    await broker._running.topic_admin.create("t", COUNT, topic)
    partitions = [broker._running.replica_manager.partition("t", index) for index in range(COUNT)]
    return Consumer(broker, asker), partitions


def append(partition: Any) -> None:
    partition.append(memoryview(bytearray(BATCH)), 1, 9)


def test_a_partition_without_news_is_not_read(tell: Tell) -> None:
    async def story(asker: Asker, broker: Any) -> None:
        consumer, partitions = await begin(broker, asker)
        await consumer.settle()
        assert all(each.delayed_operations for each in partitions)
        append(partitions[2])
        assert not partitions[2].delayed_operations
        assert await consumer.fetch() == {2: (0, 1, 1, 0, len(BATCH))}
        assert await consumer.fetch() == {} and partitions[2].delayed_operations

    tell(story)


@pytest.mark.parametrize("news", ["append", "start", "leader", "roll"])
def test_news_ends_the_wait(tell: Tell, news: str) -> None:
    async def story(asker: Asker, broker: Any) -> None:
        consumer, partitions = await begin(broker, asker)
        append(partitions[1])
        await consumer.settle()
        waiting = asyncio.ensure_future(consumer.fetch(max_wait_ms=NEVER_OVER_MS, min_bytes=1 << 19))
        session = broker._running.fetch_sessions._by_id[consumer._session["session_id"]]
        await until(lambda: session.waiting)
        if news == "append":
            partitions[1].log.roll(1)
            append(partitions[1])
            append(partitions[1])
            assert await waiting == {1: (0, 3, 3, 0, 2 * len(BATCH))}
        elif news == "leader":
            partitions[1].retire()
            broker._running.replica_manager.by_name["t"].partitions.pop(1)
            assert (await waiting)[1][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif news == "start":
            partitions[1].delete_records_before(1)
            broker._running._answer_delayed_requests()
            assert await waiting == {1: (0, 1, 1, 1, 0)}
        else:
            broker._running._answer_delayed_requests()
            assert await waiting == {}

    tell(story)


def test_bytes_of_several_partitions_count_together(tell: Tell) -> None:
    async def story(asker: Asker, broker: Any) -> None:
        consumer, partitions = await begin(broker, asker)
        await consumer.settle()
        waiting = asyncio.ensure_future(consumer.fetch(max_wait_ms=NEVER_OVER_MS, min_bytes=3 * len(BATCH)))
        session = broker._running.fetch_sessions._by_id[consumer._session["session_id"]]
        await until(lambda: session.waiting)
        (poll,) = session.waiting
        append(partitions[0])
        append(partitions[3])
        assert not poll.woken
        append(partitions[0])
        assert {index: found[-1] for index, found in (await waiting).items()} == {0: 2 * len(BATCH), 3: len(BATCH)}

    tell(story)


@pytest.mark.parametrize("end", ["forget", "close"])
def test_a_session_leaves_nothing_behind(tell: Tell, end: str) -> None:
    async def story(asker: Asker, broker: Any) -> None:
        consumer, partitions = await begin(broker, asker)
        await consumer.settle()
        if end == "forget":
            consumer.forgotten = [1]
            await consumer.fetch()
            assert [bool(each.delayed_operations) for each in partitions] == [True, False, True, True]
        consumer._session["session_epoch"] = -1
        await asker.ask(consumer.request(), VERSION)
        assert not any(each.delayed_operations for each in partitions)

    tell(story)


def test_a_session_that_is_replaced_answers_the_fetch_that_waits(tell: Tell) -> None:
    async def story(asker: Asker, broker: Any) -> None:
        consumer, _ = await begin(broker, asker)
        await consumer.settle()
        waiting = asyncio.ensure_future(consumer.fetch(max_wait_ms=NEVER_OVER_MS))
        sessions = broker._running.fetch_sessions
        await until(lambda: sessions._by_id[consumer._session["session_id"]].waiting)
        sessions._close(consumer._session["session_id"])
        assert await waiting == {}

    tell(story)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["append", "delete", "roll", "open", "end", "seek"]), st.integers(0, COUNT - 1)),
        st.tuples(st.just("fetch"), st.just(0)),
        st.tuples(st.just("isolation"), st.sampled_from([0, 1])),
    ),
    max_size=40,
)


async def history(broker: Any, asker: Asker, steps: list[tuple[str, int]]) -> list[Any]:
    """The answers to all fetches."""
    consumer, partitions = await begin(broker, asker)
    answers: list[Any] = []
    sequences = Counter[int]()
    for step, value in steps:
        match step:
            case "append":
                append(partitions[value])
            case "delete":
                partitions[value].delete_records_before(-1)
            case "roll":
                partitions[value].log.roll(1)
            case "open":
                producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequences[value]}
                sequences[value] += 1
                batch = build_batch([NewRecord(None, b"value", timestamp=1)], transactional=True, **producer)
                partitions[value].append(memoryview(batch), 1, 9, trusted=True)
            case "end":
                partitions[value].append_marker(1, 0, 0, True, 1)
            case "seek":
                consumer.offsets[value] = partitions[value].log.start_offset
                consumer.changed.add(value)
            case "isolation":
                consumer.isolation_level = value
            case _:
                answers.append(await consumer.fetch())
    for _ in range(3):
        answers.append(await consumer.fetch())
    return answers


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_answers_are_those_of_a_session_that_reads_all(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    answers: list[list[Any]] = []

    async def story(asker: Asker, broker: Any) -> None:
        answers.append(await history(broker, asker, steps))

    for idle_min in (1, COUNT + 1):
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(fetch_sessions, "IDLE_MIN", idle_min)
            unverified = {"transaction_partition_verification_enable": False}
            broker = Broker(data_dir=tmp_path_factory.mktemp("data"), port=0, **unverified)
            uvloop.run(scene(broker, story))
    assert answers[0] == answers[1]
