"""The sink of the format "kafkalite" in a real Spark, into a real broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.server.broker import Broker

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

pytestmark = pytest.mark.timeout(300)
ROWS = ["cast(id as string) as key", "if(id % 10 = 0, null, concat('value ', id)) as value"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data", port=0, num_partitions=3) as broker:
        yield broker


def write(rows: Any, broker: Broker, mode: str = "append", **options: str) -> None:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    rows.write.format("kafkalite").options(**servers, **options).mode(mode).save()


def read(spark: Any, broker: Broker, topic: str, **options: str) -> Any:
    reader = spark.read.format("kafkalite").option("path", str(broker.data_dir)).option("subscribe", topic)
    return reader.options(includeHeaders="true", **options).load()


def committed(spark: Any, broker: Broker, topic: str) -> int:
    return int(read(spark, broker, topic, **{"kafka.isolation.level": "read_committed"}).count())


def test_a_dataframe_is_written_and_read_again(spark: Any, broker: Broker) -> None:
    headers = (
        "if(id % 2 = 0, array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))), null) as headers"
    )
    rows = spark.range(0, 5000, 1, 4).selectExpr(*ROWS, headers, "cast(id % 2 as int) as partition", "id as ignored")
    write(rows, broker, topic="orders", **{"kafka.compression.type": "lz4"})
    found = read(spark, broker, "orders").selectExpr(
        "cast(cast(key as string) as int) as key", "cast(value as string)", "headers", "partition"
    )
    by_key = {row.key: row for row in found.collect()}
    assert len(by_key) == 5000 == found.count()
    for key, row in by_key.items():
        assert row.value == (None if key % 10 == 0 else f"value {key}")
        assert row.partition == key % 2
        assert (row.headers is None) == (key % 2 == 1)


def test_all_rows_of_a_job_are_committed_or_none(spark: Any, broker: Broker) -> None:
    rows = spark.range(0, 3000, 1, 3).selectExpr(*ROWS)
    write(rows, broker, topic="orders", transactional="true")
    assert committed(spark, broker, "orders") == 3000
    failing = rows.selectExpr("key", "if(key = '2999', raise_error('the last row'), value) as value")
    with pytest.raises(Exception, match="the last row"):
        write(failing, broker, topic="orders", transactional="true")
    assert committed(spark, broker, "orders") == 3000, "nothing is left open either"
    write(rows.limit(10), broker, topic="orders", transactional="true")
    assert committed(spark, broker, "orders") == 3010


def test_a_task_that_died_leaves_no_transaction_open(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kafkalite.client.producer.options import parse_write_options
    from kafkalite.spark import writer as writer_module

    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "orders", "transactional": "true"}
    schema = StructType().add("value", "string")
    job = writer_module.JobWriter(parse_write_options(options), schema, overwrite=False)
    monkeypatch.setattr(writer_module, "_attempt", lambda: "0-0")
    job.write_batches(iter([pa.RecordBatch.from_pydict({"value": ["a"]})]))
    cluster, _, transactions = writer_module._connect(job.options.producer)
    with contextlib.closing(cluster):
        assert transactions.ongoing_with_prefix(job.job) == [f"{job.job}0-0"]
        job.abort_all([None])
        assert transactions.ongoing_with_prefix(job.job) == []


def test_a_stream_is_written(spark: Any, broker: Broker, tmp_path: Path) -> None:
    spark.range(0, 2000, 1, 4).selectExpr(*ROWS).write.parquet(str(tmp_path / "in"))
    for transactional, topic in (("false", "plain"), ("true", "transactions")):
        stream = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", "2")
        sink = stream.parquet(str(tmp_path / "in")).writeStream.format("kafkalite").option("topic", topic)
        sink = sink.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("transactional", transactional)
        query = sink.option("checkpointLocation", str(tmp_path / topic)).trigger(availableNow=True).start()
        query.awaitTermination()
        assert committed(spark, broker, topic) == 2000


def test_faults_reach_the_user_in_plain_words(spark: Any, broker: Broker) -> None:
    rows = spark.range(3).selectExpr(*ROWS)
    for frame, options, complaint in (
        (rows, {}, "neither an option 'topic' nor a column 'topic'"),
        (rows.select("key"), {"topic": "t"}, "no column 'value'; the columns are key"),
        (rows.selectExpr("cast(key as int) as value"), {"topic": "t"}, "'value' is int; it must be binary or string"),
        (rows, {"topik": "t"}, "did you mean 'topic'"),
        (rows, {"topic": "t", "includeTimestamp": "true"}, "no column 'timestamp'"),
        (rows.selectExpr("repeat('x', 2000000) as value"), {"topic": "t"}, "kafka.max.request.size is 1048576"),
    ):
        with pytest.raises(Exception, match=complaint):
            write(frame, broker, **options)
    with pytest.raises(Exception, match=r"cannot be overwritten; write with mode\('append'\)"):
        write(rows, broker, mode="overwrite", topic="t")
