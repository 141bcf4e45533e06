"""Kafka's own Java clients, by its own tools: ProducerPerformance and ConsumerPerformance, with default settings.

A JVM starts cold, and that is the client's affair, not the broker's. So rates leave the beginning out: the producer's
are taken after the tool's first window of five seconds, the consumer's over the second half of the records; and the
producer's percentiles, which the tool gives for a whole run only, are those of a second run in the same JVM.
Source: org.apache.kafka.tools.ProducerPerformance and ConsumerPerformance of Kafka 3.9.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.reference import ReferenceUnavailable, class_path
from bench.reference.jars import java
from bench.replay import fill
from bench.report import Latency, Result
from bench.session import Session
from bench.usage import Cpu
from bench.wire import BrokerError

VERSION = "3.9.1"
WARMED_UP = Path(__file__).parent / "java" / "WarmedUp.java"
VALUE_BYTES = 100
HEAP = "512m"
# What a producer sends a second at first guess: decides how long a run takes, not what it finds.
GUESSED_RECORDS_PER_S = 350_000
FIRST_WINDOW_S = 5.0
CONSUMED_LOGS = 3  # the consumer reads this many times `fill_bytes`: it needs seconds to get warm
TOOL_LIMIT_S = 300.0

_SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)
_PERCENTILES = re.compile(r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th")


@dataclass(frozen=True, slots=True)
class Sent:
    """What ProducerPerformance printed: all records, those after the first window, and the latencies of all."""

    records: int
    steady_records: int
    steady_s: float
    latency: Latency


@dataclass(frozen=True, slots=True)
class Taken:
    """What ConsumerPerformance printed: the records between its first line past the middle and its last one."""

    steady_records: int
    steady_s: float


def parse_producer(output: str) -> Sent:
    """The last run in the output: a line per window, then the line of the whole run, which has percentiles."""
    lines = _SENT.findall(output.rpartition("--then--")[2])
    percentiles = _PERCENTILES.findall(output)
    if not lines or not percentiles:
        raise BrokerError(f"ProducerPerformance printed no result: {output[-300:]}")
    (*windows, (records, rate)) = [(int(count), float(per_s)) for count, per_s in lines]
    left, left_s = records, records / rate
    if windows and windows[0][1] > 0 and windows[0][0] < records:
        left, left_s = records - windows[0][0], left_s - windows[0][0] / windows[0][1]
    if left_s <= 0:
        raise BrokerError(f"ProducerPerformance's lines contradict each other: {output[-300:]}")
    p50_ms, _, p99_ms, p999_ms = map(int, percentiles[-1])
    return Sent(records, left, left_s, Latency(p50_ms * 1000, p99_ms * 1000, p999_ms * 1000))


def parse_consumer(output: str, expected: int) -> Taken:
    """Lines of --show-detailed-stats: time, thread, MB, MB/s, records so far, ..."""
    lines = []
    for line in output.splitlines():
        cells = line.split(", ")
        if len(cells) >= 6 and cells[4].isdigit():
            at = datetime.datetime.strptime(cells[0], "%Y-%m-%d %H:%M:%S:%f")
            lines.append((at.timestamp(), int(cells[4])))
    late = [line for line in lines if line[1] >= expected / 2]
    counted = late if len(late) > 1 else lines
    if "WARNING" in output or len(counted) < 2:
        raise BrokerError(f"ConsumerPerformance did not read {expected} records: {output[-300:]}")
    (first_s, first), (last_s, last) = counted[0], counted[-1]
    return Taken(last - first, last_s - first_s)


def run_tool(*command: str) -> str:
    """Run a class of Kafka's (or a source file above its jars) to its end; what it printed."""
    with tempfile.TemporaryDirectory(prefix="bench-java-") as home:
        logging = Path(home, "log4j.properties")
        logging.write_text("log4j.rootLogger=OFF\n")
        options = [f"-Xmx{HEAP}", f"-Dlog4j.configuration=file:{logging}", "-cp", class_path(VERSION)]
        try:
            done = subprocess.run(
                [java(), *options, *command], capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise BrokerError(f"{command[0]} did not end in {TOOL_LIMIT_S:.0f} s") from None
    if "compiler" in done.stderr and "not found" in done.stderr:
        raise ReferenceUnavailable("this Java has no compiler (a JDK is needed)")
    if done.returncode != 0 or "Exception" in done.stderr:
        raise BrokerError(f"{command[0]} ended with code {done.returncode}: {done.stderr[-300:]}")
    return done.stdout


def producer_arguments(session: Session, topic: str, records: int, records_per_s: int) -> list[str]:
    """Defaults of the producer: acks=all, idempotent, 16 KB batches; -1 records/s means as fast as it can."""
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(VALUE_BYTES)]
    return [
        *arguments,
        "--throughput",
        str(records_per_s),
        "--producer-props",
        f"bootstrap.servers={session.bootstrap}",
    ]


def java_produce(session: Session, work: str) -> Result:
    """As many records of 100 bytes as one Java producer can send, for the first window and some seconds more."""
    records = int(GUESSED_RECORDS_PER_S * (FIRST_WINDOW_S + 4 * session.seconds))
    with session.topic(work) as topic:
        with session.metered() as measure:
            arguments = producer_arguments(session, topic, records, -1)
            sent = parse_producer(run_tool("org.apache.kafka.tools.ProducerPerformance", *arguments))
        session.expect_end(topic, records)
    return Result(
        work,
        sent.steady_s,
        records=sent.steady_records,
        payload_bytes=sent.steady_records * VALUE_BYTES,
        note=f"kafka-clients {VERSION}, {records:,} records{_cpu_note(measure.cpu, records)}",
    )


def java_latency(session: Session, work: str, records_per_s: int) -> Result:
    """The latencies of one Java producer that sends so many records a second, once it is warm."""
    warm, records = int(records_per_s * FIRST_WINDOW_S), max(1000, int(records_per_s * 5 * session.seconds))
    with session.topic(work) as topic:
        twice: Sequence[str] = [
            *producer_arguments(session, topic, warm, records_per_s),
            "--then--",
            *producer_arguments(session, topic, records, records_per_s),
        ]
        sent = parse_producer(run_tool(str(WARMED_UP), *twice))
        session.expect_end(topic, warm + records)
    return Result(
        work,
        sent.steady_s,
        records=sent.steady_records,
        payload_bytes=sent.steady_records * VALUE_BYTES,
        latency=sent.latency,
        note=f"kafka-clients {VERSION}, {records_per_s:,} records/s asked",
    )


def java_consume(session: Session, work: str) -> Result:
    """One Java consumer in a group of its own reads a filled partition from start to end."""
    with session.topic(work) as topic:
        # About 100 KB a batch, as for the C client.
        log_bytes = min(CONSUMED_LOGS * session.fill_bytes, session.max_bytes)
        cycle = fill(session, topic, 100_000 // VALUE_BYTES, VALUE_BYTES, log_bytes)
        expected = max(1, log_bytes // cycle.batch_bytes) * cycle.record_count
        with session.metered() as measure:
            arguments = ["--bootstrap-server", session.bootstrap, "--topic", topic, "--messages", str(expected)]
            detail = ["--show-detailed-stats", "--reporting-interval", "50", "--timeout", "60000"]
            output = run_tool("org.apache.kafka.tools.ConsumerPerformance", *arguments, *detail)
        taken = parse_consumer(output, expected)
    return Result(
        work,
        taken.steady_s,
        records=taken.steady_records,
        payload_bytes=taken.steady_records * VALUE_BYTES,
        note=f"kafka-clients {VERSION}, {expected:,} records{_cpu_note(measure.cpu, expected)}",
    )


def _cpu_note(cpu: Cpu | None, records: int) -> str:
    """The broker's CPU for all records: it has another base than the steady rate, so it has no column."""
    return "" if cpu is None else f", {cpu.total_s * 1e6 / records:.2f} CPU s/M"
