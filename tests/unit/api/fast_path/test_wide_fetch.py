"""The fast path of a fetch of many partitions answers byte for byte as the long way does.

The *veteran* connection has asked before, so that its requests are known; each *newcomer* never has.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.api.fast_path.fetch_fast_path import FetchFastPath
from kafkalite.api.fast_path.wide_fetch import DelayedWideFetch, WideFetch
from kafkalite.common.errors import ErrorCode
from kafkalite.network.client_connection import Pending
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.fast_path_client import BY_ID, FETCH_VERSIONS, Client, batch, joined, produce, topics
from tests.support.loop import until

Named = list[tuple[str, list[tuple[int, int]]]]
"""Topics with (partition, fetch offset)."""

SIZES = (5, 100, 20_000, 200_000, 3)
FULL: Named = [("t", [(0, 0), (1, 3)]), ("u", [(1, 0)])]
AT_END: Named = [("t", [(0, 5), (1, 5)]), ("u", [(1, 5)])]


def wide(named: Named, **how: Any) -> FetchRequest:
    of_each = {name: how.pop(name) for name in ("partition_max_bytes", "current_leader_epoch") if name in how}
    of_each.setdefault("partition_max_bytes", 1 << 20)
    how.setdefault("max_wait_ms", 60_000)
    how.setdefault("min_bytes", 1)
    return FetchRequest(
        topics=[
            FetchTopic(
                topic=name,
                partitions=[FetchPartition(partition=index, fetch_offset=offset, **of_each) for index, offset in those],
            )
            for name, those in named
        ],
        **how,
    )


async def filled(broker: Any) -> None:
    await topics(broker, "t", "u")
    for topic, partition in (("t", 0), ("t", 1), ("u", 1)):
        for size in SIZES:
            Client(broker).ask(produce(batch(bytes(size)), topic, partition), 7)


def wide_path(client: Client) -> WideFetch | None:
    fast_path = client.connection.fast_paths.get(1)
    return fast_path._wide if isinstance(fast_path, FetchFastPath) else None


def is_known(broker: Any, client: Client, request: FetchRequest, version: int) -> bool:
    """Whether the request takes the fast path."""
    if version in BY_ID:
        for wanted in request.topics:
            wanted.topic_id = broker._running.replica_manager.by_name[wanted.topic].topic_id
    path = wide_path(client)
    assert path is not None
    answer = path.answer(memoryview(bytearray(request_frame(request, version, 7, "somebody")[4:])))
    if isinstance(answer, Pending):
        answer.cancel()
    return answer is not None


def codes(answer: bytes, version: int) -> list[int]:
    _, response = decode_response(FetchRequest, version, memoryview(answer)[4:])
    return [one.error_code for topic in response.responses for one in topic.partitions]


async def told(broker: Any, *replies: Pending) -> list[bytes]:
    """The answers when the time is up."""
    heard: dict[Pending, bytes] = {}
    for reply in replies:
        reply.on_done(lambda parts, reply=reply: heard.update({reply: joined(parts)}))  # type: ignore[misc]
    for topic in broker._running.replica_manager.by_name.values():
        for partition in topic.partitions.values():
            partition.complete_all()
    await until(lambda: len(heard) == len(replies))
    return [heard[reply] for reply in replies]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_the_same_answer_to_every_fetch(tell: Callable[..., None], version: int) -> None:
    hows: list[dict[str, Any]] = [
        {}, {"isolation_level": 1}, {"max_bytes": 100}, {"max_bytes": 25_000}, {"partition_max_bytes": 1},
        {"partition_max_bytes": 0}, {"min_bytes": 100_000}, {"min_bytes": 10_000_000},
    ]  # fmt: skip
    if version >= 9:
        hows += [{"current_leader_epoch": 0}, {"current_leader_epoch": 5}]
    if version >= 11:
        hows.append({"rack_id": "r"})

    async def story(_: Any, broker: Any) -> None:
        await filled(broker)
        for how in hows:
            veteran = Client(broker)
            veteran.ask(wide(FULL, **how), version)
            known = 0
            for named in (
                FULL,
                AT_END,
                [("u", [(1, 2)]), ("t", [(1, 5), (0, 1)])],
                [("t", [(0, 5), (1, 5)]), ("u", [(1, 4)])],
                [("t", [(0, -1), (1, 5)])],
                [("t", [(0, 1 << 40), (1, 5)])],
                [("t", [(0, 0), (0, 5)])],
                [("t", [(0, 0)]), ("u", [(1, 0)]), ("t", [(1, 0)])],
                [("t", [(0, 5), (9, 0)])],
                [("t", [(1, 5)]), ("absent", [(0, 0)])],
                [("t", []), ("u", [(1, 0)])],
            ):
                answer = veteran.ask(wide(named, **how), version, 99)
                long_way = Client(broker).ask(wide(named, **how), version, 99)
                known += isinstance(answer, DelayedWideFetch)
                if isinstance(long_way, Pending):
                    assert isinstance(answer, Pending)
                    answer, long_way = await told(broker, answer, long_way)
                assert answer == long_way, (how, named)
            if not how or how.keys() <= {"isolation_level", "rack_id", "max_bytes"}:
                assert known == 1
                assert is_known(broker, veteran, wide(FULL, **how), version)

    tell(story)


def test_what_is_learnt_and_what_is_not(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await filled(broker)
        for how in ({"session_id": 0, "session_epoch": 0}, {"replica_id": 2}, {"max_wait_ms": 0}, {"min_bytes": 0}):
            veteran = Client(broker)
            veteran.ask(wide(FULL, **how), 12)
            assert wide_path(veteran) is None
        veteran = Client(broker)
        veteran.ask(wide(FULL), 12)
        assert is_known(broker, veteran, wide([("u", [(0, 0), (1, 3)])]), 12)
        assert not is_known(broker, veteran, wide(FULL, isolation_level=1), 12)
        broker._running.apis.admission_epoch.advance()
        assert not is_known(broker, veteran, wide(FULL), 12)
        veteran.ask(wide(FULL), 12)
        assert is_known(broker, veteran, wide(FULL), 12)

    tell(story)


@pytest.mark.parametrize("version", [11, 12, 13])
def test_a_delayed_fetch_ends_with_the_first_records(tell: Callable[..., None], version: int) -> None:
    async def story(_: Any, broker: Any) -> None:
        await filled(broker)
        veteran = Client(broker)
        veteran.ask(wide(FULL), version)
        for topic, partition in (("u", 1), ("t", 0)):
            of = broker._running.replica_manager.partition
            ends: Named = [
                (name, [(index, of(name, index).log.end_offset) for index in those])
                for name, those in (("t", (0, 1)), ("u", (1,)))
            ]
            waiting = veteran.ask(wide(ends), version, 5)
            assert isinstance(waiting, DelayedWideFetch)
            heard: list[Any] = []
            waiting.on_done(heard.append)
            Client(broker).ask(produce(batch(b"news"), topic, partition), 9)
            await until(lambda: heard)  # noqa: B023
            assert b"news" in joined(heard[0])
            assert joined(heard[0]) == Client(broker).ask(wide(ends), version, 5)
        left = veteran.ask(wide(ends), version)
        assert isinstance(left, list | bytes)
        for topic in broker._running.replica_manager.by_name.values():
            assert not any(partition.delayed_operations for partition in topic.partitions.values())

    tell(story)


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("again", [False, True])
def test_a_delayed_fetch_hears_what_became_of_a_topic(tell: Callable[..., None], version: int, again: bool) -> None:
    async def story(_: Any, broker: Any) -> None:
        await filled(broker)
        veteran = Client(broker)
        veteran.ask(wide(FULL), version)
        replies = [veteran.ask(wide(AT_END), version, 9), Client(broker).ask(wide(AT_END), version, 9)]
        assert isinstance(replies[0], DelayedWideFetch) and isinstance(replies[1], Pending)
        heard: list[bytes] = []
        for reply in replies:
            reply.on_done(lambda parts: heard.append(joined(parts)))
        partition = broker._running.replica_manager.by_name["u"].partitions.pop(1)  # as deletion, before anyone looks
        await broker._running.topic_admin.delete("u")
        if again:
            await topics(broker, "u")
        partition.retire()
        await until(lambda: len(heard) == 2)
        assert heard[0] == heard[1]
        expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if again:
            expected = ErrorCode.INCONSISTENT_TOPIC_ID if version >= 13 else ErrorCode.OFFSET_OUT_OF_RANGE
        assert codes(heard[0], version) == [0, 0, expected]

    tell(story)


def test_a_delayed_fetch_waits_on_until_it_has_enough(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await filled(broker)
        veteran = Client(broker)
        veteran.ask(wide(FULL, min_bytes=1000), 12)
        waiting = veteran.ask(wide(AT_END, min_bytes=1000), 12, 5)
        assert isinstance(waiting, DelayedWideFetch)
        heard: list[Any] = []
        waiting.on_done(heard.append)
        for number, topic in enumerate(("t", "u")):
            assert not heard
            Client(broker).ask(produce(batch(bytes(700)), topic, 1), 9)
            if not number:
                await until(lambda: True)
        await until(lambda: heard)
        assert joined(heard[0]) == Client(broker).ask(wide(AT_END, min_bytes=1000), 12, 5)

    tell(story)


@pytest.mark.parametrize("seed", range(12))
def test_a_frame_that_is_damaged_on_the_way_is_understood_alike(tell: Callable[..., None], seed: int) -> None:
    async def story(_: Any, broker: Any) -> None:
        await filled(broker)
        chance = random.Random(seed)
        version = chance.choice(list(FETCH_VERSIONS))
        request = wide(FULL)
        if version in BY_ID:
            for wanted in request.topics:
                wanted.topic_id = broker._running.replica_manager.by_name[wanted.topic].topic_id
        whole = request_frame(request, version, 7, "somebody")[4:]
        veteran = Client(broker)
        veteran.send(whole)
        for _ in range(120):
            frame = bytearray(whole)
            for _ in range(chance.choice((1, 1, 2))):
                frame[chance.randrange(8, len(frame))] ^= 1 << chance.randrange(8)
            if chance.random() < 0.2:
                del frame[chance.randrange(8, len(frame)) :]
            elif chance.random() < 0.1:
                frame += bytes(chance.randrange(1, 4))
            answer, long_way = veteran.send(bytes(frame)), Client(broker).send(bytes(frame))
            if isinstance(long_way, Pending):
                assert isinstance(answer, Pending)
                answer.cancel(), long_way.cancel()
            elif isinstance(long_way, bytes) and answer != long_way:  # the id of a session is random
                assert decoded_without_session(answer, version) == decoded_without_session(long_way, version)
            else:
                assert answer == long_way

    tell(story)


def decoded_without_session(answer: bytes, version: int) -> str:
    _, response = decode_response(FetchRequest, version, memoryview(answer)[4:])
    response.session_id = bool(response.session_id)
    return repr(response)
