"""A Spark application that does the steps it is told with Spark's own source and sink for Kafka, and tells each result.

It runs under a PySpark of its own, so it imports nothing else. The task is JSON in the first argument; each step prints
one JSON line. Keys and values travel as base64.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

RECORD = "key binary, value binary, headers array<struct<key: string, value: binary>>, partition int, topic string"


class Job:
    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.options = {"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true"}

    def read(self, **options: str) -> list[dict[str, Any]]:
        """A batch: the rows of a topic."""
        rows = self.spark.read.format("kafka").options(**self.options).options(**options).load().collect()
        return [
            {
                "partition": row.partition,
                "offset": row.offset,
                "timestamp_ms": round(row.timestamp.timestamp() * 1000),
                "key": text(row.key),
                "value": text(row.value),
                "headers": [{"key": h.key, "value": text(h.value)} for h in row.headers or ()],
            }
            for row in rows
        ]

    def split(self, **options: str) -> list[list[int]]:
        """The offsets that each Spark partition of a batch has."""
        frame = self.spark.read.format("kafka").options(**self.options).options(**options).load()
        return frame.rdd.glom().map(lambda rows: [row.offset for row in rows]).collect()

    def write(self, topic: str, records: list[dict[str, Any]], **options: str) -> int:
        """A batch of records into the topic."""
        rows = [
            (
                data(r["key"]),
                data(r["value"]),
                [(h["key"], data(h["value"])) for h in r["headers"]] or None,
                r["partition"],
                topic,
            )
            for r in records
        ]
        frame = self.spark.createDataFrame(rows, RECORD)
        frame.write.format("kafka").options(**self.options).options(**options).save()
        return len(rows)

    def progress(self, checkpoint: str, **options: str) -> list[dict[str, Any]]:
        """A stream of what is there into memory; of each of its micro-batches the rows, and how far it was behind."""
        stream = self.spark.readStream.format("kafka").options(**self.options).options(**options).load()
        sink = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        return [
            {"rows": each.numInputRows, "behind": int(each.sources[0].metrics["maxOffsetsBehindLatest"])}
            for each in query.recentProgress
            if each.numInputRows
        ]

    def stream(self, source: str, target: str, checkpoint: str, **options: str) -> int:
        """Everything that is in the source and was not there last time, upper-cased into the target; how many rows."""
        stream = self.spark.readStream.format("kafka").options(**self.options)
        stream = stream.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="40", **options)
        columns = ["key", "upper(cast(value as string)) as value", "headers", "partition"]
        frame: DataFrame = stream.load().selectExpr(*columns)
        sink = frame.writeStream.format("kafka").options(**self.options).option("topic", target)
        query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(progress.numInputRows for progress in query.recentProgress)


def text(value: bytes | bytearray | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def data(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def main(task: dict[str, Any]) -> None:
    builder = SparkSession.builder.master("local[2]").appName("kafkalite interop")
    builder = builder.config("spark.jars", task["jars"]).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    job = Job(spark, task["bootstrap"])
    for step in task["steps"]:
        result = getattr(job, step.pop("do"))(**step)
        print(json.dumps(result), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
