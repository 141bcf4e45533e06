"""Requests to other brokers over real sockets: their order, and every way in which a broker can fail."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from kafkalite.client.broker_channel import (
    RESPONSE_BYTES_MAX,
    BrokerChannels,
    BrokerConnection,
    BrokerUnreachable,
    ChannelSecurity,
)
from kafkalite.common.errors import ErrorCode
from kafkalite.config.listeners import ListenerConfig
from kafkalite.protocol.header import decode_request_header, response_frame
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.security.sasl.client_exchange import ClientExchange, Login
from tests.support.loop import until
from tests.support.manual_clock import ManualClock
from tests.support.sasl_server import LOGIN, SaslServer
from tests.support.wait import DEADLINE_S

VERSION = 9
TIMEOUT_MS = 30_000
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> int:
    """The correlation id of the next request."""
    frame = memoryview(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
    return decode_request_header(frame)[0][2]


def answer(correlation_id: int, cluster_id: str = "c") -> bytes:
    parts = response_frame(MetadataResponse(cluster_id=cluster_id), VERSION, correlation_id)
    return b"".join(bytes(part) for part in parts if not hasattr(part, "file"))


@contextlib.asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[ListenerConfig]:
    """A server that gives each connection to `serve`."""
    writers: list[asyncio.StreamWriter] = []

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(EOFError, OSError):
            await serve(reader, writer)

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield ListenerConfig("PLAINTEXT", host, port, "PLAINTEXT")
    finally:
        for writer in writers:
            writer.transport.abort()
        server.close()


def channels(endpoints: dict[int, ListenerConfig], clock: ManualClock | None = None) -> BrokerChannels:
    return BrokerChannels(endpoints.get, clock or ManualClock(), "broker-1", TIMEOUT_MS)


def run(story: Awaitable[None]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(story, DEADLINE_S)

    asyncio.run(limited())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        correlation_id = await read_request(reader)
        writer.write(answer(correlation_id, f"answer {correlation_id}"))


def test_a_request_that_cannot_be_encoded_does_not_disturb_the_others() -> None:
    async def story() -> None:
        async with listening(echo) as endpoint:
            ours = channels({2: endpoint})
            await ours.ask(2, MetadataRequest(), VERSION)
            with pytest.raises(struct.error):
                await ours.ask(2, FindCoordinatorRequest(key="k", key_type=1 << 20), 3)
            assert (await ours.ask(2, MetadataRequest(), VERSION)).cluster_id
            ours.close()

    run(story())


def test_many_requests_share_a_connection_and_keep_their_order() -> None:
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        ids = [await read_request(reader) for _ in range(20)]
        writer.write(b"".join(answer(each, f"answer {each}") for each in ids))
        await echo(reader, writer)

    async def story() -> None:
        async with listening(serve) as endpoint:
            ours = channels({2: endpoint})
            responses = await asyncio.gather(*(ours.ask(2, MetadataRequest(), VERSION) for _ in range(20)))
            assert [each.cluster_id for each in responses] == [f"answer {at}" for at in range(1, 21)]
            assert (await ours.ask(2, MetadataRequest(), VERSION)).cluster_id == "answer 21"
            assert len(connections) == 1
            ours.close()

    run(story())


async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.close()


async def answers_another_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(await read_request(reader) + 1))
    await reader.read()


async def talks_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"\0\0\0\x08HTTP/1.1")
    await reader.read()


async def sends_too_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write((RESPONSE_BYTES_MAX + 1).to_bytes(4, "big"))
    await reader.read()


async def speaks_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(1) * 3)
    await reader.read()


@pytest.mark.parametrize("serve", [leaves, answers_another_request, talks_nonsense, sends_too_much])
def test_a_broker_that_fails_fails_all_requests_and_the_next_one_connects_anew(serve: Serve) -> None:
    async def story() -> None:
        async with listening(serve) as bad, listening(echo) as good:
            endpoints = {2: bad}
            ours = channels(endpoints)
            results = await asyncio.gather(
                *(ours.ask(2, MetadataRequest(), VERSION) for _ in range(3)), return_exceptions=True
            )
            assert [type(each) for each in results] == [BrokerUnreachable] * 3
            endpoints[2] = good
            assert (await ours.ask(2, MetadataRequest(), VERSION)).cluster_id
            ours.close()

    run(story())


def test_a_response_without_a_request_closes_the_connection() -> None:
    async def story() -> None:
        async with listening(speaks_first) as endpoint:
            ours = channels({2: endpoint})
            with contextlib.suppress(BrokerUnreachable):  # the first of the three may be taken for its response
                await ours.ask(2, MetadataRequest(), VERSION)
            with pytest.raises(BrokerUnreachable):
                while True:
                    await ours.ask(2, MetadataRequest(), VERSION)
            ours.close()

    run(story())


def test_a_broker_that_does_not_answer_in_time_is_left() -> None:
    clock = ManualClock()

    async def story() -> None:
        asked = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await read_request(reader)
            asked.set()
            await reader.read()

        async with listening(serve) as endpoint:
            ours = channels({2: endpoint}, clock)
            asking = asyncio.ensure_future(ours.ask(2, MetadataRequest(), VERSION))
            await asked.wait()
            clock.advance(TIMEOUT_MS - 1)
            assert not asking.done()
            clock.advance(1)
            with pytest.raises(BrokerUnreachable, match="30000 ms") as raised:
                await asking
            assert raised.value.code == ErrorCode.NETWORK_EXCEPTION
            ours.close()

    run(story())


def test_unknown_dead_and_stopped() -> None:
    async def story() -> None:
        async with listening(echo) as endpoint:
            dead = endpoint
        ours = channels({2: dead})
        with pytest.raises(BrokerUnreachable, match="not registered"):
            await ours.ask(3, MetadataRequest(), VERSION)
        with pytest.raises(BrokerUnreachable, match=str(dead.port)):
            await ours.ask(2, MetadataRequest(), VERSION)

        started = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            started.set()
            await reader.read()

        async with listening(silent) as endpoint:
            ours = channels({2: endpoint})
            asking = asyncio.ensure_future(ours.ask(2, MetadataRequest(), VERSION))
            await started.wait()
            ours.close()
            with pytest.raises(BrokerUnreachable):
                await asking

    run(story())


def test_a_broker_that_came_back_elsewhere_is_asked_there() -> None:
    async def story() -> None:
        async with listening(echo) as first, listening(echo) as second:
            endpoints = {2: first}
            ours = channels(endpoints)
            assert (await ours.ask(2, MetadataRequest(), VERSION)).cluster_id == "answer 1"
            endpoints[2] = second
            assert (await ours.ask(2, MetadataRequest(), VERSION)).cluster_id == "answer 2"
            ours.close()

    run(story())


def test_a_caller_that_gives_up_disturbs_no_other() -> None:
    async def story() -> None:
        both_asked, gate = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ids = [await read_request(reader) for _ in range(2)]
            both_asked.set()
            await gate.wait()
            writer.write(b"".join(answer(each, f"answer {each}") for each in ids))
            await reader.read()

        async with listening(serve) as endpoint:
            ours = channels({2: endpoint})
            first, second = (asyncio.ensure_future(ours.ask(2, MetadataRequest(), VERSION)) for _ in range(2))
            await both_asked.wait()
            first.cancel()
            gate.set()
            assert (await second).cluster_id == "answer 2"
            assert first.cancelled()
            ours.close()

    run(story())


def test_a_connection_that_was_given_up_does_not_hide_the_one_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await echo(reader, writer)

    async def story() -> None:
        async with listening(serve) as endpoint:
            nowhere = endpoint._replace(host="nowhere")
            dial, dialled = BrokerConnection.open, asyncio.Event()

            async def hang(connection: BrokerConnection, host: str, *more: Any) -> None:
                if host == "nowhere":
                    dialled.set()
                    await asyncio.get_running_loop().create_future()
                await dial(connection, host, *more)

            monkeypatch.setattr(BrokerConnection, "open", hang)
            endpoints = {2: nowhere}
            ours = channels(endpoints)
            lost = asyncio.ensure_future(ours.ask(2, MetadataRequest(), VERSION))
            await dialled.wait()
            endpoints[2] = endpoint
            first = asyncio.ensure_future(ours.ask(2, MetadataRequest(), VERSION))
            with pytest.raises(BrokerUnreachable):
                await lost
            assert (await ours.ask(2, MetadataRequest(), VERSION)).cluster_id == "answer 2"
            assert (await first).cluster_id == "answer 1" and len(connections) == 1
            ours.close()

    run(story())


def test_a_channel_logs_in_and_again_before_its_session_ends() -> None:
    async def story() -> None:
        server, clock = SaslServer(lifetime_ms=10_000), ManualClock()
        async with listening(server.serve) as endpoint:
            find = {2: endpoint}.get
            ours = BrokerChannels(find, clock, "broker-1", TIMEOUT_MS, lambda _: ChannelSecurity(None, LOGIN))
            await asyncio.gather(*(ours.ask(2, MetadataRequest(), VERSION) for _ in range(3)))
            assert server.asked == [17, 36, 3, 3, 3]
            clock.advance(8_400)
            await ours.ask(2, MetadataRequest(), VERSION)
            assert server.asked[5:] == [3]
            clock.advance(100)
            await asyncio.gather(*(ours.ask(2, MetadataRequest(), VERSION) for _ in range(2)))
            assert server.asked[6:] == [17, 36, 3, 3]
            ours.close()

    run(story())


def test_a_refused_login_says_why() -> None:
    async def story() -> None:
        server = SaslServer(error="Authentication failed: no")
        async with listening(server.serve) as endpoint:
            find = {2: endpoint}.get
            ours = BrokerChannels(find, ManualClock(), "broker-1", TIMEOUT_MS, lambda _: ChannelSecurity(None, LOGIN))
            for _ in range(2):
                with pytest.raises(
                    BrokerUnreachable, match="refuses the login of broker by PLAIN: Authentication failed"
                ):
                    await ours.ask(2, MetadataRequest(), VERSION)
            assert server.asked == [17, 36, 17, 36]
            ours.close()

    run(story())


def test_a_login_that_waits_for_its_token_keeps_nobody_else_waiting() -> None:
    async def story() -> None:
        has_begun, may_go_on, server = threading.Event(), threading.Event(), SaslServer()

        def exchange(host: str) -> ClientExchange:
            has_begun.set()
            assert host == "127.0.0.1" and may_go_on.wait(DEADLINE_S)
            return LOGIN.exchange(host)

        login = Login("PLAIN", "broker", exchange, may_wait=True)
        async with listening(server.serve) as endpoint:
            find = {2: endpoint}.get
            ours = BrokerChannels(find, ManualClock(), "broker-1", TIMEOUT_MS, lambda _: ChannelSecurity(None, login))
            asked = asyncio.ensure_future(ours.ask(2, MetadataRequest(), VERSION))
            await until(has_begun.is_set)
            may_go_on.set()
            assert (await asked).cluster_id == "c" and server.asked == [17, 36, 3]
            ours.close()

    run(story())


def test_a_login_without_a_token_says_why_and_asks_for_nothing() -> None:
    async def story() -> None:
        def exchange(host: str) -> ClientExchange:
            raise OSError("the authority is away")

        server, login = SaslServer(), Login("OAUTHBEARER", "broker", exchange, may_wait=True)
        async with listening(server.serve) as endpoint:
            find = {2: endpoint}.get
            ours = BrokerChannels(find, ManualClock(), "broker-1", TIMEOUT_MS, lambda _: ChannelSecurity(None, login))
            with pytest.raises(BrokerUnreachable, match="no credential for OAUTHBEARER: the authority is away"):
                await ours.ask(2, MetadataRequest(), VERSION)
            assert not server.asked
            ours.close()

    run(story())
