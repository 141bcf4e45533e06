"""`bench scaling --partitions`: starts of `serve --cores N` that has thousands of partitions.

    python -m bench scaling --partitions [--cores 4] [--count 10000] [--rounds 5]

The topics have five partitions each, dealt to the processes. Times run from the start of the command, which follows an
orderly stop: until it says that it is ready, and until each process says of every partition that it is led. The CPU is
that of all processes until then.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.cluster import partitions_of
from bench.cores import Machine, create
from bench.report import machine
from bench.wire import BrokerError

_OF_A_TOPIC = 5
_AT_ONCE = 100  # topics in a request
_LIMIT_S = 300.0
_PAUSE_S = 0.02
_SETTLED_S = 3.0
_MEMORY = "/dev/shm"


class Start(NamedTuple):
    """Seconds, and those of CPU."""

    ready_s: float
    led_s: float
    cpu_s: float
    stop_s: float


def begin(home: Path, cores: int, count: int) -> tuple[Machine, Start]:
    """A machine on which `count` partitions are led. It has a topic more after each start."""
    began_s = time.perf_counter()
    target = Machine(home, cores)
    for address in target.addresses:
        await_led(address, count)
    led_s = time.perf_counter() - began_s
    return target, Start(target.ready_s, led_s, target.tree.cpu().total_s, 0.0)


def await_led(address: str, count: int) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while len(known := partitions_of(address)) < count or any(leader < 0 for leader, _ in known):
        if time.monotonic() > deadline_s:
            raise BrokerError(f"waited {_LIMIT_S:g} s for the leaders of {count} partitions")
        time.sleep(_PAUSE_S)


def end(target: Machine) -> float:
    time.sleep(_SETTLED_S)
    began_s = time.perf_counter()
    target.end()
    return time.perf_counter() - began_s


def measure(home: Path, cores: int, count: int, rounds: int) -> Iterator[Start]:
    target = Machine(home, cores)
    names = [f"many-{number:06d}" for number in range(count // _OF_A_TOPIC)]
    for at in range(0, len(names), _AT_ONCE):
        some = range(at, min(at + _AT_ONCE, len(names)))
        create(
            target.bootstrap,
            {names[n]: [(n * _OF_A_TOPIC + index) % cores for index in range(_OF_A_TOPIC)] for n in some},
        )
    for address in target.addresses:
        await_led(address, count)
    end(target)
    for _ in range(rounds):
        target, start = begin(home, cores, count)
        yield start._replace(stop_s=end(target))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench scaling --partitions", description=__doc__)
    parser.add_argument("--cores", type=int, default=4, help="processes (default 4)")
    parser.add_argument("--count", type=int, default=10_000, help="partitions of all topics (default 10000)")
    parser.add_argument("--rounds", type=int, default=5, help="starts (default 5)")
    options = parser.parse_args(arguments)
    where = _MEMORY if Path(_MEMORY).is_dir() else None
    print(", ".join(machine().values()))
    starts = []
    with tempfile.TemporaryDirectory(dir=where) as home:
        for start in measure(Path(home), options.cores, options.count, options.rounds):
            starts.append(start)
            print(_line("", start), flush=True)
    print(_line("median: ", Start(*(median(each) for each in zip(*starts, strict=True)))))
    return 0


def _line(name: str, start: Start) -> str:
    return (
        f"{name}ready after {start.ready_s:.2f} s, all led after {start.led_s:.2f} s, {start.cpu_s:.2f} s of CPU; "
        f"stopped in {start.stop_s:.2f} s"
    )
