"""AlterReplicaLogDirs: the directory that a log is to be in. DescribeLogDirs: the size of each log, and the total and
usable bytes of the volume of each log directory.

The logs know their sizes, so no directory is walked; statvfs is called once per request and directory. A log that is
being moved to another directory is in both, its copy marked as a future replica. A directory whose disk has failed gets
KAFKA_STORAGE_ERROR. On request the answer has the exact record counts (`kafkalite topic describe`) and the state of
compaction (`kafkalite cleaner status`).
Source: kafka.server.ReplicaManager (alterReplicaLogDirs, describeLogDirs), KafkaApis.handleDescribeLogDirsRequest;
KIP-113, KIP-827.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkalite.api.handlers.cleaner import log_cleaning
from kafkalite.api.request.request_context import RequestContext, check_partition_count
from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.storage.file_names import has_future_directory
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.protocol.messages import log_dirs as wire
from kafkalite.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.log.directories.log_directory import LogDirectory
    from kafkalite.log.partition.partition_log import PartitionLog
    from kafkalite.replication.partition import Partition

logger = logging.getLogger(__name__)

NO_REPLICA = -1


class LogDirApi(NamedTuple):
    """The APIs of log directories. `cleaner` is the log cleaner, which is created at its first use."""

    config: Callable[[], BrokerConfig]
    metadata: ClusterMetadata
    logs: LogManager
    replica_manager: ReplicaManager
    cleaner: Callable[[], LogCleaner]

    def alter_replica_log_dirs(
        self, request: wire.AlterReplicaLogDirsRequest, context: RequestContext
    ) -> wire.AlterReplicaLogDirsResponse:
        """A partition that is named twice belongs into the directory that is named last, as in Kafka."""
        check_partition_count(topic.partitions for each in request.dirs for topic in each.topics)
        wanted = {
            (topic.name, index): each.path
            for each in request.dirs
            for topic in each.topics
            for index in topic.partitions
        }
        topics: dict[str, wire.AlterReplicaLogDirTopicResult] = {}
        for key, path in wanted.items():
            result = wire.AlterReplicaLogDirPartitionResult(
                partition_index=key[1], error_code=self._alter_log_dir(key, path)
            )
            topics.setdefault(key[0], wire.AlterReplicaLogDirTopicResult(topic_name=key[0])).partitions.append(result)
        return wire.AlterReplicaLogDirsResponse(results=list(topics.values()))

    def _alter_log_dir(self, key: TopicPartition, path: str) -> ErrorCode:
        """Kafka's checks in Kafka's order. The move continues after the answer. A replica that is still to come is
        created in the directory."""
        logs, replicas = self.logs, self.replica_manager
        if not has_future_directory(*key):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        directory = next((each for each in logs.directories if each.path == path), None)
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        partition = replicas.partition(*key)
        if not directory.is_online or (partition is not None and partition.is_offline):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if logs.get(*key) is None:
            logs.want_in(key, directory)
            return ErrorCode.REPLICA_NOT_AVAILABLE if replicas.exists(*key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        logs.moves.begin(key, directory)
        return ErrorCode.NONE

    def describe_log_dirs(
        self, request: wire.DescribeLogDirsRequest, context: RequestContext
    ) -> wire.DescribeLogDirsResponse:
        """Null topics mean all topics. Partitions without a log on this broker are left out."""
        keys = None
        if request.topics is not None:
            keys = dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions)
        asked = request.count_records
        response = wire.DescribeLogDirsResponse(
            results=[self._describe(each, keys, asked) for each in self.logs.directories],
            counts_records=asked != wire.NO_COUNTS,
        )
        if request.describe_cleaning:
            response.cleaning = wire.CLEANING_REPORTED if self.config().log_cleaner_enable else wire.CLEANER_IS_OFF
            _add_cleaning(self.cleaner(), response.results, keys)
        return response

    def _describe(
        self, directory: LogDirectory, keys: Iterable[TopicPartition] | None, count_records: int
    ) -> wire.DescribeLogDirsResult:
        """One directory with all its logs, or only the logs in `keys`; an error if its disk has failed."""
        result = wire.DescribeLogDirsResult(log_dir=directory.path)
        try:
            if directory.failure is not None:
                raise OSError(directory.failure)
            volume = os.statvfs(directory.path)
        except OSError as error:
            logger.warning("cannot describe %s: %s", directory.path, error)
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return result
        result.total_bytes = volume.f_blocks * volume.f_frsize
        result.usable_bytes = volume.f_bavail * volume.f_frsize
        topics: dict[str, wire.DescribeLogDirsTopic] = {}
        logs = directory.logs
        for log in logs.values() if keys is None else [logs[key] for key in keys if key in logs]:
            topic = topics.setdefault(log.topic, wire.DescribeLogDirsTopic(name=log.topic))
            topic.partitions.append(
                wire.DescribeLogDirsPartition(
                    partition_index=log.partition,
                    partition_size=log.size_bytes,
                    offset_lag=self._offset_lag(log),
                    counts=None if count_records == wire.NO_COUNTS else self._counts(log, count_records),
                )
            )
        self._add_copies(directory, topics, keys)
        result.topics = list(topics.values())
        return result

    def _add_copies(
        self,
        directory: LogDirectory,
        topics: dict[str, wire.DescribeLogDirsTopic],
        keys: Iterable[TopicPartition] | None,
    ) -> None:
        """Adds the logs on their way into this directory."""
        for (name, index), copy in self.logs.moves.copies().items():
            if copy.directory is directory and (keys is None or (name, index) in keys):
                topics.setdefault(name, wire.DescribeLogDirsTopic(name=name)).partitions.append(
                    wire.DescribeLogDirsPartition(
                        partition_index=index,
                        partition_size=copy.size_bytes,
                        offset_lag=copy.offset_lag,
                        is_future_key=True,
                    )
                )

    def _counts(self, log: PartitionLog, asked: int) -> wire.PartitionRecordCounts:
        """The known record counts; starts counting the unknown ones."""
        partition = self._replica(log)
        counts = log.record_counts.current()
        missing = wire.COUNTING if counts.is_counting else wire.UNCOUNTABLE
        segments = counts.segments if asked == wire.COUNTS_OF_SEGMENTS else ()
        topic = self.metadata.topics.get(log.topic)
        state = topic.partitions.get(log.partition) if topic is not None else None
        return wire.PartitionRecordCounts(
            leader_epoch=-1 if partition is None else partition.leader_epoch,
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            live_records=_known(counts.live_records, missing),
            control_records=_known(counts.control_records, missing),
            segment_count=len(counts.segments),
            segments=[
                wire.SegmentRecordCounts(
                    base_offset=segment.base_offset,
                    size_bytes=segment.size_bytes,
                    live_records=_known(segment.live_records, missing),
                    control_records=_known(segment.control_records, missing),
                )
                for segment in segments
            ],
            elr=list(state.elr) if state is not None else [],
        )

    def _offset_lag(self, log: PartitionLog) -> int:
        """The number of records that are known to be committed, and are not in this log yet: none, also for a follower,
        whose high watermark is never past its log."""
        partition = self._replica(log)
        return NO_REPLICA if partition is None else max(partition.high_watermark - log.end_offset, 0)

    def _replica(self, log: PartitionLog) -> Partition | None:
        """The partition of a log, led here or followed; None for a log without a role."""
        topic = self.replica_manager.by_name.get(log.topic)
        if topic is None:
            return None
        return topic.partitions.get(log.partition) or topic.followers.get(log.partition)


def _add_cleaning(
    cleaner: LogCleaner, results: Iterable[wire.DescribeLogDirsResult], keys: Iterable[TopicPartition] | None
) -> None:
    """Add the state of compaction to the partitions that are compacted."""
    found = {(one.topic, one.partition): one for one in cleaner.rows(keys)}
    for result in results:
        for topic in result.topics:
            for partition in topic.partitions:
                one = found.get((topic.name, partition.partition_index))
                partition.cleaning = None if one is None else log_cleaning(one)


def _known(count: int | None, missing: int) -> int:
    return missing if count is None else count
