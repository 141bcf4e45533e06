"""The main job in one go: start a broker, produce and consume with a stock client, load the topic into Spark.

Run by `./dev demo`. Everything lives in a temporary directory that is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer

import kafkalite

TOPIC = "orders"
COUNT = 100_000


def produce(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    for i in range(COUNT):
        while True:
            try:
                producer.produce(TOPIC, key=f"customer-{i % 1000}", value=f'{{"order": {i}}}', on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(60)
    if failed:
        raise SystemExit(f"{len(failed)} records were not delivered: {failed[0]}")


def consume(bootstrap_servers: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "demo", "auto.offset.reset": "earliest"},
    )
    consumer.subscribe([TOPIC])
    seen = 0
    deadline = time.monotonic() + 60
    while seen < COUNT and time.monotonic() < deadline:
        seen += sum(1 for message in consumer.consume(10_000, timeout=1.0) if message.error() is None)
    consumer.close()
    return seen


def load_into_spark(data_dir: Path) -> None:
    from pyspark.sql import SparkSession

    print("Spark starts", flush=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers take the PATH's python3
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kafkalite demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    rows = spark.read.format("kafkalite").option("path", str(data_dir)).option("subscribe", TOPIC).load()
    columns = ("cast(key as string) key", "cast(value as string) value", "partition", "offset", "timestamp")
    # Sorted: a `show` that has enough after some rows breaks the pipe of its worker, which complains with a traceback.
    rows.selectExpr(*columns).orderBy("timestamp", "partition", "offset").show(5, truncate=False)
    count, keys = rows.selectExpr("count(*)", "count(distinct key)").first() or (0, 0)
    print(f"Spark sees {count} rows with {keys} keys")
    spark.stop()
    if count != COUNT:
        raise SystemExit(f"Spark should have seen {COUNT} rows")


def main() -> None:
    data_dir = Path(tempfile.mkdtemp(prefix="kafkalite-demo-"))
    try:
        broker = kafkalite.Broker(data_dir=data_dir, port=0, num_partitions=3, group_initial_rebalance_delay_ms=0)
        with broker:
            print(f"a broker is ready on {broker.bootstrap_servers}, its data in {data_dir}")
            start = time.perf_counter()
            produce(broker.bootstrap_servers)
            print(f"librdkafka produced {COUNT} records in {time.perf_counter() - start:.2f} s")
            start = time.perf_counter()
            seen = consume(broker.bootstrap_servers)
            print(f"a consumer group read {seen} of them back in {time.perf_counter() - start:.2f} s")
            if seen != COUNT:
                raise SystemExit("some records did not come back")
            if shutil.which("java") is None:
                print("Spark needs Java 17 or newer, which is not on the PATH: its part is left out")
            else:
                load_into_spark(data_dir)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)
    print("done: records went in, came out, and stood in a DataFrame")


if __name__ == "__main__":
    main()
