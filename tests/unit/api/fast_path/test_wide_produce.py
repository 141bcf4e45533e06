"""The fast path of a produce for many partitions answers byte for byte as the long way does.

The *veteran* connection has asked before, so that its requests are known; each *newcomer* never has.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest

from kafkalite.api.fast_path.produce_fast_path import ProduceFastPath
from kafkalite.api.fast_path.wide_produce import WideProduce
from kafkalite.common.errors import ErrorCode
from kafkalite.network.client_connection import Pending
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.bound_apis import replace_parts
from tests.support.fast_path_client import FIRST_PRODUCE_BY_ID, PRODUCE_VERSIONS, Client, batch, joined, topics
from tests.support.loop import until
from tests.support.replication.led_in_broker import lead

Named = list[tuple[str, list[tuple[int, bytes | None]]]]


def wide(named: Named, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=index, records=None if records is None else memoryview(records))
                    for index, records in partitions
                ],
            )
            for name, partitions in named
        ],
    )


USUAL: Named = [("t", [(0, batch()), (1, batch(bytes(300)))]), ("u", [(1, batch(bytes(9)))])]


def wide_path(client: Client) -> Any:
    fast_path = client.connection.fast_paths[0]
    assert isinstance(fast_path, ProduceFastPath)
    return fast_path._wide


class Appended(Exception):
    pass


def is_known(client: Client, request: ProduceRequest, version: int) -> bool:
    """Whether the request would take the fast path; nothing is appended."""
    frame = memoryview(bytearray(request_frame(request, version, 7, "somebody")[4:]))
    with patch.object(WideProduce, "_append", side_effect=Appended), suppress(Appended):
        wide_path(client).answer(frame)
        return False
    return True


def outcomes(answer: bytes, version: int) -> list[tuple[str, int, int, int]]:
    _, response = decode_response(ProduceRequest, version, memoryview(answer)[4:])
    return [
        (topic.name, one.index, one.error_code, one.base_offset)
        for topic in response.responses
        for one in topic.partition_responses
    ]


def without_offsets(answer: bytes, version: int) -> tuple[int, str]:
    _, response = decode_response(ProduceRequest, version, memoryview(answer)[4:])
    for topic in response.responses:
        for one in topic.partition_responses:
            one.base_offset = min(one.base_offset, 0)
    return len(answer), repr(response)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_the_same_answer_to_good_and_bad_batches(tell: Callable[..., None], version: int) -> None:
    broken = bytearray(batch())
    broken[30] ^= 1
    odd: list[bytes | None] = [
        batch(), batch(bytes(20_000)), bytes(broken), batch()[:-1], batch() + b"\0", b"", None, batch(control=True),
        batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
    ]  # fmt: skip

    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t", "u")
        veteran = Client(broker)
        veteran.ask(wide(USUAL), version)
        manager = broker._running.replica_manager
        assert is_known(veteran, wide_with_ids(wide(USUAL), manager, version), version)
        for records in odd:
            for named in (
                USUAL,
                [("t", [(1, batch()), (0, records)])],
                [("t", [(0, records)]), ("u", [(0, batch()), (1, records)])],
                [("t", [(0, batch()), (0, records), (0, batch())])],
                [("u", [(1, records)]), ("t", [(9, batch()), (1, batch())])],
                [("absent", [(0, records)]), ("t", [(1, batch())])],
                [("t", [(1, batch())]), ("u", [])],
            ):
                long_way = Client(broker).ask(wide(named), version, 99)
                ends = [manager.partition(*each).log.end_offset for each in (("t", 0), ("t", 1), ("u", 0), ("u", 1))]
                answer = veteran.ask(wide(named), version, 99)
                assert without_offsets(answer, version) == without_offsets(long_way, version)
                grown = [one for one in outcomes(answer, version) if one[2] == 0]
                for (name, index), end in zip((("t", 0), ("t", 1), ("u", 0), ("u", 1)), ends, strict=True):
                    count = manager.partition(name, index).log.end_offset - end
                    if version < FIRST_PRODUCE_BY_ID:
                        assert count == sum(1 for one in grown if one[:2] == (name, index))

    tell(story)


def wide_with_ids(request: ProduceRequest, manager: Any, version: int) -> ProduceRequest:
    if version >= FIRST_PRODUCE_BY_ID:
        for data in request.topic_data:
            data.topic_id = manager.by_name[data.name].topic_id
    return request


@pytest.mark.parametrize("version", [7, 9, 13])
def test_other_partitions_sizes_and_orders_are_known_too(tell: Callable[..., None], version: int) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t", "u")
        veteran = Client(broker)
        veteran.ask(wide(USUAL), version)
        manager = broker._running.replica_manager

        def knows(named: Named, acks: int = 1) -> bool:
            return is_known(veteran, wide_with_ids(wide(named, acks), manager, version), version)

        assert knows([("u", [(0, batch(bytes(7)))]), ("t", [(1, batch(bytes(5000)))])])
        assert knows([("t", [(index % 2, batch(bytes(index))) for index in range(100)])])
        assert not knows(USUAL, acks=-1)
        assert not knows([("t", [(0, batch()), (5, batch())])])
        broker._running.apis.admission_epoch.advance()
        assert not knows(USUAL)
        veteran.ask(wide(USUAL), version)
        assert knows(USUAL)

    tell(story)


def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        for version in (9, 13):
            await topics(broker, "t", "u")
            veteran = Client(broker)
            veteran.ask(wide(USUAL), version)
            old = wide_with_ids(wide(USUAL), broker._running.replica_manager, version)
            frame = request_frame(old, version, 7, "somebody")[4:]
            await broker._running.topic_admin.delete("t")
            gone = outcomes(veteran.send(frame), version)
            assert gone[:2] == outcomes(Client(broker).send(frame), version)[:2]
            assert [one[2] for one in gone][:2] != [0, 0]
            await topics(broker, "t")
            again = [one[2] for one in outcomes(veteran.send(frame), version)]
            assert again == [one[2] for one in outcomes(Client(broker).send(frame), version)]
            for name in ("t", "u"):
                await broker._running.topic_admin.delete(name)

    tell(story)


def test_a_disk_that_refuses_one_batch_fails_that_one(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t", "u")
        veteran = Client(broker)
        veteran.ask(wide(USUAL), 9)

        def refuse(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "full")

        segment = broker._running.replica_manager.partition("t", 1).log.segments[-1]
        pwrite, segment._pwrite = segment._pwrite, refuse
        found = outcomes(veteran.ask(wide(USUAL), 9), 9)
        assert found == [("t", 0, 0, 1), ("t", 1, ErrorCode.KAFKA_STORAGE_ERROR, -1), ("u", 1, 0, 1)]
        segment._pwrite = pwrite
        assert outcomes(veteran.ask(wide(USUAL), 9), 9) == [("t", 0, 0, 2), ("t", 1, 0, 1), ("u", 1, 0, 2)]

    tell(story)


def test_batches_of_an_idempotent_producer_that_come_again_are_known(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t", "u")
        veteran = Client(broker)

        def of(*sequences: int) -> Named:
            batches = [batch(producer_id=1, producer_epoch=0, base_sequence=sequence) for sequence in sequences]
            return [("t", [(index, each) for index, each in enumerate(batches)])]

        veteran.ask(wide(of(0, 0)), 9)
        assert outcomes(veteran.ask(wide(of(1, 0)), 9), 9) == [("t", 0, 0, 1), ("t", 1, 0, 0)]
        assert outcomes(veteran.ask(wide(of(3, 1)), 9), 9) == [
            ("t", 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), ("t", 1, 0, 1)
        ]  # fmt: skip

    tell(story)


@pytest.mark.parametrize("version", [7, 9, 12, 13])
def test_transactional_batches_are_known_where_their_transaction_is_open(
    tell: Callable[..., None], version: int
) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t", "u")
        asked: list[Any] = []

        class Manager:
            def is_enabled(self) -> bool:
                return True

            def verify_or_add(self, *request: Any) -> None:
                *_, partitions, _, tell, _ = request
                asked.extend(partitions)
                tell({})

        replace_parts(broker._running, add_partitions=Manager())
        manager = broker._running.replica_manager
        veteran = Client(broker)

        def request(*sequences: int, transactional: bool = True, producer_id: int = 7) -> ProduceRequest:
            batches = [
                batch(producer_id=each, producer_epoch=0, base_sequence=sequence, transactional=transactional)
                for each, sequence in zip((7, producer_id), sequences, strict=False)
            ]
            named: Named = [("t", [(index, each) for index, each in enumerate(batches)])]
            made = wide_with_ids(wide(named, acks=-1), manager, version)
            made.transactional_id = "x"
            return made

        def answered(request: ProduceRequest) -> list[tuple[int, ...]]:
            return [one[1:] for one in outcomes(veteran.ask(request, version), version)]

        assert answered(request(0, 0)) == [(0, 0, 0), (1, 0, 0)]
        assert asked == [("t", 0), ("t", 1)]
        assert is_known(veteran, request(1, 1), version)
        assert answered(request(1, 1)) == [(0, 0, 1), (1, 0, 1)]
        assert answered(request(1, 3)) == [(0, 0, 1), (1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
        assert not is_known(veteran, request(2, 2, transactional=False), version)
        assert not is_known(veteran, request(2, 2, producer_id=8), version)
        manager.partition("t", 1).append_marker(7, 0, 0, commit=True, now_ms=1)
        assert not is_known(veteran, request(2, 2), version)
        assert len(asked) == 2
        veteran.ask(request(2, 2), version)
        assert asked[2:] == [("t", 1)]

    tell(story)


def test_an_answer_waits_for_the_replicas_of_all(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t", "u")
        leader = lead(broker, "t", isr=(1,))
        veteran, plain = Client(broker), Client(broker)
        heard: list[bytes] = []
        for client in (veteran, veteran, plain):
            answer = client.ask(wide(USUAL, acks=-1), 9)
            assert isinstance(answer, Pending)
            answer.on_done(lambda parts: heard.append(joined(parts)))
        assert wide_path(veteran) is not None and not heard
        leader.retire()
        await until(lambda: len(heard) == 3)
        assert without_offsets(heard[1], 9) == without_offsets(heard[2], 9)
        assert {one[2] for one in outcomes(heard[1], 9) if one[:2] == ("t", 0)} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}

    tell(story)


@pytest.mark.parametrize("seed", range(12))
def test_a_frame_that_is_damaged_on_the_way_is_understood_alike(tell: Callable[..., None], seed: int) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t", "u")
        chance = random.Random(seed)
        version = chance.choice(list(PRODUCE_VERSIONS))
        manager = broker._running.replica_manager
        named: Named = [("t", [(0, batch(b"")), (1, batch(b""))]), ("u", [(1, batch(b""))])]
        whole = request_frame(wide_with_ids(wide(named), manager, version), version, 7, "somebody")[4:]
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
            if isinstance(long_way, bytes):
                assert without_offsets(answer, version) == without_offsets(long_way, version)
            elif isinstance(long_way, Pending):
                assert isinstance(answer, Pending)
                answer.cancel(), long_way.cancel()
            else:
                assert answer == long_way

    tell(story)


def test_the_topics_of_a_connection_are_bounded(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        names = [f"t{number}" for number in range(300)]
        await topics(broker, *names)
        veteran = Client(broker)
        for start in range(0, 300, 100):
            named: Named = [(name, [(0, batch())]) for name in names[start : start + 100]]
            for offset in range(2):
                assert {one[2:] for one in outcomes(veteran.ask(wide(named), 9), 9)} == {(0, offset)}
            assert is_known(veteran, wide(named), 9)
        (head,) = wide_path(veteran)._heads.values()
        assert len(head.topics) <= 256
        everything: Named = [(name, [(1, batch())]) for name in names]
        for offset in range(2):
            assert {one[2:] for one in outcomes(veteran.ask(wide(everything), 9), 9)} == {(0, offset)}
        assert len(head.topics) <= 256

    tell(story)
