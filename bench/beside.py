"""How long a client waits for its acknowledgements while another gives the disk work, and when none does.

A producer sends one record at a fixed rate and times each answer, first alone and then while a process of its own

    reads cold a log that was evicted from the page cache before, from its start to its end
    reads hot     the same log from memory: what the mere work costs, without the disk
    flushes       a megabyte a second to a topic with flush.messages=1

A request that was late because the one before it was answered late counts from the moment when it was due.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from bench.discard import Reader
from bench.records import FrameCycle, frame_cycle
from bench.replay import AnswerShape, blocking_socket, fill, pump
from bench.report import Latency, Result, latency
from bench.session import Measure, Session
from bench.usage import ProcessTree
from bench.wire import BrokerError

RATE = 500
VALUE_BYTES = 1000
FLUSHED_BYTES_PER_S = 1_000_000
FLUSHED_VALUE_BYTES = 10_000
_RECORD_COUNT = 150
_FORK = multiprocessing.get_context("fork")


def paced(bootstrap: str, cycle: FrameCycle, ended: Callable[[], bool]) -> list[int]:
    """`RATE` requests a second until `ended`; nanoseconds from when each was due to its answer."""
    return [answered - due for due, answered in due_and_answered(bootstrap, cycle, RATE, ended)]


def due_and_answered(
    bootstrap: str, cycle: FrameCycle, rate: int, ended: Callable[[], bool]
) -> Iterator[tuple[int, int]]:
    """`rate` requests a second until `ended`; when each was due and answered, by `time.perf_counter_ns`."""
    shape = AnswerShape(cycle.topic)
    frame, answers = cycle.data[: cycle.frame_bytes], bytearray(shape.size_bytes)
    clock, interval = time.perf_counter_ns, 10**9 // rate
    with blocking_socket(bootstrap) as sock:
        due = clock()
        while not ended():
            now = clock()
            if now < due:
                time.sleep((due - now) / 1e9)
                due = clock()  # that sleep was too long is not the broker's fault
            sock.sendall(frame)
            if sock.recv_into(answers) != len(answers):
                raise BrokerError("half an answer to a Produce request")
            yield due, clock()
            shape.check(answers)
            due += interval


def beside_reading(session: Session, work: str, budget_bytes: int, *, cold: bool) -> Result:
    """A consumer that reads a filled log, again and again for `seconds`; out of memory before each pass if `cold`."""
    if session.process is None:
        return Result(work, error="needs --pid")
    with session.topic(work) as topic, session.topic(work + "-log") as log:
        cycle = frame_cycle(topic, 1, VALUE_BYTES, window=1, acks=session.acks)
        written = fill(session, log, _RECORD_COUNT, 100, session.fill_bytes)
        end_offset = session.fill_bytes // written.batch_bytes * written.record_count
        quiet = _quiet(session, cycle)

        def read() -> int:
            with blocking_socket(session.bootstrap) as sock:
                return Reader(sock, written, budget_bytes).read_to(end_offset)[1]

        samples: list[int] = []
        total, read_bytes, read_s = Measure(), 0, 0.0
        while read_s < session.seconds:
            if cold:
                evict(session.process, log)
            with at_work(read) as reading, session.metered() as measure:
                samples += paced(session.bootstrap, cycle, reading.poll)
                read_bytes += int(result_of(reading))
            total += measure
            read_s += measure.seconds
    note = f"{read_bytes / read_s / 1e6:.0f} MB/s read beside it, {work.rpartition('-')[2]} at a time"
    return _result_row(work, total, samples, quiet, note)


def beside_flushing(session: Session, work: str) -> Result:
    """A producer whose every batch must be on the disk."""
    with session.topic(work) as topic, session.topic(work + "-flushed", config={"flush.messages": "1"}) as flushed:
        cycle = frame_cycle(topic, 1, VALUE_BYTES, window=1, acks=session.acks)
        other = frame_cycle(flushed, 1, FLUSHED_VALUE_BYTES, window=1, acks=session.acks)
        quiet = _quiet(session, cycle)
        interval = other.batch_bytes / FLUSHED_BYTES_PER_S

        def flush() -> int:
            done, started = 0, time.monotonic()
            with blocking_socket(session.bootstrap) as sock:
                while (now := time.monotonic()) < started + session.seconds:
                    done += pump(sock, other, session.seconds, 1)
                    time.sleep(max(0.0, started + done * interval - now))
            return done

        with at_work(flush) as flushing, session.metered() as measure:
            samples = paced(session.bootstrap, cycle, flushing.poll)
            count = int(result_of(flushing))
    return _result_row(
        work, measure, samples, quiet, f"{count / measure.seconds:.0f} flushed batches a second beside it"
    )


def flushed_produce(session: Session, work: str, producers: int, partitions: int = 1) -> Result:
    """Each of `producers` has one record in flight to a topic with flush.messages=1, spread over its partitions."""
    with session.topic(work, partitions, {"flush.messages": "1"}) as topic:
        cycle = frame_cycle(topic, 1, VALUE_BYTES, window=1, acks=session.acks, partitions=partitions)
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(blocking_socket(session.bootstrap)) for _ in range(producers)]
            warm = session.warm_up(lambda seconds: len(_all_at_once(sockets, cycle, seconds)))
            with session.metered() as measure:
                samples = _all_at_once(sockets, cycle, session.seconds)
        session.expect_end(topic, warm + len(samples), partitions)
    return Result(
        work, measure.seconds, len(samples), len(samples), len(samples) * VALUE_BYTES, measure.cpu,
        measure.client_cpu_s, latency(samples),
    )  # fmt: skip


def _all_at_once(sockets: list[socket.socket], cycle: FrameCycle, seconds: float) -> list[int]:
    """Every socket keeps one request in flight for `seconds`; nanoseconds to each answer."""
    shape, size = AnswerShape(cycle.topic), cycle.frame_bytes
    answer = bytearray(shape.size_bytes)
    clock = time.perf_counter_ns
    by_fd = {sock.fileno(): sock for sock in sockets}
    starts = {fd: number % cycle.frame_count * size for number, fd in enumerate(by_fd)}
    frames = {fd: cycle.data[start : start + size] for fd, start in starts.items()}
    sent_at: dict[int, int] = {}
    samples: list[int] = []
    with select.epoll() as poll:
        for fd, sock in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            sent_at[fd] = clock()
            sock.sendall(frames[fd])
        deadline = clock() + int(seconds * 1e9)
        while sent_at:
            ready = poll.poll(30)
            if not ready:
                raise BrokerError("no answer to a Produce request for 30 s")
            for fd, _ in ready:
                if by_fd[fd].recv_into(answer) != len(answer):
                    raise BrokerError("half an answer to a Produce request")
                shape.check(answer)
                now = clock()
                samples.append(now - sent_at.pop(fd))
                if now < deadline:
                    sent_at[fd] = now
                    by_fd[fd].sendall(frames[fd])
    return samples


def evict(process: ProcessTree, topic: str) -> None:
    """Evict the files of partition 0 of `topic` from the page cache; the broker has at least one of them open."""
    for directory in _directories(process, f"{topic}-0"):
        for path in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(fd)  # dirty pages stay
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(fd)


def _directories(process: ProcessTree, name: str) -> set[Path]:
    found = set()
    for pid in process.pids():
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                path = Path(os.readlink(link))
                if path.parent.name == name:
                    found.add(path.parent)
    if not found:
        raise BrokerError(f"the broker has no file of {name} open")
    return found


def _quiet(session: Session, cycle: FrameCycle) -> Latency:
    ends = time.monotonic() + session.seconds
    return latency(paced(session.bootstrap, cycle, lambda: time.monotonic() > ends))


@contextlib.contextmanager
def at_work(work: Callable[[], object], nice: int = 5) -> Iterator[Pipe]:
    """`work` in a process of its own; its result comes through the pipe."""
    here, there = _FORK.Pipe()

    def run() -> None:
        # behind broker and producer where there are more processes than cores: they are what is measured
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.nice(nice)
        try:
            there.send(work())
        except Exception as error:
            there.send(f"{type(error).__name__}: {error}")

    process = _FORK.Process(target=run, daemon=True)
    process.start()
    try:
        yield here
    finally:
        process.terminate()
        process.join()


def result_of(pipe: Pipe) -> Any:
    """The result of the work of `at_work`. Raises BrokerError for its exception."""
    found = pipe.recv()
    if isinstance(found, str):
        raise BrokerError(found)
    return found


def _result_row(work: str, measure: Measure, samples: list[int], quiet: Latency, note: str) -> Result:
    beside = latency(samples)
    alone = f"quiet p50 {quiet.p50_us:.0f}, p99 {quiet.p99_us:.0f} us: p99 x {beside.p99_us / quiet.p99_us:.1f}"
    return Result(
        work, measure.seconds, len(samples), cpu=measure.cpu, client_cpu_s=measure.client_cpu_s, latency=beside,
        note=f"{alone}; {note}",
    )  # fmt: skip
