"""Asking the others whether they still count us in: over sockets, with peers that lie, dawdle and hang up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from kafkalite.clock import ManualClock, SystemClock
from kafkalite.listeners import ListenerConfig
from kafkalite.protocol.header import decode_request_header, response_frame
from kafkalite.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from kafkalite.replication.peers import who_misses_us
from kafkalite.zk.registry import BrokerRecord

US, PEER, OTHER = 1, 2, 3
CLUSTER = "a-cluster"
Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(answer: Answer, broker_id: int = PEER) -> AsyncIterator[BrokerRecord]:
    """A broker that does what `answer` does with the request, and then waits until the other end hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            size = int.from_bytes(await reader.readexactly(4), "big")
            await answer(await reader.readexactly(size), writer)
            await reader.read()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield BrokerRecord(broker_id, (ListenerConfig("PLAINTEXT", "127.0.0.1", port),))
    finally:
        server.close()


def says(*members: int, cluster_id: str = CLUSTER) -> Answer:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        header, _ = decode_request_header(memoryview(request))
        brokers = [MetadataResponseBroker(node_id=each, host="h", port=1) for each in members]
        response = MetadataResponse(brokers=brokers, cluster_id=cluster_id, controller_id=members[0], topics=[])
        for part in response_frame(response, header.api_version, header.correlation_id):
            assert isinstance(part, bytes)
            writer.write(part)

    return answer


async def says_nothing(request: bytes, writer: asyncio.StreamWriter) -> None:
    pass


async def hangs_up(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def threatens(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write((1 << 30).to_bytes(4, "big"))


async def babbles(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\0\0\0\x09nonsense!")


def ask(*answers: Answer) -> int | None:
    """What we learn from peers that answer like this, numbered from PEER on."""

    async def story() -> int | None:
        async with asyncio.timeout(20):
            return await with_peers(list(answers), [])

    async def with_peers(left: list[Answer], brokers: list[BrokerRecord]) -> int | None:
        if left:
            async with peer(left[0], PEER + len(brokers)) as one:
                return await with_peers(left[1:], [*brokers, one])
        return await who_misses_us(US, CLUSTER, brokers, SystemClock(asyncio.get_running_loop()), 10_000)

    return asyncio.run(story())


def test_a_peer_that_does_not_count_us_in_is_named() -> None:
    assert ask(says(PEER, OTHER)) == PEER


def test_a_peer_that_counts_us_in_is_no_reason_to_stop() -> None:
    assert ask(says(US, PEER)) is None


def test_one_who_knows_better_is_enough() -> None:
    assert ask(says(US, PEER, OTHER), says(PEER, OTHER)) == OTHER


def test_a_peer_of_another_cluster_knows_nothing_about_us() -> None:
    assert ask(says(PEER, OTHER, cluster_id="another")) is None


def test_a_peer_that_is_no_member_itself_knows_nothing() -> None:
    assert ask(says(OTHER)) is None


def test_peers_that_hang_up_threaten_or_babble_are_passed_over() -> None:
    assert ask(hangs_up, threatens, babbles) is None
    assert ask(hangs_up, says(OTHER, 4), threatens) == OTHER


def test_nobody_to_ask_is_no_answer() -> None:
    assert ask() is None


def test_a_peer_that_is_silent_is_waited_for_no_longer_than_said() -> None:
    async def story() -> None:
        clock = ManualClock()
        async with peer(says_nothing) as silent:
            question = asyncio.ensure_future(who_misses_us(US, CLUSTER, [silent], clock, 2000))
            await asyncio.sleep(0)
            clock.advance(1999)
            await asyncio.sleep(0)
            assert not question.done()
            clock.advance(1)
            async with asyncio.timeout(20):
                assert await question is None

    asyncio.run(story())
