"""`python -m bench vs-kafka`: kafkalite and Apache Kafka under the same work by turns, on the same machine, in one run.

Both stay up, so that each is warm when its turn comes; the one that is not measured is stopped by SIGSTOP and uses no
CPU. The order alternates too (A B, B A, A B, ...), so that what drifts (the host's clock, the disk) hits both alike.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bench import page
from bench.comparison import LATENCY_AT_HALF_PEAK, LATEST, TARGETS, Comparison, Measured, from_json, rows, table
from bench.consumer_groups import SETTINGS as GROUP_SETTINGS
from bench.host import BackedMemory, watched
from bench.java_perf import VERSION, java_latency
from bench.reference import ReferenceUnavailable
from bench.report import Result, machine
from bench.session import Session
from bench.share_groups import SETTINGS as SHARE_SETTINGS
from bench.startup import Launcher, kafkalite_launcher, overrides, reference_launcher, start_result, started
from bench.wire import BrokerError
from bench.works import GROUP_WORKS, JAVA_WORKS, SHARE_WORKS, START, WORKS, Work, matching, perform, warm_up

PRODUCER = "java-produce-100B"
WARM_UP_S = 60.0
SAMPLES = Path(__file__).resolve().parents[1] / ".cache" / "bench"
"""Where the samples of every work are written as soon as it is done, if --json names no other place."""
ROUNDS_MAX = 3
"""So often all pairs of a work are measured while it is not steady."""
CLEAN_LIMIT_S = 30.0
STOP_LIMIT_S = 5.0
KAFKALITE, KAFKA = "kafkalite", f"Apache Kafka {VERSION}"
# Files of a deleted topic go soon, on both sides; and a group needs no three seconds to wait for other members.
COMMON = {"log.segment.delete.delay.ms": "200", "group.initial.rebalance.delay.ms": "0"}
# A stopped broker misses its heartbeats to its own controller, which must not think it dead.
KAFKA_ONLY = {"broker.session.timeout.ms": "3600000"}


@dataclass(slots=True)
class Side:
    """One broker of the two: how to start it, and once started its session and its files."""

    name: str
    launcher: Launcher
    session: Session | None = None
    home: Path | None = None
    memory: BackedMemory | None = None
    """Made ready again after each turn."""

    @contextlib.contextmanager
    def running(self, template: Session) -> Iterator[None]:
        """Started and stopped (SIGSTOP) until it is its turn; at the end it is continued, so that it can stop."""
        with started(self.launcher, settle_s=0.0) as broker:
            self.home = broker.home
            self.session = replace(template, bootstrap=broker.bootstrap, process=broker.process)
            self._stop()
            try:
                yield
            finally:
                self._signal(signal.SIGCONT)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Session]:
        """It runs inside the block; the block's topics are gone from the disk when it stops again."""
        assert self.session is not None
        self._signal(signal.SIGCONT)
        try:
            yield self.session
            self._come_clean()
        finally:
            self._stop()

    def _stop(self) -> None:
        """Return when it stands still: a signal takes its time."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_LIMIT_S
        while time.monotonic() < deadline and not all(map(_stands_still, self._pids())):
            time.sleep(0.001)

    def _pids(self) -> list[int]:
        assert self.session is not None and self.session.process is not None
        return self.session.process.pids()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _come_clean(self) -> None:
        """Wait until no topic of a work has files left, and until what is dirty is on the disk."""
        assert self.home is not None
        deadline = time.monotonic() + CLEAN_LIMIT_S
        while time.monotonic() < deadline and any(_topic_directories(self.home)):
            time.sleep(0.02)
        if self.memory is not None:  # before the host takes back what has just become free
            self.memory.refill()
        os.sync()


def _stands_still(pid: int) -> bool:
    """Whether a process is stopped, or gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "Z", "X")
    except OSError:
        return True


def _topic_directories(home: Path) -> Iterator[Path]:
    """Directories of the works' topics, deleted or not; the one that the start was timed with stays."""
    for pattern in ("bench-*", "data/bench-*"):
        yield from (path for path in home.glob(pattern) if not path.name.startswith("bench-start-"))


def order(pairs: int) -> list[int]:
    """Which of the two (0, 1) is measured when: each pair begins with the one that ended the pair before."""
    return [turn for pair in range(pairs) for turn in ((0, 1) if pair % 2 == 0 else (1, 0))]


@dataclass(slots=True)
class Versus:
    """Both brokers, and what was measured so far."""

    sides: tuple[Side, Side]
    pairs: int
    template: Session
    """Seconds, acks and sizes for both."""
    warm_up_s: float = 0.0
    """Load on the second broker before all."""
    measured: dict[str, tuple[list[Result], list[Result]]] = field(default_factory=dict)
    keep: Callable[[Measured], object] = lambda measured: None
    """Called after each work with all that was measured so far."""

    def run(self, names: Sequence[str]) -> Measured:
        """All work of these names, in their order; the start first, as it wants the machine for itself."""
        if START in names:
            self._sample(START, lambda side: start_result(side.launcher, 1))
        others = [name for name in names if name != START]
        if not others:
            return self.measured
        with contextlib.ExitStack() as stack:
            for side in self.sides:
                stack.enter_context(side.running(self.template))
            if self.warm_up_s > 0:
                with self.sides[1].turn() as session:
                    print(f"{self.sides[1].name} gets warm for {self.warm_up_s:g} s", file=sys.stderr)
                    warm_up(session, self.warm_up_s)
            for name in others:
                self._sample(name, partial(self._in_turn, name, self._work(name)))
        return self.measured

    def _sample(self, name: str, once: Callable[[Side], Result]) -> None:
        """Every sample of one work, by turns; after a failure no more of that side, since it would fail again. Work
        with a figure that is not steady is done again, with all its samples kept."""
        results: tuple[list[Result], list[Result]] = ([], [])
        self.measured[name] = results
        for round_number in range(ROUNDS_MAX):
            for number, which in enumerate(order(self.pairs)):
                side, found = self.sides[which], results[which]
                if not (found and found[-1].error):
                    shown = f"{name} {round_number * self.pairs + number // 2 + 1} {side.name}"
                    found.append(perform(shown, partial(once, side)))
            if all(row.steady or row.error for row in rows({name: results})):
                break
        self.keep(self.measured)

    def _in_turn(self, name: str, work: Work, side: Side) -> Result:
        with side.turn() as session:
            return work(session, name)

    def _work(self, name: str) -> Work:
        if name != LATENCY_AT_HALF_PEAK:
            return (WORKS | JAVA_WORKS | GROUP_WORKS | SHARE_WORKS)[name]
        # One absolute rate for both: half of what the second broker took at most.
        if PRODUCER not in self.measured:
            side = self.sides[1]
            found = perform(f"{PRODUCER} {side.name}", partial(self._in_turn, PRODUCER, JAVA_WORKS[PRODUCER], side))
            peaks = [found]
        else:
            peaks = self.measured[PRODUCER][1]
        rates = [result.records_per_s for result in peaks if result.records_per_s]

        def at_half(session: Session, work: str) -> Result:
            if not rates:
                raise BrokerError(f"half of which peak? {peaks[0].error}")
            return java_latency(session, work, round(statistics.median(rates) / 2))

        return at_half


def names_of_work(version: str = VERSION) -> list[str]:
    """The work that has targets beside this version of Kafka, each name once."""
    return list(dict.fromkeys(target.work for target in TARGETS if target.kafka in (VERSION, version)))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench vs-kafka",
        description=__doc__,
        epilog=f"work, the last of it with --kafka {LATEST} alone: {', '.join(names_of_work(LATEST))}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pairs", type=int, default=5, help="samples of each work on each broker (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a sample is measured (default 2)")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, help="seconds of load on Kafka first (default 60)")
    parser.add_argument("--only", metavar="GLOBS", help="only this work; * and ? as in a shell, commas between")
    parser.add_argument(
        "--kafka", default=VERSION, choices=(VERSION, LATEST), help="beside which Kafka (default %(default)s)"
    )
    parser.add_argument("--fill-mb", type=int, default=512, help="log that the readers read (default 512)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every sample there, after each work (.cache/bench)"
    )
    parser.add_argument("--write", action="store_true", help="write table and plot into docs/performance.md")
    parser.add_argument(
        "--again", type=Path, metavar="FILE", help="what --json wrote there, with the work of --only measured anew"
    )
    parser.add_argument("--redraw", type=Path, metavar="FILE", help="measure nothing: take what --json wrote there")
    options = parser.parse_args(arguments)
    if not 0.1 <= options.seconds <= 60 or not 1 <= options.pairs <= 100 or not 1 <= options.fill_mb <= 4_000:
        parser.error("--seconds is 0.1 to 60, --pairs 1 to 100, --fill-mb 1 to 4000")
    return options


def sides(version: str = VERSION, memory: BackedMemory | None = None) -> tuple[Side, Side]:
    """kafkalite and Apache Kafka, each as the other as far as settings go."""
    common = COMMON | GROUP_SETTINGS | SHARE_SETTINGS if version == LATEST else COMMON
    ours = kafkalite_launcher(overrides(common))
    theirs = reference_launcher(version, properties=common | KAFKA_ONLY)
    return Side(KAFKALITE, ours, memory=memory), Side(f"Apache Kafka {version}", theirs, memory=memory)


def measure(options: argparse.Namespace) -> Comparison:
    """Everything asked for. After each work all samples so far are written as JSON, so that a run which is cut off
    loses none."""
    known = names_of_work(options.kafka)
    names = matching(known, options.only) if options.only else known
    template = Session("", None, options.seconds, fill_bytes=options.fill_mb * 10**6, warm_up_limit_s=5.0)
    memory = BackedMemory()
    both = sides(options.kafka, memory)
    about = machine() | {"memory ready": memory.refill()}
    print(about["memory ready"], file=sys.stderr)
    before = Comparison((both[0].name, both[1].name), about, "", options.pairs, options.seconds, [])
    if options.again:
        before = from_json(options.again.read_text())
        if before.names != (both[0].name, both[1].name):
            raise BrokerError(f"{options.again} compares {' and '.join(before.names)}")
    kept = options.json or options.again or SAMPLES / f"vs-kafka-{options.kafka}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)

    def keep(measured: Measured) -> Comparison:
        today = datetime.date.today().isoformat()
        found = replace(before, machine=about, date=today).but_with(measured)
        kept.write_text(found.to_json())
        return found

    versus = Versus(both, options.pairs, template, options.warm_up, keep=keep)
    with contextlib.closing(memory), watched() as facts:
        measured = versus.run(names)
    about |= facts
    return keep(measured)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        if options.redraw:
            comparison = from_json(options.redraw.read_text())
        else:
            comparison = measure(options)
        print(table(comparison.rows))
        if options.write:
            page.write(comparison)
    except (BrokerError, ReferenceUnavailable, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 1 if any(row.error for row in comparison.rows) else 0
