"""The surroundings of each work: the broker under test, durations, topics of its own, and the meter."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bench.usage import Cpu, ProcessTree
from bench.wire import BrokerError, Connection


@dataclass(slots=True)
class Measure:
    """Filled in when the metered block ends."""

    seconds: float = 0.0
    cpu: Cpu | None = None
    client_cpu_s: float = 0.0

    def __add__(self, other: Measure) -> Measure:
        both = self.cpu + other.cpu if self.cpu and other.cpu else self.cpu or other.cpu
        return Measure(self.seconds + other.seconds, both, self.client_cpu_s + other.client_cpu_s)


@dataclass(frozen=True, slots=True)
class Session:
    """One broker under load."""

    bootstrap: str
    process: ProcessTree | None = None
    """The broker's process; None: not known, no CPU and memory figures."""
    seconds: float = 5.0
    """How long each work loads the broker, besides warming up and filling."""
    acks: int = 1
    fill_bytes: int = 512 * 10**6
    """How much log the readers get to read."""
    max_bytes: int = 4 * 10**9
    """No work writes more than this into one topic."""

    warm_up_limit_s: float = 30.0
    """No work warms up for longer."""

    def warm_up(self, work: Callable[[float], int], clock: Callable[[], float] = time.monotonic) -> int:
        """Call `work(seconds)` until it gets no faster, and return the sum of what it returned.

        A JVM needs ten seconds and more to compile its hot paths on two cores, an interpreter none; so warm up until
        three slices in a row have not beaten the best one before them by 5 %.
        """
        slice_s = min(1.0, self.seconds / 5)
        total, best, idle, started = 0, 0.0, 0, clock()
        while idle < 3 and clock() - started < self.warm_up_limit_s:
            before = clock()
            done = work(slice_s)
            rate = done / (clock() - before)
            idle = 0 if rate > best * 1.05 else idle + 1
            best, total = max(best, rate), total + done
        return total

    @contextlib.contextmanager
    def topic(self, kind: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> Iterator[str]:
        """A new topic that is gone after the block, and its files a second later."""
        name = f"bench-{kind}-{secrets.token_hex(4)}"
        with Connection(self.bootstrap) as connection:
            connection.create_topic(name, partitions, {"file.delete.delay.ms": "1000", **(config or {})})
        try:
            yield name
        finally:
            with contextlib.suppress(OSError, BrokerError), Connection(self.bootstrap) as connection:
                connection.delete_topic(name)

    @contextlib.contextmanager
    def metered(self) -> Iterator[Measure]:
        """Wall time, the broker's CPU and ours, of the block."""
        measure = Measure()
        broker_before = self.process.cpu() if self.process else None
        client_before, started = time.process_time(), time.perf_counter()
        yield measure
        measure.seconds = time.perf_counter() - started
        measure.client_cpu_s = time.process_time() - client_before
        if self.process and broker_before is not None:
            measure.cpu = self.process.cpu() - broker_before

    def expect_end(self, topic: str, expected: int, partitions: int = 1, limit_s: float = 0.0) -> None:
        """Every record that was sent must be in the log, `limit_s` from now at the latest, and no other."""
        deadline = time.monotonic() + limit_s
        with Connection(self.bootstrap) as connection:
            stored = sum(connection.end_offsets(topic, range(partitions)).values())
            while stored < expected and time.monotonic() < deadline:
                time.sleep(0.01)
                stored = sum(connection.end_offsets(topic, range(partitions)).values())
        if stored != expected:
            raise BrokerError(f"{expected} records were sent to {topic}, its log has {stored}")
