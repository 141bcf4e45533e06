"""Table of the options of a read: names, values, defaults, and the guarantee that each gives.

The first part has the names and meanings of Spark's own Kafka source; `OWN` are kafkalite's; `PASSED` are those of
Spark's source that say how to talk to a broker and mean nothing for files. docs/spark.md shows this table.
Source: org.apache.spark.sql.kafka010.KafkaSourceProvider; the guide "Structured Streaming + Kafka Integration".
"""

from __future__ import annotations

from kafkalite.common.options import FLAG, SIZE, TIME, Option, number, one_of

_JSON_NOTE = (
    'JSON must name every partition that is read and no other, as for Spark; "*" stands for the other partitions of a '
    "topic, or for the other topics"
)

SOURCE = (
    Option(
        "subscribe",
        "topics, separated by commas",
        "",
        "every partition of these topics once; a topic that is not there, or a partition missing among its numbers, is "
        "an error (the gap unless failOnDataLoss is false). An internal topic is read only if named here or in assign",
    ),
    Option(
        "subscribePattern",
        "a regular expression (Python's) that is searched in topic names",
        "",
        "every topic in which it is found, as for Spark; internal topics never",
    ),
    Option(
        "assign",
        '{"orders": [0, 1]}',
        "",
        "these partitions, each once; one that is not there is an error. One of subscribe, subscribePattern and assign "
        "must be given, and only one",
    ),
    Option(
        "startingOffsets",
        'earliest, latest-100, or JSON {"orders": {"0": 23, "1": -2, "*": "latest-100"}}; -2 is earliest',
        "earliest; latest in a stream",
        "no record before, none left out from there on. latest-100 is 100 offsets before the end, or the log start if "
        "there are fewer. latest (-1) is for streams only. " + _JSON_NOTE,
    ),
    Option(
        "endingOffsets",
        'latest, latest-100, or JSON {"orders": {"0": 50, "1": -1}}; -1 is latest',
        "latest",
        "exclusive; not for streams. latest is fixed once, at planning: the end of the last whole batch, or the last "
        "stable offset. " + _JSON_NOTE,
    ),
    Option(
        "startingTimestamp",
        "milliseconds since 1970",
        "",
        "from the first record of each partition that is not earlier, in any order of timestamps, as Kafka's "
        "ListOffsets finds it. Goes before startingOffsetsByTimestamp, which goes before startingOffsets",
    ),
    Option(
        "endingTimestamp",
        "milliseconds since 1970",
        "",
        "up to before the first record that is not earlier; the latest offset if there is none. Goes before "
        "endingOffsetsByTimestamp, which goes before endingOffsets; not for streams",
    ),
    Option(
        "startingOffsetsByTimestamp",
        '{"orders": {"0": 1700000000000, "*": 1600000000000}}',
        "",
        "as startingTimestamp, by partition. " + _JSON_NOTE,
    ),
    Option(
        "endingOffsetsByTimestamp",
        '{"orders": {"0": 1700000000000, "*": 1600000000000}}',
        "",
        "as endingTimestamp, by partition. " + _JSON_NOTE,
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        one_of({"error": False, "latest": True}),
        "error",
        "a starting timestamp that no record has reached is an error, or means the latest offset",
        "later_is_latest",
    ),
    Option(
        "includeHeaders",
        FLAG,
        "false",
        "adds the column headers, null for a record without headers",
        "include_headers",
    ),
    Option(
        "minPartitions",
        number(),
        "1",
        "about so many Spark partitions or more; large partitions are divided by bytes. Without it maxPartitionBytes "
        "decides",
        "min_partitions",
    ),
    Option(
        "maxRecordsPerPartition",
        number(),
        "",
        "no Spark partition covers more offsets than this",
        "max_records_per_partition",
    ),
    Option(
        "failOnDataLoss",
        FLAG,
        "true",
        "offsets that are asked for and gone are an error that names them, also when they go between planning and "
        "reading; false: what is left is read, what is gone is logged",
        "fail_on_data_loss",
    ),
    Option(
        "kafka.isolation.level",
        one_of({"read_uncommitted": False, "read_committed": True}),
        "read_uncommitted",
        "read_committed: no record of an aborted transaction, and none from the first of an open one on",
        "read_committed",
    ),
)

STREAM = (
    Option(
        "maxOffsetsPerTrigger",
        number(),
        "",
        "at most so many offsets in a micro-batch",
        "max_offsets_per_trigger",
    ),
    Option(
        "minOffsetsPerTrigger",
        number(),
        "",
        "a micro-batch waits until there are so many, or until maxTriggerDelay has passed; no more than "
        "maxOffsetsPerTrigger",
        "min_offsets_per_trigger",
    ),
    Option("maxTriggerDelay", TIME, "15m", "see minOffsetsPerTrigger", "max_trigger_delay_ms"),
)
"""For streams; a batch read ignores them with a warning, as Spark does."""

OWN = (
    Option(
        "path",
        "data directories (log.dirs), separated by commas or as a JSON list",
        "",
        "must be given; a relative one is the driver's. Directories of one broker or of several (for those of "
        "[`serve --cores`](scaling.md) that around them will do), of a running or a stopped one, or copies; a "
        "partition that is in more than one of them is read once, from the replica that has most; if these are of "
        "several brokers, up to the offset that surely was below the high watermark",
    ),
    Option(
        "columns",
        "names of columns, separated by commas",
        "all",
        "only these columns, in this order; one that is left out is not decoded",
    ),
    Option(
        "maxPartitionBytes",
        SIZE,
        "64m",
        "Spark partitions of about so many bytes of segments, cut between batches; small partitions and segments "
        "share one, in the order of their offsets",
        "max_partition_bytes",
    ),
    Option(
        "batchBytes",
        SIZE,
        "64m",
        "Arrow batches of at most about so many bytes; a task's memory does not grow with segments",
        "batch_bytes",
    ),
    Option(
        "mode",
        one_of({"failfast": False, "permissive": True}),
        "FAILFAST",
        "a corrupt batch is an error that names file, position and offsets; PERMISSIVE: it is left out and reported",
        "permissive",
    ),
)

OPTIONS = (OWN[0], *SOURCE, *STREAM, *OWN[1:])

PASSED = ("groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
"""Beside these every kafka.* but those in REFUSED passes unread."""

REFUSED = {
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest instead",
    "kafka.key.deserializer": "keys are bytes; deserialize them with DataFrame operations",
    "kafka.value.deserializer": "values are bytes; deserialize them with DataFrame operations",
    "kafka.enable.auto.commit": "no offsets are committed",
    "kafka.interceptor.classes": "records are not changed on the way",
}
"""Names that Spark's source refuses, too, each with the reason."""
