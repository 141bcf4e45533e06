"""A connection to another broker: frames out of whatever pieces the bytes come in, and every end of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.client.broker_channel import SLAB_BYTES, BrokerConnection, ChannelSecurity
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.security.sasl.client_exchange import ClientExchange, Login
from tests.support.manual_clock import ManualClock
from tests.support.sasl_server import LOGIN, METADATA_VERSION, SaslServer
from tests.support.wait import DEADLINE_S

TIMEOUT_MS = 30_000


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reads = True
        self.is_aborted = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def abort(self) -> None:
        self.is_aborted = True


class Scene:
    """`pauses`: each frame is kept until `resume`."""

    def __init__(self, *, pauses: bool = False) -> None:
        self.clock = ManualClock()
        self.transport = Transport()
        self.pauses = pauses
        self.frames: list[bytes] = []
        self.views: list[memoryview] = []
        self.lost: list[str] = []
        self.connection = BrokerConnection(self._on_frame, self.lost.append, self.clock, TIMEOUT_MS)
        self.connection.connection_made(self.transport)

    def _on_frame(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.views.append(frame)
        if self.pauses:
            self.connection.pause()

    def expect(self, count: int) -> None:
        for _ in range(count):
            self.connection.send(b"request")

    def receive(self, data: bytes) -> None:
        """As much at a time as there is room for."""
        while data and not self.lost:
            room = self.connection.get_buffer(-1)
            assert len(room), "a protocol without room is closed by the loop"
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


PAYLOADS = st.lists(
    st.one_of(
        st.binary(min_size=4, max_size=40),
        st.sampled_from([SLAB_BYTES - 5, SLAB_BYTES - 4, SLAB_BYTES - 3, SLAB_BYTES, 200_000, 40_000]).map(
            lambda size: bytes([size % 251]) * size
        ),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(payloads=PAYLOADS, pieces=st.lists(st.integers(1, 70_000), min_size=1, max_size=8), pauses=st.booleans())
def test_frames_come_whole_and_in_order_however_the_bytes_come(
    payloads: list[bytes], pieces: list[int], pauses: bool
) -> None:
    scene = Scene(pauses=pauses)
    scene.expect(len(payloads))
    data = b"".join(map(frame, payloads))
    pieces = [*pieces, 50_000]  # some bytes at a time, and then many
    position = number = 0
    while position < len(data):
        if not scene.transport.reads:
            kept = scene.frames[-1]
            assert scene.views[-1] == kept  # nothing has overwritten it
            scene.connection.resume()
            continue
        room = scene.connection.get_buffer(-1)
        count = min(pieces[number % len(pieces)], len(room), len(data) - position)
        assert count
        room[:count] = data[position : position + count]
        position += count
        number += 1
        scene.connection.buffer_updated(count)
    while not scene.transport.reads:
        scene.connection.resume()
    assert scene.frames == payloads and not scene.lost


def test_a_response_behind_one_that_is_kept_waits() -> None:
    scene = Scene(pauses=True)
    scene.expect(2)
    scene.receive(frame(b"first") + frame(b"second"))
    assert scene.frames == [b"first"] and not scene.transport.reads
    scene.pauses = False
    scene.connection.resume()
    assert scene.frames == [b"first", b"second"] and scene.transport.reads


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\3", b"\x7f\xff\xff\xff"])
def test_a_size_that_no_response_has_ends_the_connection(size: bytes) -> None:
    scene = Scene()
    scene.expect(1)
    scene.receive(size + b"....")
    assert len(scene.lost) == 1 and scene.transport.is_aborted


def test_a_response_that_nobody_asked_for_ends_it() -> None:
    scene = Scene()
    scene.expect(1)
    scene.receive(frame(b"asked") + frame(b"more"))
    assert scene.frames == [b"asked"] and scene.lost == ["a response without a request"]


def test_its_end_is_told_once() -> None:
    scene = Scene()
    scene.connection.fail("no more")
    scene.connection.connection_lost(None)
    scene.connection.connection_lost(OSError("reset"))
    assert scene.lost == ["no more"] and scene.transport.is_aborted


def test_closed_by_its_owner_it_tells_nothing() -> None:
    scene = Scene()
    scene.expect(1)
    scene.connection.close()
    scene.connection.connection_lost(None)
    scene.clock.advance(10 * TIMEOUT_MS)
    assert scene.lost == []


def test_a_response_that_does_not_come_in_time_ends_it() -> None:
    scene = Scene()
    scene.expect(1)
    scene.clock.advance(TIMEOUT_MS - 1)
    scene.receive(frame(b"just in time"))
    scene.clock.advance(5 * TIMEOUT_MS)  # nothing is expected
    assert scene.lost == []
    scene.expect(1)
    scene.clock.advance(TIMEOUT_MS - 1)
    assert scene.lost == []
    scene.clock.advance(1)
    assert scene.lost == ["no answer in 30000 ms"]


class LoggedIn:
    """A connection to a SASL listener, over real sockets. `said` are the frames that came, `lost` the reasons."""

    def __init__(self, server: SaslServer) -> None:
        self.server = server
        self.clock = ManualClock()
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.lost: list[str] = []
        self.connection = BrokerConnection(
            lambda frame: self.said.put_nowait(bytes(frame)), self.lost.append, self.clock, TIMEOUT_MS
        )

    async def open(self, login: Login = LOGIN) -> None:
        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(EOFError, OSError):
                await self.server.serve(reader, writer)
            writer.close()

        server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            await self.connection.open("127.0.0.1", self.port, -1, ChannelSecurity(None, login))
        finally:
            server.close()

    async def ask(self, count: int = 1) -> list[int]:
        """The correlation ids of the answers to requests that are sent one after another."""
        for number in range(count):
            self.connection.send(request_frame(MetadataRequest(), METADATA_VERSION, number, "c"))
        async with asyncio.timeout(DEADLINE_S):
            return [int.from_bytes((await self.said.get())[:4], "big") for _ in range(count)]


def test_a_login_comes_first_and_again_between_two_requests() -> None:
    async def story() -> None:
        scene = LoggedIn(SaslServer(lifetime_ms=10_000))
        await scene.open()
        assert scene.server.asked == [17, 36]
        assert await scene.ask(2) == [0, 1]
        scene.clock.advance(8_500)
        assert await scene.ask(3) == [0, 1, 2]  # the first waits for the login, the others for the first
        assert scene.server.asked == [17, 36, 3, 3, 17, 36, 3, 3, 3]
        scene.server.error = "Authentication failed: changed"
        scene.clock.advance(8_500)
        scene.connection.send(request_frame(MetadataRequest(), METADATA_VERSION, 7, "c"))
        async with asyncio.timeout(DEADLINE_S):
            while not scene.lost:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)
        assert len(scene.lost) == 1 and "refuses the login of broker by PLAIN" in scene.lost[0]
        assert scene.server.asked[-1] == 36

    asyncio.run(story())


@pytest.mark.parametrize("ends", ["refused", "closed", "silent"])
def test_a_login_that_fails_is_no_connection_and_says_why_once(ends: str) -> None:
    class Ending(SaslServer):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if ends == "refused":
                await super().serve(reader, writer)
            await reader.readexactly(4)
            if ends == "silent":
                scene.clock.advance(TIMEOUT_MS)
                await reader.read()

    scene = LoggedIn(Ending(error="Authentication failed: no"))
    said = {"refused": "Authentication failed: no", "closed": "it closed the connection", "silent": "no answer in"}

    async def story() -> None:
        with pytest.raises(OSError, match=said[ends]):
            await scene.open()
        scene.connection.close()
        assert not scene.lost

    asyncio.run(story())


def test_a_connection_that_is_lost_while_its_login_waits_says_so_once() -> None:
    class Closing(SaslServer):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Closes at once."""

    is_gone = threading.Event()
    scene = LoggedIn(Closing())
    on_lost = scene.connection.connection_lost

    def lost(error: Exception | None) -> None:
        on_lost(error)
        is_gone.set()

    def exchange(host: str) -> ClientExchange:
        assert is_gone.wait(DEADLINE_S)
        return LOGIN.exchange(host)

    async def story() -> None:
        scene.connection.connection_lost = lost  # type: ignore[method-assign]
        with pytest.raises(OSError, match="it closed the connection"):
            async with asyncio.timeout(DEADLINE_S):
                await scene.open(Login("PLAIN", "broker", exchange, may_wait=True))
        assert not scene.lost

    asyncio.run(story())


def test_requests_behind_a_due_login_wait_until_all_responses_have_come() -> None:
    async def story() -> None:
        scene = LoggedIn(SaslServer(lifetime_ms=10_000))
        await scene.open()
        scene.connection.send(request_frame(MetadataRequest(), METADATA_VERSION, 0, "c"))
        scene.clock.advance(8_500)
        assert await scene.ask(2) == [0, 0]  # that of the first, and then the held ones
        async with asyncio.timeout(DEADLINE_S):
            assert int.from_bytes((await scene.said.get())[:4], "big") == 1
        assert scene.server.asked == [17, 36, 3, 17, 36, 3, 3]

    asyncio.run(story())
