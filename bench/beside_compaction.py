"""How long clients wait while a log of the same broker is compacted, and when nothing else happens.

One client writes a record and waits for the acknowledgement, reads it back, and so on, as fast as it goes: first on the
quiet broker, then while the log is compacted, over and over until that took `seconds` in all. Only requests that began
between the change of the policy and the last change of the log's size count.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bench.beside import at_work, result_of
from bench.compaction import compacted, filled_topic
from bench.keyed_log import KEY_BYTES, KeyedLog
from bench.records import frame_cycle
from bench.replay import AnswerShape, blocking_socket
from bench.report import Latency, Result, latency
from bench.session import Measure, Session
from bench.wire import BrokerError, fetch_frame

SEGMENT_BYTES = 64 << 20
VALUE_BYTES = 100
WRITES_PER_KEY = 10
_FETCH_BYTES = 4096  # one record's batch, and no more
_LOOK_EVERY = 16  # round trips between two checks for the end
_OFFSET = struct.Struct(">q")


@dataclass(slots=True)
class Waits:
    """When each request began and how long its answer took, in nanoseconds (time.perf_counter_ns)."""

    produced_at: array[int] = field(default_factory=lambda: array("q"))
    produce: array[int] = field(default_factory=lambda: array("q"))
    fetched_at: array[int] = field(default_factory=lambda: array("q"))
    fetch: array[int] = field(default_factory=lambda: array("q"))

    def between(self, began_ns: int, ended_ns: int) -> tuple[list[int], list[int]]:
        """The waits of producer and reader for requests that began in that time."""
        return _within(self.produced_at, self.produce, began_ns, ended_ns), _within(
            self.fetched_at, self.fetch, began_ns, ended_ns
        )


def _within(starts: array[int], waits: array[int], began_ns: int, ended_ns: int) -> list[int]:
    return [wait for start, wait in zip(starts, waits, strict=True) if began_ns <= start < ended_ns]


class Client:
    """Writes a record and reads it back, one request in flight."""

    def __init__(self, session: Session, topic: str) -> None:
        cycle = frame_cycle(topic, 1, VALUE_BYTES, window=1, acks=session.acks)
        self._frame = cycle.data[: cycle.frame_bytes]
        self._shape = AnswerShape(topic)
        self._answer = bytearray(self._shape.size_bytes)
        self._offset_at = self._shape.fields.size  # of the record, in the answer
        marked = fetch_frame(topic, 0, -2, _FETCH_BYTES)
        self._fetch = bytearray(marked)
        self._fetch_at = marked.index(_OFFSET.pack(-2))
        self._records = bytearray(1 << 16)
        self._batch_bytes = cycle.batch_bytes
        self._sock = blocking_socket(session.bootstrap)

    def close(self) -> None:
        self._sock.close()

    def work(self, ended: Callable[[], bool]) -> Waits:
        """Repeat until `ended`, which is polled now and then."""
        waits, sock, clock = Waits(), self._sock, time.perf_counter_ns
        answer, records, frame, fetch = self._answer, self._records, self._frame, self._fetch
        while not ended():
            for _ in range(_LOOK_EVERY):
                began = clock()
                sock.sendall(frame)
                if sock.recv_into(answer) != len(answer):
                    raise BrokerError("half an answer to a Produce request")
                waits.produce.append(clock() - began)
                waits.produced_at.append(began)
                self._shape.check(answer)
                fetch[self._fetch_at : self._fetch_at + 8] = answer[self._offset_at : self._offset_at + 8]
                began = clock()
                sock.sendall(fetch)
                received = sock.recv_into(records)
                size = int.from_bytes(records[:4], "big") + 4
                while 0 < received < size:
                    received += sock.recv_into(memoryview(records)[received:])
                waits.fetch.append(clock() - began)
                waits.fetched_at.append(began)
                if received != size or size < self._batch_bytes:
                    raise BrokerError(f"{received} bytes of {size} came for a Fetch request of a record")
        return waits


def beside_compaction(session: Session, work: str, codec: str, record_bytes: int = 100) -> Result:
    """`session.fill_bytes` of records are compacted, ten writes to a key, in batches of about 100 KB."""
    count = session.fill_bytes // record_bytes
    log = KeyedLog(count, max(1, count // WRITES_PER_KEY), max(1, 100_000 // record_bytes), record_bytes, codec)
    assert log.value_bytes == record_bytes - KEY_BYTES
    produced: list[int] = []
    fetched: list[int] = []
    total, before, after, passes = Measure(), 0, 0, 0
    with session.topic(work) as topic:
        client = Client(session, topic)
        try:
            quiet = _quiet(session, client)
            while total.seconds < session.seconds:
                with filled_topic(session, work + "-log", log, SEGMENT_BYTES) as filled:

                    def compact(filled: str = filled) -> tuple[int, ...]:
                        began, ended, before, after = compacted(session, filled)
                        return int(began * 1e9), int(ended * 1e9), before, after

                    with at_work(compact) as compacting, session.metered() as measure:
                        waits = client.work(compacting.poll)
                        began_ns, ended_ns, before, after = result_of(compacting)
                more = waits.between(began_ns, ended_ns)
                produced += more[0]
                fetched += more[1]
                passes += 1
                total += replace(measure, seconds=(ended_ns - began_ns) / 1e9)
        finally:
            client.close()
    busy = latency(produced), latency(fetched)
    note = (
        f"produce {_compare(quiet[0], busy[0])}; fetch {_compare(quiet[1], busy[1])}; "
        f"{before / 1e6:,.0f} MB became {after / 1e6:,.0f} in {total.seconds / passes:.1f} s beside it"
    )
    return Result(
        work, total.seconds, len(produced) + len(fetched), cpu=total.cpu, client_cpu_s=total.client_cpu_s,
        latency=busy[0], note=note,
    )  # fmt: skip


def _quiet(session: Session, client: Client) -> tuple[Latency, Latency]:
    """The waits of producer and reader on a quiet broker, after as long a warm-up."""
    for _ in range(2):
        ends = time.monotonic() + session.seconds
        waits = client.work(lambda ends=ends: time.monotonic() > ends)  # type: ignore[misc]
    return latency(waits.produce), latency(waits.fetch)


def _compare(quiet: Latency, busy: Latency) -> str:
    return (
        f"p50 {quiet.p50_us:.0f} -> {busy.p50_us:.0f}, p99 {quiet.p99_us:.0f} -> {busy.p99_us:.0f} us "
        f"(x {busy.p99_us / quiet.p99_us:.1f})"
    )
