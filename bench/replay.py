"""Replay of pre-encoded Produce frames over one raw socket: the broker's own ceiling.

The generator may use one core at most, so it encodes nothing and decodes next to nothing: answers of one topic all
have one length, so `recv_into` is counted by division, and as many frames go out as answers came in, in one `sendall`
from one buffer. One answer per `recv_into` is checked for its length and error code; at the end the log must hold
exactly the records that were sent.
"""

from __future__ import annotations

import socket
import struct
import time
from array import array
from collections.abc import Sequence

from bench.records import FrameCycle, frame_cycle
from bench.report import Result, latency
from bench.session import Session
from bench.wire import BrokerError, split_host

SOCKET_LIMIT_S = 30


def blocking_socket(bootstrap: str) -> socket.socket:
    """A socket without a poll before each call: the kernel, not Python, ends a wait that takes too long."""
    sock = socket.create_connection(split_host(bootstrap), timeout=SOCKET_LIMIT_S)
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    limit = struct.pack("ll", SOCKET_LIMIT_S, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    return sock


class AnswerShape:
    """Where size and error code stand in a Produce v7 answer for a topic, and how long it is."""

    def __init__(self, topic: str) -> None:
        name_bytes = 2 + len(topic.encode())
        # size, then correlation id, topic count, name, partition count, partition; then the error code
        self.fields = struct.Struct(f">i{4 + 4 + name_bytes + 4 + 4}xh")
        # base offset, log append time, log start offset, throttle time follow
        self.size_bytes = self.fields.size + 8 + 8 + 8 + 4

    def check(self, answers: bytearray) -> None:
        """Refuse a first answer that is not the one expected."""
        size, code = self.fields.unpack_from(answers)
        if size != self.size_bytes - 4 or code != 0:
            raise BrokerError(f"a Produce answer of {size} bytes with error {code}")


def pump(sock: socket.socket, cycle: FrameCycle, seconds: float, max_requests: int) -> int:
    """Keep `cycle.window` requests in flight for `seconds` or `max_requests`; returns how many were answered."""
    shape = AnswerShape(cycle.topic)
    answer_bytes, frame_bytes, frame_count = shape.size_bytes, cycle.frame_bytes, cycle.frame_count
    frames = memoryview(cycle.data)
    answers = bytearray(answer_bytes * (cycle.window + 1))
    view = memoryview(answers)
    window = min(cycle.window, max_requests)
    # one partition: what to send for so many answers never changes
    pieces = [frames[: count * frame_bytes] for count in range(window + 1)] if frame_count == 1 else []
    sock.sendall(frames[: window * frame_bytes])
    sent, answered, carried = window, 0, 0
    clock, receive, send, check = time.perf_counter, sock.recv_into, sock.sendall, shape.check
    deadline = clock() + seconds
    while answered < sent:
        try:
            count = receive(view[carried:] if carried else answers)
        except BlockingIOError:
            raise BrokerError(f"no answer to a Produce request for {SOCKET_LIMIT_S} s") from None
        if count == 0:
            raise BrokerError("the broker closed the connection")
        whole, rest = divmod(carried + count, answer_bytes)
        if whole:
            check(answers)
            answered += whole
            if rest:
                answers[:rest] = answers[whole * answer_bytes : whole * answer_bytes + rest]
            if clock() < deadline and sent < max_requests:
                more = min(whole, max_requests - sent)
                if pieces:
                    send(pieces[more])
                else:
                    start = sent % frame_count
                    send(frames[start * frame_bytes : (start + more) * frame_bytes])
                sent += more
        carried = rest
    return answered


def closed_loop(sock: socket.socket, cycle: FrameCycle, seconds: float, max_requests: int) -> Sequence[int]:
    """One request in flight; returns the round-trip times in nanoseconds.

    Between the two readings of the clock are only the two calls: against a C program that answers at once this
    finds 6.5-7.2 us where a client in C finds 6.1 us, so less than 1 us of a figure is the generator's own. Nothing is
    allocated that the garbage collector counts, so it never runs.
    """
    shape = AnswerShape(cycle.topic)
    frame, answer_bytes = cycle.data[: cycle.frame_bytes], shape.size_bytes
    answers = bytearray(answer_bytes)
    samples = array("q", bytes(8 * max_requests))
    clock, receive, send, check = time.perf_counter_ns, sock.recv_into, sock.send, shape.check
    done, now = 0, clock()
    deadline = now + int(seconds * 1e9)
    while now < deadline and done < max_requests:
        before = clock()
        send(frame)
        count = receive(answers)
        now = clock()
        if count != answer_bytes:
            _receive_rest(sock, answers, count)
            now = clock()
        samples[done] = now - before
        done += 1
        check(answers)
    return samples[:done]


def _receive_rest(sock: socket.socket, answers: bytearray, count: int) -> None:
    """What is missing of an answer of which `count` bytes have come."""
    missing = len(answers) - count
    if count == 0 or sock.recv_into(memoryview(answers)[count:], missing, socket.MSG_WAITALL) != missing:
        raise BrokerError("the broker closed the connection")


def replay(session: Session, work: str, record_count: int, value_bytes: int, *, partitions: int = 1) -> Result:
    """Warm up, then measure with five requests in flight, round-robin over the partitions."""
    with session.topic(work, partitions) as topic, blocking_socket(session.bootstrap) as sock:
        cycle = frame_cycle(topic, record_count, value_bytes, acks=session.acks, partitions=partitions)
        most = max(1, session.max_bytes // cycle.batch_bytes)
        # Every partition once, so that none is written to for the first time under the meter.
        warm = pump(sock, cycle, session.seconds, partitions)
        warm += session.warm_up(lambda seconds: pump(sock, cycle, seconds, most))
        with session.metered() as measure:
            requests = pump(sock, cycle, session.seconds, most)
        session.expect_end(topic, (warm + requests) * record_count, partitions)
    return Result(
        work,
        measure.seconds,
        requests,
        requests * record_count,
        requests * record_count * value_bytes,
        measure.cpu,
        measure.client_cpu_s,
    )


def closed_loop_replay(session: Session, work: str, value_bytes: int = 100) -> Result:
    """One-record requests, one in flight."""
    with session.topic(work) as topic, blocking_socket(session.bootstrap) as sock:
        cycle = frame_cycle(topic, 1, value_bytes, window=1, acks=session.acks)
        warm = session.warm_up(lambda seconds: len(closed_loop(sock, cycle, seconds, 1_000_000)))
        with session.metered() as measure:
            samples = closed_loop(sock, cycle, session.seconds, 1_000_000)
        session.expect_end(topic, warm + len(samples))
    return Result(
        work,
        measure.seconds,
        len(samples),
        cpu=measure.cpu,
        client_cpu_s=measure.client_cpu_s,
        latency=latency(samples),
    )


def fill(session: Session, topic: str, record_count: int, value_bytes: int, log_bytes: int) -> FrameCycle:
    """Write about `log_bytes` of equal batches into partition 0; the cycle gives their size."""
    cycle = frame_cycle(topic, record_count, value_bytes)
    requests = max(1, log_bytes // cycle.batch_bytes)
    with blocking_socket(session.bootstrap) as sock:
        done = pump(sock, cycle, 300.0, requests)
    session.expect_end(topic, done * record_count)
    return cycle
