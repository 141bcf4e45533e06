"""`python -m bench tail`: how late records are while the broker has other work; kafkalite and Apache Kafka by turns.

A producer sends a thousand requests of ten records of 100 bytes a second, and a consumer in a process of its own waits
for them. Each request counts from the moment when it was due, to its acknowledgement and to the arrival of its records.
Beside it, in a third process, runs

    nothing       the broker has nothing else to do
    compaction    10 MB/s go to a compacted topic, whose cleaner begins as soon as a segment of 4 MiB is full
    retention     20 MB/s go to a topic of 4 MiB, in segments of 1 MiB, which are looked at five times a second
    catching-up   a consumer reads a log of --fill-mb as fast as it can, 1 MiB at a time, again and again
    handshakes    200 connections a second are made over TLS, and closed
    metadata      50 times a second the metadata of 2,000 topics are asked for
"""

from __future__ import annotations

import argparse
import contextlib
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.beside import at_work, due_and_answered, result_of
from bench.compaction import CLEANER
from bench.discard import Reader
from bench.host import BackedMemory, described
from bench.keyed_log import KeyedLog
from bench.records import FrameCycle, frame_cycle
from bench.reference import ReferenceUnavailable
from bench.replay import blocking_socket, fill, pump
from bench.report import Latency, latency, machine
from bench.session import Session
from bench.tls import connected, launchers, make_key_store
from bench.versus import KAFKA, KAFKALITE, Side, order
from bench.wire import METADATA, BrokerError, Connection, produce_frame, request_frame

RATE = 1_000
RECORDS, VALUE_BYTES = 10, 100
SETTINGS = {**CLEANER, "log.retention.check.interval.ms": "200"}
TOPICS = 2_000
_METADATA_PER_S = 50
_HANDSHAKES_PER_S = 200
_COMPACTED_BYTES_PER_S = 10_000_000
_DELETED_BYTES_PER_S = 20_000_000
_MIB = 1 << 20
_WARM_UP_S = 1.0
_ALL_TOPICS = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class Tail:
    """Of one sample."""

    acknowledged: Latency
    arrived: Latency


def tail(session: Session) -> Tail:
    """Produce at `RATE` for a second and then `session.seconds`, which are measured."""
    with session.topic("tail") as topic:
        cycle = frame_cycle(topic, RECORDS, VALUE_BYTES, window=1, acks=session.acks)
        with blocking_socket(session.bootstrap) as sock:
            pump(sock, cycle, 30.0, 1)
        count = int((session.seconds + _WARM_UP_S) * RATE)
        with at_work(lambda: arrivals(session.bootstrap, cycle, count), nice=0) as consuming:
            times = _times(session.bootstrap, cycle, count)
            arrived = result_of(consuming)
    measured = slice(int(_WARM_UP_S * RATE), None)
    return Tail(
        latency([answered - due for due, answered in times[measured]]),
        latency([at - due for (due, _), at in zip(times[measured], arrived[measured], strict=True)]),
    )


def _times(bootstrap: str, cycle: FrameCycle, count: int) -> list[tuple[int, int]]:
    """When each of `count` requests was due and answered."""
    times: list[tuple[int, int]] = []
    times.extend(due_and_answered(bootstrap, cycle, RATE, lambda: len(times) >= count))
    return times


def arrivals(bootstrap: str, cycle: FrameCycle, count: int) -> array[int]:
    """When the records of each of `count` requests arrived, without those of the first one, which is there already."""
    found, offset = array("q"), 0
    with blocking_socket(bootstrap) as sock:
        reader = Reader(sock, cycle, _MIB)
        while len(found) <= count:
            batches = reader.fetch(offset)
            found.extend([time.perf_counter_ns()] * batches)
            offset += batches * cycle.record_count
    return found[1:]


# what runs beside it


@contextlib.contextmanager
def nothing(session: Session, address: str) -> Iterator[None]:
    yield


@contextlib.contextmanager
def compaction(session: Session, address: str) -> Iterator[None]:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(4 * _MIB),
        "min.cleanable.dirty.ratio": "0.01",
    }
    log = KeyedLog(500_000, 20_000, 100)
    batch_bytes = log.batch_records * log.record_bytes
    with session.topic("tail-compacted", config=config) as topic:

        def write() -> int:
            turns = _every(batch_bytes / _COMPACTED_BYTES_PER_S)
            with Connection(session.bootstrap) as connection:
                while True:
                    for batch, _ in log.batches():
                        next(turns)
                        connection.produce(produce_frame(topic, 0, batch))

        with at_work(write):
            yield


@contextlib.contextmanager
def retention(session: Session, address: str) -> Iterator[None]:
    config = {"segment.bytes": str(_MIB), "retention.bytes": str(4 * _MIB)}
    with session.topic("tail-deleted", config=config) as topic:
        cycle = frame_cycle(topic, 100, 1_000, window=1)

        def write() -> int:
            with blocking_socket(session.bootstrap) as sock:
                for _ in _every(cycle.batch_bytes / _DELETED_BYTES_PER_S):
                    pump(sock, cycle, 30.0, 1)
            return 0

        with at_work(write):
            yield


@contextlib.contextmanager
def catching_up(session: Session, address: str) -> Iterator[None]:
    with session.topic("tail-log") as topic:
        cycle = fill(session, topic, 150, 100, session.fill_bytes)
        end_offset = session.fill_bytes // cycle.batch_bytes * cycle.record_count

        def read() -> int:
            with blocking_socket(session.bootstrap) as sock:
                return Reader(sock, cycle, _MIB).read_for(3600.0, end_offset)

        with at_work(read):
            yield


@contextlib.contextmanager
def handshakes(session: Session, address: str) -> Iterator[None]:
    def connect() -> int:
        for _ in _every(1 / _HANDSHAKES_PER_S):
            with contextlib.suppress(ssl.SSLError), connected(address, tls=True):
                pass
        return 0

    with at_work(connect):
        yield


@contextlib.contextmanager
def metadata(session: Session, address: str) -> Iterator[None]:
    """The topics stay: their names are those of no other work, and the broker ends soon."""
    with Connection(session.bootstrap) as connection:
        for number in range(TOPICS):
            with contextlib.suppress(BrokerError):
                connection.create_topic(f"wide-{number:04}")

    def ask() -> int:
        frame = request_frame(METADATA, 1, 0, _ALL_TOPICS)
        with Connection(session.bootstrap) as connection:
            for _ in _every(1 / _METADATA_PER_S):
                connection.exchange(frame)
        return 0

    with at_work(ask):
        yield


BESIDE: dict[str, Callable[[Session, str], contextlib.AbstractContextManager[None]]] = {
    "nothing": nothing,
    "compaction": compaction,
    "retention": retention,
    "catching-up": catching_up,
    "handshakes": handshakes,
    "metadata": metadata,
}


def _every(interval_s: float) -> Generator[None, None, None]:
    """Yields once every `interval_s`, without end; what was missed is made up for."""
    due = time.monotonic()
    while True:
        yield
        due += interval_s
        time.sleep(max(0.0, due - time.monotonic()))


# by turns

Found = dict[str, dict[str, list[Tail]]]


def measure(names: Sequence[str], pairs: int, seconds: float, fill_mb: int) -> Found:
    """The samples of each work beside, by broker."""
    addresses: dict[str, str] = {}
    found: Found = {name: {KAFKALITE: [], KAFKA: []} for name in names}
    template = Session("", None, seconds, fill_bytes=fill_mb * 10**6)
    with (
        tempfile.TemporaryDirectory(prefix="bench-tail-") as directory,
        contextlib.closing(BackedMemory()) as memory,
        contextlib.ExitStack() as stack,
    ):
        made = launchers(make_key_store(Path(directory)), addresses, SETTINGS)
        sides = tuple(Side(name, launcher, memory=memory) for name, launcher in made.items())
        memory.refill()
        for side in sides:
            stack.enter_context(side.running(template))
        with sides[1].turn() as session:  # its JIT compiles what is measured
            for _ in range(3):
                tail(session)
        for name in names:
            for which in order(pairs):
                side = sides[which]
                with side.turn() as session, BESIDE[name](session, addresses[side.name]):
                    sample = tail(session)
                found[name][side.name].append(sample)
                print(f"beside {name}, {side.name}: {sample}", file=sys.stderr, flush=True)
    return found


def lines(found: Found) -> Iterator[str]:
    """The table: medians of the samples, in microseconds."""
    yield "| beside | broker | acknowledged: p50 | p99 | p99.9 | arrived: p50 | p99 | p99.9 | p99 by that of nothing |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    quiet: dict[str, float] = {}
    for name, by_side in found.items():
        for side, samples in by_side.items():
            cells = []
            for kind in ("acknowledged", "arrived"):
                for figure in ("p50_us", "p99_us", "p999_us"):
                    cells.append(statistics.median(getattr(getattr(each, kind), figure) for each in samples))
            quiet.setdefault(side, cells[4])
            texts = " | ".join(f"{cell:,.0f}" for cell in cells)
            yield f"| {name} | {side} | {texts} | {cells[4] / quiet[side]:.1f} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench tail", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=3, help="samples of each row on each broker (default 3)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a sample is measured (default 10)")
    parser.add_argument("--fill-mb", type=int, default=4_000, help="log that is caught up with (default 4000)")
    parser.add_argument("--only", metavar="NAME,..", help=f"of {', '.join(BESIDE)}; nothing is always measured")
    options = parser.parse_args(arguments)
    names = [name for name in BESIDE if not options.only or name in ("nothing", *options.only.split(","))]
    try:
        found = measure(names, options.pairs, options.seconds, options.fill_mb)
    except (BrokerError, ReferenceUnavailable, OSError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(described(machine()))
    for line in lines(found):
        print(line)
    return 0
