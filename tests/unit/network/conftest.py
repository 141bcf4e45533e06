"""A server on loopback with a scripted handler, and clients that speak frames.

Every story runs on both event loops, and on both under TLS, too.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from kafkalite.config import tls
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.tls import TlsSettings
from kafkalite.network.client_connection import ANONYMOUS, Answer, ClientConnection, Pending
from kafkalite.network.socket_server import Listener, NetworkLimits, SocketServer, Tls
from tests.support.certificates import Authority
from tests.support.descriptors import open_files, open_sockets
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Client:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._received = bytearray()

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def receive(self, size: int) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.sock, size)

    async def ask(self, *payloads: bytes) -> None:
        await self.send(b"".join(map(frame, payloads)))

    async def read(self, size: int, piece: int = 1 << 20) -> bytes:
        """`size` bytes, or fewer if the server closes."""
        while len(self._received) < size:
            try:
                data = await self.receive(piece)
            except ConnectionError:
                break
            if not data:
                break
            self._received += data
        found = bytes(self._received[:size])
        del self._received[:size]
        return found

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


class TlsClient(Client):
    """The same under TLS, of which both directions pass through memory."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client_context().wrap_bio(self._in, self._out, server_hostname="localhost")

    async def shake_hands(self) -> None:
        await self._when_read(self._tls.do_handshake, 1 << 16)
        await super().send(self._out.read())

    async def send(self, data: bytes) -> None:
        self._tls.write(data)
        await super().send(self._out.read())

    async def receive(self, size: int) -> bytes:
        return await self._when_read(lambda: self._tls.read(size), size)

    async def _when_read(self, step: Callable[[], Any], size: int) -> Any:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                if self._out.pending:
                    await super().send(self._out.read())
                data = await super().receive(size)
                if not data:
                    return b""
                self._in.write(data)
            except ssl.SSLZeroReturnError:
                return b""


@functools.cache
def authority() -> Authority:
    return Authority()


@functools.cache
def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority().pem.decode())


@functools.cache
def server_context() -> ssl.SSLContext:
    identity = authority().identify()
    settings = TlsSettings.read(lambda name: getattr(BrokerConfig(), name.replace(".", "_")))
    inline = {"keystore_key": identity.key_pem().decode(), "keystore_certificate_chain": identity.chain_pem.decode()}
    return tls.server_context(settings._replace(**inline))


class World:
    """`handle` answers a request with itself, after "wait " when it is told so; tests replace it by their own."""

    frame = staticmethod(frame)

    def __init__(self, *, with_tls: bool) -> None:
        self.with_tls = with_tls
        self.clock = ManualClock()
        self.requests: list[bytes] = []
        self.peers: list[ClientConnection] = []
        self.waiting: dict[bytes, asyncio.Future[Any]] = {}
        self.answer: Callable[[ClientConnection, memoryview], Answer] | None = None
        self.clients: list[Client] = []

    async def start(self, limits: NetworkLimits | None = None, processors: int = 2) -> None:
        listeners = [Listener("PLAINTEXT", "127.0.0.1", 0, self.tls())]
        self.server = SocketServer(listeners, self.handle, limits or NetworkLimits(), self.clock, processors)
        await self.server.start()

    def tls(self) -> Tls | None:
        """For the listeners of this world."""
        return Tls(server_context, lambda _: ANONYMOUS) if self.with_tls else None

    def handle(self, peer: ClientConnection, request: memoryview) -> Answer:
        self.requests.append(bytes(request))
        self.peers.append(peer)
        if self.answer is not None:
            answer: Any = self.answer(peer, request)
            return Pending.of(answer) if isinstance(answer, Awaitable) and not isinstance(answer, Pending) else answer
        if bytes(request[:5]) == b"wait ":
            future = self.waiting[bytes(request)] = asyncio.get_running_loop().create_future()
            return Pending.of(future)
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
        client = TlsClient(sock) if self.with_tls else Client(sock)
        self.clients.append(client)
        await asyncio.get_running_loop().sock_connect(sock, (host, self.server.ports["PLAINTEXT"]))
        if isinstance(client, TlsClient):
            await client.shake_hands()
        return client

    def total(self, counter: str) -> int:
        return sum(getattr(processor, counter) for processor in self.server.processors)


Story = Callable[[World], Awaitable[None]]
Tell = Callable[[Story], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tell" in metafunc.fixturenames and not hasattr(metafunc.module, "pytest_generate_tests"):
        loops = ["uvloop", "asyncio"]
        if not getattr(metafunc.module, "WITHOUT_TLS", False):
            loops += [f"{loop}-TLS" for loop in loops]
        metafunc.parametrize("tell", loops, indirect=True)


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """Runs a story in a fresh world; afterwards nothing may be left of it."""

    def tell(story: Story) -> None:
        loop, _, tls = request.param.partition("-")
        factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_whole(story, with_tls=bool(tls)))

    return tell


async def _whole(story: Story, *, with_tls: bool) -> None:
    gc.collect()  # what an earlier failure left
    sockets, cold_reads = open_sockets(), open_cold_reads()
    world = World(with_tls=with_tls)
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
