"""Fetch to a reader that discards everything: the rate at which the broker sends its files.

One Fetch request in flight over a raw socket. The log was filled with equal batches, so the bytes that came back say
how many whole batches they hold and the next offset follows without walking them. The first batch header of each answer
must be the one asked for, and the last offset must be the log's end.
"""

from __future__ import annotations

import socket
import struct
import time

from bench.records import FrameCycle
from bench.replay import blocking_socket, fill
from bench.report import Result
from bench.session import Measure, Session
from bench.wire import BrokerError, Cursor, fetch_frame

_RECORD_COUNT, _VALUE_BYTES = 150, 100
# base offset, batch length
_BATCH_START = struct.Struct(">qi")
# Small enough to stay in the cache, so that the reader's memory is not what is measured.
SINK_BYTES = 256 * 1024


class Reader:
    """Reads one partition from its start to its end."""

    def __init__(self, sock: socket.socket, cycle: FrameCycle, budget_bytes: int, isolation_level: int = 0) -> None:
        self.sock, self.cycle, self.budget_bytes = sock, cycle, budget_bytes
        self._isolation_level = isolation_level
        name_bytes = 2 + len(cycle.topic.encode())
        # size, correlation id, throttle, error, session, topics, name, partitions, then one partition up to its
        # aborted transactions, of which there are none: index, error, high watermark, stable offset, start offset.
        self._head = bytearray(4 + 4 + 4 + 2 + 4 + 4 + name_bytes + 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4 + 4)
        self._sink = bytearray(SINK_BYTES)

    def read_to(self, end_offset: int) -> tuple[int, int]:
        """Fetch from offset 0 to `end_offset`; returns the requests it took and the bytes of whole batches."""
        offset = requests = read_bytes = 0
        while offset < end_offset:
            batches = self.fetch(offset)
            requests += 1
            read_bytes += batches * self.cycle.batch_bytes
            offset += batches * self.cycle.record_count
        if offset != end_offset:
            raise BrokerError(f"read up to offset {offset} of {self.cycle.topic}, its log ends at {end_offset}")
        return requests, read_bytes

    def read_for(self, seconds: float, end_offset: int) -> int:
        """Read from offset 0 to `end_offset` again and again for `seconds`; returns the bytes."""
        total, deadline = 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            total += self.read_to(end_offset)[1]
        return total

    def fetch(self, offset: int) -> int:
        """One request; returns how many whole batches its answer holds (at least one)."""
        sock, head, sink = self.sock, self._head, self._sink
        sock.sendall(fetch_frame(self.cycle.topic, 0, offset, self.budget_bytes, isolation_level=self._isolation_level))
        self._receive(head, len(head))
        size, records_bytes = int.from_bytes(head[:4], "big"), int.from_bytes(head[-4:], "big", signed=True)
        if size + 4 != len(head) + records_bytes or records_bytes < self.cycle.batch_bytes:
            raise BrokerError(f"Fetch at offset {offset}: {self.describe_error()}, {records_bytes} bytes of records")
        rest = records_bytes - min(records_bytes, SINK_BYTES)
        self._receive(sink, records_bytes - rest)
        base_offset, batch_length = _BATCH_START.unpack_from(sink)
        if base_offset != offset or batch_length != self.cycle.batch_bytes - 12:
            raise BrokerError(f"Fetch at offset {offset} starts with a batch at {base_offset} of {batch_length} bytes")
        while rest:
            part = min(rest, SINK_BYTES)
            self._receive(sink, part)
            rest -= part
        return records_bytes // self.cycle.batch_bytes

    def describe_error(self) -> str:
        """The error code of the last answer's partition, if it has one."""
        cursor = Cursor(memoryview(self._head))
        cursor.position = 4 + 4 + 4
        whole = cursor.int16()
        cursor.position = len(self._head) - 4 - 4 - 4 - 8 - 8 - 8 - 2
        return f"error {whole or cursor.int16()}"

    def _receive(self, buffer: bytearray, count: int) -> None:
        try:
            received = self.sock.recv_into(buffer, count, socket.MSG_WAITALL)
        except BlockingIOError:
            raise BrokerError("no answer to a Fetch request in time") from None
        if received != count:
            raise BrokerError("the broker closed the connection")


def discard(session: Session, work: str, budget_bytes: int, isolation_level: int = 0) -> Result:
    """Read a filled partition again and again for `seconds`; isolation level 1 is read_committed."""
    requests = read_bytes = passes = 0
    total = Measure()
    with session.topic(work) as topic:
        cycle = fill(session, topic, _RECORD_COUNT, _VALUE_BYTES, session.fill_bytes)
        end_offset = session.fill_bytes // cycle.batch_bytes * cycle.record_count
        with blocking_socket(session.bootstrap) as sock:
            reader = Reader(sock, cycle, budget_bytes, isolation_level)
            session.warm_up(lambda seconds: reader.read_for(seconds, end_offset))
            while total.seconds < session.seconds:
                with session.metered() as measure:
                    more = reader.read_to(end_offset)
                total, requests, read_bytes, passes = (
                    total + measure,
                    requests + more[0],
                    read_bytes + more[1],
                    passes + 1,
                )
    return Result(
        work,
        total.seconds,
        requests,
        passes * end_offset,
        read_bytes,
        total.cpu,
        total.client_cpu_s,
        note=f"{read_bytes // passes / 1e6:.0f} MB of log, {passes} times",
    )
