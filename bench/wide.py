"""Requests for many partitions: Produce with a batch for each of 50, and fetch sessions in which one of many has news.

The frames are made ahead of time, as in `bench.replay`. A fetch session is one of Java's consumers: its partitions are
named once, and each further request names the one that was read last. One record at a time is produced to the next
partition and fetched, so that each fetch finds one change.
Source: KIP-227; Produce 7, Fetch 11.
"""

from __future__ import annotations

import socket
import struct
import time

from bench.records import record_batch
from bench.replay import blocking_socket
from bench.report import Result, latency
from bench.session import Session
from bench.wire import FETCH, PRODUCE, BrokerError, Cursor, produce_frame, request_frame, string

_VALUE_BYTES = 100
_STRIDE = 7
"""The next partition that gets a record is so many further on."""
_FULL_EPOCH, _NO_SESSION = 0, 0
_WAIT_MS = 10_000


def wide_produce(session: Session, work: str, count: int) -> Result:
    """One request in flight with a batch of one record for each of `count` partitions."""
    with session.topic(work, count) as topic, blocking_socket(session.bootstrap) as sock:
        batch = record_batch(1, _VALUE_BYTES)
        data = b"".join(struct.pack(">ii", index, len(batch)) + batch for index in range(count))
        head = struct.pack(">hhii", -1, session.acks, 30_000, 1) + string(topic) + struct.pack(">i", count)
        frame = request_frame(PRODUCE, 7, 0, head, data)

        def send(seconds: float) -> int:
            done, deadline = 0, time.perf_counter() + seconds
            while done == 0 or time.perf_counter() < deadline:
                sock.sendall(frame)
                _check_produced(_answer(sock), count)
                done += 1
            return done

        warm = session.warm_up(send)
        with session.metered() as measure:
            requests = send(session.seconds)
        session.expect_end(topic, (warm + requests) * count, count)
    records = requests * count
    return Result(
        work, measure.seconds, requests, records, records * _VALUE_BYTES, measure.cpu, measure.client_cpu_s
    )  # fmt: skip


def _check_produced(answer: Cursor, count: int) -> None:
    """Refuse an answer that is not one for `count` partitions without an error."""
    if (answer.int32(), answer.string() is not None, answer.int32()) != (1, True, count):
        raise BrokerError("a Produce answer for other partitions")
    for _ in range(count):
        answer.int32()
        if code := answer.int16():
            raise BrokerError(f"a Produce answer with error {code}")
        answer.position += 24


class _SessionReader:
    """A fetch session over partitions 0 to `count` - 1 of a topic, from offset 0 on."""

    def __init__(self, sock: socket.socket, topic: str, count: int) -> None:
        self._sock, self._topic = sock, topic
        self._offsets = [0] * count
        self._session_id, self._epoch = _NO_SESSION, _FULL_EPOCH
        self._ask(range(count), wait_ms=0)
        self._session_id, _ = self._take()
        if not self._session_id:
            raise BrokerError(f"no fetch session for {count} partitions")
        self._named: list[int] = []

    def ask(self) -> None:
        """Send the next request of the session."""
        self._epoch += 1
        self._ask(self._named, wait_ms=_WAIT_MS)

    def take(self) -> int:
        """The partition that has news; a second answer may be one that only has new offsets."""
        _, found = self._take()
        for index, size_bytes in found:
            if size_bytes:
                self._offsets[index] += 1
        self._named = [index for index, size_bytes in found if size_bytes]
        return len(self._named)

    def _ask(self, partitions: object, *, wait_ms: int) -> None:
        named = list(partitions)  # type: ignore[call-overload]
        topics = struct.pack(">i", 1 if named else 0)
        if named:
            topics += string(self._topic) + struct.pack(">i", len(named))
            topics += b"".join(struct.pack(">iiqqi", each, -1, self._offsets[each], -1, 1 << 20) for each in named)
        limits = struct.pack(">iiiibii", -1, wait_ms, 1, 0x7FFFFFFF, 0, self._session_id, self._epoch)
        self._sock.sendall(request_frame(FETCH, 11, 0, limits, topics, struct.pack(">i", 0), string("")))

    def _take(self) -> tuple[int, list[tuple[int, int]]]:
        """The session's id, and of each partition the index and the bytes of records."""
        answer = _answer(self._sock)
        answer.int32()
        if code := answer.int16():
            raise BrokerError(f"a Fetch answer with error {code}")
        session_id, found = answer.int32(), []
        for _ in range(answer.int32()):
            answer.string()
            for _ in range(answer.int32()):
                index = answer.int32()
                if code := answer.int16():
                    raise BrokerError(f"a Fetch answer with error {code}")
                answer.position += 24
                for _ in range(max(0, answer.int32())):
                    answer.position += 16
                answer.int32()
                found.append((index, len(answer.bytes())))
        return session_id, found


def session_fetch(session: Session, work: str, count: int) -> Result:
    """A record for one of `count` partitions after the other, each fetched by the session that waits for it."""
    with (
        session.topic(work, count) as topic,
        blocking_socket(session.bootstrap) as sock,
        blocking_socket(session.bootstrap) as producer,
    ):
        reader = _SessionReader(sock, topic, count)
        batch = record_batch(1, _VALUE_BYTES)
        frames = [produce_frame(topic, index, batch, acks=session.acks) for index in range(count)]
        samples: list[int] = []
        position = 0

        def read(seconds: float) -> int:
            nonlocal position
            done, deadline = 0, time.perf_counter() + seconds
            while done == 0 or time.perf_counter() < deadline:
                reader.ask()
                before = time.perf_counter_ns()
                producer.sendall(frames[position])
                _answer(producer)
                while not reader.take():
                    reader.ask()
                samples.append(time.perf_counter_ns() - before)
                position = (position + _STRIDE) % count
                done += 1
            return done

        warm = session.warm_up(read)
        samples.clear()
        with session.metered() as measure:
            requests = read(session.seconds)
        session.expect_end(topic, warm + requests, count)
    return Result(
        work, measure.seconds, requests, requests, requests * _VALUE_BYTES, measure.cpu, measure.client_cpu_s,
        latency(samples),
    )  # fmt: skip


def _answer(sock: socket.socket) -> Cursor:
    """The next answer, behind its correlation id."""
    size = _received(sock, 4)
    answer = Cursor(memoryview(_received(sock, int.from_bytes(size, "big"))))
    answer.int32()
    return answer


def _received(sock: socket.socket, size_bytes: int) -> bytes:
    data = sock.recv(size_bytes, socket.MSG_WAITALL)
    if len(data) != size_bytes:
        raise BrokerError("the broker closed the connection")
    return data
