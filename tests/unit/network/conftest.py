"""A server on loopback with a scripted handler, and clients that speak frames. Every story runs on both event loops."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from kafkalite.network.client_connection import Answer, ClientConnection
from kafkalite.network.socket_server import Listener, NetworkLimits, SocketServer
from tests.support.descriptors import open_files, open_sockets
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Client:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._received = b""

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def ask(self, *payloads: bytes) -> None:
        await self.send(b"".join(map(frame, payloads)))

    async def read(self, size: int, piece: int = 1 << 20) -> bytes:
        """`size` bytes, or fewer if the server closes."""
        while len(self._received) < size:
            try:
                data = await asyncio.get_running_loop().sock_recv(self.sock, piece)
            except ConnectionError:
                break
            if not data:
                break
            self._received += data
        data, self._received = self._received[:size], self._received[size:]
        return data

    async def answer(self) -> bytes:
        (size,) = struct.unpack(">i", await self.read(4))
        return await self.read(size)

    async def is_closed(self) -> bool:
        """Waits until something comes: True if that is the end."""
        return not await self.read(1)

    def leave(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class World:
    """`handle` answers a request with itself, after "wait " when it is told so; tests replace it by their own."""

    frame = staticmethod(frame)

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.requests: list[bytes] = []
        self.peers: list[ClientConnection] = []
        self.waiting: dict[bytes, asyncio.Future[Any]] = {}
        self.answer: Callable[[ClientConnection, memoryview], Answer] | None = None
        self.clients: list[Client] = []

    async def start(self, limits: NetworkLimits | None = None, processors: int = 2) -> None:
        listeners = [Listener("PLAINTEXT", "127.0.0.1", 0)]
        self.server = SocketServer(listeners, self.handle, limits or NetworkLimits(), self.clock, processors)
        await self.server.start()

    def handle(self, peer: ClientConnection, request: memoryview) -> Answer:
        self.requests.append(bytes(request))
        self.peers.append(peer)
        if self.answer is not None:
            return self.answer(peer, request)
        if bytes(request[:5]) == b"wait ":
            future = self.waiting[bytes(request)] = asyncio.get_running_loop().create_future()
            return future
        return None if bytes(request[:6]) == b"silent" else [frame(bytes(request))]

    def release(self, request: bytes) -> None:
        self.waiting[request].set_result([frame(request)])

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the loop turn until `condition` holds."""
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def connect(self, receive_bytes: int | None = None, host: str = "127.0.0.1") -> Client:
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setblocking(False)
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client = Client(sock)
        self.clients.append(client)
        await asyncio.get_running_loop().sock_connect(sock, (host, self.server.ports["PLAINTEXT"]))
        return client

    def total(self, counter: str) -> int:
        return sum(getattr(processor, counter) for processor in self.server.processors)


Story = Callable[[World], Awaitable[None]]
Tell = Callable[[Story], None]


@pytest.fixture(params=["uvloop", "asyncio"])
def tell(request: pytest.FixtureRequest) -> Tell:
    """Runs a story in a fresh world; afterwards nothing may be left of it."""

    def tell(story: Story) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_whole(story))

    return tell


async def _whole(story: Story) -> None:
    gc.collect()  # what an earlier failure left
    sockets, cold_reads = open_sockets(), open_cold_reads()
    world = World()
    async with asyncio.timeout(DEADLINE_S):
        try:
            await story(world)
        finally:
            await world.server.stop(grace_ms=0)
            for client in world.clients:
                client.leave()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert world.server.connection_count == 0
    ports = world.server.ports.values()
    async with asyncio.timeout(DEADLINE_S):  # clients of earlier tests may open a socket that is nowhere yet
        await world.until(lambda: not open_sockets(ports) - sockets and open_cold_reads() <= cold_reads)


def open_cold_reads() -> int:
    """The descriptors that `ColdReads` sends files to, of all servers in this process."""
    return list(open_files().values()).count("/dev/null")
