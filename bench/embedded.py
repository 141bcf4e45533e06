"""`python -m bench embedded`: the broker in the process of a test, as a test suite uses it.

    life           up, a topic made, a record acknowledged to a raw client, down again
    reset          of a broker with one topic and three records
    compaction     of a small topic, wanted and waited for
    month          30 days by the broker's clock: retention deletes, the cleaner compacts
    snapshot       a broker that begins with a copy of another's data, up
    cluster        three brokers, up
    first          a fresh process: imports, up, a record stored
    import         of kafkalite alone, in a fresh process
    plugin         what an installed pytest-kafkalite adds to a run of pytest that does not use it, beside one without
    at once        brokers that live at the same time: all up, a record stored in each, all down
    many           brokers one after the other: what the process has more of afterwards

Times are wall clock, p50 and p90. Brokers of one process share it with the raw client. --write puts the table into
docs/testing.md.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from bench import wire
from bench.plugin import plugin_cost
from bench.records import record_batch
from bench.report import machine
from kafkalite.testing import Broker, Cluster

_WARM = 10
_LOOKS = 10
_DAY_MS = 86_400_000
_FIRST = "import time; t = time.perf_counter(); import kafkalite"
_FIRST_BROKER = f"{_FIRST}\nwith kafkalite.Broker() as b: b.produce('t', 'x'); s = time.perf_counter() - t\nprint(s)"
_IMPORT = f"{_FIRST}; print(time.perf_counter() - t)"

PAGE = Path(__file__).resolve().parents[1] / "docs" / "testing.md"
BEGIN = "<!-- embedded: written by `python -m bench embedded --write` -->"
END = "<!-- embedded: end -->"

_PLUGIN_MS, _GROWTH_MB = 2, 2  # at most

Sample = Callable[[], float]
"""Does it once and returns the seconds that count."""


class Row(NamedTuple):
    """`name` in the terminal, `what` it is on the page; the rest as it is shown."""

    name: str
    what: str
    p50: str
    p90: str
    times: str
    target: str
    has_met: bool


def life() -> float:
    began_s = time.perf_counter()
    with Broker() as broker, wire.Connection(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        client.produce(wire.produce_frame("orders", 0, record_batch(1, 100)))
    return time.perf_counter() - began_s


@contextmanager
def shared_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def reset(broker: Broker) -> float:
    broker.create_topic("orders")
    for _ in range(3):
        broker.produce("orders", "x")
    return _timed(broker.reset)


def compaction(broker: Broker) -> float:
    broker.create_topic("prices", cleanup_policy="compact")
    for number in range(100):
        broker.produce("prices", str(number), key=f"key{number % 10}")
    seconds = _timed(lambda: broker.compact("prices"))
    if len(broker.records("prices")) != 10:
        raise AssertionError("it is not compacted")
    broker.reset()
    return seconds


def month(broker: Broker) -> float:
    broker.create_topic("orders", retention_ms=7 * _DAY_MS, segment_ms=_DAY_MS)
    broker.create_topic("prices", cleanup_policy="compact", segment_ms=_DAY_MS)
    for number in range(100):
        broker.produce("orders", "x")
        broker.produce("prices", str(number), key=f"key{number % 10}")
    seconds = _timed(lambda: broker.clock.advance(days=29))
    broker.produce("prices", "x", key="more")  # the segment before it may be compacted now
    seconds += _timed(lambda: broker.clock.advance(days=1))
    if broker.records("orders") or len(broker.records("prices")) != 11:
        raise AssertionError("retention or the cleaner did not do their work")
    broker.reset()
    return seconds


def snapshot(path: Path) -> float:
    began_s = time.perf_counter()
    with Broker.from_snapshot(path) as broker:
        seconds = time.perf_counter() - began_s
        if len(broker.records("orders")) != 1_000:
            raise AssertionError("records are missing")
    return seconds


def cluster() -> float:
    began_s = time.perf_counter()
    with Cluster(3):
        return time.perf_counter() - began_s


def in_fresh_process(script: str) -> float:
    """With compiled modules, as an installer leaves them, also where a shell forbids to write them."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", script]
    return float(subprocess.run(command, env=kept, check=True, capture_output=True, text=True).stdout)


def many(count: int) -> Row:
    """The growth between the first tenth of the brokers and the last of them. Of each tenth the least counts: what the
    allocator keeps for a moment is no growth."""

    def state() -> tuple[int, int, float]:
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return threading.active_count(), len(os.listdir("/proc/self/fd")), resident / 1e6

    def live(times: int) -> list[tuple[int, int, float]]:
        states = []
        for _ in range(min(times, _LOOKS)):
            for _ in range(max(1, times // _LOOKS)):
                with Broker() as broker:
                    broker.produce("orders", "x")
            states.append(state())
        return states

    tenth = max(1, count // 10)
    before = live(tenth)
    live(count - 2 * tenth)
    after = live(tenth)
    threads, files, megabytes = (min(map(what, after)) - min(map(what, before)) for what in map(itemgetter, range(3)))
    grown = f"{threads:+d} threads, {files:+d} descriptors, {megabytes:+.1f} MB"
    has_met = threads <= 0 and files <= 0 and megabytes <= _GROWTH_MB
    return Row("many", f"{count:,} brokers one after the other", grown, "", str(count), f"{_GROWTH_MB} MB", has_met)


def at_once(count: int) -> float:
    brokers = [Broker() for _ in range(count)]
    began_s = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Broker.__enter__, brokers))
        list(pool.map(lambda broker: broker.produce("orders", "x"), brokers))
        list(pool.map(Broker.__exit__, brokers))
    return time.perf_counter() - began_s


def _timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _row(name: str, what: str, sample: Sample, count: int, target_ms: float | None = None, *, warm: int = _WARM) -> Row:
    for _ in range(warm):
        sample()
    seconds = sorted(sample() for _ in range(count))
    p50_ms, p90_ms = (seconds[int(share * (count - 1))] * 1e3 for share in (0.5, 0.9))
    has_met = target_ms is None or p50_ms <= target_ms
    return Row(name, what, _ms(p50_ms), _ms(p90_ms), str(count), "" if target_ms is None else _ms(target_ms), has_met)


def _ms(milliseconds: float) -> str:
    """With two digits that say something."""
    if milliseconds >= 1_000:
        return f"{milliseconds / 1_000:.2g} s"
    return f"{milliseconds:.0f} ms" if abs(milliseconds) >= 10 else f"{milliseconds:.2g} ms"


def rows(count: int) -> Iterator[Row]:
    """The table, row by row."""
    yield _row(
        "life", "a broker up, a topic made, a record acknowledged, down again, in a warm process", life, count, 5
    )
    with shared_broker() as broker:
        yield _row("reset", "`reset` of a broker with a topic and three records", lambda: reset(broker), count, 1)
        some = max(1, count // 5)
        yield _row("compaction", "`compact` of a small topic", lambda: compaction(broker), some, 20)
        yield _row("month", "30 days by the broker's clock", lambda: month(broker), some, 1_000)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "snapshot")
        with Broker() as broker:
            for number in range(1_000):
                broker.produce("orders", str(number))
            broker.snapshot(path)
        yield _row("snapshot", "a broker that begins with a snapshot, up", lambda: snapshot(path), max(1, count // 5))
    few = max(1, count // 20)
    yield _row("cluster", "a cluster of three, up", cluster, few, 30, warm=2)
    first = "the first broker of a fresh process: imports, up, a record stored"
    yield _row("first", first, lambda: in_fresh_process(_FIRST_BROKER), few, 150, warm=1)
    yield _row("import", "`import kafkalite`", lambda: in_fresh_process(_IMPORT), few, 20, warm=1)
    cost = plugin_cost(max(1, count // 5))
    idle = "pytest-kafkalite is installed, and a run of pytest does not use it"
    of = f"{cost.pairs} pairs"
    yield Row("plugin", idle, _ms(cost.wall_ms), "", of, _ms(_PLUGIN_MS), cost.wall_ms <= _PLUGIN_MS)
    half = max(1, count // 2)
    yield _row(
        "at once", f"{half} brokers at once: all up, a record stored in each, all down", lambda: at_once(half), 3
    )
    yield many(5 * count)


def line(row: Row) -> str:
    missed = "" if row.has_met else f"   misses its target: {row.target}"
    return f"{row.name:<12} {row.p50:>9} {row.p90:>9}   {row.times}{missed}"


def section(found: Sequence[Row], facts: str) -> str:
    """The table of the page."""
    table = [
        f"| {row.what} | {row.p50} | {row.p90} | {row.target if row.has_met else f'**{row.target}**'} |"
        for row in found
    ]
    head = ["| | p50 | p90 | target |", "|---|---:|---:|---:|"]
    return "\n".join([f"`python -m bench embedded --write`, on {facts}:", "", *head, *table])


def write(text: str, page: Path = PAGE) -> None:
    """Put it between the marks of the page. Raises ValueError if there are none."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} lacks the marks between which the bench writes: {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench embedded", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=200, help="how often each is done, or a part of it (default 200)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/testing.md")
    options = parser.parse_args(arguments)
    if not 1 <= options.times <= 10_000:
        parser.error("--times is 1 to 10000")
    facts = ", ".join(f"{value} {key}" if key == "cores" else value for key, value in machine().items())
    print(f"{facts}\n{'':<12} {'p50':>9} {'p90':>9}   times")
    found = []
    for row in rows(options.times):
        print(line(row), flush=True)
        found.append(row)
    if options.write:
        write(section(found, facts))
    return 0
