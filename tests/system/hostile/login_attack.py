"""Holds hostile conversations with the listeners of a broker that want a login, many at once; nobody may get in.

After its hostile frame each client asks for something that only those may ask who have logged in. An answer without an
error is the failure that is looked for. A conversation is over when the broker has closed, or refused that; what is
left unfinished on purpose is ended by the client, and then the broker must close.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import uvloop

from tests.system.hostile.fuzz_logins import PROBE, PROBE_ID, REST_S, Conversation

SILENCE_S_MAX = 60.0
ATTEMPTS = 10
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # a port that the other side closed first would be taken for a minute

Numbered = tuple[int, Conversation]


class GotIn(AssertionError):
    """A client was served without authentication, or an honest one was not served."""


class Unanswered(AssertionError):
    """A conversation neither went on nor ended."""


class CutOff(Exception):
    """The broker closed when all was in order, as it does when a handshake of TLS has taken ten seconds."""


@dataclass
class LoginOutcome:
    """The fate of the conversations."""

    count: int = 0
    honest: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # told so
    closed: Counter[str] = field(default_factory=Counter)
    over_tls: int = 0
    repeated: int = 0  # from the beginning, after they were cut off
    seconds: float = 0.0

    def table(self) -> str:
        kinds = sorted({*self.refused, *self.closed})
        return "\n".join(f"{kind}: {self.refused[kind]} refused, {self.closed[kind]} closed" for kind in kinds)


class _Line(asyncio.Protocol):
    """One connection; under TLS its records pass through memory, where they can be changed."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)

    def data_received(self, data: bytes) -> None:
        if self._tls is None:
            self._received += data
        else:
            self._incoming.write(data)
        self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _more(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    async def begin_tls(self, context: ssl.SSLContext) -> bool:
        """Whether the handshake succeeded."""
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._incoming.write(bytes(self._received))
        self._received.clear()
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.write(self._outgoing.read())
                if self.is_closed:
                    return False
                await self._more()
            else:
                self.write(self._outgoing.read())
                return True

    def sealed(self, data: bytes) -> bytes:
        """As it goes out."""
        if self._tls is None:
            return data
        for at in range(0, len(data), 16_384):
            self._tls.write(data[at : at + 16_384])
        return self._outgoing.read()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self.is_closed:
            self._transport.write(data)

    def end(self) -> None:
        """Nothing more will come."""
        if self._transport is not None and not self.is_closed:
            self._transport.write_eof()

    async def frame(self) -> bytes | None:
        """The next answer without its size; None at the end."""
        received = self._received
        while True:
            if self._tls is not None:
                try:
                    while data := self._tls.read(65_536):
                        received += data
                except ssl.SSLError:
                    pass  # nothing yet, or an alert, after which the broker closes
            if len(received) >= 4:
                size = 4 + int.from_bytes(received[:4], "big")
                if len(received) >= size:
                    found = bytes(received[4:size])
                    del received[:size]
                    return found
            if self.is_closed:
                return None
            await self._more()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class LoginAttack:
    """Holds all of `conversations` with a broker on this machine, `lines` at a time."""

    def __init__(self, plain_port: int, tls_port: int, conversations: Iterator[Numbered], lines: int) -> None:
        self._plain_port, self._tls_port = plain_port, tls_port
        self._conversations = conversations
        self._lines = lines
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE  # the attacker does not care
        self._dialling = asyncio.Semaphore(200)
        self.outcome = LoginOutcome()

    def run(self) -> LoginOutcome:
        """Until every conversation is over. Raises GotIn, Unanswered."""
        began_s = time.monotonic()
        uvloop.run(self._all())
        self.outcome.seconds = time.monotonic() - began_s
        return self.outcome

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._lines):
                group.create_task(self._some())

    async def _some(self) -> None:
        for number, conversation in self._conversations:
            self.outcome.count += 1
            for attempt in range(ATTEMPTS):
                began_s = time.monotonic()
                try:
                    async with asyncio.timeout(SILENCE_S_MAX):
                        await self._hold(number, conversation)
                    break
                except TimeoutError:
                    fate = f"neither an answer nor an end in {SILENCE_S_MAX:g} s"
                    raise Unanswered(f"{number} ({conversation.kind}): {fate}: {conversation}") from None
                except CutOff as cut:
                    if attempt + 1 == ATTEMPTS or not conversation.over_tls:
                        after = f"after {time.monotonic() - began_s:.1f} s, the {attempt + 1}. time"
                        raise Unanswered(f"{number} ({conversation.kind}): {cut} {after}") from None
                    self.outcome.repeated += 1

    async def _hold(self, number: int, one: Conversation) -> None:
        line = _Line()
        port = self._tls_port if one.over_tls else self._plain_port
        async with self._dialling:
            await asyncio.get_running_loop().create_connection(lambda: line, "127.0.0.1", port)
        try:
            if one.raw:
                assert isinstance(one.last, bytes)
                line.write(one.last)
                line.end()
                while not line.is_closed:
                    await line._more()
                self.outcome.closed[one.kind] += 1
                return
            if one.over_tls:
                self.outcome.over_tls += 1
                if not await line.begin_tls(self._context):
                    raise CutOff("the handshake of TLS failed")
            await self._speak(line, number, one)
        finally:
            line.close()

    async def _speak(self, line: _Line, number: int, one: Conversation) -> None:
        answer = b""
        for said in one.opening:
            line.write(line.sealed(said if isinstance(said, bytes) else said(answer)))
            found = await line.frame()
            if found is None:
                raise CutOff("the broker closed when all was in order")
            answer = found
        if one.rests:
            await asyncio.sleep(REST_S)
        last = one.last if isinstance(one.last, bytes) else one.last(answer)
        data = line.sealed(last if one.derails else last + PROBE)
        line.write(one.spoil(data) if one.spoil is not None else data)
        if one.derails or one.spoil is not None:
            line.end()
        is_in = is_refused = False
        while (found := await line.frame()) is not None:
            if found[:4] == PROBE_ID.to_bytes(4, "big"):
                is_in = found[4:6] == b"\0\0"
                if is_in:
                    break
                is_refused = True
            elif len(found) >= 6 and found[4:6] in (b"\0\x21", b"\0\x22", b"\0\x3a"):  # 33, 34, 58
                is_refused = True
        if is_in != one.is_honest:
            raise GotIn(
                f"{number} ({one.kind}): {'served' if is_in else 'not served'}; {one}, last {last.hex()[:4000]}"
            )
        if one.is_honest:
            self.outcome.honest += 1
        else:
            (self.outcome.refused if is_refused else self.outcome.closed)[one.kind] += 1
