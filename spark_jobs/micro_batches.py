"""A job without end: micro-batches, each one commit, with maintenance of the output now and then.

The first micro-batch fails as the job would. A later one that fails is logged and counted, and the next one begins
where the last commit ended. SIGTERM and SIGINT end the job after the micro-batch that is running, so after its commit.
The numbers are on the metrics endpoint and in the log line of each commit.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from kafkalite.common.clock import date_ms, monotonic_ms
from kafkalite.common.errors import ConfigError
from kafkalite.common.metrics import CONTENT_TYPE, Metrics
from kafkalite.common.options import TIME, Option
from spark_jobs.job import FAULTS, describe_fault, say

_PREFIX = "kafkalite_job_"


class Round(NamedTuple):
    """One micro-batch: the name of its commit, None if there was nothing new; its rows; the offsets that the output is
    behind the source after it."""

    commit: str | None
    rows: int
    lag: int


class Schedule(NamedTuple):
    """Times in milliseconds. `maintain_ms` is 0 for no maintenance."""

    every_ms: int
    maintain_ms: int
    retain_ms: int
    metrics: tuple[str, int] | None


def add_schedule(parser: argparse.ArgumentParser) -> None:
    """The options of a job without end."""
    add = parser.add_argument
    add("--every", metavar="TIME", help="run without end, a micro-batch each TIME, such as 30s or 1m, until SIGTERM")
    add(
        "--maintain-every",
        default="1h",
        metavar="TIME",
        help="compact small files, expire snapshots, remove files that no snapshot names; 0s for never (default: 1h)",
    )
    add(
        "--retain",
        default="7d",
        metavar="TIME",
        help="snapshots, and files without one, are kept for so long by that maintenance (default: 7d)",
    )
    add("--metrics", metavar="HOST:PORT", help="serve /metrics and /health there")


def parse_schedule(options: argparse.Namespace) -> Schedule | None:
    """None without --every. Raises ConfigError."""
    if options.every is None:
        return None
    every_ms, maintain_ms, retain_ms = (
        Option(f"--{name}", TIME, "", "").read(getattr(options, name.replace("-", "_")))
        for name in ("every", "maintain-every", "retain")
    )
    address = None
    if options.metrics is not None:
        host, colon, port = options.metrics.rpartition(":")
        if not colon or not port.isdecimal():
            raise ConfigError(f"--metrics {options.metrics} must be HOST:PORT")
        address = host.strip("[]"), int(port)
    return Schedule(every_ms, maintain_ms, retain_ms, address)


class MicroBatches:
    """Runs `step` again and again until `stop`. `maintain` gets the time that snapshots are kept for."""

    def __init__(
        self,
        name: str,
        step: Callable[[], Round],
        maintain: Callable[[int], None],
        wait: Callable[[float], object] | None = None,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """`wait` returns after so many seconds, or when `stop` is called."""
        self._name = name
        self._step = step
        self._maintain = maintain
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._now_ms = now_ms
        self.last_fault = ""
        self._counts = dict.fromkeys(("batches", "rows", "failures"), 0)
        self._lag = self._batch_ms = self._commit_ms = 0

    def stop(self) -> None:
        """Ends the job after the micro-batch that is running."""
        self._stopping.set()

    def run(self, schedule: Schedule) -> None:
        """Raises what the first micro-batch raises."""
        maintained_ms = self._now_ms()
        while not self._stopping.is_set():
            began_ms = self._now_ms()
            self._attempt(self._batch)
            is_due = schedule.maintain_ms and self._now_ms() - maintained_ms >= schedule.maintain_ms
            if is_due and not self._stopping.is_set():
                maintained_ms = self._now_ms()
                self._attempt(lambda: self._maintain(schedule.retain_ms))
            self._wait(max(0, began_ms + schedule.every_ms - self._now_ms()) / 1000)
        say(f"{self._name}: ended after a commit")

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
            self.last_fault = ""
        except FAULTS as fault:
            if not self._counts["batches"]:
                raise
            self._counts["failures"] += 1
            self.last_fault = describe_fault(fault)
            say(f"{self._name}: {self.last_fault}")

    def _batch(self) -> None:
        began_ms = self._now_ms()
        done = self._step()
        self._batch_ms = self._now_ms() - began_ms
        self._counts["batches"] += 1
        self._counts["rows"] += done.rows
        self._lag = done.lag
        if done.commit is not None:
            self._commit_ms = date_ms()
            seconds = self._batch_ms / 1000
            say(f"{self._name}: {done.commit}: {done.rows:,} rows in {seconds:.1f} s, {done.lag:,} offsets behind")

    def metrics(self) -> Metrics:
        metrics = Metrics()
        counts = self._counts
        for name, text in (
            ("batches", "Micro-batches that have ended well."),
            ("rows", "Records that were loaded, or keys that were merged."),
            ("failures", "Micro-batches and maintenances that have failed."),
        ):
            metrics.counter(f"{_PREFIX}{name}_total", text, lambda name=name: counts[name])  # type: ignore[misc]
        metrics.gauge(f"{_PREFIX}lag_offsets", "Offsets of the source behind the last commit.", lambda: self._lag)
        metrics.gauge(f"{_PREFIX}batch_seconds", "Time of the last micro-batch.", lambda: self._batch_ms / 1000)
        metrics.gauge(
            f"{_PREFIX}last_commit_timestamp_seconds",
            "When the last commit was, since 1970.",
            lambda: self._commit_ms / 1000 or None,
        )
        return metrics


@contextmanager
def ended_by_signals(batches: MicroBatches) -> Iterator[None]:
    """SIGTERM and SIGINT stop the micro-batches; Spark's own handler of SIGINT would cancel the one that is running."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: batches.stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def served_metrics(batches: MicroBatches, address: tuple[str, int] | None) -> Iterator[str]:
    """/metrics and /health on a thread; yields HOST:PORT as it is bound. Raises ConfigError."""
    if address is None:
        yield ""
        return
    metrics = batches.metrics()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path not in ("/metrics", "/health"):
                self.send_error(404)
                return
            is_well = self.path == "/metrics" or not batches.last_fault
            text = "".join(metrics.pieces()) if self.path == "/metrics" else (batches.last_fault or "ok") + "\n"
            body = text.encode()
            self.send_response(200 if is_well else 503)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    try:
        server = ThreadingHTTPServer(address, Handler)
    except OSError as fault:
        raise ConfigError(f"--metrics {address[0]}:{address[1]} cannot be bound: {fault.strerror}") from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{address[0]}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def run_micro_batches(batches: MicroBatches, schedule: Schedule) -> None:
    """Until SIGTERM. Raises what the first micro-batch raises."""
    with served_metrics(batches, schedule.metrics) as where, ended_by_signals(batches):
        if where:
            say(f"metrics are on http://{where}/metrics")
        batches.run(schedule)
