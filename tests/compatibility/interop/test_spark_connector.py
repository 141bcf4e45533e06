"""Spark's own Kafka source and sink: batches by offsets and by time, a batch written, a stream that goes on.

PySpark and the connector are of one version that Maven Central has completely, so they live in an environment of
their own in the cache; `spark_job.py` runs in there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.compatibility.interop.stories import (
    START_MS,
    Encounter,
    create_topic,
    encounters,
    read_by_confluent,
    send,
    story,
)
from tests.compatibility.interop.strangers import Seen, as_json, as_seen, position
from tests.compatibility.interop.transaction_stories import SETTINGS
from tests.support.wait import DEADLINE_S

ECOSYSTEM = "Spark"
CLIENT = "spark-sql-kafka-0-10"
VERSION = "4.0.0"
JOB = Path(__file__).with_name("spark_job.py")
POM = Path(__file__).with_name("spark_pom.xml")
FETCH_LIMIT_S = 600.0
JOB_LIMIT_S = 180.0

BROKER_SETTINGS = SETTINGS
pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * FETCH_LIMIT_S)]


class Spark:
    """Runs steps of `spark_job.py`, each time as a new application."""

    def __init__(self, python: str, jars: list[Path], encounter: Encounter, bootstrap: str) -> None:
        self.python = python
        self.task = {"bootstrap": bootstrap, "jars": ",".join(map(str, jars))}
        self.encounter = encounter

    def run(self, *steps: dict[str, Any]) -> list[Any]:
        words = [self.python, str(JOB), json.dumps(self.task | {"steps": steps})]
        left_out = ("SPARK_HOME", "PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        try:
            done = subprocess.run(
                words, env=environment, capture_output=True, text=True, timeout=JOB_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as late:
            pytest.fail(f"Spark was not done in {JOB_LIMIT_S:.0f} s: {str(late.stderr)[-4000:]}")
        assert done.returncode == 0, done.stderr[-6000:]
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def spark(broker: Any, proved: Any, need: Any, cache: Any) -> Iterator[Callable[[str], Spark]]:
    """spark("what is run") is the Spark that decides this row."""
    with encounters(broker) as meet:

        def spark(what: str) -> Spark:
            proved(CLIENT, VERSION, what)
            need("java")
            home = cache(f"spark-{VERSION}")
            return Spark(pyspark(home), connector(need("mvn"), home), meet([]), broker.bootstrap)

        yield spark


def pyspark(home: Path) -> str:
    """The Python of an environment with PySpark."""
    environment, stamp = home / "venv", home / "pyspark-installed"
    if not stamp.exists():
        shutil.rmtree(environment, ignore_errors=True)
        fetch([sys.executable, "-m", "venv", environment], "venv cannot make an environment")
        pip = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
        fetch([*pip, "install", f"pyspark=={VERSION}"], f"pip cannot install pyspark {VERSION}")
        stamp.touch()
    return str(environment / "bin" / "python")


def connector(maven: str, home: Path) -> list[Path]:
    """The connector's jars."""
    jars = home / "jars"
    if not jars.exists():
        partial = home / "jars.partial"
        shutil.rmtree(partial, ignore_errors=True)
        command = [maven, "-q", "-B", "-f", POM, f"-Dspark.version={VERSION}"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        fetch(command, "Maven cannot fetch Spark's connector")
        partial.rename(jars)
    return sorted(jars.glob("*.jar"))


def fetch(command: list[Any], what_failed: str) -> None:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{what_failed}: not done in {FETCH_LIMIT_S:.0f} s")
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        pytest.skip(f"{what_failed}: {' '.join(said[:3])}")


def rows(answer: list[dict[str, Any]]) -> list[Seen]:
    return sorted(map(as_seen, answer), key=position)


def test_batches_are_read_by_offset_and_by_time_and_written(spark: Callable[[str], Spark]) -> None:
    job = spark("batch read by offsets and by timestamp, batch write with keys, headers, partitions")
    confluent = job.encounter.confluent
    source, target = create_topic(confluent, "read", 2), create_topic(confluent, "written", 2)
    records = story("confluent")
    send(confluent, source, records, compression_codec="zstd")
    first, end = json.dumps({source: {"0": 3, "1": -2}}), json.dumps({source: {"0": 9, "1": 5}})

    everything, between, later, count = job.run(
        {"do": "read", "subscribe": source},
        {"do": "read", "subscribe": source, "startingOffsets": first, "endingOffsets": end},
        {"do": "read", "subscribePattern": source[:-1] + ".", "startingTimestamp": str(START_MS + 10)},
        {"do": "write", "topic": target, "records": [as_json(r) for r in records], "kafka.compression.type": "lz4"},
    )

    ordered = sorted(records, key=position)
    assert rows(everything) == ordered
    assert rows(between) == [r for r in ordered if (3 <= r.offset < 9 if r.partition == 0 else r.offset < 5)]
    assert rows(later) == [r for r in ordered if r.timestamp_ms >= START_MS + 10]
    assert count == 24
    written = [r for partition in (0, 1) for r in read_by_confluent(confluent, target, partition, 12)]
    # several tasks write at once: what went to a partition is known, its order is not
    assert Counter(r[3:] for r in written) == Counter(r[3:] for r in records)
    assert {r.value for r in written if r.partition == 1} == {r.value for r in records if r.partition == 1}


def test_a_stream_goes_on_where_its_checkpoint_says(spark: Callable[[str], Spark], tmp_path: Path) -> None:
    job = spark("structured streaming from topic to topic, availableNow, restarted from its checkpoint")
    confluent = job.encounter.confluent
    source, target = create_topic(confluent, "upstream", 2), create_topic(confluent, "downstream", 2)
    stream = {"do": "stream", "source": source, "target": target, "checkpoint": str(tmp_path / "checkpoint")}

    def records(first: int, end: int) -> list[Seen]:
        return [Seen(n % 2, -1, START_MS + n, b"key", b"value %d" % n, (("n", b"%d" % n),)) for n in range(first, end)]

    send(confluent, source, records(0, 100))
    assert job.run(stream) == [100]
    send(confluent, source, records(100, 130))
    again, nothing, seen = job.run(stream, stream, {"do": "read", "subscribe": target})

    assert (again, nothing) == (30, 0)
    found = [(r.partition, r.key, r.value, r.headers) for r in rows(seen)]
    expected = [(n % 2, b"key", b"VALUE %d" % n, (("n", b"%d" % n),)) for n in range(130)]
    assert sorted(found) == sorted(expected), "each row once"


def test_splits_limits_and_progress(spark: Callable[[str], Spark], tmp_path: Path) -> None:
    job = spark("minPartitions; maxOffsetsPerTrigger of a stream, its progress, a topic that comes later")
    confluent = job.encounter.confluent
    topic = create_topic(confluent, "split", 2)
    send(confluent, topic, [Seen(n % 2, -1, START_MS + n, b"key", b"value", ()) for n in range(100)])
    pattern = {"subscribePattern": topic + ".*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    stream = {"do": "progress", "checkpoint": str(tmp_path / "checkpoint"), **pattern}

    splits, first = job.run({"do": "split", "subscribe": topic, "minPartitions": "5"}, stream)
    later = create_topic(confluent, f"{topic}-later", 1)
    send(confluent, later, [Seen(0, -1, START_MS + n, None, b"value", ()) for n in range(7)])
    (again,) = job.run(stream)

    assert len(splits) >= 5 and sorted(offset for split in splits for offset in split) == sorted(
        [*range(50), *range(50)]
    )
    assert first == [{"rows": 60, "behind": 20}, {"rows": 40, "behind": 0}]
    assert again == [{"rows": 7, "behind": 0}]


def test_committed_records_only(spark: Callable[[str], Spark], broker: Any) -> None:
    job = spark("kafka.isolation.level=read_committed: batch and stream, and kafkalite.spark on the files beside it")
    confluent = job.encounter.confluent
    source, target = create_topic(confluent, "ledger", 2), create_topic(confluent, "books", 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": source, "compression.type": "lz4"})
    producer.init_transactions(DEADLINE_S)

    def transaction(name: str, end: Callable[[float], None] | None) -> None:
        producer.begin_transaction()
        for number in range(6):
            producer.produce(source, f"{name} {number}", partition=number % 2)
        assert producer.flush(DEADLINE_S) == 0
        if end is not None:
            end(DEADLINE_S)

    transaction("a", producer.commit_transaction)
    transaction("b", producer.abort_transaction)
    transaction("c", producer.commit_transaction)
    send(confluent, source, [Seen(n % 2, -1, START_MS + n, None, b"plain %d" % n, ()) for n in range(2)])
    transaction("d", producer.abort_transaction)
    transaction("e", None)
    send(confluent, source, [Seen(n % 2, -1, START_MS + n, None, b"behind %d" % n, ()) for n in range(2)])
    names = [[f"{name} {number}" for number in range(6)] for name in "ac"]
    expected = sorted([*names[0], *names[1], "plain 0", "plain 1"])

    committed = {"kafka.isolation.level": "read_committed"}
    (seen,) = job.run({"do": "read", "subscribe": source, **committed})
    assert sorted((row.value or b"").decode() for row in rows(seen)) == expected
    assert committed_by_files(broker.data_dir, source) == [(r.partition, r.offset, r.value) for r in rows(seen)]

    producer.commit_transaction(DEADLINE_S)
    expected = sorted([*expected, *(f"e {number}" for number in range(6)), "behind 0", "behind 1"])
    seen, _ = job.run(
        {"do": "read", "subscribe": source, **committed},
        {
            "do": "stream",
            "source": source,
            "target": target,
            "checkpoint": str(broker.data_dir.parent / "c"),
            **committed,
        },
    )
    assert sorted((row.value or b"").decode() for row in rows(seen)) == expected
    assert committed_by_files(broker.data_dir, source) == [(r.partition, r.offset, r.value) for r in rows(seen)]
    carried = [r.value.decode() for p in (0, 1) for r in read_by_confluent(confluent, target, p, len(expected) // 2)]
    assert sorted(carried) == sorted(value.upper() for value in expected), "each row once"


def committed_by_files(data_dir: Path, topic: str) -> list[tuple[int, int, bytes | None]]:
    """The committed records as kafkalite's own data source reads them from the files of the broker."""
    pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")
    from kafkalite.reader.chunk_reader import COLUMNS, read_split
    from kafkalite.reader.options import parse_options
    from kafkalite.reader.plan import plan

    options = {"path": str(data_dir), "subscribe": topic, "kafka.isolation.level": "read_committed"}
    schema = pa.schema([(name, COLUMNS[name].arrow) for name in ("partition", "offset", "value")])
    found = [
        row
        for split in plan(parse_options(options))
        for batch in read_split(split, schema)
        for row in batch.to_pylist()
    ]
    return sorted((row["partition"], row["offset"], row["value"]) for row in found)
