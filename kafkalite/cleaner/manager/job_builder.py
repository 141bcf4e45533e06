"""The job of a cleaning, from the log and its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.cleaner.job.job import CleanJob, LastRecord
from kafkalite.cleaner.job.log_to_clean import LogToClean
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.settings import INT_MAX

if TYPE_CHECKING:
    from kafkalite.log.partition.partition_log import PartitionLog


def make_job(log: PartitionLog, plan: LogToClean, config: BrokerConfig, now_ms: int) -> CleanJob:
    """From now on `log` accepts replacements of the job's segments. Raises StorageError."""
    topic = log.config
    end_offset = plan.first_uncleanable_offset
    return CleanJob(
        topic=log.topic,
        partition=log.partition,
        directory=log.directory,
        segments=log.swap.clean_sources(end_offset),
        first_dirty_offset=plan.first_dirty_offset,
        first_uncleanable_offset=end_offset,
        last_records={key: LastRecord(*last) for key, last in log.producers.last_batches(end_offset).items()},
        now_ms=now_ms,
        delete_retention_ms=topic.delete_retention_ms,
        segment_bytes=topic.segment_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        dedupe_buffer_bytes=min(config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads, INT_MAX),
        io_buffer_bytes=config.log_cleaner_io_buffer_size // config.log_cleaner_threads,
        load_factor=config.log_cleaner_io_buffer_load_factor,
    )
