"""`python -m bench spark`: one topic, one Spark session, kafkalite's data source and Spark's own Kafka source by turns.

A kafkalite broker is started and filled (`--broker kafka`: an Apache Kafka); Spark's own source reads from it,
kafkalite's source reads its files. Records
have a key of ten digits and a value of 100 or 1000 bytes, in batches of 16 KB, in one partition. A record goes into an
aggregate (sum of the value's length, number of keys, highest offset) or into Parquet: by `df.write.parquet`, and on
kafkalite's side by the job load, too, whose tasks write it themselves. To write, rows of Parquet go into a new topic by
the sinks of both formats with their defaults. Of records to count there are 500 in a batch: the job count, beside what
Spark takes to start as many tasks; and reads of a hundredth of them, with the share of the bytes that were read. With
`--table-records` the job load adds a topic to an Iceberg and a Delta table, beside what Spark has for it: its Kafka
source with `writeStream` into a directory of Parquet, until all is there.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.compaction import fill as fill_keyed
from bench.keyed_log import CODECS, KEY_BYTES, KeyedLog
from bench.plot import draw
from bench.records import record_batch
from bench.reference import ReferenceUnavailable
from bench.replay import fill
from bench.report import machine
from bench.session import Session
from bench.spark.environment import BUILT_WITH, SparkEnvironment, environment
from bench.spark.table import plot_rows, table, to_json
from bench.spark.work import (
    AGGREGATE,
    BEST,
    BY_OFFSET,
    BY_TIMESTAMP,
    COUNT,
    DEFAULT,
    DELTA,
    HEADERS,
    ICEBERG,
    LOAD,
    OURS,
    PARQUET,
    PRUNED,
    START,
    STREAM,
    STREAM_SPLIT,
    TABLES,
    WRITE,
    Sample,
    Work,
)
from bench.startup import Started, kafkalite_launcher, reference_launcher, started
from bench.wire import BrokerError

_KAFKA_VERSION = "3.9.1"
ROOT = Path(__file__).resolve().parents[2]
_SIZES = {"100B": (100, 150), "1KB": (1000, 16)}
_COUNT_BATCH = 500
_COUNT_VALUE_BYTES = 10
_SMALL_SAMPLES = 11
_END_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Shape:
    """A topic and what is done with it. `value_bytes` of 0: for counting, in batches of 500."""

    name: str
    codec: str
    value_bytes: int
    batch_records: int
    records: int
    sinks: tuple[str, ...]


def shapes(options: argparse.Namespace) -> list[Shape]:
    """The topics and the work that the options ask for."""
    found = [Shape("small query", "none", 100, 1, 1, (AGGREGATE,))]
    for size, (value_bytes, batch) in _SIZES.items():
        records = max(1, options.records * 100 // value_bytes)
        for codec in CODECS:
            sinks = (AGGREGATE, PARQUET, WRITE) if codec == "none" else (AGGREGATE, PARQUET)
            found.append(Shape(f"{size} {codec}", codec, value_bytes, batch, records, sinks))
    if options.count_records:
        records = -(-options.count_records // _COUNT_BATCH) * _COUNT_BATCH
        found.append(Shape("count", "none", 0, _COUNT_BATCH, records, (COUNT,)))
    if options.table_records:
        found.append(Shape("100B none", "none", *_SIZES["100B"], options.table_records, (TABLES,)))
    patterns = options.only.split(",") if options.only else ["*"]
    return [shape for each in found if (shape := _chosen(each, patterns)).sinks]


def _chosen(shape: Shape, patterns: Sequence[str]) -> Shape:
    sinks = [sink for sink in shape.sinks if any(fnmatch.fnmatch(f"{shape.name} {sink}", each) for each in patterns)]
    return Shape(shape.name, shape.codec, shape.value_bytes, shape.batch_records, shape.records, tuple(sinks))


def work_of(shape: Shape, sink: str, topic: str, pairs: int) -> Work:
    if shape.records == 1:
        return Work(f"{shape.name} {sink}", topic, 1, sink, (OURS, DEFAULT), _SMALL_SAMPLES)
    if sink == COUNT:
        return Work("count", topic, shape.records, sink, (HEADERS, START, BY_OFFSET, BY_TIMESTAMP), pairs)
    if sink == TABLES:
        return Work(f"{shape.name} {sink}", topic, shape.records, sink, (ICEBERG, DELTA, STREAM, STREAM_SPLIT), pairs)
    if sink == WRITE:
        return Work(f"{shape.name} {sink}", topic, shape.records, sink, (OURS, DEFAULT), pairs)
    sides = (OURS, DEFAULT, PRUNED, BEST) if sink == AGGREGATE else (OURS, DEFAULT, LOAD, BEST)
    return Work(f"{shape.name} {sink}", topic, shape.records, sink, sides, pairs)


class SparkJob:
    """`bench.spark.job` in its own Python: works in, samples out."""

    def __init__(self, spark: SparkEnvironment, place: dict[str, object]) -> None:
        left_out = ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
        variables = {name: value for name, value in os.environ.items() if name not in left_out}
        self._process = subprocess.Popen(
            [str(spark.python), "-m", "bench.spark.job"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=variables | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(spark.python)},
        )
        self._send(place)

    def run(self, work: Work) -> Iterator[Sample]:
        self._send(asdict(work))
        assert self._process.stdout is not None
        for line in self._process.stdout:
            fields = json.loads(line)
            if fields is None:
                return
            yield Sample(*fields)
        raise BrokerError(f"Spark ended in the middle of {work.name}; what it said stands above")

    def _send(self, value: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End after the current work, or at once if that takes too long."""
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate(timeout=_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def filled(broker: Started, shape: Shape) -> Iterator[str]:
    """A topic with the records of `shape`."""
    session = Session(broker.bootstrap)
    config = {"compression.type": "producer"}
    if not shape.value_bytes:  # frames are made once and sent again and again: the broker gives them ascending times
        config["message.timestamp.type"] = "LogAppendTime"
    with session.topic("spark", config=config) as topic:
        if shape.value_bytes:
            size = KEY_BYTES + shape.value_bytes
            fill_keyed(session, topic, KeyedLog(shape.records, 1_000_000, shape.batch_records, size, shape.codec))
        else:
            batch_bytes = len(record_batch(shape.batch_records, _COUNT_VALUE_BYTES))
            batches = shape.records // shape.batch_records
            fill(session, topic, shape.batch_records, _COUNT_VALUE_BYTES, batches * batch_bytes)
        yield topic


def run(options: argparse.Namespace) -> dict[Work, list[Sample]]:
    """All works. The file of `--json` is written after each, so that a run that is cut off has not been for nothing."""
    spark = environment(options.version)
    results: dict[Work, list[Sample]] = {}
    is_kafka = options.broker == "kafka"
    launcher = reference_launcher(_KAFKA_VERSION) if is_kafka else kafkalite_launcher()
    with started(launcher) as broker, tempfile.TemporaryDirectory(prefix="bench-spark-") as output:
        place: dict[str, object] = {
            "bootstrap": broker.bootstrap,
            "broker_pid": broker.process.pid,
            "data_dir": str(broker.home / "data" if is_kafka else broker.home),
            "output": f"{output}/rows.parquet",
            "jars": ",".join(map(str, spark.jars)),
            "min_partitions": [int(each) for each in options.min_partitions.split(",")],
            "master": options.master,
            "java_options": options.java_options,
        }
        with contextlib.closing(SparkJob(spark, place)) as job:
            for shape in shapes(options):
                with filled(broker, shape) as topic:
                    for sink in shape.sinks:
                        work = work_of(shape, sink, topic, options.pairs)
                        results[work] = []
                        for sample in job.run(work):
                            results[work].append(sample)
                            _show(work, sample)
                        if options.json:
                            options.json.write_text(to_json(options.version, results))
    return results


def _show(work: Work, sample: Sample) -> None:
    cpu_s = sample.spark_cpu_s + sample.broker_cpu_s
    read = f", {sample.share_kept:.2%} of the records from {sample.share_read:.2%} of the bytes"
    read = read if sample.share_read else ""
    line = f"{work.name:24} {sample.side:30} {sample.seconds:8.2f} s, CPU {cpu_s:7.2f} s{read}"
    print(line, file=sys.stderr, flush=True)


def _stop(*_: object) -> None:
    """A signal ends the bench as an error does: broker and Spark are stopped, files removed."""
    raise SystemExit(143)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench spark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", choices=tuple(BUILT_WITH), default="4.0.0", help="of Spark (default 4.0.0)")
    parser.add_argument("--broker", choices=("kafkalite", "kafka"), default="kafkalite", help="default kafkalite")
    parser.add_argument("--master", default="local[2]", help="default local[2]")
    parser.add_argument("--pairs", type=int, default=5, help="samples of each side (default 5)")
    parser.add_argument("--records", type=int, default=8_000_000, help="of 100 B; a tenth of 1 KB (default 8000000)")
    parser.add_argument("--count-records", type=int, default=0, help="records that are only counted (default none)")
    parser.add_argument("--table-records", type=int, default=0, help="records loaded into tables (default none)")
    parser.add_argument("--min-partitions", default="2,4", help="tried for the stock source's best (default 2,4)")
    parser.add_argument("--only", metavar="PATTERN,..", help="as '100B*aggregate' or 'small*'")
    parser.add_argument("--java-options", default="", help="of the session's JVM")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there too")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the ratios to the stock source's defaults")
    options = parser.parse_args(arguments)
    if not 1 <= options.pairs <= 100 or not 10 <= options.records <= 10**9:
        parser.error("--pairs is 1 to 100, --records 10 to 1000000000")
    if not all(0 <= count <= 10**9 for count in (options.count_records, options.table_records)):
        parser.error("--count-records and --table-records are at most 1000000000")
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _stop)
    try:
        results = run(options)
    except (BrokerError, ReferenceUnavailable) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    facts = ", ".join(f"{value} {key}" if key == "cores" else value for key, value in machine().items())
    print(
        f"Spark {options.version}, {options.master}, broker {options.broker}, on {facts}\n"
        f"million rows per second, medians of {options.pairs}\n"
    )
    print(table(results))
    if options.plot:
        options.plot.write_text(draw(plot_rows(results), "kafkalite beside Spark's own source", "Spark's own"))
    return 0
