"""One log compacted on a running broker: filled, begun, waited for, counted.

A topic with cleanup.policy=delete is filled with many writes to few keys, and its last segment is rolled away. Then the
policy becomes compact, and the time runs until the log has dropped to the size at which it stays. The broker's
cleaner-offset-checkpoint shows the end; the number of retained records is known beforehand, and counted in fetched
batches. CPU is of the broker with all its processes; memory is sampled every 20 ms, of all processes together.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.keyed_log import KeyedLog
from bench.replay import AnswerShape, blocking_socket
from bench.session import Session
from bench.usage import Cpu, ProcessTree
from bench.wire import BrokerError, Connection, fetch_frame, produce_frame

CLEANER = {
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
    "log.cleaner.backoff.ms": "100",
}
"""Both brokers': as they are by default, but for the wait, which is not what is measured."""
LIMIT_S = 900.0
ROLL_LIMIT_S = 30.0
STAYS_S = 0.5
_LITTLE_BYTES = 1024  # less than any filled segment has, more than a batch of one record
_POLL_S = 0.01
_SAMPLE_S = 0.02
_IN_FLIGHT = 5
_FETCH_BYTES = 8 << 20
_BATCH_START = struct.Struct(">qi")
_BATCH_FIELDS = struct.Struct(">i30xi")  # last offset delta, record count
_FIELDS_AT = 23


@dataclass(frozen=True, slots=True)
class Compaction:
    """One log compacted once, or why not (`error`). Bytes are the log's; resident memory is of all processes."""

    seconds: float = 0.0
    cpu: Cpu = field(default_factory=Cpu)
    bytes_before: int = 0
    bytes_after: int = 0
    records_after: int = 0
    idle_resident_bytes: int = 0
    peak_resident_bytes: int = 0
    idle_own_bytes: int = 0
    peak_own_bytes: int = 0
    error: str = ""


# the log


def fill(session: Session, topic: str, log: KeyedLog) -> None:
    """All of `log` into partition 0, five requests in flight."""
    shape = AnswerShape(topic)
    answer = bytearray(shape.size_bytes)
    view = memoryview(answer)

    def await_answer() -> None:
        received = 0
        while received < len(answer):
            count = sock.recv_into(view[received:])
            if count == 0:
                raise BrokerError("the broker closed the connection")
            received += count
        shape.check(answer)

    with blocking_socket(session.bootstrap) as sock:
        in_flight = 0
        for batch, _ in log.batches():
            if in_flight == _IN_FLIGHT:
                await_answer()
                in_flight -= 1
            sock.sendall(produce_frame(topic, 0, batch))
            in_flight += 1
        for _ in range(in_flight):
            await_answer()
    session.expect_end(topic, log.record_count)


def roll(session: Session, topic: str, log: KeyedLog) -> None:
    """One record in a segment of its own: the active one is never compacted.

    A broker may say that a setting is changed before it is, so records go out until one of them rolls; all have the
    key of the log's first record.
    """
    one = KeyedLog(1, log.key_count, 1)
    deadline = time.monotonic() + ROLL_LIMIT_S
    with Connection(session.bootstrap) as connection:
        files = Path(connection.log_size(topic)[0]) / f"{topic}-0"
        connection.alter_topic(topic, {"segment.bytes": str(_LITTLE_BYTES)})
        ((batch, _),) = one.batches()
        while connection.produce(produce_frame(topic, 0, batch)) != active_base(files):
            if time.monotonic() > deadline:
                raise BrokerError(f"{topic} does not roll, though its segments are larger than segment.bytes")
            time.sleep(_POLL_S)


def active_base(files: Path) -> int:
    """The first offset of a log's last segment."""
    return max(int(path.stem) for path in files.glob("*.log"))


@contextlib.contextmanager
def filled_topic(session: Session, work: str, log: KeyedLog, segment_bytes: int) -> Iterator[str]:
    """A topic that holds `log`, and a record behind it, and is not compacted yet; all of it is on the disk."""
    config = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": str(segment_bytes),
        "min.cleanable.dirty.ratio": "0.01",
        "compression.type": "producer",
    }
    with session.topic(work, config=config) as topic:
        fill(session, topic, log)
        roll(session, topic, log)
        with Connection(session.bootstrap) as connection:
            connection.alter_topic(topic, {"segment.bytes": str(segment_bytes)})
        os.sync()
        yield topic


# compacting it


def compacted(session: Session, topic: str, partition: int = 0) -> tuple[float, float, int, int]:
    """Make the topic a compacted one and wait until it is done.

    Returns when it began and when the log had its last size (time.perf_counter), and the sizes before and after.
    """
    with Connection(session.bootstrap) as connection:
        directory, before = connection.log_size(topic, partition)
        files = Path(directory) / f"{topic}-{partition}"
        active = active_base(files)
        checkpoint = Path(directory) / "cleaner-offset-checkpoint"
        began = dropped = time.perf_counter()
        connection.alter_topic(topic, {"cleanup.policy": "compact"})
        size, done_at = before, None
        while done_at is None or time.perf_counter() < max(done_at, dropped) + STAYS_S:
            now_size = connection.log_size(topic, partition)[1]
            if now_size != size:
                size, dropped = now_size, time.perf_counter()
            if done_at is None and clean_end(checkpoint, topic, partition) >= active:
                done_at = time.perf_counter()
            if time.perf_counter() > began + LIMIT_S:
                raise BrokerError(f"{topic} is not compacted after {LIMIT_S:.0f} s; its log has {size:,} bytes")
            time.sleep(_POLL_S)
    if size >= before:
        raise BrokerError(f"the log of {topic} had {before:,} bytes, and has {size:,}")
    return began, dropped, before, size


def clean_end(checkpoint: Path, topic: str, partition: int) -> int:
    """Below which offset the log is clean, by the broker's own file; -1 if that does not say."""
    with contextlib.suppress(OSError):
        for line in checkpoint.read_text().splitlines():
            words = line.split()
            if words[:2] == [topic, str(partition)] and len(words) == 3:
                return int(words[2])
    return -1


def count_records(session: Session, topic: str) -> int:
    """All records that a fetch returns, by the headers of their batches."""
    count = offset = 0
    with Connection(session.bootstrap) as connection:
        end = connection.end_offsets(topic)[0]
        while offset < end:
            cursor = connection.exchange(fetch_frame(topic, 0, offset, _FETCH_BYTES))
            cursor.int32(), cursor.int16(), cursor.int32(), cursor.int32(), cursor.string(), cursor.int32()
            cursor.int32()
            code = cursor.int16()
            if code != 0:
                raise BrokerError(f"Fetch of {topic} at offset {offset}: error {code}")
            cursor.int64(), cursor.int64(), cursor.int64(), cursor.int32(), cursor.int32()
            data = cursor.bytes()
            found, offset = count_in(data, offset)
            count += found
    return count


def count_in(data: memoryview, offset: int) -> tuple[int, int]:
    """The records in the whole batches of a Fetch answer, and the offset behind them."""
    count = position = 0
    while position + _FIELDS_AT + _BATCH_FIELDS.size <= len(data):
        base, length = _BATCH_START.unpack_from(data, position)
        if position + length + 12 > len(data):
            break
        delta, records = _BATCH_FIELDS.unpack_from(data, position + _FIELDS_AT)
        if base + delta >= offset:
            count += records
            offset = base + delta + 1
        position += length + 12
    if position == 0:
        raise BrokerError(f"Fetch at offset {offset} brought no whole batch")
    return count, offset


class MemoryWatch:
    """The most that a tree of processes had while the block ran, sampled."""

    def __init__(self, process: ProcessTree) -> None:
        self._process = process
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.resident_bytes = self.own_bytes = 0

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            now = self._process.memory()
            self.resident_bytes = max(self.resident_bytes, now.resident_bytes)
            self.own_bytes = max(self.own_bytes, now.own_bytes)


def sample(session: Session, work: str, log: KeyedLog, segment_bytes: int) -> Compaction:
    """Fill, compact, count."""
    assert session.process is not None
    with filled_topic(session, work, log, segment_bytes) as topic:
        idle = session.process.memory()
        before = session.process.cpu()
        with MemoryWatch(session.process) as watch:
            began, ended, bytes_before, bytes_after = compacted(session, topic)
        cpu = session.process.cpu() - before
        records = count_records(session, topic)
        expected = log.survivors(log.record_count) + 1
        if records != expected:
            raise BrokerError(f"{records:,} records are left, and it should be {expected:,}")
    return Compaction(
        ended - began, cpu, bytes_before, bytes_after, records, idle.resident_bytes, watch.resident_bytes,
        idle.own_bytes, watch.own_bytes,
    )  # fmt: skip
