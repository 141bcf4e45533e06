"""One client connection: frames in, handler, answers out; one request in flight, answers in the order of the requests.

A turn: receive once, hand every whole frame to the handler, write all immediate answers at once. While an answer is
awaited, or has not left because the client reads slowly, no further request of this connection is handled. Up to
`HELD_BYTES_MAX` bytes more are received meanwhile, mostly to detect a disconnect; then the kernel's buffer fills and
the client waits. A long train of requests is cut after `TURN_FRAMES` or `TURN_BYTES` so that other connections get
their turn.

Raw sockets with add_reader, not a transport with BufferedProtocol: both cost the same for a small request (uvloop, 5
in flight: 4.3 and 4.7 us of CPU each; one in flight: equal within noise), and the socket gives what a transport hides:
where to receive is chosen for each read, sendfile needs neither a dup of the descriptor nor an empty write buffer, a
sent byte has left Python, and the end of a stream is seen while reading is paused.

When the client leaves, its pending response is cancelled, and the requests it had sent are still handled (a producer
with acks=0 may send and go); their answers are dropped.
Source: kafka.network.Processor, org.apache.kafka.common.network.{KafkaChannel, Selector}.
"""

from __future__ import annotations

import logging
import re
import socket
from asyncio import AbstractEventLoop
from typing import ClassVar

from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import Disconnect, Malformed
from kafkalite.common.forks import close_socket
from kafkalite.common.region import Part
from kafkalite.network.client_connection import (
    ClientConnection,
    LastAnswer,
    MutedPending,
    Pending,
    PreemptiblePending,
    ThrottledAnswer,
)
from kafkalite.network.framing import LARGE_FRAME_BYTES, Framer
from kafkalite.network.processor import Processor
from kafkalite.network.sender import TURN_BYTES, Sender

HELD_BYTES_MAX = LARGE_FRAME_BYTES
TURN_FRAMES = 64
TURN_SECONDS = 0.005
"""A turn stops after the request that exceeds this time; 64 requests that decompress would block others for seconds."""
COALESCED_BYTES = 64 * 1024
UNAUTHENTICATED_BYTES_MAX = 512 * 1024  # of a frame, as sasl.server.max.receive.size is at most

_log = logging.getLogger("kafkalite.network")
_NUMBERS = re.compile(r"\d+")


class Connection:
    """Serves one accepted, non-blocking socket from its construction to `close`.

    Busy means that no further request is handled now: a response is pending, an answer has not left, or a turn was cut.
    """

    __slots__ = (
        "_at_end",
        "_cut",
        "_draining",
        "_ending",
        "_fd",
        "_framer",
        "_gone",
        "_is_request_partial",
        "_loop",
        "_pending",
        "_processor",
        "_reading",
        "_recv_into",
        "_sender",
        "_sock",
        "active_ms",
        "client",
    )

    sender_type: ClassVar[type[Sender]] = Sender

    def __init__(self, sock: socket.socket, client: ClientConnection, processor: Processor) -> None:
        self.client = client
        self.active_ms = processor.now_ms
        self._processor = processor
        self._loop: AbstractEventLoop = processor.loop
        self._sock: socket.socket | None = sock  # None: closed
        self._fd = sock.fileno()
        self._recv_into = sock.recv_into
        self._framer = Framer(processor.memory, processor.frame_bytes_max)
        self._sender = self.sender_type(
            self._loop, sock, processor.cold_reads, self._on_progress, self._resume, self._failed
        )
        self._pending: Pending | None = None
        self._cut = False  # the rest of the turn is scheduled
        self._reading = True  # whether the loop watches for received bytes
        self._is_request_partial = False  # part of a large request is here, and counted
        self._gone = False  # the client left: answers are dropped
        self._at_end = False  # and all it sent has been received
        self._draining = False
        self._ending = False  # the last answer is on its way, and the client is to read it
        if client.authenticator is not None:
            self._framer.limit(min(UNAUTHENTICATED_BYTES_MAX, processor.frame_bytes_max))
            client.lift_limit = lambda: self._framer.limit(processor.frame_bytes_max)
        processor.add(self)
        self._loop.add_reader(self._fd, self._readable)

    @property
    def has_pending_response(self) -> bool:
        return self._pending is not None

    def drain(self) -> None:
        self._draining = True
        self._stop_reading()
        if isinstance(self._pending, MutedPending):
            self._cancel_pending()
        self._resume()

    def close(self) -> None:
        sock = self._sock
        if sock is None:
            return
        self._sock = None
        self._stop_reading()
        self._processor.disconnect_watcher.forget(self._fd)
        self._sender.close()
        self._close_socket(sock)
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        self._framer.drop()
        self.client.fast_paths.clear()
        self.client.end_sessions()
        if self._is_request_partial:
            self._update_request_memory()
        self._processor.release(self)

    def _close_socket(self, sock: socket.socket) -> None:
        if self._ending and not self._gone:
            self._processor.lingering.add(sock)
        else:
            close_socket(sock)

    # Requests come in.

    def _readable(self) -> None:
        if self._pending is not None or self._sender.pending or self._cut:
            self._receive_ahead()
            return
        framer = self._framer
        try:
            count = self._recv_into(framer.room())
        except (BlockingIOError, InterruptedError):
            framer.end_turn(False)
            return
        except OSError as reason:
            self._failed(reason)
            return
        if not count:
            self._on_end_of_stream()
            return
        processor = self._processor
        processor.bytes_in += count
        self.active_ms = processor.now_ms
        framer.received(count)
        if not self._serve():
            self._watch_for_reset()
        if framer.partial_request_bytes or self._is_request_partial:
            self._update_request_memory()

    def _receive_ahead(self) -> None:
        """While busy: receive a bounded amount, to detect a disconnect and to have the next request in memory."""
        framer = self._framer
        if self._cut:  # it continues in this iteration of the loop
            self._watch_for_reset()
            return
        if framer.held_bytes >= HELD_BYTES_MAX:
            self._stop_reading()
            self._processor.disconnect_watcher.watch(self._fd, self._on_disconnect)
            return
        count = -1
        try:
            try:
                count = self._recv_into(framer.room()[:HELD_BYTES_MAX])
                framer.received(count)
            except (BlockingIOError, InterruptedError):
                pass
            framer.end_turn(False)
        except OSError as reason:
            self._failed(reason)
            return
        if not count:
            self._on_end_of_stream()
            return
        if count > 0:
            self._processor.bytes_in += count
            if framer.partial_request_bytes or self._is_request_partial:
                self._update_request_memory()
            if isinstance(self._pending, PreemptiblePending):
                self._pending.preempt()
        self._watch_for_reset()

    def _update_request_memory(self) -> None:
        held_bytes = self._framer.partial_request_bytes if self._sock is not None else 0
        self._is_request_partial = held_bytes > 0
        self._processor.request_memory.note(self, held_bytes)

    def close_to_free_memory(self) -> None:
        """Close: partial requests exceed their memory, and this one's bytes have been idle for longest."""
        limit = self._processor.request_memory.bytes_max
        self._failed(Disconnect(f"its unfinished request was dropped: all of them have more than {limit} bytes"))

    def _watch_for_reset(self) -> None:
        """Make sure that a reset is noticed; needed if a turn sends nothing, since sending would fail.

        With data before a reset, uvloop calls back once and then never again (libuv stops a poll at EPOLLERR). Asking
        for the error clears it, and what is left are an ordinary end of the stream and a new registration.
        """
        sock = self._sock
        if sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._loop.call_soon(self._add_reader_again)

    def _add_reader_again(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._fd)
            self._loop.add_reader(self._fd, self._readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _on_disconnect(self) -> None:
        """The client has disconnected, but the kernel's buffer may still hold bytes that it sent."""
        self._gone = True
        self._sender.drop()
        self._cancel_pending()

    def _on_end_of_stream(self) -> None:
        """All bytes that the client sent have been received."""
        self._framer.end_turn(False)
        self._at_end = True
        self._stop_reading()
        self._on_disconnect()

    # Requests are handled.

    def _serve(self) -> bool:
        """Handle the whole frames that are here, until one must wait, the socket is full or the turn is long enough.

        Returns whether something was sent (or the connection is closed).
        """
        try:
            answered = self._handle_frames()
            self._framer.end_turn(self._pending is not None or self._sender.pending)
        except Exception as reason:
            self._failed(reason)
            return True
        return answered

    def _handle_frames(self) -> bool:
        next_frame = self._framer.next_frame
        processor = self._processor
        handler = processor.handler
        client = self.client
        count = sent_bytes = out_bytes = 0
        ends_s = monotonic_s() + TURN_SECONDS
        out: list[Part] = []
        try:
            while (frame := next_frame()) is not None:
                count += 1
                answer = (client.authenticator or handler)(client, frame)
                if type(answer) is list:
                    out += answer
                    out_bytes += sum(map(len, answer))
                    if out_bytes >= COALESCED_BYTES:
                        full, out = out, []
                        sent_bytes += out_bytes
                        out_bytes = 0
                        self._send(full)
                        if self._sender.pending:
                            break
                elif isinstance(answer, ThrottledAnswer):
                    out += answer
                    out_bytes += sum(map(len, answer))
                    self._mute(answer.throttle_ms)
                    break
                elif answer is not None:
                    assert not isinstance(answer, list)
                    self._wait_for(answer)
                    break
                if count >= TURN_FRAMES or sent_bytes >= TURN_BYTES or monotonic_s() > ends_s:
                    self._cut = True
                    self._loop.call_soon(self._continue)
                    break
        finally:  # send the answers so far, also before a request that waits or fails
            processor.requests += count
            processor.bytes_out += sent_bytes + out_bytes
            if out:
                self._send(out)
        return sent_bytes + out_bytes > 0 and not self._gone

    def _continue(self) -> None:
        self._cut = False
        self._resume()

    def _wait_for(self, answer: Pending) -> None:
        self._pending = answer
        answer.on_done(self._on_answer, self._on_failure)
        if self._gone:
            # a turn later: a task that is cancelled before its first step never cancels what it was to wait for
            self._loop.call_soon(self._cancel_pending)
        elif isinstance(answer, PreemptiblePending) and self._framer.held_bytes:  # received with the next request
            answer.preempt()

    def _mute(self, duration_ms: int) -> None:
        """Mute the connection: handle nothing for this long. It counts as busy for the idle check."""
        timer = self._processor.clock.call_later(duration_ms, lambda: muted.answer([]))
        muted = MutedPending(timer.cancel)
        self._wait_for(muted)

    def _on_answer(self, answer: list[Part] | None) -> None:
        """Send the pending response (empty if none is due) and resume."""
        self._pending = None
        processor = self._processor
        self.active_ms = processor.now_ms
        if answer:
            processor.bytes_out += sum(map(len, answer))
            try:
                self._send(answer)
            except Exception as failure:
                self._failed(failure)
                return
        if isinstance(answer, ThrottledAnswer) and self._sock is not None and not self._draining:
            self._mute(answer.throttle_ms)
        self._resume()

    def _on_failure(self, reason: Exception) -> None:
        self._pending = None
        self._failed(reason)

    def _cancel_pending(self) -> None:
        """Cancel the pending response: the client has disconnected."""
        pending = self._pending
        if pending is not None:
            pending.cancel()
            self._pending = None
        self._resume()

    def _resume(self) -> None:
        """No longer busy: handle the frames that are held, then read again; or close if the client has left."""
        sender = self._sender
        if self._sock is None or self._pending is not None or sender.pending or self._cut:
            return
        if self._draining:
            self.close()
            return
        self._serve()
        if self._sock is None:
            return
        if self._framer.partial_request_bytes or self._is_request_partial:
            self._update_request_memory()
        if self._sock is None or self._pending is not None or sender.pending or self._cut:
            return
        if self._at_end:
            self.close()
        elif not self._reading:
            self._processor.disconnect_watcher.forget(self._fd)
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    # Answers go out.

    def _send(self, parts: list[Part]) -> None:
        if not self._gone:
            self._sender.send(parts)

    def _on_progress(self) -> None:
        self.active_ms = self._processor.now_ms  # a client that reads slowly is not idle

    def _failed(self, reason: Exception) -> None:
        """Close for `reason`, and log it if an operator can act on it."""
        if self._sock is None:
            return
        warn, client = self._processor.rate_limited_log.about, self.client
        if isinstance(reason, LastAnswer):
            self._send_last(reason.parts)
        if isinstance(reason, (ConnectionError, TimeoutError)):
            pass  # the client is gone
        elif isinstance(reason, Malformed):
            warn(client.host, "malformed", f"closed its connection to {client.listener_name}: {reason}")
        elif isinstance(reason, (Disconnect, OSError)):
            if str(reason):
                # numbers come from the client: with a new one each time it would write a line each time
                kind = _NUMBERS.sub("", str(reason))
                warn(client.host, kind, f"closed its connection to {client.listener_name}: {reason}")
        else:
            _log.error("closed the connection of %r: a request failed", client, exc_info=reason)
        if not self._ending:
            self.close()

    def _send_last(self, parts: list[Part]) -> None:
        """Send `parts`, and close when they have left."""
        self._ending = self._draining = True
        self._stop_reading()
        try:
            self._send(parts)
        except OSError:
            self.close()
            return
        self._framer.end_turn(self._sender.pending)
        self._resume()
