"""Sends hostile frames over many connections at once and sees to it that each is answered or has its connection closed.

A connection gets a window of frames and behind them an ApiVersions request. When that is answered, every frame before
it was handled: answered, or silent by right (a produce with acks=0). When the broker closes instead, the first frame
without an answer was its reason, and those behind it go out again elsewhere. A frame whose size lies goes alone, and
then the sending side is shut: whatever the broker makes of it, it must end the connection. A connection that may wait
(for a whole fetch or join) is left alone for a moment and then closed; no other may be silent for long.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from kafkalite.common.errors import Malformed
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_request_header
from kafkalite.protocol.messages.produce import ProduceRequest
from tests.system.hostile.fuzz_frames import Hostile
from tests.system.hostile.fuzz_golden import correlation_of

FETCH, JOIN_GROUP, SYNC_GROUP = 1, 11, 14
MAY_WAIT = (FETCH, JOIN_GROUP, SYNC_GROUP)
PATIENCE_S = 1.0  # with those that may wait, while others are being answered
PATIENCE_ALONE_S = 5.0  # and while nobody is
SILENCE_S_MAX = 60.0  # of anybody else
PROBE_ID = 0x50524F42
PROBE = struct.pack(">ihhih", 10, 18, 0, PROBE_ID, -1)
WINDOW_FRAMES = 12
RECEIVED_BYTES = 64 << 10
DIALLING_MAX = 400  # below the backlog of the attacked broker: what is above it is dropped, and tried a second later
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)

Numbered = tuple[int, Hostile]


class Unanswered(AssertionError):
    """A frame got neither an answer nor the end of its connection, or an answer that is none of its own."""


@dataclass
class Outcome:
    """The fate of the frames."""

    frame_count: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    waiting: Counter[str] = field(default_factory=Counter)
    silent: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    seconds: float = 0.0
    ended_at: dict[int, list[int]] = field(default_factory=dict)  # our port -> the numbers of the frames that ended it

    def table(self) -> str:
        kinds = sorted({*self.answered, *self.closed, *self.waiting, *self.silent})
        return "\n".join(
            f"{kind}: {self.answered[kind]} answered, {self.closed[kind]} closed, {self.silent[kind]} silent by right, "
            f"{self.waiting[kind]} hung up on while they waited"
            for kind in kinds
        )


class _Line:
    """One connection and its window."""

    def __init__(self, sock: socket.socket, window: deque[Numbered]) -> None:
        self.sock = sock
        self.port = sock.getsockname()[1]
        self.outstanding = window
        self.derailed = window[-1][1].derails
        data = b"".join(hostile.data for _, hostile in window)
        self.unsent = memoryview(data if self.derailed else data + PROBE)
        self.received = bytearray()
        self.moved_s = time.monotonic()
        self.dialling = True


class Attack:
    """Sends all of `frames` to a broker on this machine, over `lines` connections."""

    def __init__(self, port: int, frames: Iterator[Numbered], lines: int) -> None:
        self._address = ("127.0.0.1", port)
        self._frames = frames
        self._lines = lines
        self._again: deque[Numbered] = deque()
        self._lies: deque[Numbered] = deque()
        self._open: dict[int, _Line] = {}
        self._dialling = 0
        self._heard_s = time.monotonic()  # when anything came from the broker
        self._poll = select.epoll()
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Until every frame has met its end. Raises Unanswered."""
        began_s = swept_s = time.monotonic()
        try:
            while True:
                while len(self._open) < self._lines and self._dialling < DIALLING_MAX and (window := self._window()):
                    self._dial(window)
                if not self._open:
                    break
                for fd, event in self._poll.poll(0.05):
                    self._move(self._open[fd], event)
                now_s = time.monotonic()
                if now_s - swept_s > PATIENCE_S / 3:
                    swept_s = now_s
                    self._sweep(now_s)
        finally:
            for line in self._open.values():
                line.sock.close()
            self._poll.close()
        self.outcome.seconds = time.monotonic() - began_s
        return self.outcome

    def _window(self) -> deque[Numbered]:
        window: deque[Numbered] = deque()
        while len(window) < WINDOW_FRAMES:
            if self._lies and not window:
                one = self._lies.popleft()
            elif self._again:
                one = self._again.popleft()
            else:
                try:
                    one = next(self._frames)
                except StopIteration:
                    break
                self.outcome.frame_count += 1
            if one[1].derails:  # alone: with the sending side shut, what is answered late to others would be dropped
                if window:
                    self._lies.append(one)
                    continue
                window.append(one)
                break
            window.append(one)
        return window

    def _dial(self, window: deque[Numbered]) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(self._address)  # in progress: it can be written to when it is there
        # whoever closes first keeps the port for a minute: a reset leaves none behind
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        line = _Line(sock, window)
        self.outcome.connections += 1
        self._open[sock.fileno()] = line
        self._poll.register(sock, select.EPOLLIN | select.EPOLLOUT)
        self._dialling += 1

    def _move(self, line: _Line, event: int) -> None:
        if line.dialling:
            line.dialling = False
            self._dialling -= 1
            if reason := line.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise Unanswered(f"no connection: {os.strerror(reason)}")
        if event & select.EPOLLOUT:
            self._send(line)
        if event & ~select.EPOLLOUT:
            self._receive(line)

    def _send(self, line: _Line) -> None:
        try:
            sent = line.sock.send(line.unsent)
        except BlockingIOError:
            return
        except OSError:
            line.unsent = line.unsent[:0]  # what the broker said before it closed is still to be read
            self._poll.modify(line.sock, select.EPOLLIN)
            return
        line.moved_s = time.monotonic()
        line.unsent = line.unsent[sent:]
        if not line.unsent:
            self._poll.modify(line.sock, select.EPOLLIN)
            if line.derailed:
                line.sock.shutdown(socket.SHUT_WR)

    def _receive(self, line: _Line) -> None:
        try:
            data = line.sock.recv(RECEIVED_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended(line)
            return
        line.moved_s = self._heard_s = time.monotonic()
        received = line.received
        received += data
        at = 0
        while len(received) - at >= 8:
            size, correlation_id = struct.unpack_from(">ii", received, at)
            if len(received) - at - 4 < size:
                break
            at += 4 + size
            if self._answered(line, correlation_id):
                return
        del received[:at]

    def _answered(self, line: _Line, correlation_id: int) -> bool:
        """Note the answer; True if it was the last one and the connection is done with."""
        outstanding = line.outstanding
        while outstanding:
            number, hostile = outstanding.popleft()
            # behind a size that lies something else may have been read as a frame
            if correlation_of(hostile.data) == correlation_id or hostile.derails:
                self.outcome.answered[hostile.kind] += 1
                return False
            if not _is_silent(hostile.data):
                raise Unanswered(f"frame {number} ({hostile.kind}) was passed over: {hostile.data.hex()}")
            self.outcome.silent[hostile.kind] += 1
        if correlation_id != PROBE_ID and not line.derailed:
            raise Unanswered(f"an answer to nobody, correlation id {correlation_id}")
        if line.derailed:
            return False
        self._close(line)
        return True

    def _ended(self, line: _Line) -> None:
        """The broker closed: the first frame without an answer is why."""
        if line.outstanding:
            number, hostile = line.outstanding.popleft()
            self.outcome.closed[hostile.kind] += 1
            self.outcome.ended_at.setdefault(line.port, []).append(number)
        elif not line.derailed:
            raise Unanswered(f"the connection of port {line.port} ended though its last request was a good one")
        self._again.extend(line.outstanding)
        self._close(line)

    def _close(self, line: _Line) -> None:
        self._poll.unregister(line.sock)
        del self._open[line.sock.fileno()]
        line.sock.close()

    def _sweep(self, now_s: float) -> None:
        for line in list(self._open.values()):
            silent_s = now_s - line.moved_s
            if line.unsent and silent_s < SILENCE_S_MAX:
                continue
            if silent_s < PATIENCE_S:
                continue
            # a silent produce before it may hide who waits
            waits = next((one for one in line.outstanding if not _is_silent(one[1].data)), None)
            others_go_on = self._heard_s - line.moved_s > PATIENCE_S or silent_s > PATIENCE_ALONE_S
            if others_go_on and not line.derailed and waits is not None and _may_wait(waits[1].data):
                while (one := line.outstanding.popleft()) is not waits:
                    self.outcome.silent[one[1].kind] += 1
                self.outcome.waiting[waits[1].kind] += 1
                self._again.extend(line.outstanding)
                self._close(line)
            elif silent_s > SILENCE_S_MAX:
                number, hostile = line.outstanding[0] if line.outstanding else (-1, Hostile("probe", PROBE))
                raise Unanswered(
                    f"frame {number} ({hostile.kind}) got no answer for {SILENCE_S_MAX:g} s: {hostile.data.hex()}"
                )


def _request(frame: bytes) -> tuple[int, Message] | None:
    """The API and the message, if a decoder finds one in it."""
    data = memoryview(frame)[4:]
    try:
        (key, version, _, _), position = decode_request_header(data)
        return key, decode(APIS[key].request, version, data, position)[0]
    except (Malformed, KeyError):
        return None


def _may_wait(frame: bytes) -> bool:
    """A whole request whose answer may depend on others, or on time."""
    found = _request(frame)
    return found is not None and found[0] in MAY_WAIT


def _is_silent(frame: bytes) -> bool:
    """A whole produce request with acks=0."""
    found = _request(frame)
    return found is not None and isinstance(found[1], ProduceRequest) and found[1].acks == 0
