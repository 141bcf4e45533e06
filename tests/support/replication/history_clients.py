"""The stock clients of a random history, which write and read while it lasts, and what they saw compared with what is
there in the end.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import confluent_kafka

from tests.support.replication.live_cluster import Reachable, Writer, new_consumer, read_all
from tests.support.wait import DEADLINE_S

TOPIC = "t"
IN_FLIGHT_MAX = 200
_NEVER_MS = 600_000
CHECKED_READS = 20  # one of so many: all of them keep a checker of linearizability busy longer than the history took


class _TimedWriter(Writer):
    """A writer of values that differ, with the times in ns when each was given to the client and answered."""

    def __init__(self, cluster: Reachable) -> None:
        # a partition may be led by nobody for longer than a test waits; why the client refuses to go on, "eos" tells
        super().__init__(cluster, debug="eos", message_timeout_ms=_NEVER_MS)
        self.called: dict[bytes, int] = {}
        self.answered: dict[bytes, int] = {}

    def write(self, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
        several = list(values)
        self.called.update(dict.fromkeys(several, time.monotonic_ns()))
        super().write(topic, several, partition)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        self.answered[value] = time.monotonic_ns()
        super()._delivered(error, message)


class HistoryClients:
    """A writer and a reader of all `partitions` of TOPIC, each in a thread, between `start` and `finish`."""

    def __init__(self, cluster: Reachable, partitions: int) -> None:
        self.writer = _TimedWriter(cluster)
        self._cluster = cluster
        self._partitions = partitions
        self._done = threading.Event()
        self._faults: list[str] = []
        self._consumed: dict[int, dict[int, bytes]] = {partition: {} for partition in range(partitions)}
        self._read_at: dict[tuple[int, int], int] = {}  # ns, by partition and offset; the first time
        self._began = time.monotonic_ns()
        tasks = {"the writer": self._write, "the reader": self._read}
        self._work = [
            threading.Thread(name=name, target=self._guarded, args=(task,), daemon=True) for name, task in tasks.items()
        ]

    def start(self) -> None:
        for thread in self._work:
            thread.start()

    def finish(self) -> None:
        self._done.set()
        for thread in self._work:
            thread.join(DEADLINE_S)
            if thread.is_alive():  # in a close, which nobody can end
                self._faults.append(f"{thread.name} has not ended")

    def pass_time(self, rng: Random, records_max: int, seconds_max: float) -> None:
        """Some records are acknowledged, or some time passes."""
        wanted = len(self.writer.acknowledged) + rng.randrange(records_max)
        deadline = time.monotonic() + rng.uniform(0.01, seconds_max)
        pause = threading.Event()
        while len(self.writer.acknowledged) < wanted and time.monotonic() < deadline:
            pause.wait(0.002)

    def flush(self) -> None:
        """Wait for the answers to all records. Raises AssertionError if one of them failed, or a client met a fault."""
        self.writer.flush()
        assert not self.writer.failures, f"failed produces: {self.writer.failures[:3]}"
        assert not self._faults, self._faults[:3]

    def check(self, partition: int) -> None:
        """Raises AssertionError if acknowledged records, or records once read, are missing, twice there or in another
        order."""
        content = read_all(self._cluster, TOPIC, partition)
        told = {offset: value for where, offset, value in self.writer.acknowledged if where == partition}
        lost = {offset: value for offset, value in told.items() if content.get(offset) != value}
        assert not lost, f"{TOPIC}-{partition}: acknowledged, and not there: {_some(lost)}"
        unplaced = {value for where, value in self.writer.unplaced if where == partition} - set(content.values())
        assert not unplaced, f"{TOPIC}-{partition}: acknowledged, and not there: {sorted(unplaced)[:5]}"
        read = self._consumed[partition]
        gone = {offset: value for offset, value in read.items() if content.get(offset) != value}
        assert not gone, f"{TOPIC}-{partition}: read once, and not there: {_some(gone)}"
        numbers = [int(value) for _, value in sorted(content.items())]
        wrong = [pair for pair in itertools.pairwise(numbers) if pair[0] >= pair[1]]
        assert not wrong, f"{TOPIC}-{partition}: duplicates, or another order: {wrong[:5]} of {len(wrong)}"

    def save_operations(self, path: Path) -> None:
        """Write a line of JSON for each append, and for the first reads of some records, once all have been answered:
        partition, offset, value, and in ns when it was asked for and answered.

        A client fetches ahead, so a read may have been asked for at any time before.
        """
        with path.open("w") as file:
            for partition in range(self._partitions):
                content = read_all(self._cluster, TOPIC, partition)
                for operation in self._operations(partition, content):
                    file.write(json.dumps({"partition": partition, **operation}) + "\n")

    def _operations(self, partition: int, content: dict[int, bytes]) -> Iterator[dict[str, object]]:
        writer = self.writer
        offsets = {value: offset for where, offset, value in writer.acknowledged if where == partition}
        for offset, value in content.items():  # also what was acknowledged without an offset
            offsets.setdefault(value, offset)
        for value, offset in offsets.items():
            times = {"call": writer.called[value], "return": writer.answered[value]}
            yield {"kind": "append", "offset": offset, "value": value.decode(), **times}
        for offset, value in self._consumed[partition].items():
            if offset % CHECKED_READS == 0:
                times = {"call": self._began, "return": self._read_at[partition, offset]}
                yield {"kind": "read", "offset": offset, "value": value.decode(), **times}

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as fault:
            self._faults.append(repr(fault))

    def _write(self) -> None:
        for number in itertools.count():
            if self._done.is_set():
                return
            while len(self.writer.client) > IN_FLIGHT_MAX and not self._done.is_set():
                self.writer.client.poll(0.01)
            self.writer.write(TOPIC, [b"%d" % number], number % self._partitions)
            self.writer.client.poll(0.001)

    def _read(self) -> None:
        consumer = new_consumer(self._cluster, fetch_wait_max_ms=50)
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, 0) for p in range(self._partitions)])
        try:
            while not self._done.is_set():
                message = consumer.poll(0.05)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    self._note(message)
                elif error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                    self._faults.append(f"a consumer was sent back: {error}")
        finally:
            consumer.close()

    def _note(self, message: confluent_kafka.Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and isinstance(value, bytes)
        self._read_at.setdefault((partition, offset), time.monotonic_ns())
        known = self._consumed[partition].setdefault(offset, value)
        if known != value:
            self._faults.append(f"{TOPIC}-{partition} has {known!r} at {offset}, and then {value!r}")


def _some(records: dict[int, bytes]) -> list[tuple[int, bytes]]:
    return sorted(records.items())[:5]
