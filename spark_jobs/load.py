"""Load a topic into Spark: print its schema, how many rows each partition has, a sample, and write it out if wished.

    python -m spark_jobs.load --data-dir ./kafkalite-data --topic orders
    python -m spark_jobs.load --data-dir ./kafkalite-data --topic orders --output orders.parquet

Also for `spark-submit`, where kafkalite is installed on the driver and the executors.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def load(spark: SparkSession, data_dir: str, topic: str, *, headers: bool = False) -> DataFrame:
    """The rows of `topic`, a comma list, from the segment files in `data_dir`. Spark finds the format by itself."""
    reader = spark.read.format("kafkalite").option("path", data_dir).option("subscribe", topic)
    return reader.option("includeHeaders", str(headers).lower()).load()


def describe(rows: DataFrame, sample: int) -> None:
    """Print what there is: columns, counts, the first `sample` rows with keys and values as text."""
    rows.printSchema()
    summary = rows.groupBy("topic", "partition").agg(
        F.count("*").alias("rows"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.sum(F.coalesce(F.octet_length("value"), F.lit(0))).alias("value_bytes"),
    )
    summary.orderBy("topic", "partition").show(1000, truncate=False)
    text = rows.withColumn("key", F.col("key").cast("string")).withColumn("value", F.col("value").cast("string"))
    text.show(sample, truncate=80)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m spark_jobs.load", description="Load a topic into Spark.")
    parser.add_argument("--data-dir", required=True, help="the broker's data directory")
    parser.add_argument("--topic", required=True, help="a topic, or several separated by commas")
    parser.add_argument("--headers", action="store_true", help="with a column for the records' headers")
    parser.add_argument("--sample", type=int, default=10, help="rows to show (default 10)")
    parser.add_argument("--output", help="write all rows to this directory; it must not exist yet")
    parser.add_argument("--format", default="parquet", help="of the output, as Spark knows it (default parquet)")
    parser.add_argument("--master", help="Spark master when not run by spark-submit (default: all cores here)")
    options = parser.parse_args(arguments)
    # workers run this Python, not the first one on the path
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"load {options.topic}")
    if options.master:
        builder = builder.master(options.master)
    spark = builder.getOrCreate()
    try:
        rows = load(spark, options.data_dir, options.topic, headers=options.headers)
        describe(rows, options.sample)
        if options.output:
            rows.write.format(options.format).save(options.output)
            print(f"written to {options.output}")
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
