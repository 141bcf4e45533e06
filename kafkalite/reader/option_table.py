"""Table of the options of a read: names, values, defaults, and the guarantee that each gives.

The first part has the names and meanings of Spark's own Kafka source; `OWN` are kafkalite's; `PASSED` are those of
Spark's source that say how to talk to a broker and mean nothing for files. docs/spark.md shows this table.
Source: org.apache.spark.sql.kafka010.KafkaSourceProvider; the guide "Structured Streaming + Kafka Integration".
"""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """One option: its values as a user writes them, its default ("" if it must be given or has none)."""

    name: str
    values: str
    default: str
    guarantee: str


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
        "from the first record of each partition that is not earlier, whatever the order of timestamps, as Kafka's "
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
        "error, latest",
        "error",
        "a starting timestamp that no record has reached is an error, or means the latest offset",
    ),
    Option("includeHeaders", "true, false", "false", "adds the column headers, null for a record without headers"),
    Option(
        "minPartitions",
        "a number from 1 on",
        "",
        "about so many Spark partitions or more; large partitions are divided by bytes. Without it maxPartitionBytes "
        "decides",
    ),
    Option(
        "maxRecordsPerPartition",
        "a number from 1 on",
        "",
        "no Spark partition covers more offsets than this",
    ),
    Option(
        "failOnDataLoss",
        "true, false",
        "true",
        "offsets that are asked for and gone are an error that names them, also when they go between planning and "
        "reading; false: what is left is read, what is gone is logged",
    ),
    Option(
        "kafka.isolation.level",
        "read_uncommitted, read_committed",
        "read_uncommitted",
        "read_committed: no record of an aborted transaction, and none from the first of an open one on",
    ),
)

STREAM = (
    Option("maxOffsetsPerTrigger", "a number from 1 on", "", "at most so many offsets in a micro-batch"),
    Option(
        "minOffsetsPerTrigger",
        "a number from 1 on, at most maxOffsetsPerTrigger",
        "",
        "a micro-batch waits until there are so many, or until maxTriggerDelay has passed",
    ),
    Option("maxTriggerDelay", "a time such as 30s, 15m, 1h", "15m", "see minOffsetsPerTrigger"),
)
"""For streams; a batch read ignores them with a warning, as Spark does."""

OWN = (
    Option(
        "path",
        "data directories (log.dirs), separated by commas or as a JSON list",
        "",
        "must be given; a relative one is the driver's. Directories of one broker or of several, of a running or a "
        "stopped one, or copies; a partition that is in more than one of them is read once, from the replica that has "
        "most; if these are of several brokers, up to the offset that surely was below the high watermark",
    ),
    Option(
        "columns",
        "names of columns, separated by commas",
        "all",
        "only these columns, in this order; one that is left out is not decoded",
    ),
    Option(
        "maxPartitionBytes",
        "bytes, such as 64m",
        "64m",
        "Spark partitions of about so many bytes of segments, cut between batches; small partitions and segments "
        "share one, in the order of their offsets",
    ),
    Option(
        "batchBytes",
        "bytes, such as 64m",
        "64m",
        "Arrow batches of at most about so many bytes; a task's memory does not grow with segments",
    ),
    Option(
        "mode",
        "FAILFAST, PERMISSIVE",
        "FAILFAST",
        "a corrupt batch is an error that names file, position and offsets; PERMISSIVE: it is left out and reported",
    ),
)

OPTIONS = SOURCE + STREAM + OWN

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


def as_table() -> str:
    """The options as a table in Markdown."""
    lines = ["| option | values | default | guarantee |", "|---|---|---|---|"]
    for option in (OWN[0], *SOURCE, *STREAM, *OWN[1:]):
        cells = (option.values, option.default or "-", option.guarantee)
        lines.append(" | ".join(("| `" + option.name + "`", *(cell.replace("*", r"\*") for cell in cells))) + " |")
    return "\n".join(lines)
