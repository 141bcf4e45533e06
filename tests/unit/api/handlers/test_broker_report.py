"""BrokerReport: what the console is told of connections, slow requests, waiting groups, the cluster and a restart."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from kafkalite.api.handlers import broker_report
from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.classic.members import Member
from kafkalite.log.index.sparse_index import TimeIndex
from kafkalite.protocol.messages.broker_report import BrokerReportRequest
from kafkalite.protocol.messages.groups import FindCoordinatorRequest, JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.loop import until


async def report(asker: Any, kind: str, **arguments: Any) -> Any:
    answer = await asker.ask(BrokerReportRequest(kind=kind, arguments=json.dumps(arguments)), 0)
    assert answer.error_code == 0, answer.error_message
    return json.loads(answer.content)


async def write(asker: Any, topic: str) -> None:
    wanted = [CreatableTopic(name=topic, num_partitions=2, replication_factor=1)]
    await asker.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 5)
    data = PartitionProduceData(index=0, records=build_batch([NewRecord(None, b"value", (), 1)]))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    answer = await asker.ask(ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=topics), 7)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_connection_tells_who_it_is_and_what_it_asks(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await report(asker, "connections")  # from now on requests are counted
        await report(asker, "connections")
        [own] = (await report(asker, "connections"))["items"]
        assert own["client_id"] and own["apis"]["BrokerReport"] >= 1
        assert own["is_encrypted"] is False and own["idle_ms"] >= 0
        assert own["connected_ms"] <= broker._running.clock.wall_ms()

    tell(story)


def test_a_connection_is_idle_since_its_own_last_request(tell: Callable[..., None], monkeypatch: Any) -> None:
    now_s = 100.0
    monkeypatch.setattr("kafkalite.api.request.request_watch.monotonic_s", lambda: now_s)

    async def story(asker: Any, broker: Any) -> None:
        nonlocal now_s
        await report(asker, "connections")
        await report(asker, "connections")
        now_s += 3.5  # whatever the clock of the processor says, which moves once a sweep
        [own] = (await report(asker, "connections"))["items"]
        assert own["idle_ms"] == 0

    tell(story)


def test_generations_are_those_of_groups_with_members(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        joined = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        await asker.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        while (await asker.ask(joined, 2)).error_code:  # noqa: ASYNC110 - its topic is being made
            await asyncio.sleep(0)
        assert (await report(asker, "rebalances", generations=True))["generations"] == {"g": 1}
        assert (await report(asker, "rebalances"))["generations"] == {}

    tell(story)


def test_a_slow_request_has_its_client_and_both_sizes(tell: Callable[..., None], monkeypatch: Any) -> None:
    monkeypatch.setattr("kafkalite.api.request.request_watch.SLOW_MS", 0.0)

    async def story(asker: Any, broker: Any) -> None:
        await report(asker, "broker")
        await write(asker, "orders")
        await report(asker, "broker")
        slow = {one["api"]: one for one in (await report(asker, "slow_requests"))["items"]}
        for api in ("CreateTopics", "Produce", "BrokerReport"):
            assert slow[api]["client_id"] and slow[api]["bytes_in"] > 0 and slow[api]["bytes_out"] > 0, api

    tell(story)


def test_after_a_crash_the_segment_with_the_recovery_point_is_read(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        [directory] = (await report(asker, "restart"))["directories"]
        assert (directory["logs"], directory["size_bytes"]) == (0, 0)
        await write(asker, "orders")
        [directory] = (await report(asker, "restart"))["directories"]
        assert (directory["logs"], directory["segments"], directory["all_logs"]) == (1, 1, 2)
        log = broker._running.logs.logs["orders", 0]
        assert directory["size_bytes"] == log.size_bytes > 0

    tell(story)


def test_without_zookeeper_there_is_nothing_that_it_says(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        told = await report(asker, "cluster")
        assert told["zookeeper"] is None and told["broker_epoch"] is None and told["controller_epoch"] is None

    tell(story)


def test_what_is_no_report_is_refused(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        for kind, arguments in (("nonsense", "{}"), ("broker", "["), ("records", '{"places": 1}')):
            answer = await asker.ask(BrokerReportRequest(kind=kind, arguments=arguments), 0)
            assert answer.error_code == ErrorCode.INVALID_REQUEST and answer.error_message

    tell(story)


def test_a_member_was_last_seen_when_its_session_began() -> None:
    member = Member("m", None, "c", "h", 1_000, session_timeout_ms=300, protocols=())
    assert (
        broker_report._last_seen_ms(member.describe(None), Moment(5_000, 90_000)) is None
    )  # it waits for an answer itself
    member.session_deadline_ms = 5_100
    assert broker_report._last_seen_ms(member.describe(None), Moment(5_000, 90_000)) == 89_800


class HeldThread(Executor):
    """Runs its one job in a thread of its own when it is told."""

    def __init__(self) -> None:
        self.job: Callable[[], Any] | None = None
        self._outcome: Future[Any] = Future()

    def submit(self, job: Callable[[], Any], /) -> Future[Any]:  # type: ignore[override]
        self.job = job
        return self._outcome

    def run(self) -> None:
        job, self.job = self.job, None
        assert job is not None

        def work() -> None:
            try:
                self._outcome.set_result(job())
            except BaseException as error:
                self._outcome.set_exception(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()


def test_segments_are_described_while_their_times_are_looked_up(
    tell: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the report and the loop are at the same closed segments: neither unmaps an index of the other."""
    held = HeldThread()

    async def write_segments(asker: Any, broker: Any) -> None:
        await broker._running.topic_admin.create("orders", 1, {"segment.bytes": "150"})
        partition = broker._running.replica_manager.partition("orders", 0)
        for timestamp in (1000, 2000, 3000):
            partition.append(memoryview(build_batch([NewRecord(None, b"value" * 10, (), timestamp)])), 1, 9)

    async def story(asker: Any, broker: Any) -> None:
        running = broker._running
        monkeypatch.setattr(running.apis.fetch.runtime, "readers", held)
        described = asyncio.ensure_future(report(asker, "segments", topic="orders", partition=0))
        await until(lambda: held.job)
        view = TimeIndex.view

        def viewed(index: TimeIndex) -> Any:
            data = view(index)
            if held.job is not None:
                held.run()
            return data

        monkeypatch.setattr(TimeIndex, "view", viewed)
        lookup = running.replica_manager.partition("orders", 0).lookup_of_timestamp(1500)
        while lookup.begin():
            lookup.read()
        assert lookup.found is not None and lookup.found.offset == 1
        items = (await described)["items"]
        assert [one["first_timestamp_ms"] for one in items] == [1000, 2000, 3000]
        assert [one["last_timestamp_ms"] for one in items] == [1000, 2000, 3000]

    tell(write_segments)
    tell(story)
