"""The copying application as a process, what is fed to it, and what must be there when it has copied everything."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.support.broker_process import PACKAGE_PARENT, environment
from tests.support.wait import DEADLINE_S, until
from tests.system.crash.crash_line import LATEST, Line
from tests.system.crash.ledger import LOG, PADDING, PARTITIONS, PERSISTENT, Ledger
from tests.system.crash.transactional_copy import (
    FENCED,
    OUTPUT_PARTITIONS,
    InputRecord,
    copy_of,
    output_partition,
    output_topic,
)

FEED_S = 0.01
RECORDS_PER_FEED = 6
PortOf = Callable[[str, int], int]
"""The port of the leader of a partition."""


class CopyJob:
    """The application's process. `begin`, then `kill` or `stop`; `words` are what it says."""

    def __init__(self, name: str, bootstrap: str, errors: Path, client: str = "confluent") -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.errors = errors
        self.client = client
        self.words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None

    def begin(self) -> None:
        assert self._process is None
        module = "tests.system.crash.transactional_copy"
        with self.errors.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, self.client, self.bootstrap, self.name],
                cwd=PACKAGE_PARENT,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.words = queue.SimpleQueue()
        self._listener = threading.Thread(target=_listen, args=(self._process, self.words), daemon=True)
        self._listener.start()

    def hand_over(self) -> CopyJob:
        """The process as a job of its own; this one may begin another."""
        other = CopyJob(self.name, self.bootstrap, self.errors, self.client)
        other._process, other._listener, other.words = self._process, self._listener, self.words
        self._process = None
        return other

    def await_word(self, wanted: str) -> None:
        """Until the application says this from now on."""
        self._check()
        while not self.words.empty():
            if not self.words.get():
                self._check()
        deadline = time.monotonic() + DEADLINE_S
        word = ""
        while word != wanted:
            try:
                word = self.words.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._signal(signal.SIGUSR1)
                time.sleep(0.2)
                pytest.fail(f"waited {DEADLINE_S:g} s for the application to say {wanted}; {self.said()}")
            if not word:
                self._check()

    def kill(self) -> None:
        self._check()
        self._signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        self._signal(signal.SIGTERM)
        code = self._end()
        assert code == 0, f"the application ended with code {code}; {self.said()}"

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def await_fenced(self) -> None:
        """Until it has found out that another has its transactional id."""
        code = self._end()
        assert code == FENCED, f"the application ended with code {code} instead of {FENCED}; {self.said()}"

    def close(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._end()

    def said(self) -> str:
        return f"it said: {self.errors.read_text()[-4000:]}"

    def _check(self) -> None:
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"the application has ended with code {code}; {self.said()}"

    def _signal(self, which: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(which)

    def _end(self) -> int:
        process, self._process = self._process, None
        assert process is not None and process.stdout is not None and self._listener is not None
        try:
            code = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.2)
            process.kill()
            process.wait(DEADLINE_S)
            pytest.fail(f"the application has not ended within {DEADLINE_S:g} s; {self.said()}")
        self._listener.join(DEADLINE_S)
        process.stdout.close()
        return code


def _listen(process: subprocess.Popen[str], words: queue.SimpleQueue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        words.put(line.split()[0])
    process.wait(DEADLINE_S)
    words.put("")


@contextmanager
def feeding(ledger: Ledger) -> Iterator[None]:
    """Writes to the input all the while, and enters it in the ledger; returns when everything is acknowledged."""
    done = threading.Event()

    def feed() -> None:
        while not done.wait(FEED_S):
            if ledger.number - ledger.count < 3000:
                ledger.send(RECORDS_PER_FEED)
            ledger.producer.poll(0)

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(DEADLINE_S)
    assert ledger.producer.flush(DEADLINE_S) == 0, "records that nobody answered for"
    assert ledger.refused == []


def input_records(ledger: Ledger) -> list[InputRecord]:
    """By the ledger: the producer is idempotent, and its records have the offsets in their order."""
    return [
        InputRecord(partition, offset, b"%d:" % number + PADDING)
        for partition, numbers in ledger.sent.items()
        for offset, number in enumerate(numbers)
    ]


def await_copied(job: CopyJob, ledger: Ledger) -> None:
    """Until the group has committed the end of the input: a job that goes on may take its time, on busy cores."""
    ends = {partition: len(numbers) for partition, numbers in ledger.sent.items()}
    consumer = _consumer(job)
    partitions = [TopicPartition(ledger.topic, partition) for partition in ends]
    found: dict[int, int] = {}

    def is_copied() -> bool:
        found.update({each.partition: each.offset for each in consumer.committed(partitions, timeout=DEADLINE_S)})
        assert all(offset <= ends[partition] for partition, offset in found.items()), f"{found} is behind the end"
        return found == ends

    try:
        while not is_copied():
            _await_change(is_copied, found, lambda: f"the group to go on to {ends}; it is at {found}")
    finally:
        consumer.close()


def _await_change(is_over: Callable[[], bool], found: dict[int, int], what: Callable[[], str]) -> None:
    before = dict(found)
    until(lambda: is_over() or found != before, what)


def check_copies(job: CopyJob, port_of: PortOf, ledger: Ledger) -> None:
    """Each record of the input is exactly once in the output, in the order of its partition, and nothing is open."""
    expected: dict[int, list[bytes]] = {index: [] for index in range(OUTPUT_PARTITIONS)}
    for record in input_records(ledger):
        expected[output_partition(record)].append(copy_of(record))
    output = output_topic(job.name)
    partitions = [(ledger.topic, index) for index in range(PARTITIONS)] + [(output, index) for index in expected]
    for topic, index in partitions:
        line = Line(port_of(topic, index))
        stable, end = line.offset(topic, index, LATEST, read_committed=True), line.offset(topic, index, LATEST)
        line.close()
        assert stable == end, f"the last stable offset of {topic}-{index} is {stable}, and it ends at {end}"
    found = _read_committed(job)
    for index, copies in expected.items():
        difference = Counter(found[index])
        difference.subtract(copies)
        lost = sum(-count for count in difference.values() if count < 0)
        surplus = sum(count for count in difference.values() if count > 0)
        some = [each for each in difference.items() if each[1]][:5]
        assert not any(difference.values()), f"{output}-{index}: {lost} lost, {surplus} too many, such as {some}"
        for source in range(PARTITIONS):
            name = b"%d/" % source
            in_order = [copy for copy in copies if copy.startswith(name)]
            assert [copy for copy in found[index] if copy.startswith(name)] == in_order, "in the order of the input"


def _consumer(job: CopyJob) -> Consumer:
    settings = {"bootstrap.servers": job.bootstrap, "group.id": job.name, "auto.offset.reset": "error"}
    settings |= {"isolation.level": "read_committed", "enable.auto.commit": False, "enable.partition.eof": True}
    return Consumer({**settings, **PERSISTENT}, logger=LOG)


def _read_committed(job: CopyJob) -> dict[int, list[bytes]]:
    """The records that a read_committed consumer finds in each partition of the output."""
    values: dict[int, list[bytes]] = {index: [] for index in range(OUTPUT_PARTITIONS)}
    unread = set(values)
    consumer = _consumer(job)
    consumer.assign([TopicPartition(output_topic(job.name), index, 0) for index in values])

    def is_at_end() -> bool:
        for message in consumer.consume(200, 0.05):
            error = message.error()
            if error is None:
                values[message.partition()].append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                pytest.fail(f"reading {job.name}: {error}")
        return not unread

    try:
        until(is_at_end, lambda: f"the end of the partitions {unread} of the output")
    finally:
        consumer.close()
    return values
