"""The sink of the format "kafkalite": tasks load their rows into a topic through the broker, in columns.

Without transactions a task's rows are in the topic when it ends. A task that is tried again writes its rows again: at
least once, as with Spark's own sink; within an attempt nothing is twice.
With `transactional` each task attempt has a transaction of its own. It writes and hands the transaction's identity to
the driver, which commits all of them when all tasks have succeeded: consumers that read committed see all rows or none.
Before the first is committed all are checked, so that one that timed out fails the job while nothing is visible. Only
a driver that dies between the first and the last commit leaves some committed; the others time out and are aborted.
Attempts that failed, lost against a speculative one or were cut off are aborted with the job, or time out.
Source: org.apache.spark.sql.connector.write.{BatchWrite, DataWriter, StreamingWrite}, pyspark.sql.datasource.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.producer.bulk_load import BulkLoad
from kafkalite.client.producer.options import ProducerOptions, WriteOptions
from kafkalite.client.producer.producer import Producer
from kafkalite.client.producer.transactions import Identity, Transactions
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.spark.worker_process import make_reuse_cheap

# before 4.1 Spark hands the rows of a stream over one by one
_StreamBase = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)
_IN_COLUMNS = _StreamBase is not datasource.DataSourceStreamWriter
_ROWS_AT_ONCE = 10_000
_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp", "timestamp_ntz"),
}


@dataclass
class TaskWritten(WriterCommitMessage):
    """The rows that a task wrote, and its transaction if it has one; `job` is the beginning of the job's ids."""

    row_count: int
    job: str
    identity: Identity | None


class JobWriter:
    """A write of one DataFrame or of a stream's micro-batches: made on the driver, pickled to the tasks."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("a topic cannot be overwritten; write with mode('append')")
        _check_columns(options, schema)
        make_reuse_cheap()
        self.options = options
        self.schema = schema
        self.job = f"{options.transactional_id_prefix}-{uuid.uuid4()}-"

    def write_batches(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: load all rows, and leave the transaction open for the driver."""
        make_reuse_cheap()
        options = self.options.producer
        cluster, retries, transactions = _connect(options)
        with contextlib.closing(cluster):
            identity = None
            if self.options.transactional:
                identity = transactions.begin(self.job + _attempt(), options.transaction_timeout_ms)
            load = BulkLoad(self.options, Producer(options, cluster, retries, identity))
            try:
                for batch in batches:
                    load.write(batch)
                load.finish()
            except BaseException:
                if identity is not None:
                    with contextlib.suppress(WriteFailed):
                        transactions.end(identity, commit=False)
                raise
            return TaskWritten(load.row_count, self.job, identity if load.row_count else None)

    def commit_all(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: commit what the tasks wrote. Raises WriteFailed."""
        identities = _identities(messages)
        if not self.options.transactional:
            return
        cluster, _, transactions = _connect(self.options.producer)
        with contextlib.closing(cluster):
            for identity in identities:
                if not transactions.is_ongoing(identity):
                    raise WriteFailed(
                        f"transaction {identity.transactional_id} was aborted before the job was done, probably after "
                        f"kafka.transaction.timeout.ms ({self.options.producer.transaction_timeout_ms}); nothing is "
                        "committed. Raise it (and the broker's transaction.max.timeout.ms), or write smaller jobs"
                    )
            for identity in identities:
                transactions.end(identity, commit=True)
            self._abort_rest(transactions, messages, identities)

    def abort_all(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: abort what the tasks wrote, those that cannot be reached now by their timeout."""
        if self.options.transactional:
            cluster, _, transactions = _connect(self.options.producer)
            with contextlib.closing(cluster):
                with contextlib.suppress(WriteFailed):
                    for identity in _identities(messages):
                        transactions.end(identity, commit=False)
                self._abort_rest(transactions, messages, [])

    def _abort_rest(
        self, transactions: Transactions, messages: Sequence[WriterCommitMessage | None], ended: Sequence[Identity]
    ) -> None:
        """Abort the open transactions of attempts that did not report to the driver. Their timeout would do it, but
        until then consumers that read committed wait for them. A stream's tasks have another writer, named in messages.
        """
        done = {identity.transactional_id for identity in ended}
        for job in {self.job, *(each.job for each in messages if isinstance(each, TaskWritten))}:
            with contextlib.suppress(Unanswered, WriteFailed):
                for name in set(transactions.ongoing_with_prefix(job)) - done:
                    transactions.begin(name, self.options.producer.transaction_timeout_ms)


class KafkaliteWriter(DataSourceArrowWriter):
    """`df.write.format("kafkalite")`."""

    def __init__(self, writer: JobWriter) -> None:
        self.writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.writer.write_batches(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.writer.commit_all(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.writer.abort_all(messages)


class KafkaliteStreamWriter(_StreamBase):  # type: ignore[misc, valid-type]
    """`df.writeStream.format("kafkalite")`. Spark makes another one on the driver to commit, so messages carry all."""

    def __init__(self, writer: JobWriter) -> None:
        self.writer = writer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.writer.write_batches(iterator if _IN_COLUMNS else _to_batches(iterator, self.writer.schema))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.writer.commit_all(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.writer.abort_all(messages)


def _to_batches(rows: Iterator[Any], row_type: StructType) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(row_type)
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = zip(*some, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_columns(options: WriteOptions, schema: StructType) -> None:
    """ConfigError for columns that are missing or of another type."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, allowed in _TYPES.items():
        if name in kinds and kinds[name] not in allowed and (name != "timestamp" or options.include_timestamp):
            raise ConfigError(f"the column {name!r} is {kinds[name]}; it must be {' or '.join(allowed)}")
    if "value" not in kinds:
        raise ConfigError(f"there is no column 'value'; the columns are {', '.join(kinds) or 'none'}")
    if options.topic is None and "topic" not in kinds:
        raise ConfigError("there is neither an option 'topic' nor a column 'topic'")
    if options.include_timestamp and "timestamp" not in kinds:
        raise ConfigError("includeTimestamp is true, but there is no column 'timestamp'")


def _connect(options: ProducerOptions) -> tuple[ClusterClient, Retries, Transactions]:
    cluster = options.connect()
    retries = Retries(options.max_block_ms / 1000, options.retry_backoff_ms / 1000)
    return cluster, retries, Transactions(cluster, retries)


def _attempt() -> str:
    """The task attempt as Spark numbers it, different for every attempt of a job."""
    context = TaskContext.get()
    assert context is not None, "tasks write"
    return f"{context.partitionId()}-{context.taskAttemptId()}"


def _identities(messages: Sequence[WriterCommitMessage | None]) -> list[Identity]:
    return [each.identity for each in messages if isinstance(each, TaskWritten) and each.identity is not None]
