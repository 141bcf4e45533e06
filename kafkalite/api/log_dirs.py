"""DescribeLogDirs: how large each log is, and how full the volume below them.

The logs know their sizes, so that no directory is walked; the volume is asked once for each request. A broker has one
data directory, and no log ever moves to another, so nothing in it is a future one.
Source: kafka.server.ReplicaManager.describeLogDirs, KafkaApis.handleDescribeLogDirsRequest; KIP-113, KIP-827.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkalite.api.context import Call, Services
from kafkalite.errors import ErrorCode
from kafkalite.protocol.messages.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from kafkalite.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

NO_REPLICA = -1


def describe_log_dirs(services: Services, request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    """Null topics mean all of them; what is not here is left out."""
    result = DescribeLogDirsResult(log_dir=services.logs.data_dir)
    try:
        volume = os.statvfs(services.logs.data_dir)
    except OSError as error:
        logger.error("cannot tell how full %s is: %s", services.logs.data_dir, error)
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return DescribeLogDirsResponse(results=[result])
    result.total_bytes = volume.f_blocks * volume.f_frsize
    result.usable_bytes = volume.f_bavail * volume.f_frsize
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in services.logs.logs.values() if request.topics is None else _asked_for(services, request.topics):
        topic = topics.setdefault(log.topic, DescribeLogDirsTopic(name=log.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=log.partition, partition_size=log.size_bytes, offset_lag=_offset_lag(services, log)
            )
        )
    result.topics = list(topics.values())
    return DescribeLogDirsResponse(results=[result])


def _asked_for(services: Services, topics: Iterable[DescribableLogDirTopic]) -> list[PartitionLog]:
    """The logs that there are, each once."""
    logs = services.logs.logs
    keys = dict.fromkeys((topic.topic, index) for topic in topics for index in topic.partitions)
    return [logs[key] for key in keys if key in logs]


def _offset_lag(services: Services, log: PartitionLog) -> int:
    """How many records are committed but not in this log yet; the leader's never lacks any."""
    partition = services.topics.partition(log.topic, log.partition)
    return NO_REPLICA if partition is None else max(partition.high_watermark - log.end_offset, 0)
