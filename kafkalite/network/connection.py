"""One client connection: frames in, handler, answers out; one request in flight, answers in the order of the requests.

A turn: receive once, hand every whole frame to the handler, write all immediate answers at once. An answer that must be
awaited parks this connection: what follows stays unhandled until it is done. So does a peer that reads slowly: no
further request is handled while an answer has not left. Meanwhile up to `HELD_BYTES_MAX` more are received, mostly to
see a peer leave; then the kernel's buffer fills and the peer waits. A long train of requests is cut after
`TURN_FRAMES` or `TURN_BYTES` so that other connections get their turn.

Raw sockets with add_reader, not a transport with BufferedProtocol: both cost the same for a small request (uvloop, 5
in flight: 4.3 and 4.7 us of CPU each; one in flight: equal within noise), and the socket gives what a transport hides:
where to receive is chosen for each read, sendfile needs neither a dup of the descriptor nor an empty write buffer, a
sent byte has left Python, and the end of a stream is seen while reading rests.

When the peer leaves, its parked request is cancelled and the requests it had sent are still handled (a producer with
acks=0 may send and go); their answers are dropped.
Source: kafka.network.Processor, org.apache.kafka.common.network.{KafkaChannel, Selector}.
"""

from __future__ import annotations

import logging
import socket
from asyncio import AbstractEventLoop, Future, ensure_future
from collections.abc import Awaitable
from time import monotonic

from kafkalite.common.errors import Disconnect, Malformed
from kafkalite.common.region import Part
from kafkalite.network.client_connection import ClientConnection, DeferredResponse
from kafkalite.network.framing import LARGE_FRAME_BYTES, Framer
from kafkalite.network.processor import Processor
from kafkalite.network.sender import TURN_BYTES, Sender

HELD_BYTES_MAX = LARGE_FRAME_BYTES
TURN_FRAMES = 64
TURN_SECONDS = 0.005
"""A turn ends with the request that has taken it beyond this: 64 of those that unpack a batch to look into it would
take seconds, in which nobody else is served."""
COALESCED_BYTES = 64 * 1024

_log = logging.getLogger("kafkalite.network")


class Connection:
    """Serves one accepted, non-blocking socket from its construction to `close`.

    Busy means that no further request is handled now: one is parked, an answer has not left, or the turn was cut.
    """

    __slots__ = (
        "_at_end",
        "_cut",
        "_draining",
        "_fd",
        "_framer",
        "_gone",
        "_loop",
        "_parked",
        "_processor",
        "_reading",
        "_recv_into",
        "_sender",
        "_sock",
        "_unfinished",
        "active_ms",
        "peer",
    )

    def __init__(self, sock: socket.socket, peer: ClientConnection, processor: Processor) -> None:
        self.peer = peer
        self.active_ms = processor.now_ms
        self._processor = processor
        self._loop: AbstractEventLoop = processor.loop
        self._sock: socket.socket | None = sock  # None: closed
        self._fd = sock.fileno()
        self._recv_into = sock.recv_into
        self._framer = Framer(processor.memory, processor.frame_bytes_max)
        self._sender = Sender(self._loop, sock, processor.cold_reads, self._moved, self._drained, self._failed)
        self._parked: Future[list[Part] | None] | DeferredResponse | None = None
        self._cut = False  # the rest of the turn is scheduled
        self._reading = True  # whether the loop tells us of received bytes
        self._unfinished = False  # part of a large request is here, and counted
        self._gone = False  # the peer left: answers are dropped
        self._at_end = False  # and all it sent has been received
        self._draining = False
        processor.add(self)
        self._loop.add_reader(self._fd, self._readable)

    @property
    def is_parked(self) -> bool:
        return self._parked is not None

    def drain(self) -> None:
        self._draining = True
        self._stop_reading()
        self._go_on()

    def close(self) -> None:
        sock = self._sock
        if sock is None:
            return
        self._sock = None
        self._stop_reading()
        self._processor.hangups.forget(self._fd)
        self._sender.close()
        sock.close()
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None
        self._framer.drop()
        self.peer.fast_paths.clear()
        if self._unfinished:
            self._note_unfinished()
        self._processor.release(self)

    # Requests come in.

    def _readable(self) -> None:
        if self._parked is not None or self._sender.pending or self._cut:
            self._receive_ahead()
            return
        framer = self._framer
        try:
            count = self._recv_into(framer.room())
        except (BlockingIOError, InterruptedError):
            framer.settle(False)
            return
        except OSError as reason:
            self._failed(reason)
            return
        if not count:
            self._ended()
            return
        processor = self._processor
        processor.bytes_in += count
        self.active_ms = processor.now_ms
        framer.received(count)
        if not self._serve():
            self._look_for_reset()
        if framer.unfinished_bytes or self._unfinished:
            self._note_unfinished()

    def _receive_ahead(self) -> None:
        """While busy: receive a bounded amount, to see the peer leave and to have its next request at hand."""
        framer = self._framer
        if self._cut:  # goes on in this very iteration of the loop
            self._look_for_reset()
            return
        if framer.held_bytes >= HELD_BYTES_MAX:
            self._stop_reading()
            self._processor.hangups.watch(self._fd, self._hung_up)
            return
        count = -1
        try:
            try:
                count = self._recv_into(framer.room()[:HELD_BYTES_MAX])
                framer.received(count)
            except (BlockingIOError, InterruptedError):
                pass
            framer.settle(False)
        except OSError as reason:
            self._failed(reason)
            return
        if not count:
            self._ended()
            return
        if count > 0:
            self._processor.bytes_in += count
            if framer.unfinished_bytes or self._unfinished:
                self._note_unfinished()
        self._look_for_reset()

    def _note_unfinished(self) -> None:
        held_bytes = self._framer.unfinished_bytes if self._sock is not None else 0
        self._unfinished = held_bytes > 0
        self._processor.unfinished.note(self, held_bytes)

    def give_way(self) -> None:
        """The bytes of unfinished requests are too many, and this one's have rested longest."""
        limit = self._processor.unfinished.bytes_max
        self._failed(Disconnect(f"its unfinished request gave way: all together have more than {limit} bytes"))

    def _look_for_reset(self) -> None:
        """Make sure of hearing about a reset; needed where a turn sends nothing, for sending would fail.

        With data before a reset, uvloop calls back once and then never again (libuv stops a poll at EPOLLERR). Asking
        for the error clears it, and what is left are an ordinary end of the stream and a new registration.
        """
        sock = self._sock
        if sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._loop.call_soon(self._register_again)

    def _register_again(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._fd)
            self._loop.add_reader(self._fd, self._readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _hung_up(self) -> None:
        """The peer is gone, but what it sent before may still be in the kernel's buffer."""
        self._gone = True
        self._sender.drop()
        self._give_up()

    def _ended(self) -> None:
        """All that the peer sent has been received."""
        self._framer.settle(False)
        self._at_end = True
        self._stop_reading()
        self._hung_up()

    # Requests are handled.

    def _serve(self) -> bool:
        """Handle the whole frames that are here, until one must wait, the socket is full or the turn is long enough.

        Tells whether something was sent (or the connection is closed).
        """
        try:
            answered = self._handle_frames()
            self._framer.settle(self._parked is not None or self._sender.pending)
        except Exception as reason:
            self._failed(reason)
            return True
        return answered

    def _handle_frames(self) -> bool:
        next_frame = self._framer.next_frame
        processor = self._processor
        handler = processor.handler
        peer = self.peer
        count = sent_bytes = out_bytes = 0
        ends_s = monotonic() + TURN_SECONDS
        out: list[Part] = []
        try:
            while (frame := next_frame()) is not None:
                count += 1
                answer = handler(peer, frame)
                if isinstance(answer, list):
                    out += answer
                    out_bytes += sum(map(len, answer))
                    if out_bytes >= COALESCED_BYTES:
                        full, out = out, []
                        sent_bytes += out_bytes
                        out_bytes = 0
                        self._send(full)
                        if self._sender.pending:
                            break
                elif answer is not None:
                    self._park(answer)
                    break
                if count >= TURN_FRAMES or sent_bytes >= TURN_BYTES or monotonic() > ends_s:
                    self._cut = True
                    self._loop.call_soon(self._continue)
                    break
        finally:  # what was answered goes out, also before a request that waits or fails
            processor.requests += count
            processor.bytes_out += sent_bytes + out_bytes
            if out:
                self._send(out)
        return sent_bytes + out_bytes > 0 and not self._gone

    def _continue(self) -> None:
        self._cut = False
        self._go_on()

    def _park(self, answer: DeferredResponse | Awaitable[list[Part] | None]) -> None:
        if isinstance(answer, DeferredResponse):
            self._parked = answer
            answer.on_answer = self._replied
            answer.on_failure = self._reply_failed
            if self._gone:
                self._loop.call_soon(self._give_up)
            return
        parked = ensure_future(answer, loop=self._loop)
        self._parked = parked
        self._processor.parked.add(parked)
        parked.add_done_callback(self._answered)
        if self._gone:
            # a turn later: a task that is cancelled before its first step never cancels what it was to wait for
            self._loop.call_soon(parked.cancel)

    def _answered(self, parked: Future[list[Part] | None]) -> None:
        processor = self._processor
        processor.parked.discard(parked)
        reason = None if parked.cancelled() else parked.exception()
        if self._parked is not parked:
            return  # closed meanwhile
        if isinstance(reason, Exception):
            self._parked = None
            self._failed(reason)
        elif parked.cancelled() and not self._gone:  # by whoever would have answered: there is nothing to tell
            self.close()
        else:
            self._replied([] if parked.cancelled() else parked.result() or [])

    def _replied(self, answer: list[Part]) -> None:
        """What this connection was parked for has come; nothing, if no response is due."""
        self._parked = None
        processor = self._processor
        self.active_ms = processor.now_ms
        if answer:
            processor.bytes_out += sum(map(len, answer))
            try:
                self._send(answer)
            except Exception as failure:
                self._failed(failure)
                return
        self._go_on()

    def _reply_failed(self, reason: Exception) -> None:
        self._parked = None
        self._failed(reason)

    def _give_up(self) -> None:
        """The peer is gone: whatever it waits for, it will not hear of it."""
        parked = self._parked
        if parked is not None:
            parked.cancel()
            if not isinstance(parked, DeferredResponse):
                return  # goes on when the future is done
            self._parked = None
        self._go_on()

    def _go_on(self) -> None:
        """Something that made this connection busy is over: handle what is held, then read on; or close at last."""
        sender = self._sender
        if self._sock is None or self._parked is not None or sender.pending or self._cut:
            return
        if self._draining:
            self.close()
            return
        self._serve()
        if self._sock is None:
            return
        if self._framer.unfinished_bytes or self._unfinished:
            self._note_unfinished()
        if self._sock is None or self._parked is not None or sender.pending or self._cut:
            return
        if self._at_end:
            self.close()
        elif not self._reading:
            self._processor.hangups.forget(self._fd)
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    # Answers go out.

    def _send(self, parts: list[Part]) -> None:
        if not self._gone:
            self._sender.send(parts)

    def _moved(self) -> None:
        self.active_ms = self._processor.now_ms  # who reads slowly is not idle

    def _drained(self) -> None:
        self._go_on()

    def _failed(self, reason: Exception) -> None:
        """Close for `reason`, and say so if someone can do something about it."""
        if self._sock is None:
            return
        about = self._processor.complaints.about
        if isinstance(reason, (ConnectionError, TimeoutError)):
            pass  # the peer is gone
        elif isinstance(reason, Malformed):
            about(self.peer.host, "malformed", f"closed its connection to {self.peer.listener_name}: {reason}")
        elif isinstance(reason, (Disconnect, OSError)):
            if str(reason):
                about(self.peer.host, str(reason), f"closed its connection to {self.peer.listener_name}: {reason}")
        else:
            _log.error("closed the connection of %r: a request failed", self.peer, exc_info=reason)
        self.close()
