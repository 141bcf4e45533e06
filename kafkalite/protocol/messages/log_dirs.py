"""AlterReplicaLogDirs (34), DescribeLogDirs (35): the directories of a broker, and the sizes of the logs in them.

Exact record counts, which Apache Kafka does not have, and the state of compaction travel in tagged fields of our own. A
request asks for them in tagged fields, too. A broker that does not know these skips them (KIP-482), and a client that
did not ask gets Apache Kafka's response, to the byte. Kafka counts tags up from 0 in each struct and has used three at
most; ours begin far away, at "kl" in ASCII.
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import INT32, Message, array, boolean, int8, int16, int32, int64, string, struct
from kafkalite.protocol.messages.cleaner import CleanerPass

OWN_TAG = 0x6B6C
CLEANING_TAG = OWN_TAG + 1

# values of `count_records` in a request
NO_COUNTS = 0
COUNTS = 1
COUNTS_OF_SEGMENTS = 2  # of segments and partitions

# values of `cleaning` in a response
CLEANING_REPORTED = 1  # for every compacted log
CLEANER_IS_OFF = 2  # as CLEANING_REPORTED, but log.cleaner.enable is false

CLEANING_IDLE = "idle"  # the state of a log that no scan has found due

# instead of a number of records
COUNTING = -1  # not known yet: ask again
UNCOUNTABLE = -2  # the log is damaged


class AlterReplicaLogDirTopic(Message):
    name: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class AlterReplicaLogDir(Message):
    """The replicas that are to be in the directory `path`."""

    path: str = string("0+")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, "0+")


class AlterReplicaLogDirsRequest(Message, flexible="2+"):
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, "0+")


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str = string("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult, "0+")


class AlterReplicaLogDirsResponse(Message, flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, "0+")


class DescribableLogDirTopic(Message):
    topic: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


class DescribeLogDirsRequest(Message, flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")
    count_records: int = int8("2+", tag=OWN_TAG)
    describe_cleaning: bool = boolean("2+", tag=CLEANING_TAG)


class SegmentRecordCounts(Message):
    base_offset: int = int64("2+")
    size_bytes: int = int64("2+")
    live_records: int = int64("2+")
    control_records: int = int64("2+")


class PartitionRecordCounts(Message):
    """`leader_epoch` is -1 for a log that this broker does not lead. `elr` are replicas besides the ISR that may be
    elected, which Metadata has no place for."""

    leader_epoch: int = int32("2+")
    start_offset: int = int64("2+")
    end_offset: int = int64("2+")
    live_records: int = int64("2+")
    control_records: int = int64("2+")
    segment_count: int = int32("2+")
    segments: list[SegmentRecordCounts] = array(SegmentRecordCounts, "2+")
    elr: list[int] = array(INT32, "2+", tag=0)


class LogCleaning(Message):
    """The cleaning state of a compacted log, as in `PartitionCleaning`; ppm is parts per million. Before the first run
    `last_run_ms` is -1 and `last` is None."""

    state: str = string("2+")
    dirty_ratio_ppm: int = int64("2+")
    clean_bytes: int = int64("2+")
    dirty_bytes: int = int64("2+")
    uncleanable_bytes: int = int64("2+")
    first_dirty_offset: int = int64("2+")
    first_uncleanable_offset: int = int64("2+")
    why_not: str | None = string("2+", nullable="2+")
    last_run_ms: int = int64("2+")
    runs: int = int64("2+")
    error: str | None = string("2+", nullable="2+")
    last: CleanerPass | None = struct(CleanerPass, "2+", tag=0)


class DescribeLogDirsPartition(Message):
    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")
    counts: PartitionRecordCounts | None = struct(PartitionRecordCounts, "2+", tag=OWN_TAG)
    cleaning: LogCleaning | None = struct(LogCleaning, "2+", tag=CLEANING_TAG)


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
    cleaning: int = int8("2+", tag=CLEANING_TAG)
