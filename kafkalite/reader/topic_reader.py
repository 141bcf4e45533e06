"""Topics as Arrow record batches for pandas, Polars, DuckDB and pyarrow: Spark's data source without Spark.

The arguments are the options of the data source in Python's spelling; they go through the same checks, plan and reader.
The range of offsets is fixed at the call. Batches are made as they are asked for, partition by partition and in the
order of offsets, so a topic of any size takes the memory of a few batches.
Source: kafkalite.reader.options.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from kafkalite.common.errors import ConfigError
from kafkalite.common.timestamps import timestamp_of
from kafkalite.reader.chunk_reader import COLUMNS, read_as_asked
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import plan
from kafkalite.reader.planning.read_options import Comparison, is_exact, narrow
from kafkalite.reader.planning.split import BATCH_BYTES

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
TopicNames = str | Sequence[str] | re.Pattern[str]
Bound = str | Mapping[int, int] | Mapping[str, Mapping[int, int]]
"""A word ("earliest", "latest"), JSON as Spark's option has it, or offsets by partition or by topic and partition."""
Moment = int | datetime
"""Milliseconds since 1970, or a datetime that knows its time zone."""

Filter = tuple[str, str, Any]
"""Column, operator and value. A timestamp's value is a Moment."""

# the arguments of `read` and the options of the data source that they stand for, as messages name them
_ARGUMENTS = {
    "subscribe": "topic",
    "subscribePattern": "topic",
    "assign": "partitions",
    "startingOffsets": "starting_offsets",
    "endingOffsets": "ending_offsets",
    "startingTimestamp": "starting_timestamp",
    "endingTimestamp": "ending_timestamp",
    "startingOffsetsByTimestamp": "starting_offsets_by_timestamp",
    "endingOffsetsByTimestamp": "ending_offsets_by_timestamp",
    "startingOffsetsByTimestampStrategy": "starting_offsets_by_timestamp_strategy",
    "includeHeaders": "include_headers",
    "failOnDataLoss": "fail_on_data_loss",
    "kafka.isolation.level": "isolation_level",
    "batchBytes": "batch_bytes",
}
_NAMES = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(_ARGUMENTS, key=len, reverse=True)))


class TopicReader:
    """A planned read: its schema, the size of the segments' parts that it reads, and its batches, once."""

    def __init__(
        self, options: Mapping[str, str], columns: Sequence[str] | None, filters: Iterable[Filter] = ()
    ) -> None:
        """From the data source's options. Raises ConfigError, StorageError, Malformed."""
        try:
            self._options = narrow(parse_options(options), [_comparison(*one) for one in filters])
            self._splits = plan(self._options)
        except ConfigError as error:
            raise ConfigError(_NAMES.sub(lambda found: _ARGUMENTS[found[0]], str(error))) from None
        self.schema = _schema(columns, headers=self._options.include_headers)
        self.size_bytes = sum(chunk.size_bytes for split in self._splits for chunk in split)

    def stream(self) -> pa.RecordBatchReader:
        """`batches` for libraries that take Arrow."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def batches(self, advance: Callable[[int], None] = lambda size_bytes: None) -> Iterator[pa.RecordBatch]:
        """The records; `advance` gets the bytes of segments that are done. Losses that are no error are logged.
        Raises StorageError, Malformed."""
        for split in self._splits:
            yield from read_as_asked(split, self.schema, self._options)
            advance(sum(chunk.size_bytes for chunk in split))


def read(
    path: Paths,
    topic: TopicNames,
    *,
    partitions: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    starting_offsets: Bound = "earliest",
    ending_offsets: Bound = "latest",
    starting_timestamp: Moment | None = None,
    ending_timestamp: Moment | None = None,
    starting_offsets_by_timestamp: Bound | None = None,
    ending_offsets_by_timestamp: Bound | None = None,
    starting_offsets_by_timestamp_strategy: str = "error",
    isolation_level: str = "read_uncommitted",
    include_headers: bool = False,
    fail_on_data_loss: bool = True,
    mode: str = "FAILFAST",
    batch_bytes: int = BATCH_BYTES,
    filters: Iterable[Filter] = (),
) -> pa.RecordBatchReader:
    """The records of a topic as a stream of Arrow record batches.

        kafkalite.read("kafkalite-data", "orders").read_all()                       # a pyarrow.Table
        kafkalite.read("kafkalite-data", "orders", columns=["value"]).read_pandas()
        polars.from_arrow(kafkalite.read("kafkalite-data", "orders"))
        orders = kafkalite.read("kafkalite-data", "orders"); duckdb.sql("select count(*) from orders")

    `path` is a data directory or several; no broker need run there, and one that does may write meanwhile. `topic` is a
    name, several names, or a compiled regular expression; with one name, `partitions` chooses among its partitions.
    `columns` are those of Spark's Kafka source, all by default: key, value, topic, partition, offset, timestamp,
    timestampType, and headers with `include_headers`; a column that is left out is not made. Offsets are "earliest",
    "latest", "latest-100", {partition: offset} or {topic: {partition: offset}}, the end exclusive. Timestamps are
    milliseconds or a datetime with its time zone, and one before 1970 is before all records; they go before offsets by
    timestamp, and these before offsets.
    `filters` are (column, operator, value), as in ("timestamp", ">=", 1767225600000), and must all hold: topic,
    partition, offset or timestamp, compared by = < <= > >= (topic by = only), topic and partition also by "in". Records
    that they rule out are not read, where the indexes are exact enough. docs/spark.md has the guarantee of each option.
    A batch has at most `batch_bytes`; reading takes up to three times as much memory.

    A reader can be read once. Raises ConfigError, which names the argument, for an argument that does not fit; while
    reading, StorageError for files that are gone or changed and Malformed for a corrupt batch; both name the file.
    """
    options = as_options(
        path,
        topic,
        partitions=partitions,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
        starting_offsets_by_timestamp=starting_offsets_by_timestamp,
        ending_offsets_by_timestamp=ending_offsets_by_timestamp,
        starting_offsets_by_timestamp_strategy=starting_offsets_by_timestamp_strategy,
        isolation_level=isolation_level,
        include_headers=include_headers or (columns is not None and "headers" in columns),
        fail_on_data_loss=fail_on_data_loss,
        mode=mode,
    )
    return TopicReader({**options, "batchBytes": str(batch_bytes)}, columns, filters).stream()


def as_options(
    path: Paths,
    topic: TopicNames,
    *,
    partitions: Sequence[int] | None = None,
    starting_offsets: Bound = "earliest",
    ending_offsets: Bound = "latest",
    starting_timestamp: Moment | None = None,
    ending_timestamp: Moment | None = None,
    starting_offsets_by_timestamp: Bound | None = None,
    ending_offsets_by_timestamp: Bound | None = None,
    starting_offsets_by_timestamp_strategy: str = "error",
    isolation_level: str = "read_uncommitted",
    include_headers: bool = False,
    fail_on_data_loss: bool = True,
    mode: str = "FAILFAST",
) -> dict[str, str]:
    """The data source's options for these arguments of `read`. Raises ConfigError."""
    options = _subscription(topic, partitions)
    paths = [path] if isinstance(path, str | os.PathLike) else path
    options["path"] = ",".join(os.fspath(one) for one in paths)
    single = topic if isinstance(topic, str) else None
    if starting_timestamp is not None and int(_millis("starting_timestamp", starting_timestamp)) < 0:
        # before 1970 is before all records, those without a timestamp, too
        starting_timestamp, starting_offsets, starting_offsets_by_timestamp = None, "earliest", None
    if starting_timestamp is not None:
        options["startingTimestamp"] = _millis("starting_timestamp", starting_timestamp)
    if starting_timestamp is None or starting_offsets != "earliest":
        options["startingOffsets"] = _offsets("starting_offsets", starting_offsets, single)
    for side, by_timestamp in (("starting", starting_offsets_by_timestamp), ("ending", ending_offsets_by_timestamp)):
        if by_timestamp is not None:
            name = f"{side}_offsets_by_timestamp"
            options[f"{side}OffsetsByTimestamp"] = _offsets(name, by_timestamp, single)
    options["startingOffsetsByTimestampStrategy"] = starting_offsets_by_timestamp_strategy
    if ending_timestamp is not None:
        options["endingTimestamp"] = str(max(0, int(_millis("ending_timestamp", ending_timestamp))))
    if ending_timestamp is None or ending_offsets != "latest":
        options["endingOffsets"] = _offsets("ending_offsets", ending_offsets, single)
    options["kafka.isolation.level"] = isolation_level
    options["includeHeaders"] = str(include_headers).lower()
    options["failOnDataLoss"] = str(fail_on_data_loss).lower()
    options["mode"] = mode
    return options


def _subscription(topic: TopicNames, partitions: Sequence[int] | None) -> dict[str, str]:
    if partitions is not None:
        if not isinstance(topic, str):
            raise ConfigError("partitions goes with one topic; leave it out, or name one topic")
        return {"assign": json.dumps({topic: list(partitions)})}
    if isinstance(topic, re.Pattern):
        return {"subscribePattern": topic.pattern}
    return {"subscribe": topic if isinstance(topic, str) else ",".join(topic)}


def _offsets(name: str, offsets: Bound, topic: str | None) -> str:
    if isinstance(offsets, str):
        return offsets
    if all(isinstance(partition, int) for partition in offsets):
        if topic is None:
            raise ConfigError(f"{name} by partition goes with one topic; write {{topic: {{partition: offset}}}}")
        return json.dumps({topic: offsets})
    return json.dumps(offsets)


def _millis(name: str, moment: Moment) -> str:
    if isinstance(moment, int):
        return str(moment)
    if moment.tzinfo is None:
        raise ConfigError(f"{name} has no time zone; give it one: {moment!r}.replace(tzinfo=datetime.UTC)")
    return str(timestamp_of(moment))


def _comparison(column: str, operator: str, value: Any) -> Comparison:
    """A comparison for `narrow`, which ignores others than it can use: here these are errors."""
    if column == "timestamp" and isinstance(value, int | datetime):
        value = int(_millis("filters", value)) * 1000
    elif operator == "in" and isinstance(value, list | set | frozenset):
        value = tuple(value)
    comparison = Comparison(column, operator, value)
    kind = str if column == "topic" else int
    values = value if operator == "in" and isinstance(value, tuple) else (value,)
    if not is_exact(comparison) or not all(isinstance(one, kind) for one in values):
        raise ConfigError(
            f"filters has {(column, operator, value)!r}; write (column, operator, value) with topic (= in), "
            "partition (= < <= > >= in), offset or timestamp (= < <= > >=)"
        )
    return comparison


def _schema(columns: Sequence[str] | None, *, headers: bool) -> pa.Schema:
    known = [name for name in COLUMNS if name != "headers" or headers]
    for name in columns or ():
        if name not in COLUMNS:
            raise ConfigError(f"columns names {name!r}, which is unknown; choose among {', '.join(COLUMNS)}")
    chosen = known if columns is None else list(dict.fromkeys(columns))
    if not chosen:
        raise ConfigError(f"columns names no column; choose among {', '.join(COLUMNS)}")
    return pa.schema([pa.field(name, COLUMNS[name].arrow) for name in chosen])
