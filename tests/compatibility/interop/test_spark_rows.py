"""Rows, columns and types of kafkalite's source against those of Spark's own Kafka source, in one Spark session.

The topics are random histories, the reads are random too: positions in all forms that both have, both isolation levels,
minPartitions. Spark's source reads from the broker, kafkalite's from its files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.reference.jars import ReferenceUnavailable
from tests.support.places import ROOT
from tests.support.reader.topic_history import TopicHistory, Writers

pytest.importorskip("pyarrow", reason="needs the extra 'arrow'")

from bench.spark.environment import environment
from tests.support.reader.read_case import ReadCase
from tests.support.reader.stock_consumer import StockConsumer

ECOSYSTEM = "Spark"
CLIENT = "spark-sql-kafka-0-10"
VERSION = "4.0.0"
JOB = Path(__file__).with_name("spark_rows_job.py")
JOB_LIMIT_S = 1500.0
CASES = int(os.environ.get("KAFKALITE_TEST_SPARK_ROWS", "200"))
CASES_OF_A_TOPIC = 10
DEEDS = 40

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * JOB_LIMIT_S)]


def cases_of(history: TopicHistory, writers: Writers) -> list[dict[str, str]]:
    """Options that both sources have, of reads that neither refuses."""
    consumers = [StockConsumer(writers.bootstrap, read_committed=level) for level in (False, True)]
    cases: list[dict[str, str]] = []
    while len(cases) < CASES_OF_A_TOPIC:
        level = len(cases) % 2 == 1
        seed = history.random.randrange(1 << 40)
        case = ReadCase(seed, history.topic, consumers[level], history.partitions, read_committed=level)
        text = json.dumps(case.options)
        if case.ranges is not None and case.keeps and "latest-" not in text and '\\"*\\"' not in text:
            only_ours = ("maxPartitionBytes", "maxRecordsPerPartition")
            cases.append({name: value for name, value in case.options.items() if name not in only_ours})
    for consumer in consumers:
        consumer.close()
    return cases


def test_rows_columns_and_types_are_those_of_sparks_own_source(proved: Any, tmp_path: Path) -> None:
    proved(CLIENT, VERSION, "200 random reads give the rows, columns and types that kafkalite's source gives beside it")
    try:
        spark = environment(VERSION)
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    histories = [TopicHistory(9000 + number) for number in range(-(-CASES // CASES_OF_A_TOPIC))]
    for history in histories:
        history.write_before(data_dir)
    with Writers(data_dir, adopt=True) as writers:
        for history in histories:
            history.create(writers)
            history.live(writers, DEEDS)
        # of topics at rest: the transactions that are open in one end in the lives of others
        cases = [case for history in histories for case in cases_of(history, writers)]
        task = {
            "jars": ",".join(map(str, spark.jars)),
            "local_dir": str(tmp_path / "spark"),
            "sides": {"kafka": {"kafka.bootstrap.servers": writers.bootstrap}, "kafkalite": {"path": str(data_dir)}},
            "cases": cases[:CASES],
        }
        told = run(str(spark.python), task, tmp_path)
    faults = [f"{options}: {one['fault']}" for one, options in zip(told, task["cases"], strict=True) if one["fault"]]
    assert not faults, f"{len(faults)} of {len(told)} differ:\n" + "\n".join(faults[:5])
    assert not any(one["columns"].startswith("refused") for one in told), "reads that neither can do show nothing"
    assert sum(one["rows"] for one in told) > 10 * len(told)


def run(python: str, task: dict[str, Any], tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "task.json"
    path.write_text(json.dumps(task))
    left_out = ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [python, str(JOB), str(path)],
        env=kept | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        timeout=JOB_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    if done.stderr.strip():
        print(done.stderr[-2000:], file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]
