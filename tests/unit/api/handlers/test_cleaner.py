"""RunCleaner, and what DescribeLogDirs tells of compaction: asked by raw frames, good ones and hostile ones."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from kafkalite.api.handlers.cleaner import RUNS_MAX, cleaner_pass, log_cleaning
from kafkalite.cleaner.job.job import CleanStats
from kafkalite.cleaner.schedule import RunOutcome
from kafkalite.cleaner.status import CleaningState, PartitionCleaning
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.apis import APIS, SERVED
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.append_at import APPEND_AT_KEY
from kafkalite.protocol.messages.broker_report import BROKER_REPORT_KEY
from kafkalite.protocol.messages.cleaner import RUN_CLEANER_KEY, CleanerPass, RunCleanerRequest
from kafkalite.protocol.messages.log_dirs import (
    CLEANER_IS_OFF,
    CLEANING_REPORTED,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    LogCleaning,
)
from kafkalite.protocol.messages.metadata import ApiVersionsRequest
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.bound_apis import replace_parts
from tests.support.loop import until
from tests.support.wait import DEADLINE_S

STATS = CleanStats(bytes_read=100, bytes_kept=10, records_read=9, records_kept=1, map_utilization=0.25, seconds=1.5)


class Cleaner:
    """In the place of the broker's own one: keeps what it is asked for, and is done when the test says so."""

    def __init__(self, at_once: str | None = None) -> None:
        self.asked: list[tuple[str, list[int], bool]] = []
        self.at_once = at_once
        self.dones: list[Callable[[list[RunOutcome]], None]] = []

    def run_now(self, topic: str, partitions: list[int], roll: bool, done: Callable[[list[RunOutcome]], None]) -> None:
        self.asked.append((topic, list(partitions), roll))
        if self.at_once is not None:
            done([RunOutcome(topic, index, why_not=self.at_once) for index in partitions])
        else:
            self.dones.append(done)


def replace_cleaner(broker: Any, **how: Any) -> Cleaner:
    cleaner = Cleaner(**how)
    replace_parts(broker._running, cleaner=lambda: cleaner)
    return cleaner


async def create(asker: Any, name: str, policy: str = "compact", partition_count: int = 3) -> None:
    config = CreatableTopicConfig(name="cleanup.policy", value=policy)
    wanted = [CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1, configs=[config])]
    answer = await asker.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 5)
    assert answer.topics[0].error_code == 0


async def run(asker: Any, topic: str = "users", **how: Any) -> Any:
    how.setdefault("partitions", None)
    how.setdefault("timeout_ms", 9000)
    return await asker.ask(RunCleanerRequest(topic=topic, **how), 0)


def test_nobody_is_told_of_it(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        listed = {one.api_key for one in (await asker.ask(ApiVersionsRequest(), 2)).api_keys}
        assert listed == set(APIS) and RUN_CLEANER_KEY not in listed
        assert set(SERVED) - set(APIS) == {RUN_CLEANER_KEY, BROKER_REPORT_KEY, APPEND_AT_KEY} and max(APIS) < 100

    tell(story, metrics_listener="127.0.0.1:0")  # with telemetry


def test_a_run_is_queued_and_answered_at_once(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        cleaner = replace_cleaner(broker)
        answer = await run(asker)
        assert cleaner.asked == [("users", [0, 1, 2], False)]
        assert (answer.error_code, answer.error_message) == (0, None)
        assert [(one.partition_index, one.error_code, one.done) for one in answer.partitions] == [
            (index, 0, None) for index in range(3)
        ]
        await run(asker, partitions=[2, 0, 2], rolls=True)
        assert cleaner.asked[1] == ("users", [0, 2], True)
        assert (await run(asker, partitions=[])).partitions == []
        for done in cleaner.dones:  # nobody waits any more, which is no harm
            done([])

    tell(story)


def test_who_waits_hears_what_came_of_each(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        cleaner = replace_cleaner(broker)
        asked = asyncio.ensure_future(run(asker, waits=True))
        await until(lambda: cleaner.dones)
        assert not asked.done()
        cleaner.dones[0](
            [
                RunOutcome("users", 0, stats=STATS),
                RunOutcome("users", 1, why_not="the log is empty"),
                RunOutcome("users", 2, error="a batch is damaged"),
            ]
        )
        first, second, third = (await asked).partitions
        assert (first.error_code, first.done) == (0, cleaner_pass(STATS))
        assert (second.error_code, second.message, second.done) == (0, "the log is empty", None)
        assert (third.error_code, third.message, third.done) == (-1, "a batch is damaged", None)

    tell(story)


def test_what_is_done_at_once_is_told_at_once(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        replace_cleaner(broker, at_once="nothing was written")
        for waits in (True, False):
            answer = await run(asker, waits=waits)
            assert [one.message for one in answer.partitions] == ["nothing was written"] * 3

    tell(story)


def test_a_wait_has_an_end(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        cleaner = replace_cleaner(broker)
        for timeout_ms in (0, -5, -(2**31)):
            answer = await run(asker, waits=True, timeout_ms=timeout_ms)
            assert {one.error_code for one in answer.partitions} == {ErrorCode.REQUEST_TIMED_OUT}
            assert "it continues; see kafkalite cleaner status" in answer.partitions[0].message
        for done in cleaner.dones:
            done([RunOutcome("users", 0, stats=STATS)])  # too late for anybody
        assert (await run(asker, topic="none")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    tell(story)


def test_runs_do_not_pile_up(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        cleaner = replace_cleaner(broker)
        for _ in range(RUNS_MAX):
            assert (await run(asker)).error_code == 0
        answer = await run(asker)
        assert answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED and "not done yet" in answer.error_message
        cleaner.dones[0]([])
        assert (await run(asker)).error_code == 0

    tell(story)


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ({"topic": "none"}, 3, "topic none not found"),
        ({"topic": "n\x1b[2J"}, 3, r"topic 'n\x1b[2J' not found"),
        ({"topic": "old"}, 44, "cleanup.policy of old is 'delete'; set it to 'compact' (or 'compact,delete')"),
        ({"partitions": [1, 3, -1]}, 3, "users has 3 partitions, counted from 0; there is no -1, 3"),
        ({"partitions": list(range(100_001))}, 42, "100001 partitions: no topic has so many"),
        (
            {"partitions": list(range(99))},
            3,
            "users has 3 partitions, counted from 0; there is no 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ...",
        ),
    ],
)
def test_what_cannot_be_says_how_to_mend_it(
    tell: Callable[..., None], how: dict[str, Any], code: int, message: str
) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        await create(asker, "old", "delete")
        cleaner = replace_cleaner(broker)
        answer = await run(asker, **how)
        assert (answer.error_code, answer.error_message, answer.partitions) == (code, message, [])
        assert cleaner.asked == []

    tell(story)


def test_a_cleaner_that_is_off_says_so(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        answer = await run(asker)
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert answer.error_message == "log.cleaner.enable is false; set it to true and restart the broker"
        told = await asker.ask(DescribeLogDirsRequest(topics=None, describe_cleaning=True), 4)
        assert told.cleaning == CLEANER_IS_OFF

    tell(story, log_cleaner_enable=False)


def test_a_parked_run_holds_nothing_up(tell: Callable[..., None]) -> None:
    """Neither other connections, nor the broker's stop, nor the client that goes."""

    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        cleaner = replace_cleaner(broker)
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        request = RunCleanerRequest(topic="users", partitions=None, waits=True, timeout_ms=2**31 - 1)
        writer.write(request_frame(request, 0, 1, "waits"))
        await until(lambda: cleaner.dones)
        assert (await asker.ask(ApiVersionsRequest(), 2)).error_code == 0
        writer.close()
        await until(lambda: sum(len(each.connections) for each in broker._running.server.processors) <= 1)
        cleaner.dones[0]([RunOutcome("users", index) for index in range(3)])
        assert not broker._running.apis.handler_of("RunCleaner").__self__._runs

    tell(story)


@pytest.mark.thorough
def test_a_real_run(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users", partition_count=2)
        for number in range(20):
            batch = build_batch([NewRecord(b"one", b"%d" % number * 50), NewRecord(b"two", b"x")])
            data = [PartitionProduceData(index=0, records=memoryview(batch))]
            topics = [TopicProduceData(name="users", partition_data=data)]
            answer = await asker.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 8)
            assert answer.responses[0].partition_responses[0].error_code == 0
        first, second = (await run(asker, waits=True, rolls=True)).partitions
        assert (first.error_code, first.message, first.done.records_kept) == (0, None, 2)
        assert (second.error_code, second.done, second.message) == (0, None, "the log is empty")
        told = await asker.ask(DescribeLogDirsRequest(topics=None, describe_cleaning=True), 4)
        assert told.cleaning == CLEANING_REPORTED
        one = told.results[0].topics[0].partitions[0].cleaning
        assert (one.state, one.runs, one.dirty_bytes, one.error) == ("idle", 1, 0, None)
        assert one.last.records_read == 40 and one.first_dirty_offset == 40

    tell(story, log_segment_bytes=500, log_cleaner_backoff_ms=3_600_000)  # by then the cleaner would begin a run itself


# seeing


def test_who_does_not_ask_is_answered_as_ever(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        for version in range(5):
            for asks in (False, True) if version < 2 else (False,):
                answer = await asker.ask(DescribeLogDirsRequest(topics=None, describe_cleaning=asks), version)
                assert answer.cleaning == 0
                assert all(one.cleaning is None for topic in answer.results[0].topics for one in topic.partitions)

    tell(story)


def test_only_what_is_compacted_is_told_of(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        await create(asker, "both", "compact,delete")
        await create(asker, "old", "delete")
        topics = [DescribableLogDirTopic(topic=name, partitions=[0, 2, 9]) for name in ("users", "both", "old", "none")]
        for version in (2, 3, 4):
            answer = await asker.ask(DescribeLogDirsRequest(topics=topics, describe_cleaning=True), version)
            found = {
                (topic.name, one.partition_index): one.cleaning
                for topic in answer.results[0].topics
                for one in topic.partitions
            }
            assert {key for key, one in found.items() if one is not None} == {
                ("users", 0), ("users", 2), ("both", 0), ("both", 2)
            }  # fmt: skip
            assert found["users", 0].why_not == "the log is empty"

    tell(story)


def test_everything_that_is_known_travels() -> None:
    numbers = {field.name: number for number, field in enumerate(fields(CleanStats), start=1)}
    told = cleaner_pass(CleanStats(**numbers))
    of_another_unit = {"map_utilization", "map_seconds", "seconds", "throttled_seconds"}
    assert all(getattr(told, name) == number for name, number in numbers.items() if name not in of_another_unit)
    assert len(CleanerPass.__fields__) == len(numbers)
    assert told.map_utilization_ppm == numbers["map_utilization"] * 1_000_000
    for name, ms in (
        ("map_seconds", told.map_ms),
        ("seconds", told.total_ms),
        ("throttled_seconds", told.throttled_ms),
    ):
        assert ms == numbers[name] * 1000
    row = PartitionCleaning("t", 1, CleaningState.UNCLEANABLE, 0.5, 1, 2, 3, 4, 5, "why", 6, STATS, 7, "error")
    one = log_cleaning(row)
    assert (one.state, one.dirty_ratio_ppm, one.last) == ("uncleanable", 500_000, cleaner_pass(STATS))
    same = set(LogCleaning.__fields__) - {"state", "dirty_ratio_ppm", "last"}
    assert all(getattr(one, name) == getattr(row, name) for name in same)
    assert len(PartitionCleaning._fields) == len(LogCleaning.__fields__) + len(("topic", "partition"))


# hostile frames


def test_a_frame_that_is_cut_off_anywhere_closes_its_connection(tell: Callable[..., None]) -> None:
    whole = request_frame(RunCleanerRequest(topic="users", partitions=[0, 1], waits=True, timeout_ms=1), 0, 7, "me")[4:]

    async def story(asker: Any, broker: Any) -> None:
        await create(asker, "users")
        cleaner = replace_cleaner(broker)
        for length in range(1, len(whole)):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(struct.pack(">i", length) + whole[:length])
            async with asyncio.timeout(DEADLINE_S):
                assert await reader.read() == b""
            writer.close()
        assert cleaner.asked == []
        assert (await run(asker)).error_code == 0

    tell(story)


@pytest.mark.parametrize(
    "count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x08", b"\x80" * 12], ids=bytes.hex
)
def test_a_promise_of_many_partitions_costs_nothing(tell: Callable[..., None], count: bytes) -> None:
    async def story(asker: Any, broker: Any) -> None:
        cleaner = replace_cleaner(broker)
        header = struct.pack(">hhih", RUN_CLEANER_KEY, 0, 1, -1) + b"\0"
        frame = header + b"\x06users" + count + b"\0\0\0\1" * 3
        await asker.send(struct.pack(">i", len(frame)) + frame)
        assert await asker.is_closed()
        assert cleaner.asked == []

    tell(story)


def test_another_version_is_not_served(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        frame = struct.pack(">hhih", RUN_CLEANER_KEY, 1, 1, -1) + b"\0\0\0\0"
        await asker.send(struct.pack(">i", len(frame)) + frame)
        assert await asker.is_closed()

    tell(story)
