"""Streaming queries from the topics of a data directory into Parquet, as an application that can be killed.

python -m tests.system.spark.streaming_query DATA_DIR TOPICS SPARK_DIR PLACE...          runs until it is killed
python -m tests.system.spark.streaming_query DATA_DIR TOPICS SPARK_DIR PLACE... --end    ends with what is there now,
                                                                                         as PLACE/rows.parquet

A query for each PLACE, which has its checkpoint and its output: one kill of the application is one of each query.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.wait import until

RUNNING = "the queries run"
WORKING = "each query has ended a micro-batch"


def main(data_dir: str, topics: str, spark_dir: str, places: Sequence[Path], *, end: bool) -> None:
    import pyarrow.parquet as parquet
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("streams that are killed")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.scheduler.mode", "FAIR")  # no query waits for all tasks of another
    spark = builder.config("spark.local.dir", spark_dir).getOrCreate()
    reader = spark.readStream.format("kafkalite").option("path", data_dir).option("subscribe", topics)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "2000")
    rows = reader.option("kafka.isolation.level", "read_committed").load()
    if not end:
        queries = [_start(rows, place, end=False) for place in places]
        print(RUNNING, flush=True)
        for query in queries:
            until(lambda query=query: query.lastProgress or not query.isActive, "a micro-batch")  # type: ignore[misc]
        print(WORKING, flush=True)
        spark.streams.awaitAnyTermination()  # with the error of the first that fails
        raise AssertionError("a query has ended by itself")
    for place in places:
        _start(rows, place, end=True).awaitTermination()
        parquet.write_table(spark.read.parquet(str(place / "out")).toArrow(), place / "rows.parquet")
    spark.stop()


def _start(rows: Any, place: Path, *, end: bool) -> Any:
    writer = rows.select("topic", "partition", "offset", "value").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(place / "checkpoint")).option("path", str(place / "out"))
    return (writer.trigger(availableNow=True) if end else writer).start()


if __name__ == "__main__":
    *words, last = sys.argv[1:]
    data_dir, topics, spark_dir, *places = words if last == "--end" else [*words, last]
    main(data_dir, topics, spark_dir, [Path(place) for place in places], end=last == "--end")
