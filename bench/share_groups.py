"""Share groups (KIP-932): stock Java members that accept each record, and the memory that records in flight take.

The members read one filled partition, in batches of 16 KB as a stock producer writes them. The meter runs from the half
of the log on, when the JVM has compiled its hot paths, until shortly before the end, where some members find no more.
The records in flight are acquired by raw frames: ShareGroupHeartbeat 1, ShareFetch 1, ShareAcknowledge 1.
Source: org.apache.kafka.clients.consumer.KafkaShareConsumer of Kafka 4.3; KIP-932.
"""

from __future__ import annotations

import contextlib
import secrets
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bench.compact import compact, flexible_frame, read_assignment, read_compact, uvarint
from bench.consumer_groups import await_coordinator
from bench.java_perf import HEAP, TOOL_LIMIT_S
from bench.records import record_batch
from bench.reference import ReferenceUnavailable, class_path
from bench.reference.jars import java
from bench.replay import fill
from bench.report import Result
from bench.session import Session
from bench.usage import ProcessTree
from bench.wire import BrokerError, Connection, Cursor, produce_frame

VERSION = "4.3.0"
PROGRAM = Path(__file__).parent / "java" / "ShareMembers.java"
BATCH_BYTES = 16_000
WARM, MEASURED = 0.5, 0.95  # shares of the records
IN_FLIGHT, PARTITIONS, POLLED = 100_000, 10, 500

# Alike on both brokers: Kafka's own shortest heartbeat interval is 5 s, and a member waits for two of them.
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.session.timeout.ms": "3600000",  # a broker that is stopped meanwhile expels nobody
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
}
IN_FLIGHT_SETTINGS = {
    "group.share.max.partition.max.record.locks": "10000",
    "group.share.partition.max.record.locks": "10000",
    "group.share.max.record.lock.duration.ms": "3600000",
    "group.share.record.lock.duration.ms": "3600000",
}

HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
_ACCEPT = 1
_NOT_YET = (14, 15, 16)  # the partition of the group is still being created or loaded
_JOIN_LIMIT_S = 60.0
_EMPTY_ANSWER_BYTES = 100


# --- stock members


@contextlib.contextmanager
def _members(session: Session, topic: str, members: int, counts: tuple[int, int]) -> Iterator[tuple[IO[str], int]]:
    """The running program: its output, and its process. It has to end well before the block does."""
    with tempfile.TemporaryDirectory(prefix="bench-java-") as home, Path(home, "err").open("w+") as errors:
        logging = Path(home, "log4j2.properties")
        logging.write_text("rootLogger.level=OFF\n")
        command = [java(), f"-Xmx{HEAP}", f"-Dlog4j2.configurationFile={logging}", "-cp", class_path(VERSION)]
        command += [str(PROGRAM), session.bootstrap, topic, topic, *map(str, (members, *counts))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        late = threading.Timer(TOOL_LIMIT_S, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            yield process.stdout, process.pid
            process.stdout.read()
            code = process.wait()
        finally:
            late.cancel()
            process.kill()
            process.wait()
        errors.seek(0)
        said = errors.read()
    if "compiler" in said and "not found" in said:
        raise ReferenceUnavailable("this Java has no compiler (a JDK is needed)")
    if code:
        raise BrokerError(f"the share members ended with code {code}: {said[-300:]}")


def _next_count(output: IO[str]) -> int:
    """How many records are accepted, when the program says so next; 0 at its end."""
    return int(output.readline().removeprefix("at ") or 0)


def share_consume(session: Session, work: str, value_bytes: int, members: int) -> Result:
    """Members of one group read a filled partition, 500 records a poll, and accept each record by itself."""
    with session.topic(work) as topic:
        cycle = fill(session, topic, BATCH_BYTES // value_bytes, value_bytes, session.fill_bytes)
        total = max(1, session.fill_bytes // cycle.batch_bytes) * cycle.record_count
        with _members(session, topic, members, (int(total * WARM), int(total * MEASURED))) as (output, pid):
            client = ProcessTree(pid)
            first, client_before = _next_count(output), client.cpu()
            with session.metered() as measure:
                accepted = _next_count(output) - first
            client_cpu_s = (client.cpu() - client_before).total_s
    return Result(
        work,
        measure.seconds,
        records=accepted,
        payload_bytes=accepted * value_bytes,
        cpu=measure.cpu,
        client_cpu_s=client_cpu_s,
        note=f"kafka-clients {VERSION}, {accepted:,} of {total:,} records",
    )


# --- records in flight


class _Member:
    """A member by raw frames, which joins once and then only fetches and acknowledges."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._identity = compact(group) + compact(secrets.token_hex(11))
        self._epoch = 0
        self.topic_id = b""

    def join(self, topic: str) -> None:
        """Heartbeats until a partition is assigned: then the share partitions have a state."""
        epoch, names, deadline = 0, b"\2" + compact(topic), time.monotonic() + _JOIN_LIMIT_S
        while time.monotonic() < deadline:
            body = self._identity + struct.pack(">i", epoch) + b"\0" + (b"\0" if epoch else names) + b"\0"
            answer = self._exchange(HEARTBEAT, body)
            code = int.from_bytes(answer[4:6])
            if code and code not in _NOT_YET:
                raise BrokerError(f"ShareGroupHeartbeat: error {code}")
            if not code:
                _, at = read_compact(answer, 6)
                _, at = read_compact(answer, at)
                (epoch,) = struct.unpack_from(">i", answer, at)
                assigned = read_assignment(answer, at + 9) if answer[at + 8] == 1 else {}
                if assigned:
                    (self.topic_id,) = assigned
                    return
            time.sleep(0.05)
        raise BrokerError("the member of the share group has no partition")

    def fetch(self) -> int:
        """Acquire as many records as a poll of a stock member does; the size of the answer."""
        topics = b"\1"
        if not self._epoch:
            rows = b"".join(struct.pack(">i", index) + b"\1\0" for index in range(PARTITIONS))
            topics = b"\2" + self.topic_id + uvarint(PARTITIONS + 1) + rows + b"\0"
        limits = struct.pack(">iiiiii", self._next_epoch(), 0, 1, 1 << 26, POLLED, POLLED)
        return len(self._exchange(SHARE_FETCH, self._identity + limits + topics + b"\1\0"))

    def accept(self, partition: int, offsets: range) -> None:
        """Acknowledge some records of a partition, each by itself."""
        batches = b"".join(struct.pack(">qq", each, each) + b"\2" + bytes((_ACCEPT,)) + b"\0" for each in offsets)
        row = struct.pack(">i", partition) + uvarint(len(offsets) + 1) + batches + b"\0"
        topics = b"\2" + self.topic_id + b"\2" + row + b"\0"
        self._exchange(SHARE_ACKNOWLEDGE, self._identity + struct.pack(">i", self._next_epoch()) + topics + b"\0")

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch - 1

    def _exchange(self, api_key: int, body: bytes) -> memoryview:
        """The answer behind its header. An error for the whole request is a `BrokerError`, except for heartbeats."""
        cursor: Cursor = self._connection.exchange(flexible_frame(api_key, 1, body))
        answer = cursor.rest()[1:]
        code = int.from_bytes(answer[4:6])
        if code and api_key != HEARTBEAT:
            raise BrokerError(f"request {api_key} of a share group: error {code}")
        return answer


def share_in_flight(session: Session, work: str) -> Result:
    """The broker's memory for 100,000 acquired records of 10 partitions, 500 of a poll; then every second one of them
    is accepted, so that each has a state of its own."""
    if session.process is None:
        raise BrokerError("needs the broker's process")
    of_each = IN_FLIGHT // PARTITIONS
    with session.topic(work, PARTITIONS) as topic, Connection(session.bootstrap) as connection:
        for partition in range(PARTITIONS):
            for _ in range(of_each // POLLED):
                connection.produce(produce_frame(topic, partition, record_batch(POLLED, 10)))
        await_coordinator(session, topic)
        member = _Member(connection, topic)
        member.join(topic)
        before = session.process.memory().own_bytes
        while member.fetch() > _EMPTY_ANSWER_BYTES:
            """until nothing more may be acquired"""
        acquired = session.process.memory().own_bytes - before
        for partition in range(PARTITIONS):
            member.accept(partition, range(1, of_each, 2))
        accepted = session.process.memory().own_bytes - before
    note = (
        f"{acquired / IN_FLIGHT:.0f} bytes a record in flight, "
        f"{accepted / IN_FLIGHT:.0f} when every second one is accepted; {IN_FLIGHT:,} of them"
    )
    return Result(work, records=IN_FLIGHT, resident_bytes=accepted, note=note)
