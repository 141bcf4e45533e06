"""Shared parts of the jobs: their options, the Spark session, messages, a table at the end.

A mistake of the operator ends with one line on stderr and exit code 1. Spark shows its progress bar where stderr is a
terminal.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkalite.client.cluster_client import WriteFailed
from kafkalite.common.errors import ConfigError, Malformed, StorageError, Unanswered
from kafkalite.common.output import aligned, complain
from kafkalite.common.timestamps import format_timestamp, parse_moment
from kafkalite.reader.topic_reader import as_options

_TRACEBACK = "Traceback (most recent call last):"
FAULTS = (
    ConfigError,
    StorageError,
    Malformed,
    WriteFailed,
    Unanswered,
    OSError,
    PySparkException,
    Py4JJavaError,  # any failed task before Spark 4.3, a dead worker
)
"""The errors of the operator, of files and of tasks that a job may end with."""

_OFFSETS = ("earliest", "latest", "{")  # what offsets begin with; anything else is a time


def new_parser(job: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options of every job."""
    parser = argparse.ArgumentParser(prog=f"python -m spark_jobs.{job}", description=description)
    parser.add_argument("--master", help="Spark master when not run by spark-submit (default: all cores here)")
    return parser


def add_source(parser: argparse.ArgumentParser) -> None:
    """The options that say which records of which topics."""
    add = parser.add_argument
    add("--data-dir", required=True, metavar="DIR[,DIR]", help="the broker's data directories")
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic", metavar="A[,B]", help="a topic, or several")
    topics.add_argument("--topic-pattern", metavar="REGEX", help="all topics whose names match")
    add(
        "--isolation-level",
        default="read_committed",
        choices=("read_committed", "read_uncommitted"),
        help="with or without open and aborted transactions (default: without, read_committed)",
    )
    add("--headers", action="store_true", help="with a column for the records' headers")
    bound = "earliest, latest, a time (2026-01-31T12:00:00+00:00, or milliseconds), or offsets as JSON"
    add("--from", dest="start", default="earliest", metavar="BOUND", help=f"{bound} (default: earliest)")
    add("--until", dest="end", default="latest", metavar="BOUND", help="the same, exclusive (default: latest)")
    add("--ignore-data-loss", action="store_true", help="go on with what is left where wanted offsets are gone")


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """Options of the data source for those of `add_source`. Raises ConfigError."""
    bounds = {}
    for name, text, side in (("--from", options.start, "starting"), ("--until", options.end, "ending")):
        if text.strip().lower().startswith(_OFFSETS):
            bounds[f"{side}_offsets"] = text
        else:
            bounds[f"{side}_timestamp"] = parse_moment(name, text)
    found = as_options(
        [os.path.abspath(path) for path in options.data_dir.split(",")],  # executors have another working directory
        options.topic or "",
        isolation_level=options.isolation_level,
        include_headers=options.headers,
        fail_on_data_loss=not options.ignore_data_loss,
        starting_offsets_by_timestamp_strategy="latest",  # nothing is new since then: that is no mistake in a job
        **bounds,
    )
    if options.topic_pattern is not None:
        del found["subscribe"]
        found["subscribePattern"] = options.topic_pattern
    return found


def run_job(
    parser: argparse.ArgumentParser,
    job: Callable[[SparkSession, argparse.Namespace], None],
    arguments: Sequence[str] | None,
) -> int:
    """Parse, start Spark, run, stop. Returns the exit code."""
    options = parser.parse_args(arguments)
    try:
        spark = _session(parser.prog.rpartition(".")[2], options.master)
        try:
            job(spark, options)
        finally:
            spark.stop()
    except FAULTS as error:
        return complain(describe_fault(error))
    return 0


def describe_fault(error: BaseException) -> str:
    """One of FAULTS in one line."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return fault_of(str(error)) if isinstance(error, PySparkException | Py4JJavaError) else str(error)


def say(message: str) -> None:
    """Print a line of progress to stderr, apart from the results on stdout."""
    print(message, file=sys.stderr, flush=True)


def time_text(micros: int | None) -> str:
    """A timestamp of a record in UTC; empty where there is none, or none that microseconds can express."""
    return "" if micros is None else format_timestamp(micros // 1000, UTC, absent="")


def print_table(names: Sequence[str], rows: Iterable[Sequence[object]], left: Sequence[int] = (0,)) -> None:
    """A table on stdout; numbers get separators, None is empty."""
    print("\n".join(aligned([tuple(names), *[tuple(map(_text, row)) for row in rows]], left)), flush=True)


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)


def _session(name: str, master: str | None) -> SparkSession:
    # workers run this Python, not the first one on the path
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"kafkalite {name}")
    builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    builder = builder.config("spark.log.level", "ERROR").config("spark.sql.session.timeZone", "UTC")
    if master:
        builder = builder.master(master)
    return builder.getOrCreate()


def fault_of(text: str) -> str:
    """The fault in an error of Spark, in one line: the exception that a Python worker ended with, without
    its class if it is one of ours; else Spark's own message."""
    lines = [line for line in text.splitlines() if line.strip()]
    headers = [at for at, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    behind = lines[headers[-1] + 1 :] if headers else []
    fault = next((line for line in behind if not line[0].isspace()), None)
    if fault is not None:
        return fault.partition(": ")[2] if fault.startswith("kafkalite.") and ": " in fault else fault
    # an error of Java has its message in its second line: ": org.apache.spark.SparkException: ..."
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else "Spark failed")
