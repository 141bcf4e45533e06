"""Clients by the thousand, in one event loop: busy ones, idle ones, and slow ones.

All speak frames over sockets of their own. Source addresses are spread over 127.0.0.0/8 where the system takes them,
so that the ports of one address do not run short.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
import time
from pathlib import Path

from bench import wire
from bench.records import record_batch
from bench.usage import ProcessTree
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.metadata import ApiVersionsRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from tests.support.wait import DEADLINE_S

CONNECTING_MAX = 16  # a listener's backlog holds 50, and who finds it full comes again a second later
SOURCES = 16 if sys.platform == "linux" else 1
PRODUCE_VERSION, FETCH_VERSION = 7, 11
HELLO = request_frame(ApiVersionsRequest(), 0, 7, "many")
_BATCH_OFFSET_BYTES = 16  # base offset, length and leader epoch of a batch, which the broker stamps


class Crowd:
    """Where all the clients of a story come from. `close` sees to whatever is still open."""

    def __init__(self, bootstrap: str, pid: int) -> None:
        self._address = wire.split_host(bootstrap)
        self._pid = pid
        self._gate = asyncio.Semaphore(CONNECTING_MAX)
        self._made = 0
        self._open: set[Client] = set()

    async def connect(self, receive_bytes: int | None = None) -> Client:
        """A connection that the broker has taken: it has answered on it."""
        async with self._gate:
            client = await self._dial(receive_bytes)
            await client.exchange(HELLO)
        return client

    async def idle(self, count: int) -> list[Client]:
        """Connections that have nothing to say; one of two has never said anything."""

        async def two() -> tuple[Client, Client]:
            async with self._gate:
                silent, polite = await self._dial(), await self._dial()
                await polite.exchange(HELLO)  # connections are taken in turn: the silent one was, too
            return silent, polite

        pairs = await asyncio.gather(*(two() for _ in range(count // 2)))
        return [client for pair in pairs for client in pair]

    async def _dial(self, receive_bytes: int | None = None) -> Client:
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._made += 1
        sock.bind((f"127.0.0.{1 + self._made % SOURCES}", 0))
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.get_running_loop().sock_connect(sock, self._address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(sock)
        self._open.add(client)
        return client

    def close(self) -> None:
        for client in self._open:
            client.close()
        self._open.clear()

    # the broker seen from outside

    def resident_bytes(self) -> int:
        return ProcessTree(self._pid).memory().resident_bytes

    def broker_sockets(self) -> int:
        return len([kind for kind in self.broker_files() if kind.startswith("socket:")])

    def removed_files(self) -> list[str]:
        """Files that are unlinked and still open."""
        return [path for path in self.broker_files() if path.endswith(" (deleted)")]

    def broker_files(self) -> list[str]:
        """The kind of each descriptor of the broker."""
        found = []
        for path in Path(f"/proc/{self._pid}/fd").iterdir():
            try:
                found.append(os.readlink(path))
            except OSError:
                continue  # closed meanwhile
        return found


class Client:
    """One connection, one request at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def read(self, size: int) -> memoryview:
        """So many bytes, fewer if the broker closes."""
        data = memoryview(bytearray(size))
        received = 0
        while received < size:
            count = await self._loop.sock_recv_into(self.sock, data[received:])
            if not count:
                break
            received += count
        return data[:received]

    async def exchange(self, frame: bytes) -> memoryview:
        """Send a request; its answer without the size."""
        async with asyncio.timeout(DEADLINE_S):
            await self.send(frame)
            return await self.answer()

    async def answer(self) -> memoryview:
        size = await self.read(4)
        assert len(size) == 4, "the broker closed a connection that did nothing wrong"
        return await self.read(struct.unpack(">i", size)[0])

    async def is_closed(self) -> bool:
        """Waits for what comes: True if it is the end."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return not await self._loop.sock_recv(self.sock, 1)
            except ConnectionError:
                return True

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def base_offset(answer: memoryview) -> int:
    """Of the one partition in an answer to Produce."""
    _, response = decode_response(ProduceRequest, PRODUCE_VERSION, answer)
    told = response.responses[0].partition_responses[0]
    assert told.error_code == 0, told
    return int(told.base_offset)


def fetched(answer: memoryview) -> memoryview:
    """The record bytes of the one partition in an answer to Fetch."""
    _, response = decode_response(FetchRequest, FETCH_VERSION, answer)
    told = response.responses[0].partitions[0]
    assert told.error_code == 0, f"fetch: error {told.error_code}"
    return memoryview(told.records or b"")


class Busy:
    """Writes a record, reads it back, and again; `latencies_s` are of whole turns, two requests each."""

    def __init__(self, client: Client, topic: str, partition: int, number: int) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._batch = record_batch(1, 100, timestamp_ms=1_700_000_000_000 + number)  # nobody else's
        self._produce = wire.produce_frame(topic, partition, self._batch, acks=-1)
        self.latencies_s: list[float] = []

    async def work_until(self, deadline: float) -> None:
        """Once at least: on busy cores the deadline may be over before everybody has had a turn."""
        client, batch = self._client, self._batch
        while (began := time.perf_counter()) < deadline or not self.latencies_s:
            offset = base_offset(await client.exchange(self._produce))
            frame = wire.fetch_frame(self._topic, self._partition, offset, len(batch))
            data = fetched(await client.exchange(frame))
            assert int.from_bytes(data[:8], "big") == offset
            assert data[_BATCH_OFFSET_BYTES : len(batch)] == batch[_BATCH_OFFSET_BYTES:], "somebody else's record"
            self.latencies_s.append(time.perf_counter() - began)


class SlowReader:
    """Asks for more than any buffer holds, reads the beginning of the answer, and stops."""

    RECEIVE_BYTES = 32 * 1024
    FIRST_BYTES = 100_000
    PACE_S = 0.02

    def __init__(self, client: Client) -> None:
        self.client = client
        self._size = 0
        self._first = memoryview(b"")

    async def begin(self, frame: bytes) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self.client.send(frame)
            (self._size,) = struct.unpack(">i", await self.client.read(4))
            self._first = await self.client.read(self.FIRST_BYTES)

    async def go_on(self, over_s: float = 0.0) -> memoryview:
        """The whole answer at last, the rest of it read evenly over some time."""
        pieces = [bytes(self._first)]
        left = self._size - len(self._first)
        piece_bytes = left if not over_s else max(1, int(left * self.PACE_S / over_s))
        async with asyncio.timeout(DEADLINE_S):
            while left:
                piece = await self.client.read(min(left, piece_bytes))
                assert piece, f"the broker closed with {left} bytes to go"
                pieces.append(bytes(piece))
                left -= len(piece)
                if over_s:
                    await asyncio.sleep(self.PACE_S)
        return memoryview(b"".join(pieces))


async def trickle(client: Client, witness: Client, frame: bytes) -> memoryview:
    """Send a frame byte by byte; between two bytes the broker has answered someone else, so it has seen the first."""
    for position in range(len(frame)):
        await client.send(frame[position : position + 1])
        await witness.exchange(HELLO)
    async with asyncio.timeout(DEADLINE_S):
        return await client.answer()
