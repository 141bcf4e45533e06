"""A streaming query from the topics of a data directory into Parquet, as an application that can be killed.

python -m tests.system.spark.streaming_query DATA_DIR PLACE TOPICS             runs until it is killed
python -m tests.system.spark.streaming_query DATA_DIR PLACE TOPICS FILE        ends with what is there now, and
                                                                               writes all rows of the sink to FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

RUNNING = "the stream runs"


def main(data_dir: str, place: Path, topics: str, file: str | None = None) -> None:
    import pyarrow.parquet as parquet
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("a stream that is killed")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.local.dir", str(place / "spark")).getOrCreate()
    reader = spark.readStream.format("kafkalite").option("path", data_dir).option("subscribe", topics)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "2000")
    rows = reader.option("kafka.isolation.level", "read_committed").load()
    writer = rows.select("topic", "partition", "offset", "value").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(place / "checkpoint")).option("path", str(place / "out"))
    if file is None:
        query = writer.start()
        print(RUNNING, flush=True)
        query.awaitTermination()
        return
    writer.trigger(availableNow=True).start().awaitTermination()
    parquet.write_table(spark.read.parquet(str(place / "out")).toArrow(), file)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
