"""AppendAt (27502): append batches that keep their offsets, for `kafkalite mirror --preserve-offsets`.

Not an API of Apache Kafka, as RunCleaner beside it (see `cleaner`). It is no Produce with a tagged field of our own,
since a broker skips fields that it does not know, and would give the records other offsets; it closes the connection
after an API that it does not know.
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import Message, array, int16, int32, int64, records, string

APPEND_AT_KEY = 0x6B6E
ANY_END = -1


class AppendAtPartition(Message):
    """The batches are appended if the log ends at `end_offset`; the first one begins there or later. ANY_END, without
    batches, asks for the log's offsets only. An empty log whose end lies before `start_offset` begins there
    instead."""

    index: int = int32("0+")
    end_offset: int = int64("0+", default=ANY_END)
    start_offset: int = int64("0+", default=-1)
    records: memoryview | None = records("0+", nullable="0+")


class AppendAtTopic(Message):
    name: str = string("0+")
    partitions: list[AppendAtPartition] = array(AppendAtPartition, "0+")


class AppendAtRequest(Message, flexible="0+"):
    """The answer comes when all in-sync replicas have the batches, or after `timeout_ms`."""

    timeout_ms: int = int32("0+")
    topics: list[AppendAtTopic] = array(AppendAtTopic, "0+")


class AppendAtPartitionResult(Message):
    """The offsets of the leader's log when the batches were appended or refused, -1 if they are not known here. After
    an error that is retriable the batches may be there nevertheless."""

    index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    start_offset: int = int64("0+", default=-1)
    end_offset: int = int64("0+", default=-1)


class AppendAtTopicResult(Message):
    name: str = string("0+")
    partitions: list[AppendAtPartitionResult] = array(AppendAtPartitionResult, "0+")


class AppendAtResponse(Message, flexible="0+"):
    throttle_time_ms: int = int32("0+")
    topics: list[AppendAtTopicResult] = array(AppendAtTopicResult, "0+")
