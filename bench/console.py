"""`python -m bench console`: what an open overview and a running search cost another client.

One-record requests, one in flight, by turns without a visitor of the console and with one: an overview that polls as
often as the page does, and a search for absent words through all of `--size-mb`. Broker, console, visitor and client
share the cores of the machine; the broker starts the console, as `serve --console`. Without a visitor, a loop of the
lowest class (SCHED_IDLE) for each core keeps it awake: to wake a core up costs a virtual machine more than a request
does.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any

from bench.records import frame_cycle
from bench.reference.kafka import free_port
from bench.replay import blocking_socket, closed_loop, pump
from bench.report import machine
from bench.startup import kafkalite_launcher, started
from bench.usage import ProcessTree
from bench.wire import Connection

_LIMIT_S = 600.0
_SAMPLES_MAX = 1_000_000
_START_S = 30.0
_PARTITIONS = 4
_RECORDS, _VALUE_BYTES = 64, 1000
_OVERVIEW_S = 5.0
_PATHS = ("overview", "history", "problems")
_NEVER_WRITTEN = "no record has these words"


class Visitor:
    """Polls the overview and searches, in processes of its own, while it is `busy`."""

    def __init__(self, address: str, topic: str) -> None:
        context = get_context("fork")
        self.busy = context.Event()
        self.bytes = context.Value("q", 0)
        self._quiet = context.Event()
        work: list[tuple[Callable[..., object], tuple[Any, ...]]] = [
            (_look, (address, self.busy)),
            (_search, (address, topic, self.busy, self.bytes)),
        ]
        work += [(_keep_awake, (self._quiet,))] * (os.cpu_count() or 1)
        self._processes = [context.Process(target=target, args=given, daemon=True) for target, given in work]
        for process in self._processes:
            process.start()

    def turn(self, *, is_busy: bool) -> None:
        for event, is_set in ((self.busy, is_busy), (self._quiet, not is_busy)):
            event.set() if is_set else event.clear()

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _keep_awake(quiet: Event) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while quiet.wait():
        for _ in range(100_000):
            pass


def _look(address: str, busy: Event) -> None:
    while busy.wait():
        for path in _PATHS:
            with urllib.request.urlopen(f"http://{address}/api/{path}", timeout=_LIMIT_S) as answer:
                answer.read()
        time.sleep(_OVERVIEW_S)


def _search(address: str, topic: str, busy: Event, searched: object) -> None:
    query = urllib.parse.urlencode(
        {
            "from": "beginning",
            "value": _NEVER_WRITTEN,
            "limit": 50,
            "max_bytes": 64 << 30,
            "max_records": 10_000_000,
            "max_ms": 600_000,
        }
    )
    while busy.wait():
        with urllib.request.urlopen(f"http://{address}/api/topics/{topic}/messages?{query}", timeout=_LIMIT_S) as lines:
            before = 0
            for line in lines:
                found = re.search(rb'"scanned_bytes":\s*(\d+)', line)
                if found:
                    searched.value += int(found[1]) - before  # type: ignore[attr-defined]
                    before = int(found[1])
                if not busy.is_set():
                    break  # closing it stops the search


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench console", description=__doc__)
    parser.add_argument("--pairs", type=int, default=7, help="turns of each kind (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn (default: %(default)s)")
    parser.add_argument("--size-mb", type=int, default=10_000, help="what is searched (default: %(default)s)")
    options = parser.parse_args(arguments)
    console = f"127.0.0.1:{free_port()}"
    print(machine())
    with started(kafkalite_launcher(f"--override console.listener={console}")) as broker:
        _fill(broker.bootstrap, options.size_mb)
        await_console(console)
        visitor = Visitor(console, "large")
        try:
            _measure(broker.bootstrap, broker.process, visitor, options)
        finally:
            visitor.stop()
    return 0


def await_console(address: str) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/api/overview", timeout=_START_S):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _fill(bootstrap: str, size_mb: int) -> None:
    with Connection(bootstrap) as connection:
        connection.create_topic("large", _PARTITIONS)
        connection.create_topic("small")
    cycle = frame_cycle("large", _RECORDS, _VALUE_BYTES, partitions=_PARTITIONS)
    with blocking_socket(bootstrap) as sock:
        pump(sock, cycle, _LIMIT_S, size_mb * 1_000_000 // cycle.batch_bytes)


def _measure(bootstrap: str, broker: ProcessTree, visitor: Visitor, options: argparse.Namespace) -> None:
    cycle = frame_cycle("small", 1, 100, window=1)
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    searched_s = 0.0
    with blocking_socket(bootstrap) as sock:
        closed_loop(sock, cycle, 1.0, _SAMPLES_MAX)
        for turn in range(2 * options.pairs):
            is_busy = bool(turn % 2)
            visitor.turn(is_busy=is_busy)
            time.sleep(1.0)
            before, began = visitor.bytes.value, time.perf_counter()
            samples = sorted(closed_loop(sock, cycle, options.seconds, _SAMPLES_MAX))
            took_s = time.perf_counter() - began
            found[is_busy].append((samples[len(samples) // 2] / 1e3, samples[len(samples) * 99 // 100] / 1e3))
            if is_busy:
                searched_s += took_s
                rate = (visitor.bytes.value - before) / took_s / 1e6
            print(
                f"{'overview and search' if is_busy else 'nobody':<20} p50 {found[is_busy][-1][0]:7.0f} us,"
                f" p99 {found[is_busy][-1][1]:7.0f} us" + (f", {rate:.0f} MB/s searched" if is_busy else ""),
                flush=True,
            )
    for name, at in (("p50", 0), ("p99", 1)):
        ratios = [busy[at] / quiet[at] for quiet, busy in zip(found[False], found[True], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{name}: x{statistics.median(ratios):.2f} (median of {len(ratios)}, {spread})")
