from __future__ import annotations

import asyncio
import itertools
import logging
import random
import struct
from typing import TYPE_CHECKING

import pytest

from kafkalite.common.errors import Disconnect, Malformed
from kafkalite.network.client_connection import Answer, ClientConnection, PreemptiblePending
from kafkalite.network.connection import HELD_BYTES_MAX, TURN_FRAMES
from kafkalite.network.connection_quotas import NetworkLimits
from kafkalite.network.framing import SLAB_BYTES
from tests.support.loop import idle

if TYPE_CHECKING:
    from .conftest import Tell, World


def ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Not asyncio's, which has its own things to say when it debugs."""
    return [record for record in caplog.records if record.name.startswith("kafkalite")]


def test_pipelined_requests_are_answered_in_order_also_when_some_must_wait(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        client = await world.connect()
        await client.ask(b"one", b"silent", b"wait two", b"three", b"wait four", b"five")
        assert await client.answer() == b"one"
        await world.until(lambda: b"wait two" in world.waiting)
        assert world.requests == [b"one", b"silent", b"wait two"], "one in flight"
        await client.ask(b"six")
        world.release(b"wait two")
        assert [await client.answer(), await client.answer()] == [b"wait two", b"three"]
        world.release(b"wait four")
        assert [await client.answer() for _ in range(3)] == [b"wait four", b"five", b"six"]
        assert world.total("requests") == 7
        assert world.total("bytes_in") == sum(4 + len(request) for request in world.requests)
        assert world.total("bytes_out") == world.total("bytes_in") - 10

    tell(story)


def test_a_waiting_connection_does_not_hold_up_the_others_and_its_frame_stays(tell: Tell) -> None:
    frames: list[tuple[memoryview, bytes]] = []

    async def story(world: World) -> None:
        await world.start(processors=1)
        gate = asyncio.Event()

        async def later(request: memoryview) -> list[bytes]:
            await gate.wait()
            return [struct.pack(">i", len(request)), request]  # type: ignore[list-item]

        def answer(peer: ClientConnection, request: memoryview) -> Answer:
            if request[0] == ord("w"):
                request[0] = ord("W")  # as the log stamps a batch in place
                frames.append((request, bytes(request)))
                return later(request)  # type: ignore[return-value]
            return [world.frame(bytes(request))]

        world.answer = answer
        waiting = [await world.connect() for _ in range(5)]
        sizes = (10, 1000, 60_000, 70_000, 3_000_000)
        for client, size in zip(waiting, sizes, strict=True):
            await client.ask(b"w" * size)
        other = await world.connect()
        for number in range(50):
            await other.ask(b"%d" % number * 3000)
            assert await other.answer() == b"%d" % number * 3000
        await world.until(lambda: len(frames) == 5)
        assert all(bytes(got) == copy for got, copy in frames)
        gate.set()
        for client, size in zip(waiting, sizes, strict=True):
            assert await client.answer() == b"W" + b"w" * (size - 1)
        frames.clear()

    tell(story)


def test_trickled_and_torn_bytes_make_the_same_requests(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        client = await world.connect()
        payloads = [random.Random(7).randbytes(size) for size in (1, 90, 5, 300_000, 17)]
        data = b"".join(map(world.frame, payloads))
        for position in range(110):
            await client.send(data[position : position + 1])
            await asyncio.sleep(0)
        await client.send(data[110:])
        assert [await client.answer() for _ in payloads] == payloads
        await client.send(world.frame(b"never whole")[:-1])
        client.leave()
        await world.until(lambda: world.server.connection_count == 0)
        assert world.requests == payloads

    tell(story)


def test_who_leaves_while_waiting_is_forgotten_but_what_it_sent_is_done(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        client = await world.connect()
        await client.ask(b"wait for it", b"silent produce with acks=0", b"wait again", b"silent last")
        await world.until(lambda: world.waiting)
        client.leave()
        await world.until(lambda: world.server.connection_count == 0)
        assert all(future.cancelled() for future in world.waiting.values())
        assert world.requests[-1] == b"silent last"

    tell(story)


def test_a_flood_behind_a_waiting_request_is_bounded_and_a_reset_of_it_is_seen(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        client = await world.connect()
        sending = asyncio.ensure_future(client.ask(b"wait for it", *[b"silent" + bytes(1000)] * 20_000))
        await world.until(lambda: world.waiting)
        await idle()
        assert not sending.done(), "the kernel's buffers are full, ours are not"
        assert world.total("bytes_in") < SLAB_BYTES + 2 * HELD_BYTES_MAX
        assert len(world.requests) == 1
        sending.cancel()
        await asyncio.wait([sending])
        client.reset()
        await world.until(lambda: world.waiting[b"wait for it"].cancelled())
        await world.until(lambda: world.server.connection_count == 0)

    tell(story)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("count", [1, 10, 2000])
def test_a_reset_right_behind_requests_is_seen(tell: Tell, count: int, waits: bool) -> None:
    async def story(world: World) -> None:
        await world.start()
        client = await world.connect()
        requests = [b"silent" + bytes(100)] * count
        requests[count // 2] = b"wait" + b" " * waits
        await client.ask(*requests)
        client.reset()
        await world.until(lambda: world.total("connections_accepted") and world.server.connection_count == 0)

    tell(story)


def test_the_end_of_a_stream_is_seen_behind_more_than_is_held(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start(NetworkLimits(socket_receive_buffer_bytes=1_000_000))
        client = await world.connect()
        await client.ask(b"wait for it")
        await world.until(lambda: world.waiting)
        await client.ask(*[b"silent" + bytes(1000)] * 400)
        await idle()
        assert world.total("bytes_in") < 3 * HELD_BYTES_MAX, "the rest is the kernel's"
        client.leave()
        await world.until(lambda: world.server.connection_count == 0)
        assert world.waiting[b"wait for it"].cancelled()
        assert len(world.requests) == 401, "a producer with acks=0 may send and go"

    tell(story)


def test_a_slow_reader_gets_whole_answers_and_no_further_request_is_handled_meanwhile(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start(NetworkLimits(socket_send_buffer_bytes=20_000))
        size = 1_000_000

        def answer(peer: ClientConnection, request: memoryview) -> Answer:
            return [struct.pack(">i", size + 4), bytes(request), request[:0], bytes([request[3]]) * size]

        world.answer = answer
        client = await world.connect(receive_bytes=20_000)
        await client.ask(*(b"%04d" % number for number in range(8)))
        for number in range(8):
            await world.until(lambda number=number: len(world.requests) > number)
            await idle()
            assert len(world.requests) == number + 1, "the next one waits until this answer has left"
            assert await client.answer() == b"%04d" % number + bytes([48 + number]) * size

    tell(story)


def test_answers_that_are_views_of_the_request_survive_a_full_socket(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start(NetworkLimits(socket_send_buffer_bytes=5_000), processors=1)
        world.answer = lambda peer, request: [struct.pack(">i", len(request)), request]
        slow = await world.connect(receive_bytes=5_000)
        fast = await world.connect()
        payloads = [bytes([65 + number]) * 9_000 for number in range(20)]
        asking = asyncio.ensure_future(slow.ask(*payloads))
        for number in range(30):
            await fast.ask(b"%d" % number * 20_000)
            assert await fast.answer() == b"%d" % number * 20_000
        assert [await slow.answer() for _ in payloads] == payloads
        await asking

    tell(story)


def test_a_long_train_of_requests_lets_others_in_between(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        flooder, other = await world.connect(), await world.connect()
        await other.ask(b"hello")
        await other.answer()
        turns: list[int] = []
        await flooder.ask(*[b"silent %d" % number for number in range(3000)], b"last")
        while world.requests[-1] != b"last":
            turns.append(len(world.requests))
            await asyncio.sleep(0)
        assert max(b - a for a, b in itertools.pairwise(turns)) <= 2 * TURN_FRAMES
        assert world.requests[1:-1] == [b"silent %d" % number for number in range(3000)]
        assert await flooder.answer() == b"last"

    tell(story)


def test_a_frame_too_large_closes_the_connection_and_is_logged_once(
    tell: Tell, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        caplog.clear()
        await world.start(NetworkLimits(socket_request_max_bytes=1000))
        for size in (1001, 2**31 - 1, 0, -1):
            client = await world.connect()
            await client.send(world.frame(b"good") + struct.pack(">i", size) + b"x" * 100)
            assert await client.answer() == b"good"
            assert await client.is_closed()
        client = await world.connect()
        await client.ask(b"x" * 1000)
        assert await client.answer() == b"x" * 1000
        lines = [record.getMessage() for record in ours(caplog)]
        assert len(lines) == 1
        assert "1001 bytes, more than socket.request.max.bytes=1000" in lines[0]

    tell(story)


def test_numbers_of_a_client_give_it_no_lines_of_its_own(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        caplog.clear()
        await world.start()

        def answer(peer: ClientConnection, request: memoryview) -> Answer:
            raise Disconnect(f"API {request[0]} before it is authenticated, version -{request[1]}")

        world.answer = answer
        for number in range(40):
            client = await world.connect()
            await client.ask(bytes((number, 255 - number)))
            assert await client.is_closed()
        (line,) = [record.getMessage() for record in ours(caplog)]
        assert "API 0 before it is authenticated, version -255" in line

    tell(story)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("failure", [Malformed("nonsense"), Disconnect(), RuntimeError("our bug"), TypeError("ours")])
def test_a_handler_that_fails_closes_this_connection_only(
    tell: Tell, caplog: pytest.LogCaptureFixture, failure: Exception, waits: bool
) -> None:
    async def story(world: World) -> None:
        caplog.clear()
        await world.start()

        async def fail() -> None:
            raise failure

        def answer(peer: ClientConnection, request: memoryview) -> Answer:
            if bytes(request) == b"fail":
                if waits:
                    return fail()
                raise failure
            return [world.frame(bytes(request))]

        world.answer = answer
        client, other = await world.connect(), await world.connect()
        await client.ask(b"before", b"fail", b"after")
        assert await client.answer() == b"before"
        assert await client.is_closed()
        await other.ask(b"fine")
        assert await other.answer() == b"fine"
        assert b"after" not in world.requests
        traced = [record for record in ours(caplog) if record.levelno >= logging.ERROR]
        assert len(traced) == (not isinstance(failure, (Malformed, Disconnect)))

    tell(story)


def test_a_peer_knows_both_ends(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        client = await world.connect()
        await client.ask(b"hello")
        await client.answer()
        (peer,) = world.peers
        assert (peer.host, peer.port) == client.sock.getsockname()
        assert (peer.local_host, peer.local_port) == client.sock.getpeername()
        assert peer.listener_name == "PLAINTEXT"

    tell(story)


def test_a_preemptible_answer_ends_its_wait_when_more_comes(tell: Tell) -> None:
    class Fetch(PreemptiblePending):
        pass

    async def story(world: World) -> None:
        waiting: list[PreemptiblePending] = []

        def handle(_: ClientConnection, request: memoryview) -> Answer:
            if bytes(request) != b"fetch":
                return [world.frame(bytes(request))]
            loop = asyncio.get_running_loop()
            answer = Fetch(lambda: None, lambda: loop.call_soon(answer.answer, [world.frame(b"early")]))
            waiting.append(answer)
            return answer

        world.answer = handle
        await world.start()
        client = await world.connect()
        await client.ask(b"fetch")
        await world.until(lambda: waiting)
        assert not waiting[0].is_done
        await client.ask(b"more", b"and more")
        assert [await client.answer() for _ in range(3)] == [b"early", b"more", b"and more"]
        await client.ask(b"fetch", b"in the same packet")
        assert [await client.answer() for _ in range(2)] == [b"early", b"in the same packet"]

    tell(story)


def test_a_reset_while_an_answer_is_leaving_is_no_error(tell: Tell, caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        caplog.clear()
        await world.start()
        world.answer = lambda peer, request: [bytes(20_000_000)]
        client = await world.connect()
        await client.ask(b"much")
        await client.read(1000, piece=1000)
        client.reset()
        await world.until(lambda: world.server.connection_count == 0)
        assert not ours(caplog)

    tell(story)
