"""When a fetch is satisfied, on each way that it may go: none of these times is ever over.

Answers of Apache Kafka to the same: `tests/compatibility/differential/cases_fetch.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.delayed_operations import ENOUGH_BYTES
from kafkalite.replication.partition import Partition
from tests.support.loop import until
from tests.support.replication.led_in_broker import REGISTRATIONS, lead
from tests.unit.api.conftest import Crowd
from tests.unit.log.conftest import Disk

NEVER_OVER_MS = 2**31 - 1
PLENTY = 1 << 19
BATCH = bytes(build_batch([NewRecord(None, b"value", timestamp=1)]))
FOLLOWER = 2
VERSIONS = [0, 1, 2, 3, 4, 10, 11, 12, 13, 17]  # from 5 on the second request goes the fast path


def fetch(broker: Any, *offsets: int, replica: int = -1, **how: Any) -> FetchRequest:
    """Of partition 0 at the first offset, of partition 1 at the second, and so on."""
    topic = broker._running.replica_manager.by_name["t"]
    max_bytes = how.pop("partition_max_bytes", 1 << 20)
    wanted = [
        FetchPartition(partition=i, fetch_offset=offset, partition_max_bytes=max_bytes)
        for i, offset in enumerate(offsets)
    ]
    named = [FetchTopic(topic="t", topic_id=topic.topic_id, partitions=wanted)] if wanted else []
    if replica >= 0:
        how["replica_state"] = ReplicaState(replica_id=replica, replica_epoch=REGISTRATIONS[replica])
    return FetchRequest(**{"max_wait_ms": NEVER_OVER_MS, "min_bytes": PLENTY} | how, topics=named)


async def segments(broker: Any, count: int) -> Any:
    """Partition 0 of topic t with a batch in each of so many segments, the last of which is not full."""
    await broker._running.topic_admin.create("t", 2, {"segment.bytes": str(len(BATCH) + 10)})
    partition = broker._running.replica_manager.partition("t", 0)
    for _ in range(count):
        append(partition)
    return partition


def append(partition: Any) -> None:
    partition.append(memoryview(bytearray(BATCH)), 1, 9)


def sizes(answer: Any) -> list[int]:
    return [len(data.records or b"") for topic in answer.responses for data in topic.partitions]


Tell = Callable[..., None]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_nothing_is_waited_for_in_an_older_segment(tell: Tell, version: int, isolation_level: int) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await segments(broker, 3)
        for offset in (0, 1, 0, 1):
            found = await asker.ask(fetch(broker, offset, isolation_level=isolation_level), version)
            assert sizes(found)[0] > 0
        partition = broker._running.replica_manager.partition("t", 0)
        waiting = asyncio.ensure_future(asker.ask(fetch(broker, 2), version))
        await until(lambda: partition.delayed_operations)  # the active segment
        broker._running._answer_delayed_requests()
        await waiting

    tell(story)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_new_segment_ends_the_wait_in_the_former_one(tell: Tell, version: int, isolation_level: int) -> None:
    async def story(asker: Any, broker: Any) -> None:
        partition = await segments(broker, 1)
        for offset in (0, 1, 2, 3):  # with a batch before it in its segment, and at the end; the same request again
            request = fetch(broker, offset, isolation_level=isolation_level)
            waiting = asyncio.ensure_future(asker.ask(request, version))
            await until(lambda: partition.delayed_operations)
            append(partition)
            assert sizes(await waiting)[0] > 0
            assert not partition.delayed_operations

    tell(story)


def test_the_first_batch_of_a_log_ends_no_wait(tell: Tell) -> None:
    async def story(asker: Any, broker: Any) -> None:
        partition = await segments(broker, 0)
        waiting = asyncio.ensure_future(asker.ask(fetch(broker, 0), 11))
        await until(lambda: partition.delayed_operations)
        append(partition)
        (poll,) = partition.delayed_operations
        assert not poll.woken
        append(partition)  # in a new segment
        assert sizes(await waiting) == [len(BATCH)]

    tell(story)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_counts_no_more_than_it_may_send(tell: Tell, version: int) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await broker._running.topic_admin.create("t", 2, {})
        partition = broker._running.replica_manager.partition("t", 0)
        request = fetch(broker, 0, min_bytes=2 * len(BATCH), partition_max_bytes=len(BATCH))
        for _ in range(2):  # the second time on the fast path, if there is one
            waiting = asyncio.ensure_future(asker.ask(request, version))
            await until(lambda: partition.delayed_operations)
            (poll,) = partition.delayed_operations
            for _ in range(4):
                append(partition)
                await until(lambda poll=poll: not poll.woken)
            assert not waiting.done()
            poll.complete()
            assert sizes(await waiting)[0] > 0
            partition.delete_records_before(-1)
            request.topics[0].partitions[0].fetch_offset = partition.high_watermark

    tell(story)


def test_what_does_not_fit_into_one_answer_counts(tell: Tell) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await segments(broker, 1)
        append(broker._running.replica_manager.partition("t", 1))
        half_more = len(BATCH) * 3 // 2
        found = await asker.ask(fetch(broker, 0, 0, min_bytes=half_more, max_bytes=half_more), 11)
        assert sizes(found)[0] == len(BATCH)

    tell(story)


def test_one_partition_that_need_not_wait_answers_for_all(tell: Tell) -> None:
    async def story(asker: Any, broker: Any) -> None:
        partition = await segments(broker, 1)
        other = broker._running.replica_manager.partition("t", 1)
        waiting = asyncio.ensure_future(asker.ask(fetch(broker, 0, 0), 11))
        await until(lambda: partition.delayed_operations)
        append(other)
        assert not waiting.done()
        append(other)
        assert sizes(await waiting) == [len(BATCH), len(BATCH)]
        assert not partition.delayed_operations and not other.delayed_operations
        opened = await asker.ask(fetch(broker, 0, 0, session_epoch=0, max_wait_ms=0), 11)
        session = {"session_id": opened.session_id}
        found = await asker.ask(fetch(broker, session_epoch=1, **session), 11)
        assert sizes(found) == [len(BATCH), len(BATCH)]

    tell(story)


def test_a_follower_does_not_wait_in_an_older_segment_either(tell: Tell) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await segments(broker, 0)
        leader = lead(broker, "t", isr=(FOLLOWER,))
        append(leader)
        crowd = Crowd(broker)
        waiting = crowd.begin(fetch(broker, 0, replica=FOLLOWER), 17)
        await until(lambda: leader.replica_fetches)
        append(leader)
        assert sizes(await waiting) == [len(BATCH)]
        assert sizes(await crowd.ask(fetch(broker, 0, replica=FOLLOWER), 17)) == [len(BATCH)]
        at_the_end = crowd.begin(fetch(broker, 2, replica=FOLLOWER), 17)
        await until(lambda: leader.replica_fetches)
        append(leader)
        assert sizes(await at_the_end) == [len(BATCH)]
        crowd.leave()

    tell(story)


def test_a_follower_waits_for_what_is_missing_beside_what_is_there(tell: Tell) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await broker._running.topic_admin.create("t", 2, {})
        leader = lead(broker, "t", isr=(FOLLOWER,))
        append(leader)
        crowd = Crowd(broker)
        waiting = crowd.begin(fetch(broker, 0, replica=FOLLOWER, min_bytes=2 * len(BATCH)), 17)
        await until(lambda: leader.replica_fetches)
        append(leader)
        assert sizes(await waiting) == [2 * len(BATCH)]
        crowd.leave()

    tell(story)


def test_deleted_records_end_no_wait_but_of_those_that_asked_for_them(tell: Tell) -> None:
    async def story(asker: Any, broker: Any) -> None:
        partition = await segments(broker, 2)
        crowd = Crowd(broker)
        at_the_end = crowd.begin(fetch(broker, 2), 11)
        await until(lambda: len(partition.delayed_operations) == 1)
        before = crowd.begin(fetch(broker, 1), 11)
        await until(lambda: len(partition.delayed_operations) == 2)
        partition.delete_records_before(2)
        (data,) = (await before).responses[0].partitions
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert not at_the_end.done() and len(partition.delayed_operations) == 1
        append(partition)
        assert sizes(await at_the_end) == [len(BATCH)]
        crowd.leave()

    tell(story)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_what_counts_is_that_of_a_plain_list(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Batches of drawn sizes, in segments that are rolled where it is drawn."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        log = Disk(tmp_path_factory.mktemp("log"), monkeypatch).open().log
    partition = Partition("t", 0, log, 0)
    bases: list[int] = []  # of the segment that a record is in
    sizes: list[int] = []
    for offset in range(data.draw(st.integers(0, 12), label="records")):
        rolled = offset and data.draw(st.booleans(), label="roll") and log.roll(1)
        bases.append(offset if rolled or not bases else bases[-1])
        records = build_batch([NewRecord(None, bytes(data.draw(st.integers(0, 300))), timestamp=1)])
        partition.append(memoryview(records), 1, 9)
        sizes.append(len(records))
    bases.append(log.segment_list.active.base_offset)
    offset, limit = data.draw(st.integers(0, len(sizes))), data.draw(st.integers(0, len(sizes)))
    max_bytes = data.draw(st.integers(0, 1000))
    if offset == limit:
        wanted = 0
    elif offset > limit or bases[offset] != bases[limit]:
        wanted = ENOUGH_BYTES
    else:
        wanted = min(max_bytes, sum(sizes[offset:limit]))
    assert partition.countable_bytes(offset, limit, max_bytes) == wanted
    log.close()
