"""Opens the log of a partition, or creates that of a new one.

Source: kafka.log.LogManager.getOrCreateLog.
"""

from __future__ import annotations

import logging
import os
import uuid

from kafkalite.common.errors import StorageError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.partition.log_context import LogContext
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.recovery.log_loader import LoadOptions
from kafkalite.log.segment.segment import NEVER
from kafkalite.log.storage.files import storage_error

logger = logging.getLogger(__name__)


def open_log(
    topic: str, partition: int, directory: str, config: TopicConfig, options: LoadOptions, context: LogContext
) -> PartitionLog:
    """The log in an existing directory. Raises StorageError."""
    loaded = context.load((topic, partition), directory, config, options)
    return PartitionLog(topic, partition, directory, config, loaded, context)


def create_log(
    topic: str, partition: int, directory: str, topic_id: uuid.UUID, config: TopicConfig, context: LogContext
) -> PartitionLog:
    """A new log in a new directory. Raises StorageError; then the directory does not exist."""
    try:
        context.files.mkdir(directory)
    except OSError as error:
        raise storage_error(f"cannot create {topic}-{partition}", os.path.dirname(directory), error) from error
    log = None
    try:
        log = open_log(topic, partition, directory, config, LoadOptions(clean=True), context)
        log.metadata.set_topic_id(topic_id)
    except BaseException:
        if log is not None:
            log.abandon()
        try:
            context.files.remove_directory(directory)
        except OSError as error:
            logger.warning("cannot remove %s, which was not finished: %s", directory, error)
        raise
    _mark_dirty(log, directory)
    return log


def adopt_log(
    topic: str, partition: int, directory: str, made: str, config: TopicConfig, context: LogContext
) -> PartitionLog:
    """A new log from a directory that was made for it and is whole, but not on the disk. Raises StorageError."""
    try:
        context.files.rename(made, directory)
    except OSError as error:
        raise storage_error(f"cannot create {topic}-{partition}", os.path.dirname(directory), error) from error
    log = open_log(topic, partition, directory, config, LoadOptions(clean=True, is_flushed=False), context)
    _mark_dirty(log, directory)
    log.flusher.mark_dirty(*(f"{directory}/{name}" for name in context.files.listdir(directory)))
    if config.flush_messages != NEVER:
        # its owner may acknowledge the records at once, and the log that they were linked from may be deleted
        try:
            log.flusher.flush()
        except StorageError:
            log.abandon()
            raise
    return log


def _mark_dirty(log: PartitionLog, directory: str) -> None:
    flusher = log.flusher
    flusher.mark_dirty(os.path.dirname(directory), directory)
    # it comes first: a crash must not leave a directory without its topic id
    flusher.dirty_paths = {log.metadata.path: None} | flusher.dirty_paths
