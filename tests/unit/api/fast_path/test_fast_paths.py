"""The fast paths of produce and fetch answer byte for byte as the long way does.

Two connections to one dispatcher: the *veteran* has asked before, so that its requests take the fast path; the
*newcomer* never has. A produce moves the log, so there the offsets of the two may differ, and nothing else.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.api.dispatch import Dispatcher
from kafkalite.api.fast_path.fetch_fast_path import DelayedFetch, FetchFastPath
from kafkalite.api.fast_path.produce_fast_path import ProduceFastPath
from kafkalite.common.errors import ErrorCode
from kafkalite.network.client_connection import Pending
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.fetch import FetchRequest, ReplicaState
from kafkalite.protocol.messages.produce import (
    ProduceRequest,
    TopicProduceData,
)
from tests.support.bound_apis import replace_parts
from tests.support.fast_path_client import (
    BY_ID,
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    Client,
    batch,
    fetch,
    joined,
    produce,
    topics,
)
from tests.support.loop import until
from tests.support.replication.led_in_broker import lead


def numbers_of(answer: bytes, version: int) -> tuple[int, Any]:
    """The base offset in a produce answer (-1 without any), and the answer with another one in its place."""
    _, response = decode_response(ProduceRequest, version, memoryview(answer)[4:])
    base_offset = -1
    for topic in response.responses:
        for partition in topic.partition_responses:
            base_offset = partition.base_offset
            partition.base_offset = min(base_offset, 0)
    return base_offset, (len(answer), repr(response))


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_the_same_answer_to_a_good_and_to_a_bad_batch(tell: Callable[..., None], version: int) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t", "another")
        veteran = Client(broker)
        for topic in ("t", "another"):
            for partition in (0, 1):
                veteran.ask(produce(batch(), topic, partition), version)
        fast_path = veteran.connection.fast_paths[0]
        assert isinstance(fast_path, ProduceFastPath) and len(fast_path._known) == 2  # whatever the partition
        broken = bytearray(batch())
        broken[30] ^= 1
        for records in (
            batch(), batch(bytes(300)), batch(bytes(20_000)), bytes(broken), batch()[:-1], batch() + b"\0", b"", None,
            batch() * 2, batch(control=True),
        ):  # fmt: skip
            for topic, partition in (("t", 0), ("t", 1), ("another", 1), ("t", 9), ("absent", 0)):
                request = produce(records, topic, partition)
                end_offset = lambda: broker._running.replica_manager.partition("t", 0).log.end_offset  # noqa: E731
                at, long_way = numbers_of(Client(broker).ask(request, version, 99), version)
                moved = end_offset()
                then, fast_path_answer = numbers_of(veteran.ask(request, version, 99), version)
                assert fast_path_answer == long_way
                if (topic, partition) == ("t", 0) and at >= 0:
                    assert then == at + 1 and end_offset() == moved + 1
        assert veteran.connection.fast_paths[0] is fast_path

    tell(story)


def test_a_batch_of_an_idempotent_producer_that_comes_again_is_known(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        veteran = Client(broker)
        answers = []
        for sequence in (0, 1, 1, 3, 2):
            records = batch(producer_id=1, producer_epoch=0, base_sequence=sequence)
            _, response = decode_response(ProduceRequest, 9, memoryview(veteran.ask(produce(records), 9))[4:])
            partition = response.responses[0].partition_responses[0]
            answers.append((partition.error_code, partition.base_offset))
        assert answers == [(0, 0), (0, 1), (0, 1), (45, -1), (0, 2)]

    tell(story)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_transactional_batch_takes_the_fast_path_unless_it_is_the_first(
    tell: Callable[..., None], version: int
) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        asked: list[Any] = []

        class Manager:
            def is_enabled(self) -> bool:
                return True

            def verify_or_add(self, *request: Any) -> None:
                *identity, tell, _ = request
                asked.append(tuple(identity))
                tell({})

        replace_parts(broker._running, add_partitions=Manager())
        partition = broker._running.replica_manager.partition("t", 0)
        veteran, plain = Client(broker), Client(broker)

        def frame(sequence: int, name: str | None = "x", index: int = 0) -> bytes:
            records = batch(producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
            request = produce(records, partition=index)
            request.transactional_id = name
            request.topic_data[0].topic_id = broker._running.replica_manager.by_name["t"].topic_id
            return request_frame(request, version, 7, "somebody")[4:]

        def outcome(answer: bytes) -> tuple[int, int]:
            _, response = decode_response(ProduceRequest, version, memoryview(answer)[4:])
            found = response.responses[0].partition_responses[0]
            return found.error_code, found.base_offset

        def fast_path_answer(connection: Any, frame: bytes) -> Any:
            answer = connection.fast_paths[0].answer(memoryview(bytearray(frame)))
            return None if answer is None else outcome(joined(answer))

        for sequence, first_offset in ((0, 0), (3, 4)):
            assert outcome(veteran.send(frame(sequence))) == (0, first_offset)
            for more in (1, 2):
                assert fast_path_answer(veteran.connection, frame(sequence + more)) == (0, first_offset + more)
            partition.append_marker(7, 0, 0, commit=True, now_ms=1)
            for late in (sequence + 2, sequence + 3, sequence + 9):  # a duplicate, the next, a gap
                assert fast_path_answer(veteran.connection, frame(late)) is None
        assert asked == [("x", 7, 0, [("t", 0)], version >= 12)] * 2

        # transactional, without a transactional id, on a connection whose fast path knows the request
        plain.ask(produce(batch()), version)
        assert plain.connection.fast_paths[0]._known  # type: ignore[attr-defined]
        for index in (0, 1):
            assert outcome(plain.send(frame(0, None, index)))[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        # another id is another request, with the topic at another place
        assert outcome(veteran.send(frame(0, "another", 1))) == (0, 0)
        assert fast_path_answer(veteran.connection, frame(1, "another", 1)) == (0, 1)

    tell(story)


def test_a_disk_that_refuses_a_transactional_batch_is_reported_as_that(tell: Callable[..., None]) -> None:
    """The batch has its offset by then, so it must not go the long way, which refuses batches that have one."""

    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        manager = SimpleNamespace(verify_or_add=lambda *request: request[5]({}), is_enabled=lambda: True)
        replace_parts(broker._running, add_partitions=manager)
        client = Client(broker)

        def refuse(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "full")

        def send(sequence: int) -> tuple[int, int]:
            records = batch(producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
            request = produce(records)
            request.transactional_id = "x"
            _, response = decode_response(ProduceRequest, 9, memoryview(client.ask(request, 9))[4:])
            found = response.responses[0].partition_responses[0]
            return found.error_code, found.base_offset

        assert [send(0), send(1)] == [(0, 0), (0, 1)]
        segment = broker._running.replica_manager.partition("t", 0).log.segments[-1]
        pwrite, segment._pwrite = segment._pwrite, refuse
        assert send(2)[0] == ErrorCode.KAFKA_STORAGE_ERROR
        segment._pwrite = pwrite
        assert send(2) == (0, 2)

    tell(story)


def test_a_topic_that_went_or_changed_is_not_taken_for_the_old_one(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        veteran = Client(broker)
        veteran.ask(produce(batch()), 9)
        await broker._running.topic_admin.delete("t")
        gone = veteran.ask(produce(batch()), 9)
        assert gone == Client(broker).ask(produce(batch()), 9)
        await topics(broker, "t", max_message_bytes="10")
        refused = veteran.ask(produce(batch()), 9)
        assert refused == Client(broker).ask(produce(batch()), 9) != gone
        assert broker._running.replica_manager.partition("t", 0).log.end_offset == 0

    tell(story)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_the_same_answer_to_every_fetch(tell: Callable[..., None], version: int) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        for value in (b"small", bytes(100), bytes(20_000), bytes(200_000), b"end"):
            Client(broker).ask(produce(batch(value)), 7)
        hows: list[dict[str, Any]] = [
            {}, {"isolation_level": 1}, {"max_bytes": 100}, {"partition_max_bytes": 1}, {"min_bytes": 100_000},
            {"partition": 1}, {"current_leader_epoch": 0 if version >= 9 else -1},
            {"current_leader_epoch": 5 if version >= 9 else -1}, {"topic": "other"}, {"rack_id": "r"},
            {"replica_state": ReplicaState() if version >= 15 else None},
        ]  # fmt: skip
        for how in hows:
            how = {key: value for key, value in how.items() if key != "rack_id" or version >= 11}
            veteran = Client(broker)
            veteran.ask(fetch(0, **how), version)
            for offset in (0, 1, 2, 3, 4, 5, 6, -1, 1 << 40):
                fast_path_answer = veteran.ask(fetch(offset, **how), version, 99)
                long_way = Client(broker).ask(fetch(offset, **how), version, 99)
                if isinstance(long_way, Pending):
                    assert isinstance(fast_path_answer, Pending)
                    fast_path_answer, long_way = await woken(broker, fast_path_answer, long_way)
                assert fast_path_answer == long_way
            assert isinstance(veteran.connection.fast_paths[1], FetchFastPath)
            assert len(veteran.connection.fast_paths[1]._known) == ("topic" not in how)

    tell(story)


@pytest.mark.parametrize("version", BY_ID)
def test_the_id_of_a_topic_that_was_made_again_is_not_taken_for_the_new_one(
    tell: Callable[..., None], version: int
) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        Client(broker).ask(produce(batch()), 11)
        veteran = Client(broker)
        old = fetch(0)
        found = veteran.ask(old, version)
        assert veteran.ask(old, version) == found and len(veteran.connection.fast_paths[1]._known) == 1
        frame = request_frame(old, version, 7, "somebody")[4:]
        await broker._running.topic_admin.delete("t")
        for _ in range(2):
            assert code_of(veteran.send(frame), version) == ErrorCode.UNKNOWN_TOPIC_ID
            assert veteran.send(frame) == Client(broker).send(frame)
            if "t" not in broker._running.replica_manager.by_name:
                await topics(broker, "t")
        Client(broker).ask(produce(batch(b"another value")), 11)
        assert veteran.send(frame) == Client(broker).send(frame)
        new = veteran.ask(fetch(0), version)
        assert b"another value" in new and veteran.ask(fetch(0), version) == new

    tell(story)


@pytest.mark.parametrize("again", [False, True])
def test_a_fetch_by_id_hears_what_became_of_its_topic_while_it_waited(tell: Callable[..., None], again: bool) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        veteran = Client(broker)
        veteran.ask(fetch(0), 16).cancel()
        replies = [veteran.ask(fetch(0), 16, 9), Client(broker).ask(fetch(0), 16, 9)]
        assert [type(reply) for reply in replies] == [DelayedFetch, Pending]
        heard: list[bytes] = []
        for reply in replies:
            reply.on_done(lambda parts: heard.append(joined(parts)))
        partition = broker._running.replica_manager.by_name["t"].partitions.pop(
            0
        )  # as deleting does, and nobody looks yet
        await broker._running.topic_admin.delete("t")
        if again:
            await topics(broker, "t")
        partition.retire()
        await until(lambda: len(heard) >= 2)
        assert heard[0] == heard[1]
        expected = ErrorCode.INCONSISTENT_TOPIC_ID if again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code_of(heard[0], 16) == expected

    tell(story)


def code_of(answer: bytes, version: int) -> int:
    _, response = decode_response(FetchRequest, version, memoryview(answer)[4:])
    return int(response.responses[0].partitions[0].error_code)


async def woken(broker: Any, *replies: Pending) -> list[bytes]:
    """The error codes of responses when the time is up."""
    heard: dict[Pending, bytes] = {}
    for reply in replies:
        reply.on_done(lambda parts, reply=reply: heard.update({reply: joined(parts)}))  # type: ignore[misc]
    for index in (0, 1):
        for operation in tuple(broker._running.replica_manager.partition("t", index).delayed_operations):
            operation.complete()
    await until(lambda: len(heard) >= len(replies))
    return [heard[reply] for reply in replies]


def test_a_delayed_fetch_hears_of_records_of_the_end_of_its_topic_and_of_nothing_after_it_left(
    tell: Callable[..., None],
) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        partition = broker._running.replica_manager.partition("t", 0)
        veteran = Client(broker)
        veteran.ask(fetch(0), 12).cancel()
        waiting = veteran.ask(fetch(0), 12, 5)
        assert isinstance(waiting, Pending) and len(partition.delayed_operations) == 1
        heard: list[Any] = []
        waiting.on_done(heard.append)
        Client(broker).ask(produce(batch(b"news")), 9)
        await until(lambda: heard)
        assert joined(heard[0]) == Client(broker).ask(fetch(0), 12, 5)
        assert not partition.delayed_operations

        left = veteran.ask(fetch(1), 12)
        left.on_done(heard.append)
        left.cancel()
        assert not partition.delayed_operations and len(heard) == 1

        orphan = veteran.ask(fetch(1), 12, 6)
        orphan.on_done(heard.append)
        await broker._running.topic_admin.delete("t")
        await until(lambda: len(heard) >= 2)
        assert joined(heard[1]) == Client(broker).ask(fetch(1), 12, 6)

    tell(story)


@pytest.mark.parametrize("seed", range(12))
def test_a_frame_that_is_damaged_on_the_way_is_understood_alike(tell: Callable[..., None], seed: int) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        chance = random.Random(seed)
        version, fetch_version = chance.choice(list(PRODUCE_VERSIONS)), chance.choice(list(FETCH_VERSIONS))
        veteran = Client(broker)
        veteran.ask(produce(batch()), version)
        fetched = fetch(0)
        veteran.ask(fetched, fetch_version)
        for request, its_version in ((produce(batch()), version), (fetched, fetch_version)):
            whole = request_frame(request, its_version, 7, "somebody")[4:]
            end = len(whole) - (len(batch()) if isinstance(request, ProduceRequest) else 0)
            for _ in range(60):
                frame = bytearray(whole)
                for _ in range(chance.choice((1, 1, 2))):
                    frame[chance.randrange(2, end)] ^= 1 << chance.randrange(8)
                if chance.random() < 0.2:
                    del frame[chance.randrange(2, len(frame)) :]
                fast_path_answer, long_way = veteran.send(bytes(frame)), Client(broker).send(bytes(frame))
                if isinstance(long_way, Pending):
                    assert isinstance(fast_path_answer, Pending)
                    fast_path_answer.cancel(), long_way.cancel()
                elif isinstance(long_way, bytes) and isinstance(request, ProduceRequest):
                    key, its_version = frame[1], frame[3]
                    if key == 0 and its_version < PRODUCE_VERSIONS.stop:
                        assert numbers_of(fast_path_answer, its_version)[1] == numbers_of(long_way, its_version)[1]
                    else:
                        assert fast_path_answer == long_way
                else:
                    assert fast_path_answer == long_way

    tell(story)


def test_a_request_with_a_topic_without_partitions_is_answered_too(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t", "u")
        veteran = Client(broker)
        request = produce(batch())
        request.topic_data.append(TopicProduceData(name="u", partition_data=[]))
        for offset in range(3):
            assert numbers_of(veteran.ask(request, 9), 9)[0] == offset

    tell(story)


def test_a_delayed_fetch_does_not_wait_for_more_than_an_answer_may_hold(tell: Callable[..., None]) -> None:
    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        veteran = Client(broker)
        veteran.ask(fetch(0, min_bytes=100_000), 12).cancel()
        waiting = veteran.ask(fetch(0, min_bytes=100_000), 12)
        heard: list[Any] = []
        waiting.on_done(heard.append)
        Client(broker).ask(produce(batch(bytes(3000))), 9)
        await until(lambda: heard)
        assert len(joined(heard[0])) > 3000

    tell(story, fetch_max_bytes=1024)


async def alter(broker: Any, topic: str, name: str, value: str) -> None:
    await broker._running.topic_admin.change_overrides(topic, lambda old: {**old, name: value})


def test_a_request_takes_the_long_way_once_after_the_admission_epoch_has_advanced(
    tell: Callable[..., None],
) -> None:
    handled: list[str] = []

    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        epoch = broker._running.apis.admission_epoch
        asked: list[tuple[Message, int]] = [(produce(batch()), 9), (fetch(0), 12), (fetch(0), 16)]
        for request, version in asked:
            veteran = Client(broker)
            veteran.dispatch = counted(veteran.dispatch, handled)
            for is_long in (True, False, False, True, False):
                if is_long:
                    epoch.advance()
                handled.clear()
                veteran.ask(request, version)
                assert bool(handled) == is_long, (request, version)

    tell(story)


def counted(dispatch: Any, handled: list[str]) -> Any:
    """A dispatcher that notes each request that reaches a handler."""

    def noting(name: str) -> Any:
        def handler(*arguments: Any) -> Any:
            handled.append(name)
            return handler_of(name)(*arguments)

        return handler

    handler_of = dispatch._handler_of
    again = Dispatcher(handler_of, dispatch._produce, dispatch._fetch, dispatch._consumer_groups)
    for name, key in (("Produce", 0), ("Fetch", 1)):
        for version in range(18):
            if (route := again._route(key, version)) is not None:
                again._routes[key, version] = (route[0], noting(name), route[2])
    return again


def test_rules_hold_for_requests_that_are_known_as_for_others(tell: Callable[..., None]) -> None:
    """Settings that decide on a batch or on its reading change while a connection repeats its request."""

    async def story(_: Any, broker: Any) -> None:
        await topics(broker, "t")
        veteran = Client(broker)
        for acks in (1, -1):
            request = produce(batch(), acks=acks)
            assert code_of_produce(veteran.ask(request, 9)) == ErrorCode.NONE
            assert code_of_produce(veteran.ask(request, 9)) == ErrorCode.NONE
        topic = broker._running.replica_manager.by_name["t"]
        lead(broker, "t", isr=())
        for minimum, expected in (("2", ErrorCode.NOT_ENOUGH_REPLICAS), ("1", ErrorCode.NONE)):
            broker._running.replica_manager.configure(topic, {"min.insync.replicas": minimum})
            broker._running.replica_manager.hosted.update_replicas(topic)
            for _ in range(3):
                assert code_of_produce(veteran.ask(produce(batch(), acks=-1), 9)) == expected
                assert code_of_produce(veteran.ask(produce(batch(), acks=1), 9)) == ErrorCode.NONE
        assert code_of(veteran.ask(fetch(0), 9), 9) == ErrorCode.NONE
        assert code_of(veteran.ask(fetch(0), 9), 9) == ErrorCode.NONE
        await alter(broker, "t", "compression.type", "zstd")
        assert code_of(veteran.ask(fetch(0), 9), 9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    tell(story)


def code_of_produce(answer: bytes) -> int:
    _, response = decode_response(ProduceRequest, 9, memoryview(answer)[4:])
    return int(response.responses[0].partition_responses[0].error_code)
