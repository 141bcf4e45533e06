"""A Spark application that reads the same with Spark's own Kafka source and with kafkalite's, in one session.

It runs under a PySpark of its own. The task is a file with JSON: the jars, the options of each side, and of each case.
Each case prints one JSON line: the number of rows, the columns, and how the two sides differ ("" if they do not).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, form: str, options: dict[str, str]) -> tuple[str, list[Any]]:
    """Columns with their types, and the rows by topic, partition and offset."""
    frame: DataFrame = spark.read.format(form).options(**options).load()
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields)
    return columns, sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def compare(spark: SparkSession, sides: dict[str, dict[str, str]], options: dict[str, str]) -> dict[str, Any]:
    seen = {}
    for form, own in sides.items():
        try:
            seen[form] = read(spark, form, own | options)
        except PySparkException as error:
            seen[form] = f"refused: {str(error)[:600]}", []
    (columns, rows), (ours, our_rows) = seen["kafka"], seen["kafkalite"]
    fault = ""
    if columns != ours and not (columns.startswith("refused") and ours.startswith("refused")):
        fault = f"columns: {columns} for Spark's source, {ours}"
    elif rows != our_rows:
        pairs = zip(rows, our_rows, strict=False)
        at = next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(rows), len(our_rows)))
        fault = (
            f"{len(rows)} rows of Spark's source, {len(our_rows)}; at {at}: {rows[at : at + 1]} {our_rows[at : at + 1]}"
        )
    return {"rows": len(rows), "columns": columns, "fault": fault}


def main(task: dict[str, Any]) -> None:
    builder = SparkSession.builder.master("local[2]").appName("rows of two sources")
    builder = builder.config("spark.jars", task["jars"]).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.local.dir", task["local_dir"])
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for options in task["cases"]:
        print(json.dumps(compare(spark, task["sides"], options)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
