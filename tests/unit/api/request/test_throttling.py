"""Clients over their quotas: what they are told, how long their connections rest, and what is exempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.api.dispatch import Dispatcher
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.append_at import AppendAtPartition, AppendAtRequest, AppendAtTopic
from kafkalite.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kafkalite.protocol.messages.entity_configs import (
    AlterClientQuotasRequest,
    AlteredEntity,
    DescribeClientQuotasRequest,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaOperation,
)
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from kafkalite.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.loop import idle
from tests.support.manual_clock import ManualClock

ANONYMOUS = {"user": "ANONYMOUS"}
ASKER = {"client-id": "asker"}


def alteration(entity: dict[str, str | None], **quotas: float | None) -> AlterClientQuotasRequest:
    named = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    ops = [QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()]
    return AlterClientQuotasRequest(entries=[AlteredEntity(entity=named, ops=ops)])


async def set_quota(broker: Any, entity: dict[str, str | None], **quotas: float | None) -> None:
    async with asyncio.timeout(10):
        path = "users/ANONYMOUS" if entity is ANONYMOUS else "clients/asker"
        texts = {key: str(value) for key, value in quotas.items() if value is not None}
        await broker._running.metadata.writes.change_entity_config(path, lambda _: texts)


def produce(size_bytes: int, acks: int = 1) -> ProduceRequest:
    batch = build_batch([NewRecord(None, bytes(size_bytes), timestamp=1)])
    data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def fetch(offset: int = 0, **how: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    settings = {"max_wait_ms": 1, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, **how}
    return FetchRequest(topics=[FetchTopic(topic="t", partitions=[wanted])], **settings)


class Throttled:
    """A broker on a clock that stands still, with a topic, and one client."""

    def __init__(self, asker: Any, broker: Any, clock: ManualClock) -> None:
        self.asker, self.broker, self.clock = asker, broker, clock

    async def ask(self, request: Message, version: int) -> Any:
        return await self.asker.ask(request, version)

    async def rests(self, request: Message, version: int, throttle_ms: int) -> Any:
        """The answer to the next request, which comes when the connection has rested, and not before."""
        pending = asyncio.ensure_future(self.ask(request, version))
        await idle()
        self.clock.advance(throttle_ms - 1)
        await idle()
        assert not pending.done()
        self.clock.advance(1)
        return await pending


@pytest.fixture
def throttled(tell: Callable[..., None]) -> Callable[..., None]:
    def run(story: Callable[[Throttled], Any], **settings: Any) -> None:
        clock = ManualClock()

        async def told(asker: Any, broker: Any) -> None:
            await asker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 1)
            await story(Throttled(asker, broker, clock))

        tell(told, clock=clock, **settings)

    return run


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_a_producer_is_answered_at_once_and_then_rests(throttled: Callable[..., None], version: int) -> None:
    async def story(it: Throttled) -> None:
        for _ in range(3):  # the fast path knows it
            assert (await it.ask(produce(1_000), version)).throttle_time_ms == 0
        await set_quota(it.broker, ASKER, producer_byte_rate=100)
        assert (await it.ask(produce(700), version)).throttle_time_ms == 0
        answer = await it.ask(produce(700), version)
        assert answer.responses[0].partition_responses[0].base_offset == 4  # taken nevertheless
        throttle_ms = answer.throttle_time_ms
        assert 5_000 < throttle_ms < 9_000
        metadata = await it.rests(MetadataRequest(topics=[]), 9, throttle_ms)
        assert metadata.throttle_time_ms == 0
        await set_quota(it.broker, ASKER)
        assert (await it.ask(produce(100_000), version)).throttle_time_ms == 0
        assert {type(each.handler) for each in it.broker.server.server.processors} == {Dispatcher}

    throttled(story)


def test_fast_paths_are_taken_within_quotas_and_count_as_the_long_way(
    throttled: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(it: Throttled) -> None:
        await set_quota(it.broker, ASKER, producer_byte_rate=1e9, consumer_byte_rate=1e9)
        await it.ask(produce(1_000), 9)  # learnt
        first = await it.ask(fetch(), 12)
        running = it.broker._running
        produced, fetched = (next(running._quotas.counted(key)) for key in ("producer_byte_rate", "consumer_byte_rate"))
        now_ms = it.clock.monotonic_ms()
        of_produce, of_fetch = produced.rate.per_second(now_ms), fetched.rate.per_second(now_ms)
        monkeypatch.setattr(Dispatcher, "handle", lambda *_: pytest.fail("the long way"))
        for _ in range(4):
            assert (await it.ask(produce(1_000), 9)).throttle_time_ms == 0
        again = await it.ask(fetch(), 12)
        monkeypatch.undo()
        assert produced.rate.per_second(now_ms) == pytest.approx(5 * of_produce)
        sizes = [len(each.responses[0].partitions[0].records) for each in (first, again)]
        assert fetched.rate.per_second(now_ms) == pytest.approx(of_fetch * (1 + sizes[1] / sizes[0]), rel=0.1)

    throttled(story)


def test_a_producer_without_answers_rests_as_well(throttled: Callable[..., None]) -> None:
    async def story(it: Throttled) -> None:
        await set_quota(it.broker, ANONYMOUS, producer_byte_rate=100)
        frame = request_frame(produce(2_000, acks=0), 7, 99, "asker")
        await it.asker.send(frame)
        await it.rests(MetadataRequest(topics=[]), 9, (len(frame) - 4) * 1000 // 100 - 10_000)

    throttled(story)


def test_a_mirrors_batches_count_as_those_of_a_producer(throttled: Callable[..., None]) -> None:
    def append(offset: int) -> AppendAtRequest:
        batch = build_batch([NewRecord(None, bytes(700), timestamp=1)], base_offset=offset)
        data = AppendAtPartition(index=0, end_offset=offset, records=memoryview(batch))
        return AppendAtRequest(timeout_ms=1000, topics=[AppendAtTopic(name="t", partitions=[data])])

    async def story(it: Throttled) -> None:
        await set_quota(it.broker, ASKER, producer_byte_rate=100)
        assert (await it.ask(append(0), 0)).throttle_time_ms == 0
        answer = await it.ask(append(1), 0)
        assert answer.topics[0].partitions[0].end_offset == 2
        assert 4_000 < answer.throttle_time_ms < 9_000
        await it.rests(MetadataRequest(topics=[]), 9, answer.throttle_time_ms)

    throttled(story)


def test_another_client_id_on_the_connection_is_another_client(throttled: Callable[..., None]) -> None:
    async def story(it: Throttled) -> None:
        await set_quota(it.broker, ASKER, producer_byte_rate=1)
        for client_id in ("other", None, "asker2"):
            await it.asker.send(request_frame(produce(5_000, acks=0), 7, 99, client_id))
        assert (await it.ask(MetadataRequest(topics=[]), 9)).throttle_time_ms == 0

    throttled(story)


@pytest.mark.parametrize("how", [{}, {"session_epoch": 0}, {"min_bytes": 0}])
def test_a_fetch_over_the_quota_is_empty(throttled: Callable[..., None], how: dict[str, int]) -> None:
    async def story(it: Throttled) -> None:
        for _ in range(4):
            await it.ask(produce(1_000), 9)
        assert len((await it.ask(fetch(**how), 12)).responses[0].partitions[0].records) > 4_000
        await set_quota(it.broker, ASKER, consumer_byte_rate=250)
        answer = await it.ask(fetch(**how), 12)
        assert answer.throttle_time_ms == 0
        assert 0 < len(answer.responses[0].partitions[0].records) <= 2_500  # ten seconds of it
        late = await it.ask(fetch(**how), 12)
        assert late.throttle_time_ms > 0 and not late.responses and late.session_id == 0
        assert len(it.broker.server.fetch_sessions) <= 2
        await it.rests(MetadataRequest(topics=[]), 9, late.throttle_time_ms)

    throttled(story)


def test_a_session_knows_nothing_of_an_answer_that_was_left_out(throttled: Callable[..., None]) -> None:
    async def story(it: Throttled) -> None:
        for _ in range(2):
            await it.ask(produce(1_000), 9)
        opened = await it.ask(fetch(session_epoch=0, max_bytes=1_200), 12)
        session_id = opened.session_id
        assert session_id and opened.responses
        await set_quota(it.broker, ASKER, consumer_byte_rate=50)
        await it.ask(fetch(), 12)
        again = FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=1)
        throttled_one = await it.ask(again, 12)
        assert throttled_one.throttle_time_ms > 0
        assert throttled_one.session_id == session_id and not throttled_one.responses
        await set_quota(it.broker, ASKER)
        it.clock.advance(throttled_one.throttle_time_ms)
        again.session_epoch = 2
        answer = await it.ask(again, 12)
        assert answer.error_code == 0 and answer.responses[0].partitions[0].records

    throttled(story)


@pytest.mark.parametrize("how", [{}, {"session_epoch": 0}])
def test_a_batch_larger_than_any_quota_goes_when_nothing_else_has(
    throttled: Callable[..., None], how: dict[str, int]
) -> None:
    async def story(it: Throttled) -> None:
        await it.ask(produce(10_000), 9)
        await set_quota(it.broker, ASKER, consumer_byte_rate=1)
        for _ in range(2):
            answer = await it.ask(fetch(**how), 12)
            assert answer.responses[0].partitions[0].records and answer.throttle_time_ms == 0
            late = await it.ask(fetch(**how), 12)
            assert late.throttle_time_ms > 10_000 and not late.responses
            it.clock.advance(late.throttle_time_ms)

    throttled(story, log_retention_ms=-1)


def test_followers_are_exempt(throttled: Callable[..., None]) -> None:
    async def story(it: Throttled) -> None:
        await it.ask(produce(5_000), 9)
        await set_quota(it.broker, ANONYMOUS, consumer_byte_rate=1, request_percentage=0)
        answer = await it.ask(fetch(replica_id=5), 12)
        assert answer.throttle_time_ms == 0
        assert answer.responses

    throttled(story)


def test_time_of_the_broker_is_counted(throttled: Callable[..., None]) -> None:
    async def story(it: Throttled) -> None:
        for _ in range(3):
            await it.ask(produce(10), 9)
        await set_quota(it.broker, ANONYMOUS, request_percentage=0)
        answer = await it.ask(FindCoordinatorRequest(key="g"), 2)
        assert answer.throttle_time_ms == 1_000  # one window, and no more
        answer = await it.rests(produce(10), 9, 1_000)
        assert answer.throttle_time_ms == 1_000
        answer = await it.rests(fetch(), 12, 1_000)
        assert answer.throttle_time_ms == 1_000 and not answer.responses
        await set_quota(it.broker, ANONYMOUS, request_percentage=1_000_000)
        it.clock.advance(1_000)
        for _ in range(3):
            assert (await it.ask(produce(10), 9)).throttle_time_ms == 0
        assert (await it.ask(fetch(), 12)).throttle_time_ms == 0
        counted = next(it.broker._running._quotas.counted("request_percentage"))
        assert counted.rate.per_second(it.clock.monotonic_ms()) > 0

    throttled(story)


class Queue:
    """One member of a share group that reads `t` from its beginning."""

    def __init__(self, it: Throttled) -> None:
        self.it = it
        self.epoch = 0
        self.topic_id = it.broker._running.replica_manager.by_name["t"].topic_id

    async def join(self) -> Queue:
        await self.it.broker._running.coordinators.offsets_topic.ensure()
        setting = IncrementalAlterableConfig(name="share.auto.offset.reset", value="earliest")
        resource = IncrementalAlterConfigsResource(resource_type=32, resource_name="g", configs=[setting])
        await self.it.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        member_epoch, is_assigned = 0, False
        while not is_assigned:
            names = None if member_epoch else ["t"]
            request = ShareGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=member_epoch, subscribed_topic_names=names
            )
            answer = await self.it.ask(request, 1)
            member_epoch = answer.member_epoch
            is_assigned = answer.assignment is not None and bool(answer.assignment.topic_partitions)
        return self

    def fetch(self, *accepted: int) -> ShareFetchRequest:
        """The next fetch of the session."""
        batches = [AcknowledgementBatch(first_offset=at, last_offset=at, acknowledge_types=[1]) for at in accepted]
        row = ShareFetchPartition(partition_index=0, acknowledgement_batches=batches)
        self.epoch += 1
        return ShareFetchRequest(
            group_id="g", member_id="m", share_session_epoch=self.epoch - 1, max_wait_ms=0, min_bytes=1, max_records=1,
            batch_size=1, topics=[ShareFetchTopic(topic_id=self.topic_id, partitions=[row])],
        )  # fmt: skip

    def held(self) -> list[int]:
        (led,) = self.it.broker._running.apis.shares.used_fetches.shares
        return [run.first for run in led.state.records.runs() if run.lock is not None]


def first_offsets(answer: Any) -> list[int]:
    assert answer.error_code == 0, answer
    rows = [row for topic in answer.responses for row in topic.partitions]
    return [each.first_offset for row in rows for each in row.acquired_records]


def test_a_share_fetch_counts_as_a_fetch_and_acquires_nothing_beyond_the_quota(throttled: Callable[..., None]) -> None:
    async def story(it: Throttled) -> None:
        for _ in range(3):
            await it.ask(produce(1_000), 9)
        queue = await Queue(it).join()
        await set_quota(it.broker, ASKER, consumer_byte_rate=100)
        assert first_offsets(await it.ask(queue.fetch(), 2)) == [0]
        late = await it.ask(queue.fetch(0), 2)
        assert late.throttle_time_ms > 0
        ((row,),) = (topic.partitions for topic in late.responses)
        assert (row.acknowledge_error_code, row.acquired_records) == (0, []), "the acknowledgement is made nevertheless"
        assert queue.held() == [], "what may not be sent is not locked"
        counted = next(it.broker._running._quotas.counted("consumer_byte_rate"))
        assert counted.throttle_times.average_ms(it.clock.monotonic_ms()) == late.throttle_time_ms
        while not first_offsets(late):
            assert late.throttle_time_ms > 0
            late = await it.rests(queue.fetch(), 2, late.throttle_time_ms)
        assert first_offsets(late) == [1] and late.throttle_time_ms == 0

    throttled(story, group_share_assignment_interval_ms=0)


def test_a_share_fetch_that_is_satisfied_by_less_than_the_quota_is_cut(throttled: Callable[..., None]) -> None:
    async def story(it: Throttled) -> None:
        for _ in range(3):
            await it.ask(produce(1_000), 9)
        queue = await Queue(it).join()
        await set_quota(it.broker, ASKER, consumer_byte_rate=220)  # 2,200 bytes in a window of ten seconds
        wide = queue.fetch()
        wide.max_records = 100
        answer = await it.ask(wide, 2)
        assert answer.throttle_time_ms == 0 and len(first_offsets(answer)) < 3

    throttled(story, group_share_assignment_interval_ms=0)


def test_time_of_share_fetches_and_acknowledgements_is_counted(throttled: Callable[..., None]) -> None:
    async def story(it: Throttled) -> None:
        await it.ask(produce(10), 9)
        queue = await Queue(it).join()
        assert first_offsets(await it.ask(queue.fetch(), 2)) == [0]
        await set_quota(it.broker, ANONYMOUS, request_percentage=0)
        batch = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
        row = ShareAcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        topics = [ShareAcknowledgeTopic(topic_id=queue.topic_id, partitions=[row])]
        acknowledge = ShareAcknowledgeRequest(
            group_id="g", member_id="m", share_session_epoch=queue.epoch, topics=topics
        )
        queue.epoch += 1
        answer = await it.ask(acknowledge, 2)
        assert answer.throttle_time_ms == 1_000 and answer.responses[0].partitions[0].error_code == 0
        late = await it.rests(queue.fetch(), 2, 1_000)
        assert late.throttle_time_ms == 1_000 and first_offsets(late) == []

    throttled(story, group_share_assignment_interval_ms=0)


def creation(name: str, partition_count: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def test_partitions_are_refused_while_tokens_are_owed(throttled: Callable[..., None]) -> None:
    async def story(it: Throttled) -> None:
        await set_quota(it.broker, ASKER, controller_mutation_rate=1)
        first = await it.ask(creation("a", 15), 7)
        assert first.topics[0].error_code == 0 and first.throttle_time_ms == 0
        refused = await it.ask(creation("b", 1), 7)
        assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert refused.throttle_time_ms == 4_000
        gone = await it.rests(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 4, 4_000)
        assert gone.responses[0].error_code == 0  # older clients are not refused: they wait
        assert gone.throttle_time_ms == 15_000
        it.clock.advance(15_000)
        checked = creation("b", 100)
        checked.validate_only = True
        assert (await it.ask(checked, 7)).throttle_time_ms == 0
        assert (await it.ask(creation("b", 1), 7)).topics[0].error_code == 0

    throttled(story)


def test_quotas_are_told_as_they_were_set(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        for entity in ({"user": "a*b"}, {"user": None}, {"user": "a*b", "client-id": "c"}, {"ip": "127.0.0.1"}):
            key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
            answer = await asker.ask(alteration(entity, **{key: 1_000_000}), 1)
            assert [each.error_code for each in answer.entries] == [0]
        told = await asker.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
        assert len(told.entries) == 4
        component = QuotaFilterComponent(entity_type="user", match_type=0, match="a*b")
        told = await asker.ask(DescribeClientQuotasRequest(components=[component], strict=True), 0)
        (entry,) = told.entries
        assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("user", "a*b")]
        assert [(each.key, each.value) for each in entry.values] == [("producer_byte_rate", 1_000_000.0)]
        await asker.ask(alteration({"user": "a*b"}, producer_byte_rate=None), 1)
        told = await asker.ask(DescribeClientQuotasRequest(components=[component], strict=True), 0)
        assert told.entries == []

    tell(story)
