"""`python -m bench`: the same work against any broker on this machine; a table, and JSON on request.

Without a target it starts `kafkalite serve` on a free port; `--start` starts another command, `--reference` Apache
Kafka from Maven Central, and `--bootstrap` takes a broker that runs already.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.discard import discard
from bench.librdkafka import ClientError
from bench.reference import ReferenceUnavailable
from bench.replay import closed_loop_replay, replay
from bench.report import Result, machine, table, to_json
from bench.scaling import many_partitions, segments_fetch, segments_produce
from bench.session import Session
from bench.startup import Launcher, command_launcher, kafkalite_launcher, reference_launcher, start_result, started
from bench.stock import round_trip, stock_consume, stock_produce
from bench.usage import ProcessTree
from bench.wire import BrokerError

START = "start"
MEMORY = "memory"
# Name, what is done; in this order.
WORKS: dict[str, Callable[[Session, str], Result]] = {
    "replay-150x100B": lambda session, name: replay(session, name, 150, 100),
    "replay-16x1KB": lambda session, name: replay(session, name, 16, 1000),
    "replay-1x100B": lambda session, name: replay(session, name, 1, 100),
    "closed-loop-1x100B": closed_loop_replay,
    "fetch-1MiB": lambda session, name: discard(session, name, 1 << 20),
    "fetch-8MiB": lambda session, name: discard(session, name, 8 << 20),
    "stock-produce-100B": lambda session, name: stock_produce(session, name, 100),
    "stock-produce-1KB": lambda session, name: stock_produce(session, name, 1000),
    "stock-consume-100B": lambda session, name: stock_consume(session, name, 100),
    "stock-consume-1KB": lambda session, name: stock_consume(session, name, 1000),
    "round-trip-100B": round_trip,
    "partitions-1": lambda session, name: many_partitions(session, name, 1),
    "partitions-100": lambda session, name: many_partitions(session, name, 100),
    "partitions-2000": lambda session, name: many_partitions(session, name, 2000),
    "segments-produce-1": lambda session, name: segments_produce(session, name, 1),
    "segments-produce-100": lambda session, name: segments_produce(session, name, 100),
    "segments-produce-2000": lambda session, name: segments_produce(session, name, 2000),
    "segments-fetch-1": lambda session, name: segments_fetch(session, name, 1),
    "segments-fetch-100": lambda session, name: segments_fetch(session, name, 100),
    "segments-fetch-2000": lambda session, name: segments_fetch(session, name, 2000),
}
WARM_UP = ("replay-150x100B", "replay-16x1KB", "replay-1x100B", "fetch-1MiB", "stock-produce-1KB", "round-trip-100B")
EXAMPLES = f"""\
work: {", ".join((START, *WORKS, MEMORY))}

examples:
  python -m bench                                       kafkalite, started for it
  python -m bench --only 'replay*,closed*' --seconds 3
  python -m bench --reference                           Apache Kafka 3.9.1 with a 1 GiB heap
  python -m bench --bootstrap 127.0.0.1:9092 --pid 4711
"""


@dataclass(frozen=True, slots=True)
class Target:
    """The broker under test, and how it was found."""

    name: str
    bootstrap: str
    process: ProcessTree | None


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    target = parser.add_argument_group("the broker")
    target.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker on loopback")
    target.add_argument("--pid", type=int, help="its process, for CPU and memory")
    target.add_argument("--start", metavar="CMD", help="start this; {port} and {dir} in it are filled in")
    target.add_argument("--reference", metavar="VERSION", nargs="?", const="3.9.1", help="start Apache Kafka")
    parser.add_argument("--only", metavar="NAME,..", help="only this work; * and ? as in a shell")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each work is measured (default 5)")
    parser.add_argument("--warm-up", type=float, metavar="SECONDS", help="load before all work (0; reference 60)")
    parser.add_argument("--fill-mb", type=int, default=512, help="log that the readers read (default 512)")
    parser.add_argument("--starts", type=int, default=3, help="how often the start is timed (default 3)")
    parser.add_argument("--acks", type=int, choices=(1, -1), default=1, help="acks of every producer (default 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    options = parser.parse_args(arguments)
    if options.bootstrap and options.reference:
        parser.error("--bootstrap and --reference are two different brokers")
    if not 0.1 <= options.seconds <= 600 or not 1 <= options.fill_mb <= 16_000 or not 1 <= options.starts <= 100:
        parser.error("--seconds is 0.1 to 600, --fill-mb 1 to 16000, --starts 1 to 100")
    return options


def chosen(only: str | None) -> list[str]:
    """The names of the work to do, in the table's order; an unknown name is a `BrokerError`."""
    names = [START, *WORKS, MEMORY]
    if not only:
        return names
    patterns = [pattern.strip() for pattern in only.split(",")]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise BrokerError(f"no work is called {pattern}; there is {', '.join(names)}")
    return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def launcher(options: argparse.Namespace) -> Launcher | None:
    """How to start the broker; None when it runs already."""
    if options.reference:
        return reference_launcher(options.reference)
    if options.start:
        return command_launcher(options.start, options.bootstrap)
    return None if options.bootstrap else kafkalite_launcher()


@contextlib.contextmanager
def target(options: argparse.Namespace, launch: Launcher | None) -> Iterator[Target]:
    if launch is None:
        yield Target(options.bootstrap, options.bootstrap, ProcessTree(options.pid) if options.pid else None)
        return
    name = f"Apache Kafka {options.reference}" if options.reference else options.start or "kafkalite serve"
    with started(launch) as broker:
        yield Target(name, broker.bootstrap, broker.process)


def memory(process: ProcessTree | None) -> Result:
    """Resident memory after everything."""
    if process is None:
        return Result(MEMORY, error="needs --pid")
    now = process.memory()
    note = (
        f"RSS {now.resident_bytes / 1e6:,.0f} MB after all work ({now.own_bytes / 1e6:,.0f} MB of it not files), "
        f"at most {now.peak_bytes / 1e6:,.0f} MB"
    )
    return Result(MEMORY, resident_bytes=now.resident_bytes, note=note)


def warm_up(session: Session, seconds: float) -> None:
    """Load of all kinds, so that a JIT compiler has met it before the first figure is taken."""
    short = replace(session, seconds=max(0.5, seconds / 12), warm_up_limit_s=seconds / 12, fill_bytes=64 * 10**6)
    for name in (
        "replay-150x100B",
        "replay-16x1KB",
        "replay-1x100B",
        "fetch-1MiB",
        "stock-produce-1KB",
        "round-trip-100B",
    ):
        WORKS[name](short, name)


def perform(name: str, work: Callable[[], Result]) -> Result:
    """One work; whatever the broker does wrong is a line of the table."""
    print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
    started_at = time.monotonic()
    try:
        result = work()
    except (BrokerError, ClientError, ReferenceUnavailable, OSError) as error:
        result = Result(name, error=str(error) or type(error).__name__)
    print(f"{time.monotonic() - started_at:.1f} s{' FAILED' if result.error else ''}", file=sys.stderr)
    return result


def run(options: argparse.Namespace) -> tuple[str, list[Result]]:
    """All chosen work, in order; the broker's name and the results."""
    names, launch, results = chosen(options.only), launcher(options), []
    if START in names and launch is not None:
        results.append(perform(START, lambda: start_result(launch, options.starts)))
    with target(options, launch) as broker:
        session = Session(
            broker.bootstrap, broker.process, options.seconds, options.acks, fill_bytes=options.fill_mb * 10**6
        )
        before = options.warm_up if options.warm_up is not None else 60.0 if options.reference else 0.0
        if before > 0:
            warm_up(session, before)
        for name in names:
            if name in WORKS:
                results.append(perform(name, partial(WORKS[name], session, name)))
        if MEMORY in names:
            results.append(memory(broker.process))
    return broker.name, results


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        broker, results = run(options)
    except (BrokerError, ReferenceUnavailable) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    facts = ", ".join(f"{value} {key}" if key == "cores" else value for key, value in machine().items())
    print(f"{broker} on {facts}; acks={options.acks}, {options.seconds:g} s each\n\n{table(results)}")
    if options.json:
        options.json.write_text(to_json(broker, results))
    return 1 if any(result.error for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
