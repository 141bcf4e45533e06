"""DescribeLogDirs (35): the directories of a broker, and how large the logs in them are.

Exact numbers of records, which Apache Kafka does not know, travel in tagged fields of our own. A request asks for them
in one; a broker that does not know it passes over it (KIP-482), and a client that did not ask is answered as by Apache
Kafka, to the byte. Tags count up from 0 in each struct as Kafka adds fields, and a struct has had three at most: ours
is far from there, "kl" in ASCII.
"""

from __future__ import annotations

from kafkalite.protocol.primitives import INT32
from kafkalite.protocol.schema import Message, array, boolean, int8, int16, int32, int64, string, struct

OWN_TAG = 0x6B6C

# what a request asks for
NO_COUNTS = 0
COUNTS = 1
COUNTS_OF_SEGMENTS = 2  # and those of the partitions

# in the place of a number of records
COUNTING = -1  # it will be known: ask again
UNCOUNTABLE = -2  # the log is damaged


class DescribableLogDirTopic(Message):
    topic: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class DescribeLogDirsRequest(Message, flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")
    count_records: int = int8("2+", tag=OWN_TAG)


class SegmentRecordCounts(Message):
    base_offset: int = int64("2+")
    size_bytes: int = int64("2+")
    live_records: int = int64("2+")
    control_records: int = int64("2+")


class PartitionRecordCounts(Message):
    """`leader_epoch` is -1 for a log that nobody leads."""

    leader_epoch: int = int32("2+")
    start_offset: int = int64("2+")
    end_offset: int = int64("2+")
    live_records: int = int64("2+")
    control_records: int = int64("2+")
    segment_count: int = int32("2+")
    segments: list[SegmentRecordCounts] = array(SegmentRecordCounts, "2+")


class DescribeLogDirsPartition(Message):
    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")
    counts: PartitionRecordCounts | None = struct(PartitionRecordCounts, "2+", tag=OWN_TAG)


class DescribeLogDirsTopic(Message):
    name: str = string("0+")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


class DescribeLogDirsResult(Message):
    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)


class DescribeLogDirsResponse(Message, flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")
    counts_records: bool = boolean("2+", tag=OWN_TAG)
