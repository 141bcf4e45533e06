"""A topic, loaded by a Spark cluster, ends in a plot. Each cell (`# %%`) stands for itself in a notebook.

    python -m examples.load_on_a_cluster revenue-by-hour.svg

A broker and its clients fill a topic with a week of orders. A master and two workers, each a process as on machines of
their own, read the segment files side by side. load.py writes them to Parquet; what was written is grouped and drawn.
"""

# %% What is needed
from __future__ import annotations

import math
import os
import random
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import kafkalite
from examples.bar_chart import bar_chart
from examples.spark_cluster import spark_cluster
from spark_jobs.load import load_into
from spark_jobs.load_output import open_output

COUNT = 200_000
HOURS = 7 * 24
MONDAY_MS = 1_767_571_200_000  # 2026-01-05 in UTC


# %% A week of orders: more by day than by night, and more towards its end
def produce_orders(bootstrap_servers: str) -> None:
    chance = random.Random(1)
    weights = [(1.2 - math.cos(2 * math.pi * (hour % 24 - 3) / 24)) * (1 + hour / HOURS) for hour in range(HOURS)]
    hours = sorted(chance.choices(range(HOURS), weights, k=COUNT))
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "compression.type": "zstd"})
    for number, hour in enumerate(hours):
        moment = MONDAY_MS + hour * 3_600_000 + chance.randrange(3_600_000)
        value = f'{{"order": {number}, "cents": {chance.randrange(500, 20_000)}}}'
        while True:
            try:
                producer.produce("orders", value, f"customer-{chance.randrange(5000)}", timestamp=moment)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


# %% The cluster's session: executors run this Python, and find kafkalite where it is found here
def connect(master: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = str(Path(__file__).resolve().parent.parent)
    return (
        SparkSession.builder.master(master)
        .appName("orders")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", root)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )


# %% Everything
def main(picture: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="kafkalite-example-") as place:
        data, lake = f"{place}/data", f"{place}/lake"
        # the week may be long ago, and retention goes by the records' timestamps
        with kafkalite.Broker(data_dir=data, port=0, num_partitions=4, log_retention_ms=-1) as broker:
            produce_orders(broker.bootstrap_servers)
        print(f"{COUNT:,} orders stand in {data}; the broker is stopped")

        with spark_cluster(workers=2) as master:
            spark = connect(master)
            source = spark.read.format("kafkalite").options(path=data, subscribe="orders", minPartitions="4").load()
            tasks = source.select(F.spark_partition_id().alias("task")).groupBy("task").count().collect()
            executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # without the driver
            print(f"{executors} executors read them in {len(tasks)} tasks")

            rest = {"kafka.isolation.level": "read_committed", "includeHeaders": "false", "failOnDataLoss": "true"}
            with open_output(lake) as output:
                load_into(spark, {"path": data, "subscribe": "orders", **rest}, output)
            hour = F.floor((F.unix_millis("timestamp") - MONDAY_MS) / 3_600_000).alias("hour")
            cents = F.get_json_object(F.col("value").cast("string"), "$.cents").cast("long")
            found = spark.read.parquet(lake).groupBy(hour).agg(F.sum(cents).alias("cents")).orderBy("hour").collect()
            spark.stop()

    by_hour = {row["hour"]: row["cents"] / 100 for row in found}
    days = [(24 * day + 12, name) for day, name in enumerate(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))]
    revenue = [by_hour.get(hour, 0.0) for hour in range(HOURS)]
    picture.write_text(bar_chart("Revenue by hour (UTC)", {"revenue": revenue}, days))
    print(f"{sum(by_hour.values()):,.2f} in {len(by_hour)} hours are drawn in {picture}")


# %%
if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "revenue-by-hour.svg"))
